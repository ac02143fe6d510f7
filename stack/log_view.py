"""Shows brokers' logs at a terminal while the stack runs in the foreground.

The log files hold one JSON object a line. A person reads `13:05:12  broker 1  topic created
topic=orders partitions=3`: the time of day, the event in words, the fields. Lines that are no
JSON (a traceback) are shown as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

CHUNK_BYTES_MAX = 256 * 1024
DIM, RED, YELLOW, PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
LEVEL_COLORS = {"warning": YELLOW, "error": RED, "critical": RED, "debug": DIM}
HIDDEN_FIELDS = frozenset({"event", "level", "timestamp", "node_id", "broker_id", "cluster_id"})


def format_line(name: str, line: str, *, colored: bool) -> str:
    """One log line for a person.

    >>> format_line("broker 1", '{"event": "topic_created", "topic": "a b"}', colored=False)
    '          broker 1  topic created  topic="a b"'
    """
    entry = _entry(line)
    if entry is None:
        return f"          {name}  {line}"
    event, detail = _event_and_fields(entry)
    text = "  ".join([_time_of_day(entry.get("timestamp")), name, event])
    if not colored:
        return text + detail
    color = LEVEL_COLORS.get(str(entry.get("level")), "")
    return f"{color}{text}{PLAIN if color else ''}{DIM}{detail}{PLAIN}"


def in_words(line: str) -> str:
    """What one log line says, without when and who.

    >>> in_words('{"event": "opening_logs", "opened": 3, "of": 20, "level": "info"}')
    'opening logs  opened=3 of=20'
    """
    entry = _entry(line)
    return line if entry is None else "".join(_event_and_fields(entry))


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _event_and_fields(entry: dict[str, Any]) -> tuple[str, str]:
    event = str(entry.get("event", "")).replace("_", " ")
    fields = [f"{key}={_field(value)}" for key, value in entry.items() if key not in HIDDEN_FIELDS]
    return event, "  " + " ".join(fields) if fields else ""


def _field(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f'"{text}"' if " " in text and isinstance(value, str) else text


def _time_of_day(timestamp: object) -> str:
    try:
        moment = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return " " * 8
    return moment.astimezone().strftime("%H:%M:%S")


class LogTail:
    """The lines that appear in one log file from a position on."""

    def __init__(self, path: Path, position: int) -> None:
        self._file: IO[bytes] = path.open("rb")
        self._file.seek(position)
        self._partial = b""

    def new_lines(self) -> Iterator[str]:
        """Complete lines written since the last call; a half line waits for its end."""
        chunk = self._partial + self._file.read(CHUNK_BYTES_MAX)
        *lines, self._partial = chunk.split(b"\n")
        for line in lines:
            if line:
                yield line.decode("utf-8", "replace")

    def close(self) -> None:
        self._file.close()


class LogTails:
    """The tails of several logs by name."""

    def __init__(self) -> None:
        self._tails: dict[str, LogTail] = {}
        self._positions: dict[str, int] = {}

    def __enter__(self) -> LogTails:
        return self

    def __exit__(self, *_exception: object) -> None:
        for tail in self._tails.values():
            tail.close()

    def follow(self, name: str, path: Path, position: int) -> None:
        """Show what this log has from `position` on. The same position again changes nothing;
        another one means a new start of the process that writes it, maybe into a new file."""
        if self._positions.get(name) == position:
            return
        if name in self._tails:
            self._tails[name].close()
        self._tails[name] = LogTail(path, position)
        self._positions[name] = position

    def new_lines(self) -> Iterator[tuple[str, str]]:
        """(name, line) of all that is new."""
        for name, tail in self._tails.items():
            for line in tail.new_lines():
                yield name, line
