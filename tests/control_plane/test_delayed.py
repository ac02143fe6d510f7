"""Messages that wait until they are due, by REST, over a real Postgres and a real broker."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from control_plane.cells.models import Cell
from control_plane.operations.models import AuditEvent
from tests.certificates import WHY_NO_CERTIFICATES
from tests.control_plane.cells import CellProcess
from tests.control_plane.rest import at, post
from tests.control_plane.worlds import World, authority, cell, process

__all__ = ["authority", "cell", "process"]

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]
HOUR_MS = 3_600_000


class Waiting:
    """A topic whose messages wait: one each hour from the next but one on, tagged by turns."""

    def __init__(self, process: CellProcess, count: int = 6) -> None:
        self.world = World("waits", process, **{"tidewheel.headers": "true"})
        self.start_ms = (time.time_ns() // 1_000_000 // HOUR_MS + 2) * HOUR_MS
        messages = [
            {
                "key": {"text": f"k{number}"},
                "value": {"text": "x" * 10},
                "headers": headers(
                    ("tw-tag", "eu" if number % 2 else "us"),
                    ("tw-id", f"id-{number}"),
                    ("tw-deliver-at", str(self.start_ms + number * HOUR_MS)),
                ),
            }
            for number in range(count)
        ]
        sent = post(self.world.rest, self.world.messages, {"partition": 1, "messages": messages})
        assert sent.status_code == 201, sent.json()
        self.address = at(self.world.tenant, f"topics/{self.world.topic.id}/delayed")

    def get(self, what: str = "", **query: Any) -> Any:
        answer = self.world.rest.get(f"{self.address}{what}", {"partition": 1} | query)
        assert answer.status_code == 200, answer.json()
        return answer.json()

    def offsets(self, **query: Any) -> list[int]:
        """Of all of them, page by page."""
        found: list[int] = []
        while True:
            page = self.get(**query)
            found += (item["record"]["offset"] for item in page["items"])
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def cancel(self, **body: Any) -> Any:
        return post(self.world.rest, f"{self.address}/cancel", {"partition": 1} | body)

    def time(self, number: float) -> str:
        at_s = (self.start_ms + number * HOUR_MS) / 1_000
        return datetime.fromtimestamp(at_s, UTC).isoformat()


def headers(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"text": value}} for key, value in pairs]


def test_messages_are_sent_with_a_delay(cell: Cell, process: CellProcess) -> None:
    waiting = Waiting(process)
    world = waiting.world
    sent = [
        {"value": {"text": "later"}, "delay": "90m"},
        {"value": {"text": "then"}, "deliver_at": waiting.time(0.5)},
        {"value": {"text": "now"}},
    ]
    answer = post(world.rest, world.messages, {"partition": 1, "messages": sent})
    assert (answer.status_code, answer.json()["base_offset"]) == (201, 6)
    listed = {one["record"]["value"]["text"]: one for one in waiting.get()["items"]}
    assert listed["then"]["deliver_at_ms"] == waiting.start_ms + HOUR_MS // 2
    assert abs(listed["later"]["deliver_at_ms"] - time.time() * 1000 - 90 * 60_000) < 60_000
    assert "now" not in listed
    for message, words in (
        ({"delay": "1h", "deliver_at": waiting.time(1)}, "one of delay and deliver_at"),
        ({"delay": "soon"}, "does not match"),
        ({"delay": "0s"}, "at least 1 ms"),
        ({"delay": "4000d"}, "at most 3652d"),
        ({"deliver_at": "tomorrow"}, "format"),
        ({"delay": "1h", "headers": headers(("tw-delay", "2h"))}, "tw-delay"),
    ):
        body = {"partition": 1, "messages": [{"value": {"text": "x"}} | message]}
        refused = post(world.rest, world.messages, body)
        assert refused.status_code == 422
        assert words in refused.content.decode(), refused.content


def test_a_topic_that_delays_nothing_says_so(cell: Cell, process: CellProcess) -> None:
    world = World("plain", process)
    body = {"partition": 1, "messages": [{"value": {"text": "x"}, "delay": "1h"}]}
    refused = post(world.rest, world.messages, body)
    assert (refused.status_code, "delays nothing" in refused.content.decode()) == (422, True)
    assert post(world.rest, world.messages, body | {"messages": []}).status_code == 422


def test_what_waits_is_listed_by_time(cell: Cell, process: CellProcess) -> None:
    waiting = Waiting(process)
    assert waiting.offsets() == waiting.offsets(limit=2) == [0, 1, 2, 3, 4, 5]
    assert waiting.offsets(filter="eu", limit=1) == [1, 3, 5]
    assert waiting.offsets(**{"from": waiting.time(1), "until": waiting.time(4)}) == [1, 2, 3]
    (first,) = waiting.get(limit=1, value_bytes_max=3)["items"]
    assert first["deliver_at_ms"] == waiting.start_ms
    assert first["record"]["key"]["text"] == "k0"
    assert (first["record"]["value"]["text"], first["record"]["is_cut"]) == ("xxx", True)
    assert waiting.get(partition=0)["items"] == []


def test_what_waits_is_counted(cell: Cell, process: CellProcess) -> None:
    waiting = Waiting(process)
    counted = waiting.get("/count")
    assert (counted["count"], counted["counts"]) == (6, [])
    assert counted["first_ms"] == waiting.start_ms
    query = {"from": waiting.time(-1), "interval_s": 7_200, "intervals": 3}
    assert waiting.get("/count", **query)["counts"] == [1, 2, 2]
    assert waiting.get("/count", partition=0)["first_ms"] is None


def test_what_matches_is_cancelled_and_written_down(cell: Cell, process: CellProcess) -> None:
    waiting = Waiting(process)
    answer = waiting.cancel(filter="eu", until_time=waiting.time(4))
    assert answer.status_code == 200, answer.json()
    assert answer.json() == {"cancelled": 2, "refused": [], "next_cursor": None}
    assert waiting.offsets() == [0, 2, 4, 5]
    event = AuditEvent.objects.get(action="message.cancel")
    assert (event.resource_id, event.changes["cancelled"]) == (waiting.world.topic.id, 2)
    assert waiting.cancel(filter="eu", until_time=waiting.time(4)).json()["cancelled"] == 0
    assert AuditEvent.objects.filter(action="message.cancel").count() == 1
    assert waiting.cancel().json()["cancelled"] == 4
    assert waiting.get("/count")["count"] == 0


def test_commands_are_messages(cell: Cell, process: CellProcess) -> None:
    waiting = Waiting(process)
    world = waiting.world

    def say(*pairs: tuple[str, str]) -> Any:
        messages = [{"value": None, "headers": headers(*pairs)}]
        return post(world.rest, world.messages, {"partition": 1, "messages": messages})

    assert say(("tw-cancel-offset", "3")).status_code == 201
    assert say(("tw-cancel", "id-4")).status_code == 201
    moved = say(("tw-reschedule", "id-5"), ("tw-delay", "30m"))
    assert moved.status_code == 201, moved.json()
    assert waiting.offsets() == [5, 0, 1, 2]
    refused = say(("tw-cancel-offset", "99"))
    assert "unknown" in refused.json()["detail"]
    assert world.texts(partition=1) == []


@pytest.mark.parametrize(
    ("what", "query", "field"),
    [
        ("", {}, "/partition"),
        ("", {"partition": 1, "filter": "eu and"}, ""),
        ("", {"partition": 1, "from": "soon"}, "/from"),
        ("", {"partition": 1, "cursor": "eDp5"}, "/cursor"),
        ("/count", {"partition": 1, "intervals": 3}, "/from"),
        ("/count", {"partition": 1, "intervals": 1_001}, "/intervals"),
    ],
)
def test_what_cannot_be_asked(
    cell: Cell, process: CellProcess, what: str, query: dict[str, Any], field: str
) -> None:
    waiting = Waiting(process, 1)
    answer = waiting.world.rest.get(f"{waiting.address}{what}", query)
    assert answer.status_code == 422
    if field:
        assert answer.json()["errors"][0]["pointer"] == field
    assert waiting.world.rest.get(waiting.address, {"partition": 2}).status_code == 404
