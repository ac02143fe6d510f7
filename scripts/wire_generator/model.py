"""What the generator knows of a message: one merged description over all of its versions.

Invariants
- A field is present in one contiguous range of versions, nullable in one contiguous range within
  it, and is tagged in all of its versions or in none.
- Field order is wire order: for every version, the fields present in it, read in the order of
  `Struct.fields`, are what Kafka writes. Tagged fields come by tag number instead.

This module is facts only: where they come from is kio_source's business, what code is written for
them is emit's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scripts.wire_generator.entity_types import ByType

NEVER: Final = 32767
"""First flexible version of a message that is never flexible; above every version."""

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""Struct format characters of the kinds with a fixed width (big endian everywhere)."""

KINDS: Final = frozenset(FIXED_FORMATS) | {"uuid", "string", "bytes", "records", "struct"}


@dataclass(frozen=True, slots=True)
class VersionRange:
    """An inclusive range of versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Field:
    """One field over all versions. `default` is the schema's own (Kafka's implicit one when it
    names none): 0, False, 0.0, "", b"", None, or "empty" for arrays and "struct" for structs.
    `entity` is what it means, see entity_types; None for structs, plain numbers and bytes."""

    name: str
    kind: str
    is_array: bool
    struct_name: str | None
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    default: object
    ignorable: bool
    entity: str | ByType | None = None

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self
        assert (self.kind == "struct") == (self.struct_name is not None), self
        if self.nullable is not None:
            assert self.nullable.first in self.versions, self
            assert self.nullable.last in self.versions, self

    @property
    def is_fixed(self) -> bool:
        """Whether one struct format character reads it in every version."""
        return self.kind in FIXED_FORMATS and not self.is_array and self.tag is None

    @property
    def element_kind(self) -> str:
        return self.struct_name or self.kind


@dataclass(frozen=True, slots=True)
class Struct:
    """A message or a nested structure, present in `versions` of its message."""

    name: str
    versions: VersionRange
    fields: tuple[Field, ...]

    def fields_in(self, version: int) -> list[Field]:
        """The untagged fields of one version in wire order."""
        return [f for f in self.fields if f.tag is None and version in f.versions]


@dataclass(frozen=True, slots=True)
class Message:
    """One module to be written. `structs` are ordered so that a struct follows those it uses;
    the last one is the message itself."""

    module: str
    name: str
    api_key: int | None
    versions: VersionRange
    first_flexible_version: int
    structs: tuple[Struct, ...] = field(repr=False)

    @property
    def root(self) -> Struct:
        return self.structs[-1]

    def struct(self, name: str) -> Struct:
        return next(s for s in self.structs if s.name == name)

    def is_flexible(self, version: int) -> bool:
        return version >= self.first_flexible_version


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the registry."""

    key: int
    name: str
    request: Message
    response: Message
