"""`tidewheel delayed` against a control plane that answers as REST does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tidewheel.cli import delayed
from tidewheel.cli.delayed import bar_chart
from tidewheel.cli.main import app
from tidewheel.logins import Login, write_login
from typer.testing import CliRunner

from tests.sdk.test_rest import Server

MESSAGE = {
    "deliver_at_ms": 1_798_786_800_000,
    "record": {
        "offset": 7,
        "timestamp_ms": 1,
        "key": {"base64": "aw==", "text": "k"},
        "value": {"base64": "/w==", "text": None},
        "headers": [],
        "is_cut": False,
        "value_bytes": 1,
    },
}


class ControlPlane(Server):
    """With one topic, `flights`, of two partitions."""

    def __init__(self) -> None:
        super().__init__()
        topic = {"id": "top_1", "name": "flights", "spec": {"partitions": 2}}
        self.reply(items=[topic], next_cursor=None)

    def reply(self, **body: Any) -> None:
        self.replies.append((200, {}, body))

    def requests(self) -> list[tuple[str, str, dict[str, str], Any]]:
        """(method, path below the organization, query, body) of all but the topic's."""
        found = []
        for method, address, _, body in self.asked[1:]:
            parts = urlsplit(address)
            path = parts.path.removeprefix("/api/v1/organizations/org_1/")
            found.append((method, path, dict(parse_qsl(parts.query)), body))
        return found


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    made = ControlPlane()
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, plane: ControlPlane) -> Callable[..., Any]:
    environment: dict[str, str | None] = {"XDG_CONFIG_HOME": str(tmp_path), "TIDEWHEEL_URL": None}

    def call(*words: str, status: int = 0) -> str:
        ended = CliRunner().invoke(app, ["delayed", *words], env=environment)
        assert ended.exit_code == status, ended.stderr
        return ended.stdout if status == 0 else ended.stderr

    path = tmp_path / "tidewheel" / "logins.json"
    write_login(path, "default", Login(plane.url, "ann", "org_1", "acme", key="tws_x"))
    return call


def test_the_next_are_listed_by_time(plane: ControlPlane, run: Callable[..., str]) -> None:
    later = MESSAGE | {"deliver_at_ms": 1_798_786_900_000}
    plane.reply(items=[later], next_cursor=None)
    plane.reply(items=[MESSAGE, later, later], next_cursor="more")
    found = json.loads(
        run("list", "flights", "--filter", "eu", "--until", "2h", "-n", "2", "--json")
    )
    times = [(one["deliver_at_ms"], one["partition"]) for one in found]
    assert times == [(1_798_786_800_000, 1), (1_798_786_900_000, 0), (1_798_786_900_000, 1)]
    first, second = plane.requests()
    assert (first[1], second[2]["partition"]) == ("topics/top_1/delayed", "1")
    assert first[2]["filter"] == "eu"
    until = datetime.fromisoformat(first[2]["until"])
    assert abs(until - datetime.now(until.tzinfo) - timedelta(hours=2)) < timedelta(minutes=1)


def test_a_list_shows_what_is_no_text_in_base_64(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    plane.reply(items=[MESSAGE], next_cursor=None)
    plane.reply(items=[], next_cursor=None)
    head, row = run("list", "flights").splitlines()
    assert head.split() == ["DUE", "IN", "PARTITION", "OFFSET", "KEY", "VALUE"]
    assert row.split()[-4:] == ["0", "7", "k", "/w=="]


def test_counts(plane: ControlPlane, run: Callable[..., str]) -> None:
    plane.reply(count=1_200, counts=[], from_ms=0, uncertain=0, first_ms=1_798_786_800_000)
    plane.reply(count=0, counts=[], from_ms=0, uncertain=0, first_ms=None)
    lines = run("count", "flights").splitlines()
    assert lines[1].split()[:2] == ["0", "1,200"]
    assert lines[-1] == "1,200 in all"
    assert [one[1] for one in plane.requests()] == ["topics/top_1/delayed/count"] * 2


@pytest.mark.parametrize(
    ("flag", "interval_s", "number"), [((), 3_600, 24), (("--days",), 86_400, 30)]
)
def test_a_calendar_adds_up_the_partitions(
    plane: ControlPlane,
    run: Callable[..., str],
    flag: tuple[str, ...],
    interval_s: int,
    number: int,
) -> None:
    for count in (3, 5):
        counts = [count, *[0] * (number - 2), 1]
        plane.reply(count=10, counts=counts, from_ms=0, uncertain=0, first_ms=1)
    lines = run("calendar", "flights", *flag).splitlines()
    assert len(lines) == number + 1
    assert re.search(r" 8  █{40}$", lines[0])
    assert re.search(r" 2  █{10}$", lines[-2])
    assert re.search(r" 0$", lines[1])
    assert lines[-1] == "10 at other times, 20 in all"
    for _, _, query, _ in plane.requests():
        assert (query["interval_s"], query["intervals"]) == (str(interval_s), str(number))
        assert query["from"].endswith("00:00.000000Z")


def test_bars_are_in_proportion_and_none_is_too_small_to_see() -> None:
    lines = list(bar_chart([("a", 1), ("bb", 10_000), ("c", 0), ("d", 5_000)], 4))
    assert lines == ["a        1  ▏", "bb  10,000  ████", "c        0", "d    5,000  ██"]
    assert list(bar_chart([])) == []
    assert list(bar_chart([("a", 0)])) == ["a  0"]


def test_one_message_is_cancelled_by_a_command(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    plane.reply(partition=0, base_offset=9, messages=1)
    plane.reply(partition=1, base_offset=9, messages=2)
    words = ("--offset", "1:5", "--offset", "0:12", "--id", "LH-400", "--partition", "1")
    assert run("cancel", "flights", *words) == "Cancelled: 3 offsets or ids\n"
    first, second = (body for _, _, _, body in plane.requests())
    assert first == {
        "partition": 0,
        "messages": [
            {"value": None, "headers": [{"key": "tw-cancel-offset", "value": {"text": "12"}}]}
        ],
    }
    said = [message["headers"][0] for message in second["messages"]]
    assert [(one["key"], one["value"]["text"]) for one in said] == [
        ("tw-cancel-offset", "5"),
        ("tw-cancel", "LH-400"),
    ]


def test_a_command_that_is_too_late_ends_with_what_was_said(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    detail = "The cell refuses it: record 0: header tw-cancel-offset: too late: …"
    problem = {"status": 422, "code": "invalid", "title": "Invalid", "detail": detail}
    plane.replies.append((422, {}, problem))
    assert "too late" in run("cancel", "flights", "--offset", "0:12", status=1)


def test_what_matches_is_cancelled_page_by_page(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    late = {"offset": 3, "reason": "too late"}
    plane.reply(cancelled=2_000, refused=[late], next_cursor="there")
    plane.reply(cancelled=5, refused=[], next_cursor=None)
    plane.reply(cancelled=1, refused=[], next_cursor=None)
    words = ("--filter", "eu", "--from", "2027-01-01T00:00:00Z", "--yes")
    answer = run("cancel", "flights", *words)
    assert answer == "Cancelled 2,006 messages; too late for 1\n"
    bodies = [body for _, _, _, body in plane.requests()]
    assert [body["partition"] for body in bodies] == [0, 0, 1]
    assert [body.get("cursor") for body in bodies] == [None, "there", None]
    assert bodies[0]["from_time"] == "2027-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "Say which"),
        (("--all", "--offset", "0:1"), "Say which"),
        (("--id", "x"), "add --partition"),
        (("--offset", "12"), "is not PARTITION:OFFSET"),
        (("--offset", "0:1", "--partition", "1"), "leave out --partition"),
        (("--until", "soon"), "is no time"),
        (("--until", "0001-01-01T00:00+10:00"), "is no time"),
        (("--all",), "Add --yes"),
    ],
)
def test_what_is_typed_wrongly_is_told(
    run: Callable[..., str], words: tuple[str, ...], problem: str
) -> None:
    assert problem in run("cancel", "flights", *words, status=2)


def test_how_long_it_is_until_then() -> None:
    shown = [
        delayed._ahead(timedelta(seconds=seconds)) for seconds in (-5, 90, 150, 7_300, 200_000)
    ]
    assert shown == ["0s", "90s", "2m", "2h", "2d"]
