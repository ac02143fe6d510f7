"""`tidewheel dlq redrive` and the like, against a control plane that answers as REST does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tidewheel.cli import redrives
from tidewheel.cli.main import app
from tidewheel.cli.over_rest import Account
from tidewheel.cli.redrives import Marked
from tidewheel.logins import Login, write_login
from typer.testing import CliRunner

from tests.sdk.test_delayed_cli import ControlPlane

ONE = {
    "operation_id": "abc",
    "purge": False,
    "status": "running",
    "moved": 0,
    "over_limit": 0,
    "no_origin": 0,
    "held": "",
}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    made = ControlPlane()
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    environment: dict[str, str | None] = {"XDG_CONFIG_HOME": str(tmp_path), "TIDEWHEEL_URL": None}
    monkeypatch.setattr(redrives, "LOOK_S", 0.0)
    monkeypatch.setattr(secrets, "token_hex", lambda _: "abc")

    def call(*words: str, status: int = 0) -> str:
        ended = CliRunner().invoke(app, ["dlq", *words], env=environment)
        assert ended.exit_code == status, ended.stderr
        return ended.stdout if status == 0 else ended.stderr

    path = tmp_path / "tidewheel" / "logins.json"
    write_login(path, "default", Login(plane.url, "ann", "org_1", "acme", key="tws_x"))
    return call


def test_all_partitions_are_begun_and_waited_for(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    plane.reply(**ONE)
    plane.reply(**ONE)
    older = ONE | {"operation_id": "older", "status": "cancelled"}
    for status, moved in (("running", 3), ("done", 7)):
        plane.reply(items=[older, ONE | {"status": status, "moved": moved}], next_cursor=None)
        plane.reply(items=[ONE | {"status": "done", "moved": 2}], next_cursor=None)
    words = ("--reason", "timeout", "--from", "2h", "--rate", "5", "--yes", "--json")
    found = json.loads(run("redrive", "flights", *words))
    assert [(one["partition"], one["moved"]) for one in found] == [(0, 7), (1, 2)]
    first, second = (body for method, _, _, body in plane.requests() if method == "POST")
    assert (first["partition"], second["partition"]) == (0, 1)
    # Together it is what was asked for.
    assert (first["rate_max"], second["rate_max"]) == (3, 2)
    assert first["operation_id"] == second["operation_id"] == "abc"
    since = first["selection"].pop("from_time")
    assert first["selection"] == {"reason": "timeout", "again": False}
    since = datetime.fromisoformat(since)
    assert abs(datetime.now(since.tzinfo) - since - timedelta(hours=2)) < timedelta(minutes=1)


def test_single_letters_are_asked_for_where_they_are(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    plane.reply(**ONE)
    words = ("--place", "1:17", "--place", "1:3", "--to", "orders", "--again", "--yes")
    shown = run("redrive", "flights", *words, "--no-wait")
    assert "dlq redrives list flights" in shown
    ((_, path, _, body),) = plane.requests()
    assert path == "topics/top_1/redrives"
    assert (body["partition"], body["target_topic"]) == (1, "orders")
    assert body["selection"] == {"offsets": [17, 3], "again": True}


def test_a_purge_says_so(plane: ControlPlane, run: Callable[..., str]) -> None:
    plane.reply(**ONE | {"purge": True})
    run("purge", "flights", "--all", "--partition", "1", "--yes", "--no-wait")
    ((_, _, _, body),) = plane.requests()
    assert (body["purge"], body["selection"], body["partition"]) == (True, {"all": True}, 1)


def test_a_subscription_stands_for_its_dead_letters(
    plane: ControlPlane, run: Callable[..., str]
) -> None:
    topic = plane.replies.pop()
    plane.reply(items=[], next_cursor=None)
    plane.replies.append(topic)
    plane.reply(**ONE)
    run("redrive", "pay", "--all", "--partition", "0", "--yes", "--no-wait")
    names = [address.partition("name=")[2].partition("&")[0] for _, address, _, _ in plane.asked]
    assert names[:2] == ["pay", "pay.dlq"]


@pytest.mark.parametrize("wish", ["pause", "resume", "cancel"])
def test_what_is_under_way_is_changed(
    plane: ControlPlane, run: Callable[..., str], wish: str
) -> None:
    plane.reply(items=[ONE | {"status": "done"}], next_cursor=None)
    plane.reply(items=[ONE], next_cursor=None)
    plane.reply(**ONE | {"status": "paused"})
    assert "paused" in run("redrives", wish, "flights", "abc")
    _, _, (_, path, _, body) = plane.requests()
    assert path == "topics/top_1/redrives/change"
    assert body == {"partition": 1, "operation_id": "abc", "wish": wish}


def test_they_are_listed(plane: ControlPlane, run: Callable[..., str]) -> None:
    plane.reply(items=[], next_cursor=None)
    plane.reply(items=[ONE | {"moved": 1_200, "held": "no leader"}], next_cursor=None)
    head, row = run("redrives", "list", "flights").splitlines()
    assert head.split()[:4] == ["ID", "PARTITION", "WHAT", "STATUS"]
    assert row.split() == ["abc", "1", "redrive", "running", "1,200", "0", "0", "no", "leader"]


def test_what_was_redriven_is_asked_for_once(plane: ControlPlane) -> None:
    account = Account(login := Login(plane.url, "ann", "org_1", "acme", key="tws_x"), login.rest())
    marked = Marked(account, "flights")
    plane.reply(redriven=[3], purged=[4], until_offset=100_000)
    assert [marked.has(1, offset) for offset in (2, 3, 4)] == [False, True, True]
    plane.reply(redriven=[], purged=[], until_offset=200_000)
    assert not marked.has(1, 100_003)
    first, second = (query for _, _, query, _ in plane.requests())
    assert (first["partition"], first["from_offset"], first["until_offset"]) == ("1", "0", "100000")
    assert second["from_offset"] == "100000"
    plane.reply(items=[], next_cursor=None)
    assert not Marked(account, "nothing").has(1, 3)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("redrive", "flights"), "Say which"),
        (("purge", "flights"), "Say which"),
        (("redrive", "flights", "--again"), "Say which"),
        (("redrive", "flights", "--all", "--reason", "x"), "--all goes with no other"),
        (("redrive", "flights", "--all", "--place", "0:1"), "--all goes with no other"),
        (("redrive", "flights", "--place", "17"), "is not PARTITION:OFFSET"),
        (("redrive", "flights", "--place", "0:1", "--partition", "1"), "leave out --partition"),
        (("redrive", "flights", "--from", "soon"), "is no time"),
        (("redrive", "flights", "--all", "--rate", "1"), "less than one a second"),
        (("redrive", "flights", "--all"), "Add --yes"),
    ],
)
def test_what_is_typed_wrongly_is_told(
    run: Callable[..., str], words: tuple[str, ...], problem: str
) -> None:
    assert problem in run(*words, status=2)
