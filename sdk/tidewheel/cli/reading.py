"""What `tidewheel produce` reads: lines, JSON lines, or whole inputs, as records. Pure.

A JSON line is an object with any of these members, all optional:

    {"key": "k", "value": …, "headers": {"name": "text"}, "tags": ["t"], "id": "o-17",
     "delay": "30m", "deliver_at": 1750000000000, "partition": 3, "timestamp_ms": 1750000000000}

`value` is sent as it is when it is a string, as nothing when null or left out, otherwise as
compact JSON. `key_base64` and `value_base64` hold binary data; this is what `consume --json`
prints, so one command's output is the other's input (members it adds are ignored).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tidewheel.errors import ConfigurationError
from tidewheel.message import HeaderValue, ProducerRecord
from tidewheel.serialization import to_json

InputFormat = Literal["lines", "json", "raw"]

IGNORED_MEMBERS: Final = frozenset({"topic", "offset", "timestamp"})
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line is an error, so that a binary file given by mistake does not fill the memory."""

_MEMBERS: Final[dict[str, type | tuple[type, ...]]] = {
    "key": str,
    "key_base64": str,
    "value_base64": str,
    "headers": (dict, list),
    "tags": list,
    "id": str,
    "delay": (str, int, float),
    "deliver_at": int,
    "partition": int,
    "timestamp_ms": int,
}


@dataclass(frozen=True, slots=True)
class Template:
    """What the command line says about all messages; a JSON line's own members win."""

    record: ProducerRecord
    key_separator: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Whether a line alone makes the message."""
        return self.key_separator is None and self.record == ProducerRecord(headers=[], tags=[])


class LineSplitter:
    """Cuts a stream of chunks into lines without their ends (LF or CRLF)."""

    def __init__(self) -> None:
        self._rest = b""
        self.line_number = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that are complete now."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES_MAX:
            raise ConfigurationError(
                f"Line {self.line_number + len(lines) + 1} is longer than {LINE_BYTES_MAX} bytes",
                hint="Use --format raw to send a whole input as one message",
            )
        for line in lines:
            self.line_number += 1
            yield line.removesuffix(b"\r")

    def finish(self) -> Iterator[bytes]:
        """The last line when it has no end."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self.line_number += 1
            yield rest.removesuffix(b"\r")


def record_of_line(line: bytes, template: Template) -> ProducerRecord:
    """A record with the line as its value, or key and value around the separator."""
    if template.key_separator is None:
        return replace(template.record, value=line)
    key, separator, value = line.partition(template.key_separator)
    if not separator:
        return replace(template.record, value=line)
    return replace(template.record, key=key, value=value)


def record_of_json(line: bytes, line_number: int, template: Template) -> ProducerRecord:
    """The record of a JSON line. Raises ConfigurationError naming the line."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        # Its own words count lines within this one.
        why = f"{error.msg} at column {error.colno}"
        raise _bad_line(line_number, f"is not JSON: {why}") from error
    except ValueError as error:
        raise _bad_line(line_number, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _bad_line(line_number, "is not a JSON object")
    for name, value in found.items():
        if name in IGNORED_MEMBERS or name == "value" or value is None:
            continue
        if name not in _MEMBERS:
            raise _bad_line(line_number, f"has the unknown member {name!r}")
        if not isinstance(value, _MEMBERS[name]) or isinstance(value, bool):
            raise _bad_line(line_number, f"has a wrong type in {name!r}")
    return _record_of_members(found, line_number, template.record)


def _record_of_members(
    found: dict[str, Any], line_number: int, base: ProducerRecord
) -> ProducerRecord:
    value = found.get("value")
    headers: list[tuple[str, HeaderValue]] = list(base.headers)
    given = found.get("headers") or {}
    pairs = given.items() if isinstance(given, dict) else given
    try:
        for name, header in pairs:
            if not isinstance(name, str) or not isinstance(header, str | None):
                raise ValueError("not text")
            headers.append((name, header))
    except ValueError as error:
        raise _bad_line(line_number, "has headers that are not names and texts") from error
    record = replace(
        base,
        value=value if isinstance(value, str) else to_json(value),
        key=found.get("key", base.key),
        headers=headers,
        tags=[*base.tags, *(found.get("tags") or ())],
        id=found.get("id", base.id),
        delay=found.get("delay", base.delay),
        deliver_at=found.get("deliver_at", base.deliver_at),
        partition=found.get("partition", base.partition),
        timestamp_ms=found.get("timestamp_ms", base.timestamp_ms),
    )
    try:
        if found.get("key_base64") is not None:
            record.key = base64.b64decode(found["key_base64"], validate=True)
        if found.get("value_base64") is not None:
            record.value = base64.b64decode(found["value_base64"], validate=True)
    except binascii.Error as error:
        raise _bad_line(line_number, f"has bad base64: {error}") from error
    return record


def _bad_line(line_number: int, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"Line {line_number} {what}",
        hint='Write one object per line, e.g. {"key": "k", "value": "v", "headers": {"h": "x"}}',
    )
