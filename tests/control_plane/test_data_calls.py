"""Messages by REST, on behalf of service accounts, over a real Postgres and a real broker."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from control_plane.access.logic import do_create_grant, do_create_key, do_create_service_account
from control_plane.accounts.logic import do_suspend
from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.operations.models import AuditEvent
from tests.certificates import WHY_NO_CERTIFICATES
from tests.control_plane.cells import CellProcess, settle
from tests.control_plane.rest import at, client_with, member_of, post
from tests.control_plane.worlds import World, authority, cell, process

__all__ = ["authority", "cell", "process"]

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]


def test_messages_are_sent_and_looked_at(cell: Cell, process: CellProcess) -> None:
    world = World("sends", process)
    raw = b"\xff\x00raw"
    first = {
        "key": {"text": "k"},
        "value": {"base64": b64encode(raw).decode()},
        "headers": [{"key": " h ", "value": {"text": "v"}}, {"key": "none", "value": None}],
        "timestamp": "2026-01-31T12:00:00Z",
    }
    body = {"partition": 1, "messages": [first, {"value": None}, {"value": {"text": "tschüß"}}]}
    sent = post(world.rest, world.messages, body)
    assert (sent.status_code, sent.json()) == (
        201,
        {"partition": 1, "base_offset": 0, "messages": 3},
    )
    seen = world.look(1)
    one, two, three = seen["items"]
    assert one["key"] == {"base64": b64encode(b"k").decode(), "text": "k"}
    assert one["value"] == {"base64": b64encode(raw).decode(), "text": None}
    assert [(header["key"], header["value"]) for header in one["headers"]] == [
        (" h ", {"base64": b64encode(b"v").decode(), "text": "v"}),
        ("none", None),
    ]
    assert (one["timestamp_ms"], one["is_cut"], one["value_bytes"]) == (1769860800000, False, 5)
    assert (two["key"], two["value"]) == (None, None)
    assert three["value"]["text"] == "tschüß"
    assert (seen["next_offset"], seen["log_start_offset"], seen["end_offset"]) == (3, 0, 3)
    # A client of Kafka's finds the same, of which null is shown as empty here.
    assert world.kafka.consume("orders", 3) == [raw, b"", "tschüß".encode()]
    event = AuditEvent.objects.get(action="message.produce")
    assert (event.resource_id, event.changes["messages"]) == (world.topic.id, 3)
    assert "raw" not in str(event.changes)


def test_where_a_look_begins_and_ends(cell: Cell, process: CellProcess) -> None:
    world = World("looks", process)
    assert world.texts() == []
    assert world.send("a", "b", "c", "d").json()["base_offset"] == 0
    assert world.texts(offset=2) == ["c", "d"]
    assert world.texts(last=1) == ["d"]
    assert world.texts(last=0) == []
    assert world.texts(timestamp="2020-01-01T00:00:00Z", limit=2) == ["a", "b"]
    assert world.texts(timestamp="2100-01-01T00:00:00Z") == []
    assert world.look(limit=3)["next_offset"] == 3
    long = world.send("x" * 5_000).json()["base_offset"]
    (cut,) = world.look(offset=long, value_bytes_max=3)["items"]
    assert (cut["value"]["text"], cut["is_cut"], cut["value_bytes"]) == ("xxx", True, 5_000)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "/partition"),
        ({"partition": "-1"}, "/partition"),
        ({"partition": "0", "offset": "1", "last": "1"}, "/offset"),
        ({"partition": "0", "offset": "9" * 40}, "/offset"),
        ({"partition": "0", "offset": "77"}, ""),
        ({"partition": "0", "timestamp": "soon"}, "/timestamp"),
        ({"partition": "0", "limit": "501"}, "/limit"),
    ],
)
def test_looks_that_cannot_be(
    cell: Cell, process: CellProcess, query: dict[str, str], field: str
) -> None:
    world = World("misled", process)
    answer = world.rest.get(world.messages, query)
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    if field:
        assert answer.json()["errors"][0]["pointer"] == field


@pytest.mark.parametrize(
    "message",
    [
        {"value": "text"},
        {"value": {"text": "x", "base64": "eA=="}},
        {"value": {"base64": "x"}},
        {"value": {"text": 5}},
        {"value": {"text": "\ud800"}},
        {},
        {"value": {"text": "x"}, "offset": 3},
        {"value": {"text": "x" * (1 << 20)}},
    ],
)
def test_messages_that_cannot_be(cell: Cell, process: CellProcess, message: Any) -> None:
    world = World("refused", process)
    # Half a character is no text, and JSON has it all the same.
    body = json.dumps({"partition": 0, "messages": [message]})
    refused = world.rest.post(world.messages, body, content_type="application/json")
    assert refused.status_code == 422
    assert post(world.rest, world.messages, {"partition": 0, "messages": []}).status_code == 422
    many = {"partition": 0, "messages": [{"value": {"text": "x"}}] * 101}
    assert post(world.rest, world.messages, many).status_code == 422
    assert world.texts() == []


def test_a_partition_or_topic_that_the_cell_has_not_is_not_found(
    cell: Cell, process: CellProcess
) -> None:
    world = World("lost", process)
    assert world.send("x", partition=2).status_code == 404
    assert world.rest.get(world.messages, {"partition": 2}).status_code == 404
    new = do_create_topic(world.tenant.actor, world.tenant.id, "unsettled", TopicSpec())
    address = at(world.tenant, f"topics/{new.id}/messages")
    assert world.rest.get(address, {"partition": 0}).status_code == 404
    assert world.group("nobody").status_code in (200, 404)


def test_a_retry_appends_nothing_again(cell: Cell, process: CellProcess) -> None:
    world = World("retries", process)
    first = world.send("a", key="once")
    again = world.send("a", key="once")
    assert (first.status_code, again.json()) == (201, first.json())
    assert again["Idempotency-Replayed"] == "true"
    assert world.send("b", key="once").status_code == 422
    assert world.texts() == ["a"]


def test_a_service_account_gets_what_its_grants_allow(cell: Cell, process: CellProcess) -> None:
    world = World("grants", process)
    tenant = world.tenant
    assert world.send("a").status_code == 201
    reader = do_create_service_account(tenant.actor, tenant.id, "reader", "", "developer", "owner")
    _, secret = do_create_key(tenant.actor, tenant.id, reader.id, "owner", scopes=("kafka", "rest"))
    settle()
    client = client_with(secret)
    body = {"partition": 0, "messages": [{"value": {"text": "b"}}]}
    assert client.get(world.messages, {"partition": 0}).status_code == 403
    do_create_grant(
        *(tenant.actor, tenant.id, reader.id),
        role="consumer",
        resource_type="topic",
        pattern_type="literal",
        resource_name="orders",
    )
    settle()
    assert len(client.get(world.messages, {"partition": 0}).json()["items"]) == 1
    refused = post(client, world.messages, body)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert world.texts() == ["a"]
    assert not AuditEvent.objects.filter(action="message.produce", actor_name="reader").exists()
    # A person may do it as an account whose keys he could make.
    person = member_of(tenant, "developer")
    named: dict[str, Any] = {"partition": 0, "service_account_id": reader.id}
    assert person.get(world.messages, named).status_code == 200
    assert post(person, world.messages, body | {"service_account_id": reader.id}).status_code == 403
    as_manager = body | {"service_account_id": world.account.id}
    assert post(person, world.messages, as_manager).status_code == 201
    unnamed = post(person, world.messages, body)
    assert unnamed.json()["errors"][0]["pointer"] == "/service_account_id"
    lord = do_create_service_account(tenant.actor, tenant.id, "lord", "", "owner", "owner")
    assert person.get(world.messages, named | {"service_account_id": lord.id}).status_code == 403
    # A key stands for its own account, and for none when clients of Kafka do not take it.
    assert client.get(world.messages, named | {"service_account_id": lord.id}).status_code == 403
    _, rest_only = do_create_key(
        tenant.actor, tenant.id, world.account.id, "owner", scopes=("rest",)
    )
    denied = client_with(rest_only).get(world.messages, {"partition": 0})
    assert (denied.status_code, "kafka" in denied.json()["detail"]) == (403, True)


def test_who_is_suspended_looks_and_sends_nothing(cell: Cell, process: CellProcess) -> None:
    world = World("suspended", process)
    assert world.send("a").status_code == 201
    do_suspend(world.tenant.actor, world.tenant.id, "the bill is not paid")
    refused = world.send("b")
    assert (refused.status_code, refused.json()["code"]) == (403, "tenant-suspended")
    assert world.reset({"partition": 0, "position": "earliest"}).status_code == 403
    assert world.texts() == ["a"]
