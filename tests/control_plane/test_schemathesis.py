"""Schemathesis over all of REST with two tenants: no 5xx, answers as the schema says, what the
schema forbids is refused, nothing is served to a stranger, and nothing of the other tenant moves.

A case's ids are those of things that are there, of the caller or of the other tenant, or what
Schemathesis made up. What only a cell has is asked of a real one, in which both tenants are.
"""

from __future__ import annotations

import itertools
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

from control_plane.access.logic import do_create_grant
from control_plane.access.models import ServiceAccount
from control_plane.api.urls import IdConverter
from control_plane.cells.connections import cell_operations
from control_plane.cells.models import Cell
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.inter_broker_tls import TlsFiles
from tests.certificates import Authority
from tests.control_plane.cells import CellProcess, settle, trusted
from tests.control_plane.rest import key_of
from tests.control_plane.tenants import Tenant, make_tenant
from tests.control_plane.test_isolation import fill, state_of, undone

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

EXAMPLES = {"nightly": 200}.get(os.environ.get("TIDEWHEEL_TEST_LEVEL", ""), 5)
# What the schema allows may still be refused: names are taken, limits reached, values in conflict.
NOT_PROMISED = [positive_data_acceptance]

NUMBERS = itertools.count(1)

schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())


@dataclass(frozen=True, slots=True)
class World:
    """Two tenants in a cell, a key of the first one's owner, and what is there of both."""

    cell: Cell
    secret: str
    mine: dict[str, str]
    theirs: dict[str, str]
    other: Tenant


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.issue("control-plane", "DNS:control-plane")


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[CellProcess]:
    folder = tmp_path_factory.mktemp("cell")
    with CellProcess(folder, authority, module="features") as started:
        yield started


def manages_all(tenant: Tenant, account_id: str) -> None:
    for resource_type in ("topic", "group"):
        do_create_grant(
            *(tenant.actor, tenant.id, account_id),
            role="manager",
            resource_type=resource_type,
            pattern_type="literal",
            resource_name="*",
        )


@pytest.fixture
def world(db: None, process: CellProcess, files: TlsFiles, settings: Any) -> Iterator[World]:
    cache.clear()
    trusted(settings, files)
    # As Django's own test client does: the connection is the test's, and stays.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    cell = process.row()
    # Rows are rolled back, and the cell stays.
    number = next(NUMBERS)
    acme, other = make_tenant(f"acme-{number}"), make_tenant(f"other-{number}")
    mine, theirs = fill(acme), fill(other)
    secret = key_of(acme, "owner", ("kafka", "rest"))
    manages_all(acme, ServiceAccount.objects.of(acme.id).get(name="owner-kafka-rest").id)
    manages_all(other, theirs["acts_as"])
    settle()
    yield World(cell, secret, mine, theirs, other)
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def in_the_cell(world: World) -> tuple[int, int]:
    """How many messages and groups the other tenant has."""
    slug = world.other.organization.slug
    caller = messages.Caller(tenant=slug, principal=f"User:{world.theirs['acts_as']}")
    with cell_operations(world.cell) as operations:
        peek = messages.PeekRequest(caller=caller, topic="orders")
        groups = messages.ListGroupsRequest(caller=caller)
        return operations.Peek(peek).end_offset, len(operations.ListGroups(groups).groups)


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
        assert in_the_cell(world) == (0, 0)
