"""What all messages have in common: their base class, their errors, and shared constants."""

from __future__ import annotations

from typing import Any, ClassVar, Final
from uuid import UUID

from data_plane.wire.errors import InvalidMessage, UnsupportedVersion

Buffer = bytes | bytearray | memoryview

ARRAY_ITEMS_MAX: Final = 250_000
"""Array items in all arrays of one frame. The widest legitimate frame, all metadata of 10,000
partitions with three replicas, has about 110,000. An item costs at most 200 bytes once decoded
(an object and its empty lists), so a frame costs at most 50 MB on top of its own size."""

STRING_BYTES_MAX: Final = 32_767
"""Longest string in UTF-8. Compact strings could be longer on the wire, but Kafka refuses them."""

UVARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no id"."""

EMPTY: Final[list[Any]] = []
"""The default of array parameters in message constructors: each message gets a new empty list.
Never stored in a message."""


class Message:
    """Base of all message classes: equality and a readable form over `__slots__`. Messages are
    mutable and therefore not hashable."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def unsupported_version(message_name: str, version: int) -> UnsupportedVersion:
    """The error for a version that the message does not have."""
    return UnsupportedVersion(f"{message_name} has no version {version}")


def unsupported_field(message_name: str, field: str, version: int) -> UnsupportedVersion:
    """The error for a value that the version being written cannot carry."""
    return UnsupportedVersion(
        f"{message_name} version {version} cannot carry the value set in {field}"
    )


def null_field(field: str) -> InvalidMessage:
    """The error for None in a field that is not nullable in the version being written."""
    return InvalidMessage(f"{field} is None, but is not nullable in this version")
