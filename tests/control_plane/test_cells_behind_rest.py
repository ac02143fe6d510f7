"""REST and the cell behind it: subscriptions as they are read, use as it is counted, and a cell
that does not answer. Over a real Postgres and a real broker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from rest_framework.test import APIClient

from control_plane.access.logic import do_create_service_account
from control_plane.cells.connections import cell_operations
from control_plane.cells.models import Cell
from control_plane.messaging import cell_calls
from control_plane.tenancy.errors import CellDown
from control_plane.usage.models import UsageCursor
from control_plane.usage.reading import read_cell
from data_plane.contract.cell_operations_pb2 import ReadUsageRequest
from tests.certificates import WHY_NO_CERTIFICATES
from tests.control_plane.cells import CellProcess, settle
from tests.control_plane.rest import at, client_of, patch, post
from tests.control_plane.tenants import make_tenant
from tests.control_plane.worlds import World, authority, cell, process

__all__ = ["authority", "cell", "process"]

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]

SECONDS_MAX = 20.0


def test_subscriptions_by_rest_show_what_matches(cell: Cell, process: CellProcess) -> None:
    world = World("subscribes", process, **{"tidewheel.headers": "true"})
    spec = {"source": "orders", "filter": "checkout"}
    made = post(world.rest, at(world.tenant, "subscriptions"), {"name": "pay", "spec": spec})
    assert made.status_code == 201
    settle()
    address = at(world.tenant, f"subscriptions/{made.json()['id']}")
    shown = world.rest.get(address).json()
    assert (shown["status"]["state"], shown["spec"]) == ("ready", spec)
    tagged = [
        {"value": {"text": tag}, "headers": [{"key": "tw-tag", "value": {"text": tag}}]}
        for tag in ("checkout", "refund", "checkout")
    ]
    post(world.rest, world.messages, {"partition": 0, "messages": tagged})
    records = at(world.tenant, f"topics/{made.json()['id']}/messages")

    def read() -> list[tuple[int, str]]:
        items = world.rest.get(records, {"partition": 0}).json()["items"]
        return [(item["offset"], item["value"]["text"]) for item in items]

    assert read() == [(0, "checkout"), (2, "checkout")]
    refused = post(
        world.rest, records, {"partition": 0, "messages": [{"value": {"text": "checkout"}}]}
    )
    assert refused.status_code == 422
    wrong = patch(world.rest, address, {"spec": {"filter": "checkout refund"}})
    assert wrong.status_code == 422
    assert "column 10" in wrong.json()["detail"]
    edited = patch(world.rest, address, {"spec": {"filter": "refund"}}, **{"If-Match": "*"})
    assert edited.json()["spec"]["filter"] == "refund"
    settle()
    assert read() == [(1, "refund")]
    # It grows with its source, and what is declared of it stays in force.
    source = at(world.tenant, f"topics/{world.topic.id}")
    grown = patch(world.rest, source, {"spec": {"partitions": 3}})
    assert grown.status_code == 200
    settle()
    patch(world.rest, address, {"spec": {"filter": "checkout"}})
    settle()
    assert world.rest.get(address).json()["status"]["state"] == "ready"
    assert world.rest.get(records, {"partition": 5}).status_code == 200
    assert world.rest.delete(source).status_code == 409
    assert world.rest.delete(address).status_code == 202
    assert world.rest.delete(source).status_code == 202
    settle()
    assert post(world.rest, f"{address}/undelete").status_code == 409
    assert post(world.rest, f"{source}/undelete").status_code == 200
    assert post(world.rest, f"{address}/undelete").status_code == 200
    settle()
    assert world.rest.get(address).json()["status"]["state"] == "ready"
    assert read() == [(0, "checkout"), (2, "checkout")]


def used(world: World) -> int:
    items = world.rest.get(at(world.tenant, "usage")).json()["items"]
    return sum(item["produce_records"] for item in items)


def wait_for_samples(cell: Cell, world: World, records: int) -> None:
    """Until the broker has stored samples with so many records of the tenant."""
    with cell_operations(cell, cell.admin_endpoints[0]) as operations:
        slug = world.tenant.organization.slug
        stream = operations.ReadUsage(ReadUsageRequest(follow=True), timeout=SECONDS_MAX)
        seen = 0
        for sample in stream:
            seen += sum(row.records_in for row in sample.topics if row.tenant == slug)
            if seen >= records:
                break
        stream.cancel()
    assert seen == records


def test_use_is_read_from_brokers_and_counted_once_over_their_restarts(
    cell: Cell, process: CellProcess
) -> None:
    world = World("used", process)
    assert world.send("a", "b", "c").status_code == 201
    wait_for_samples(cell, world, 3)
    assert read_cell(cell) > 0
    assert used(world) == 3
    assert read_cell(cell) == 0
    # As after a restore of the control plane's position alone.
    UsageCursor.objects.all().delete()
    assert read_cell(cell) == 0
    process.broker.restart()
    assert world.send("d").status_code == 201
    wait_for_samples(cell, world, 4)
    read_cell(cell)
    assert used(world) == 4
    process.broker.kill9()
    process.broker.start()
    assert world.send("e").status_code == 201
    wait_for_samples(cell, world, 5)
    read_cell(cell)
    read_cell(cell)
    assert used(world) == 5
    topics = world.rest.get(at(world.tenant, "usage/topics")).json()["items"]
    assert [(row["topic"], row["produce_records"]) for row in topics] == [("orders", 5)]


@contextmanager
def paused(process: CellProcess) -> Iterator[None]:
    """The broker hangs: its addresses take connections, and nothing answers."""
    os.kill(process.broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.broker.pid, signal.SIGCONT)


def refused_in_time(ask: Callable[[], Any]) -> Any:
    began = time.monotonic()
    answer = ask()
    assert time.monotonic() - began < SECONDS_MAX
    assert answer.status_code == 503, answer.content
    assert int(answer["Retry-After"]) >= 1
    return answer.json()


def test_a_cell_that_does_not_answer_is_503_in_time(
    cell: Cell, process: CellProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_calls, "TIMEOUT_S", 2.0)
    world = World("hangs", process)
    asks: list[Callable[[], Any]] = [
        lambda: world.rest.get(world.messages, {"partition": 0}),
        lambda: world.send("a"),
        lambda: world.group(),
        lambda: world.rest.get(at(world.tenant, "groups")),
        lambda: world.reset({"partition": 0, "offset": 0}),
    ]
    with paused(process):
        for ask in asks:
            assert refused_in_time(ask)["code"] == "cell-unavailable"
        # What needs no cell goes on.
        assert client_of(world.tenant.owner).get(at(world.tenant, "topics")).status_code == 200
    process.broker.stop()
    for ask in asks:
        assert refused_in_time(ask)["code"] == "cell-unavailable"
    process.broker.start()
    deadline = time.monotonic() + SECONDS_MAX
    while world.send("b").status_code != 201:
        # Connections are tried again every two seconds.
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert world.texts() == ["b"]


@contextmanager
def all_places_taken() -> Iterator[None]:
    for _ in range(cell_calls.CALLS_MAX):
        assert cell_calls.places.acquire(blocking=False)
    try:
        yield
    finally:
        for _ in range(cell_calls.CALLS_MAX):
            cell_calls.places.release()


def test_no_more_is_asked_at_a_time_than_leaves_room_for_others(
    cell: Cell, process: CellProcess
) -> None:
    world = World("busy", process)
    with all_places_taken():
        answer = refused_in_time(lambda: world.send("a"))
    assert "Too much" in answer["detail"]
    assert world.send("a").status_code == 201


def test_a_cell_that_takes_all_of_its_places_leaves_some_to_the_others(
    cell: Cell, process: CellProcess
) -> None:
    assert cell_calls.CALLS_PER_CELL_MAX < cell_calls.CALLS_MAX
    world = World("beside", process)
    with ExitStack() as stack:
        for _ in range(cell_calls.CALLS_PER_CELL_MAX):
            stack.enter_context(cell_calls.cell_call(Cell(id="cell_that_hangs")))
        with pytest.raises(CellDown, match="Too much"):
            stack.enter_context(cell_calls.cell_call(Cell(id="cell_that_hangs")))
        assert world.send("a").status_code == 201


def test_who_waits_for_a_cell_is_told_so(process: CellProcess, settings: Any) -> None:
    tenant = make_tenant("cellless")
    owner: APIClient = client_of(tenant.owner)
    account = do_create_service_account(tenant.actor, tenant.id, "app", "", "viewer", "owner")
    query = {"service_account_id": account.id}
    assert refused_in_time(lambda: owner.get(at(tenant, "groups"), query))["code"] == (
        "cell-unavailable"
    )
