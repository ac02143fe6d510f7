"""Messages of a dead-letter topic that are put back or purged, by REST, over a real Postgres and a
real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest

from control_plane.cells.models import Cell
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.operations.models import AuditEvent
from tests.certificates import WHY_NO_CERTIFICATES
from tests.control_plane.cells import CellProcess, settle
from tests.control_plane.rest import at, post
from tests.control_plane.worlds import World, authority, cell, process

__all__ = ["authority", "cell", "process"]

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES),
    pytest.mark.django_db,
]
SECONDS_MAX = 20.0


class Dead:
    """A topic with six messages in partition 1, tagged by turns, and one that they may go to."""

    def __init__(self, process: CellProcess) -> None:
        headers = {"tidewheel.headers": "true"}
        self.world = World("dead", process, **headers)
        tenant = self.world.tenant
        spec = TopicSpec(2, configs=headers)
        self.elsewhere = do_create_topic(tenant.actor, tenant.id, "orders-more", spec)
        settle()
        messages = [
            {
                "value": {"text": f"{number}"},
                "headers": [{"key": "tw-tag", "value": {"text": "eu" if number % 2 else "us"}}],
            }
            for number in range(6)
        ]
        sent = post(self.world.rest, self.world.messages, {"partition": 1, "messages": messages})
        assert sent.status_code == 201, sent.json()
        self.address = at(tenant, f"topics/{self.world.topic.id}/redrives")

    def begin(self, **body: Any) -> Any:
        fixed = {"partition": 1, "operation_id": "one", "target_topic": "orders-more"}
        return post(self.world.rest, self.address, fixed | body)

    def change(self, wish: str, operation_id: str = "one") -> Any:
        body = {"partition": 1, "operation_id": operation_id, "wish": wish}
        return post(self.world.rest, f"{self.address}/change", body)

    def ended(self, operation_id: str = "one") -> Any:
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            found = self.world.rest.get(self.address, {"partition": 1}).json()["items"]
            one = next(one for one in found if one["operation_id"] == operation_id)
            if one["status"] in ("done", "cancelled", "gone"):
                return one
            time.sleep(0.05)
        raise AssertionError(one)

    def marked(self) -> tuple[list[int], list[int]]:
        query = {"partition": 1, "until_offset": 1_000}
        found = self.world.rest.get(f"{self.address}/redriven", query).json()
        return found["redriven"], found["purged"]

    def there(self) -> list[str]:
        address = at(self.world.tenant, f"topics/{self.elsewhere.id}/messages")
        items = self.world.rest.get(address, {"partition": 1}).json()["items"]
        return [item["value"]["text"] for item in items]


def test_what_is_chosen_is_put_elsewhere_once(cell: Cell, process: CellProcess) -> None:
    dead = Dead(process)
    answer = dead.begin(selection={"filter": "eu", "until_offset": 5})
    assert answer.status_code == 201, answer.json()
    begun = answer.json()
    assert (begun["operation_id"], begun["purge"], begun["end_offset"]) == ("one", False, 5)
    ended = dead.ended()
    assert (ended["status"], ended["looked"], ended["moved"]) == ("done", 5, 2)
    assert dead.there() == ["1", "3"]
    again = dead.begin(selection={"filter": "eu", "until_offset": 5}).json()
    assert (again["status"], again["moved"]) == ("done", 2)
    purge = dead.begin(
        operation_id="two", purge=True, target_topic="", selection={"offsets": [0, 5]}
    )
    assert purge.status_code == 201, purge.json()
    assert dead.ended("two")["moved"] == 2
    assert dead.marked() == ([1, 3], [0, 5])
    events = AuditEvent.objects.filter(action__startswith="dead-letter")
    assert [event.action for event in events.order_by("at")] == [
        "dead-letter.redrive",
        "dead-letter.redrive",
        "dead-letter.purge",
    ]
    assert all(event.changes["partition"] == 1 for event in events)


def test_one_is_paused_resumed_and_cancelled(cell: Cell, process: CellProcess) -> None:
    dead = Dead(process)
    assert dead.begin(selection={"all": True}, rate_max=1).status_code == 201
    assert dead.change("pause").json()["status"] in ("pausing", "paused")
    other = dead.begin(operation_id="two", selection={"all": True})
    assert other.status_code == 422
    assert "operation one is under way" in other.json()["detail"]
    assert dead.change("resume").json()["status"] == "running"
    assert dead.change("cancel").status_code == 200
    ended = dead.ended()
    assert ended["status"] == "cancelled"
    assert len(dead.there()) == ended["moved"] < 6
    assert dead.change("pause").status_code == 422
    assert dead.change("pause", "none").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"selection": {}}, 422, "it is empty"),
        ({"selection": {"all": True, "reason": "x"}}, 422, "one or the other"),
        ({"selection": {"filter": "eu and"}}, 422, "filter"),
        ({"selection": {"all": True}, "purge": True}, 422, "goes nowhere"),
        ({"selection": {"all": True}, "target_topic": ""}, 422, "no subscription is known"),
        ({"selection": {"all": True}, "target_topic": "orders"}, 422, "topic that they are in"),
        ({"selection": {"all": True}, "target_topic": "nowhere"}, 422, "no topic nowhere"),
    ],
)
def test_what_cannot_be_asked(
    cell: Cell, process: CellProcess, body: dict[str, Any], status: int, words: str
) -> None:
    dead = Dead(process)
    answer = dead.begin(**body)
    assert answer.status_code == status, answer.json()
    assert words in answer.json()["detail"]
    assert dead.world.rest.get(dead.address, {"partition": 1}).json()["items"] == []
    assert dead.world.rest.get(dead.address).status_code == 422
