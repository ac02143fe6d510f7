"""Tenants in a cell that has features plugged in: what tests of calls to cells begin with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from control_plane.access.logic import do_create_key
from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.messaging.models import Topic
from tests.certificates import Authority
from tests.control_plane.cells import CellProcess, KafkaClient, manager_of, settle, trusted
from tests.control_plane.rest import at, client_with, post
from tests.control_plane.tenants import Tenant, make_tenant

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def process(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[CellProcess]:
    folder = tmp_path_factory.mktemp("cell")
    with CellProcess(folder, authority, module="features") as started:
        yield started


@pytest.fixture
def cell(process: CellProcess, authority: Authority, settings: Any) -> Cell:
    trusted(settings, authority.issue("control-plane", "DNS:control-plane"))
    return process.row()


class World:
    """A tenant in the cell, with one topic of two partitions, a key that may do everything with it,
    and a client of REST that has this key."""

    def __init__(self, slug: str, process: CellProcess, **configs: str) -> None:
        # Rows are rolled back after each test, and the cell stays.
        self.tenant: Tenant = make_tenant(f"{slug}-{next(NUMBERS)}")
        self.account, self.key, secret = manager_of(self.tenant)
        _, rest = do_create_key(
            *(self.tenant.actor, self.tenant.id, self.account.id, "owner"),
            scopes=("kafka", "rest"),
        )
        self.account.role = "developer"
        self.account.save()
        self.topic: Topic = do_create_topic(
            self.tenant.actor, self.tenant.id, "orders", TopicSpec(2, configs=configs)
        )
        settle()
        self.rest = client_with(rest)
        self.kafka: KafkaClient = process.client(self.tenant, self.key, secret)

    @property
    def messages(self) -> str:
        return at(self.tenant, f"topics/{self.topic.id}/messages")

    def send(self, *values: str, partition: int = 0, key: str | None = None) -> Any:
        """`key` is an Idempotency-Key."""
        headers = {} if key is None else {"Idempotency-Key": key}
        body = {"partition": partition, "messages": [{"value": {"text": v}} for v in values]}
        return post(self.rest, self.messages, body, **headers)

    def look(self, partition: int = 0, **query: Any) -> Any:
        return self.rest.get(self.messages, {"partition": partition} | query).json()

    def texts(self, **query: Any) -> list[str]:
        return [item["value"]["text"] for item in self.look(**query)["items"]]

    def reset(self, *targets: dict[str, Any], group: str = "readers", dry_run: bool = False) -> Any:
        named = [{"topic": "orders"} | target for target in targets]
        body = {"group_id": group, "targets": named, "dry_run": dry_run}
        return post(self.rest, at(self.tenant, "offset-resets"), body)

    def group(self, group: str = "readers") -> Any:
        return self.rest.get(at(self.tenant, f"groups/{group}"))
