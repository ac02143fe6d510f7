"""Our messages as kio's, to compare the two encoders byte for byte.

kio's types are narrower than the wire: error codes must be known, timestamps must be dates. Values
outside are replaced, in the given message too, so that both sides encode the same.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from scripts.wire_generator.kio_source import load_class
from scripts.wire_generator.model import Message

EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
DATE_MS_MAX = 253_402_000_000_000
"""Just before the year 10000, where Python's dates end."""
DURATION_MS_MAX = 1 << 40
"""kio keeps durations as floating-point seconds; up to here they are exact."""


@cache
def kio_class(message: Message, version: int) -> type[Any]:
    if message.module.endswith("_request"):
        schema, entity = api_key_map[message.api_key or 0], EntityType.request
    elif message.module.endswith("_response"):
        schema, entity = api_key_map[message.api_key or 0], EntityType.response
    else:
        schema, entity = message.module, EntityType.data
    return load_class(schema, version, entity)


@cache
def _writer(cls: type[Any]) -> Any:
    return entity_writer(cls)


def encode_with_kio(message: Message, version: int, ours: Any) -> bytes:
    """The bytes that kio writes for our message; may change values of `ours`, see above."""
    cls = kio_class(message, version)
    buffer = io.BytesIO()
    _writer(cls)(buffer, _convert(cls, ours))  # type: ignore[arg-type]
    return buffer.getvalue()


def _convert(cls: type[Any], ours: Any) -> Any:
    values = {}
    for field in dataclasses.fields(cls):
        kafka_type = field.metadata.get("kafka_type", "struct")
        name = field.name
        if kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64"):
            name = f"{name}_ms"
        value = _representable(field, kafka_type, getattr(ours, name))
        setattr(ours, name, value)
        values[field.name] = _convert_value(field, kafka_type, value)
    return cls(**values)


def _representable(field: dataclasses.Field[Any], kafka_type: str, value: Any) -> Any:
    if kafka_type == "error_code":
        return value % 134
    if kafka_type == "timedelta_i64":
        return value % DURATION_MS_MAX
    if kafka_type == "datetime_i64":
        return -1 if value < 0 and _is_optional(field) else value % DATE_MS_MAX
    return value


def _convert_value(field: dataclasses.Field[Any], kafka_type: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        if kafka_type != "struct":
            return tuple(value)
        cls = _struct_class(field)
        return tuple(_convert(cls, item) for item in value)
    match kafka_type:
        case "uuid":
            return None if value.int == 0 and _is_optional(field) else value
        case "struct":
            return _convert(_struct_class(field), value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            if value == -1 and _is_optional(field):
                return None
            return EPOCH + datetime.timedelta(milliseconds=value)
    return value


def _is_optional(field: dataclasses.Field[Any]) -> bool:
    return isinstance(field.type, types.UnionType)


def _struct_class(field: dataclasses.Field[Any]) -> type[Any]:
    annotation: Any = field.type
    if isinstance(annotation, types.UnionType):
        annotation = next(a for a in annotation.__args__ if a is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
    assert isinstance(annotation, type)
    return annotation
