"""Turning application values into bytes and back.

A serializer is any function from a value to bytes or None, a deserializer one from bytes or None
to a value. Without one, bytes stay bytes, str becomes UTF-8 and None stays None (a tombstone).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tidewheel.errors import SerializationFailed

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes | None], Any]


def encode_plain(value: Any) -> bytes | None:
    """What is sent without a serializer; other types raise SerializationFailed."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"Cannot send a {type(value).__name__} as it is",
        hint="Give bytes or str, or set value_serializer=tidewheel.to_json",
    )


def to_json(value: Any) -> bytes | None:
    """Compact JSON as UTF-8; None stays a tombstone.

    >>> to_json({"a": [1, "ü"]}).decode()
    '{"a":[1,"ü"]}'
    """
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes | None) -> Any:
    """The value of a JSON text; None for a tombstone."""
    return None if data is None else json.loads(data)


def from_text(data: bytes | None) -> str | None:
    """UTF-8 text; None for a tombstone."""
    return None if data is None else data.decode()
