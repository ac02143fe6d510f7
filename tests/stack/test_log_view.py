"""Broker logs as a person sees them."""

from __future__ import annotations

import json
from pathlib import Path

from stack.log_view import LogTail, format_line


def test_an_event_is_shown_in_words_with_its_fields() -> None:
    line = json.dumps(
        {"timestamp": "2026-01-02T03:04:05Z", "level": "info", "node_id": 1}
        | {"event": "topic_created", "topic": "a b", "partitions": 3, "configs": {"x": None}}
    )
    shown = format_line("broker 1", line, colored=False)
    assert shown[2] == shown[5] == ":"
    assert shown[8:] == ('  broker 1  topic created  topic="a b" partitions=3 configs={"x": null}')


def test_colors_follow_the_level() -> None:
    plain = format_line("b", '{"event": "e"}', colored=False)
    assert "\x1b" not in plain
    assert format_line("b", '{"event": "e", "level": "error"}', colored=True).startswith("\x1b[31m")


def test_what_is_no_event_is_shown_as_it_is() -> None:
    for line in ("Traceback (most recent call last):", "[1]", "12", ""):
        assert format_line("b", line, colored=False).endswith(f"b  {line}")


def test_a_tail_yields_complete_new_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    tail = LogTail(path, path.stat().st_size)
    with path.open("ab", buffering=0) as log:
        assert list(tail.new_lines()) == []
        log.write(b"one\ntw")
        assert list(tail.new_lines()) == ["one"]
        log.write(b"o\n\nthree\n")
        assert list(tail.new_lines()) == ["two", "three"]
    tail.close()
