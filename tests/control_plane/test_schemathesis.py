"""Schemathesis over all of REST with two tenants: no 5xx, answers as the schema says, what the
schema forbids is refused, nothing is served to a stranger, and nothing of the other tenant moves.

A case's ids are those of things that are there, of the caller or of the other tenant, or what
Schemathesis made up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from control_plane.api.urls import IdConverter
from tests.control_plane.rest import key_of
from tests.control_plane.tenants import Tenant, make_cell, make_tenant
from tests.control_plane.test_isolation import fill, state_of, undone

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

EXAMPLES = {"nightly": 200}.get(os.environ.get("TIDEWHEEL_TEST_LEVEL", ""), 5)
# What the schema allows may still be refused: names are taken, limits reached, values in conflict.
NOT_PROMISED = [positive_data_acceptance]

# No cell is there to be asked.
schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application()).exclude(
    path_regex="/(messages|groups.*|offset-resets)$"
)


@dataclass(frozen=True, slots=True)
class World:
    """Two tenants, a key of the first one's owner, and what is there of both."""

    secret: str
    mine: dict[str, str]
    theirs: dict[str, str]
    other: Tenant


@pytest.fixture
def world(db: None) -> Iterator[World]:
    cache.clear()
    # As Django's own test client does: the connection is the test's, and stays.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    make_cell()
    acme, other = make_tenant("acme"), make_tenant("other")
    mine, theirs = fill(acme), fill(other)
    yield World(key_of(acme, "owner", ("kafka", "rest")), mine, theirs, other)
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def name_things(case: Any, world: World) -> None:
    """Put ids of things that are there for those that were made up; which, the made up ones say."""
    for name, made_up in (case.path_parameters or {}).items():
        if not re.fullmatch(IdConverter.regex, str(made_up)):
            continue
        choice = sum(str(made_up).encode()) % 4
        if name in world.mine and choice:
            case.path_parameters[name] = (world.theirs if choice == 1 else world.mine)[name]


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_rest_does_as_it_says(case: Any, world: World) -> None:
    name_things(case, world)
    before = state_of(world.other)
    with undone():
        case.call_and_validate(
            headers={"Authorization": f"Bearer {world.secret}"}, excluded_checks=NOT_PROMISED
        )
        assert state_of(world.other) == before
