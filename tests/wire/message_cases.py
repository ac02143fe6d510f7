"""Every generated message in every version, and random instances of them.

Instances are built from the schema that the generator reads, not from the generated code, so that
a field which the generator forgot fails a test. One builder serves two sources of choices:
`HypothesisChooser` for properties (examples shrink), `RandomChooser` for fuzzing by seed (a
thousand times as many per second).
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol
from uuid import UUID

from hypothesis import strategies as st

from scripts.wire_generator.kio_source import load_messages
from scripts.wire_generator.model import Field, Message, Struct
from scripts.wire_generator.naming import snake_case
from scripts.wire_generator.own_apis import OWN_MESSAGES

ARRAY_ITEMS_MAX = 3
TEXT_MAX = 200
BYTES_MAX = 200

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Chooser(Protocol):
    """Where the builder's choices come from."""

    def integer(self, smallest: int, largest: int) -> int: ...

    def number(self) -> float: ...

    def text(self) -> str: ...

    def data(self) -> bytes: ...


class HypothesisChooser:
    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def integer(self, smallest: int, largest: int) -> int:
        return self._draw(st.integers(smallest, largest))

    def number(self) -> float:
        return self._draw(st.floats(allow_nan=False, allow_infinity=False))

    def text(self) -> str:
        return self._draw(st.text(st.characters(codec="utf-8"), max_size=TEXT_MAX // 4))

    def data(self) -> bytes:
        return self._draw(st.binary(max_size=BYTES_MAX))


class RandomChooser:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def integer(self, smallest: int, largest: int) -> int:
        rng = self._rng
        if largest - smallest > 8 and rng.random() < 0.5:
            return min(largest, max(smallest, rng.choice((0, -1, 1, smallest, largest))))
        return rng.randint(smallest, largest)

    def number(self) -> float:
        return self._rng.uniform(-1e9, 1e9)

    def text(self) -> str:
        rng = self._rng
        size = rng.choice((0, 1, 5, 20, 126, 127, 128, TEXT_MAX))
        alphabet = string.printable if rng.random() < 0.8 else "aé漢🌊"
        return "".join(rng.choices(alphabet, k=size))

    def data(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 7, 126, 127, 128, BYTES_MAX)))


@cache
def all_messages() -> dict[str, Message]:
    """Every message that has a codec, by module name."""
    return {message.module: message for message in [*load_messages(), *OWN_MESSAGES]}


@cache
def module_of(message: Message) -> ModuleType:
    return import_module(f"data_plane.wire.messages.{message.module}")


@cache
def decoder(message: Message) -> Callable[..., Any]:
    decode: Callable[..., Any] = getattr(module_of(message), f"decode_{snake_case(message.name)}")
    return decode


@cache
def encoder(message: Message) -> Callable[..., None]:
    encode: Callable[..., None] = getattr(module_of(message), f"encode_{snake_case(message.name)}")
    return encode


def versions_of(message: Message) -> range:
    return range(message.versions.first, message.versions.last + 1)


def build(message: Message, version: int, chooser: Chooser) -> Any:
    """An instance in which every field of this version has some value, and no other field."""
    return _build_struct(message, message.root, version, chooser)


def _build_struct(message: Message, struct: Struct, version: int, chooser: Chooser) -> Any:
    values = {
        f.name: _build_field(message, f, version, chooser)
        for f in struct.fields
        if version in f.versions
    }
    return getattr(module_of(message), struct.name)(**values)


def _build_field(message: Message, f: Field, version: int, chooser: Chooser) -> Any:
    if f.nullable is not None and version in f.nullable and chooser.integer(0, 3) == 0:
        return None
    if f.is_array:
        count = chooser.integer(0, ARRAY_ITEMS_MAX)
        return [_build_value(message, f, version, chooser) for _ in range(count)]
    return _build_value(message, f, version, chooser)


def _build_value(message: Message, f: Field, version: int, chooser: Chooser) -> Any:
    if f.struct_name is not None:
        return _build_struct(message, message.struct(f.struct_name), version, chooser)
    if f.kind in INTEGER_BITS:
        half = 1 << (INTEGER_BITS[f.kind] - 1)
        return chooser.integer(-half, half - 1)
    match f.kind:
        case "bool":
            return chooser.integer(0, 1) == 1
        case "uint16":
            return chooser.integer(0, 0xFFFF)
        case "uint32":
            return chooser.integer(0, 0xFFFF_FFFF)
        case "float64":
            return chooser.number()
        case "string":
            return chooser.text()
        case "uuid":
            return UUID(int=chooser.integer(0, (1 << 128) - 1))
        case "bytes" | "records":
            return chooser.data()
    raise AssertionError(f"no values for {f.kind}")
