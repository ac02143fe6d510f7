"""`features`: which levels there are, and moving them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stack.__main__ import main
from stack.errors import EXIT_USAGE, StackError
from stack.features import parse_levels
from tests.broker_process import BrokerProcess


def test_levels_on_the_command_line() -> None:
    assert parse_levels([]) == {}
    assert parse_levels(["a=1", "b.c=20"]) == {"a": 1, "b.c": 20}
    for text in ("a", "a=", "=1", "a=-1", "a=b"):
        with pytest.raises(StackError, match="write NAME=LEVEL") as refused:
            parse_levels([text])
        assert refused.value.exit_status == EXIT_USAGE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe", "a=1"], "go with upgrade and downgrade"),
        (["--dry-run"], "go with upgrade and downgrade"),
        (["--unsafe"], "go with upgrade and downgrade"),
        (["upgrade", "--unsafe"], "goes with downgrade"),
        (["downgrade"], "Say which level"),
        (["upgrade", "a"], "write NAME=LEVEL"),
    ],
)
def test_what_makes_no_sense_is_said(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["features", *arguments, "--url", "127.0.0.1:1"]) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_features_of_a_running_broker_go_down_and_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path) as broker:

        def run(*arguments: str, status: int = 0) -> str:
            assert main(["features", *arguments, "--url", broker.bootstrap]) == status
            said = capsys.readouterr()
            return said.err if status else said.out

        def levels() -> dict[str, Any]:
            (feature,) = json.loads(run("--json"))
            return {name: feature[name] for name in ("feature", "level", "max_level")}

        newest = {"feature": "metadata.version", "level": 3, "max_level": 3}
        assert levels() == newest
        assert run() == "metadata.version: level 3, supported 1 to 3\n"
        assert run("upgrade") == "All features are at the newest level that this broker supports.\n"
        lower = ("downgrade", "metadata.version=1")
        assert run(*lower, "--dry-run") == "metadata.version: would be at level 1, was 3.\n"
        assert levels() == newest
        assert run(*lower) == "metadata.version: is at level 1, was 3.\n"
        broker.restart()
        assert levels() == {**newest, "level": 1}
        done = {"dry_run": False, "levels": {"metadata.version": 3}}
        assert json.loads(run("upgrade", "--json")) == done
        broker.kill9()
        broker.start()
        assert levels() == newest
        assert "only supports versions 1-3" in run("upgrade", "metadata.version=9", status=1)
