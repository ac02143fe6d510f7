"""Groups by REST, on behalf of service accounts, over a real Postgres and a real broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer

from control_plane.cells.models import Cell
from control_plane.operations.models import AuditEvent
from tests.certificates import WHY_NO_CERTIFICATES
from tests.control_plane.cells import CellProcess
from tests.control_plane.rest import at
from tests.control_plane.worlds import World, authority, cell, process

__all__ = ["authority", "cell", "process"]

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]

SECONDS_MAX = 20.0


def test_groups_with_their_lag_and_other_offsets(cell: Cell, process: CellProcess) -> None:
    world = World("groups", process)
    for partition in (0, 1):
        assert world.send("a", "b", "c", "d", "e", partition=partition).status_code == 201
    consumer = Consumer(
        world.kafka.settings
        | {
            "group.id": "readers",
            "client.id": "one",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    taken = consumer.consume(10, SECONDS_MAX)
    assert len(taken) == 10
    middle = next(message for message in taken if (message.partition(), message.offset()) == (0, 1))
    consumer.commit(message=middle, asynchronous=False)
    shown = world.group().json()
    assert (shown["state"], shown["lag"], shown["is_cut"]) == ("Stable", 3, False)
    (member,) = shown["members"]
    assert member["client_id"] == "one"
    assert member["assigned"] == [{"topic": "orders", "partitions": [0, 1]}]
    (offset,) = shown["offsets"]
    assert (offset["partition"], offset["committed_offset"]) == (0, 2)
    assert (offset["end_offset"], offset["lag"]) == (5, 3)
    refused = world.reset({"partition": 0, "position": "earliest"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert world.reset({"partition": 0, "offset": 0}, dry_run=True).status_code == 409
    consumer.close()
    assert not AuditEvent.objects.filter(action="group.reset").exists()
    targets = (
        {"partition": 0, "position": "latest"},
        {"partition": 1, "timestamp": "2020-01-01T00:00:00Z"},
    )
    tried = world.reset(*targets, dry_run=True).json()
    expected = [
        {"topic": "orders", "partition": 0, "committed_offset": 2, "offset": 5, "error": None},
        {"topic": "orders", "partition": 1, "committed_offset": None, "offset": 0, "error": None},
    ]
    assert (tried["dry_run"], tried["items"]) == (True, expected)
    assert world.group().json()["offsets"] == [offset]
    assert not AuditEvent.objects.filter(action="group.reset").exists()
    assert world.reset(*targets).json()["items"] == expected
    assert [one["committed_offset"] for one in world.group().json()["offsets"]] == [5, 0]
    (event,) = AuditEvent.objects.filter(action="group.reset")
    assert event.resource_name == "readers"
    assert [(one["from"], one["offset"]) for one in event.changes["targets"]] == [(2, 5), (None, 0)]
    forgotten = world.reset(
        {"partition": 0, "position": "forgotten"}, {"partition": 1, "offset": 99}
    )
    assert [one["offset"] for one in forgotten.json()["items"]] == [None, 5]
    assert [one["partition"] for one in world.group().json()["offsets"]] == [1]
    unknown = world.reset({"partition": 0, "offset": 1}, {"partition": 9, "position": "latest"})
    assert unknown.status_code in (404, 422)
    assert [one["partition"] for one in world.group().json()["offsets"]] == [1]


@pytest.mark.parametrize(
    "targets",
    [
        [],
        [{"partition": 0}],
        [{"partition": 0, "offset": 1, "position": "latest"}],
        [{"partition": 0, "offset": -1}],
        [{"partition": 0, "offset": 1}, {"partition": 0, "offset": 2}],
        [{"partition": 0, "position": "somewhere"}],
    ],
)
def test_resets_that_cannot_be(cell: Cell, process: CellProcess, targets: Any) -> None:
    assert World("unset", process).reset(*targets).status_code == 422


def test_groups_are_listed_page_by_page_and_only_the_tenants(
    cell: Cell, process: CellProcess
) -> None:
    world, other = World("lists", process), World("lists-not", process)
    ids = ["a/b c", "ä", "g1", "g2", "g3"]
    for group in ids:
        assert world.reset({"partition": 0, "offset": 0}, group=group).status_code == 200
    assert other.reset({"partition": 0, "offset": 0}, group="theirs").status_code == 200
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = world.rest.get(at(world.tenant, "groups"), query).json()
        assert page["is_complete"]
        seen += [group["group_id"] for group in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == sorted(ids)
    assert world.group("a%2Fb%20c").json()["group_id"] == "a/b c"
    # A group of the same name is another one in each tenant.
    assert other.group("theirs").json()["offsets"] != []
    assert world.group("theirs").status_code in (200, 404)
    assert world.group("theirs").json().get("offsets", []) == []
