"""Reads the message schemas that the kio package carries and merges the versions of each.

kio has one Python module per message and version, with dataclasses whose field metadata names the
Kafka type. This module turns all of them into `model.Message` values, and undoes kio's liberties:

- durations and timestamps become plain integers again, under Kafka's names (`max_wait` of type
  timedelta is MaxWaitMs, hence `max_wait_ms`);
- a timestamp whose default is None is an int64 with the default -1;
- a UUID is never null on the wire (kio shows the zero UUID as None).

What kio does not tell (which fields may be dropped for older versions) comes from facts.py, what
Kafka's schemas do not (names in fields that are not marked as such) from entity_types.py. Only the
generator and the tests import kio; the product never does.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import types
import typing
import uuid
from collections.abc import Iterable
from functools import cache
from typing import Any

from kio.schema import types as kio_types
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from scripts.wire_generator import entity_types, facts
from scripts.wire_generator.model import NEVER, Api, Field, Message, Struct, VersionRange

EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


def load_class(schema: str, version: int, entity: EntityType) -> type[Any]:
    """kio's class of one message in one version."""
    module_name, class_name = schema_name_map[schema][version][entity].split(":")  # type: ignore[index]
    loaded: type[Any] = getattr(importlib.import_module(module_name), class_name)
    return loaded


def load_api(key: int) -> Api:
    """One API with its request and response, all versions."""
    schema = api_key_map[key]
    request = load_message(schema, EntityType.request)
    response = load_message(schema, EntityType.response)
    return Api(key, request.name.removesuffix("Request"), request, response)


@cache
def load_apis() -> list[Api]:
    """All APIs of facts.API_KEYS, by key."""
    return [load_api(key) for key in facts.API_KEYS]


def load_messages() -> list[Message]:
    """Requests and responses of all APIs, then the messages that belong to none."""
    messages = [m for api in load_apis() for m in (api.request, api.response)]
    return messages + [load_message(schema, EntityType.data) for schema in facts.DATA_SCHEMAS]


def load_message(schema: str, entity: EntityType) -> Message:
    """Merges all of kio's versions of one message."""
    versions = sorted(v for v, kinds in schema_name_map[schema].items() if entity in kinds)
    classes = {v: load_class(schema, v, entity) for v in versions}
    assert versions == list(range(versions[0], versions[-1] + 1)), schema
    flexible = [v for v in versions if classes[v].__flexible__]
    name = classes[versions[-1]].__name__
    module = schema if entity is EntityType.data else f"{schema}_{entity.name}"
    structs = _merge_structs(module, classes)
    api_key = getattr(classes[versions[-1]], "__api_key__", None)
    return Message(
        module=module,
        name=name,
        api_key=None if api_key is None else int(api_key),
        versions=VersionRange(versions[0], versions[-1]),
        first_flexible_version=min(flexible, default=NEVER),
        structs=tuple(structs),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Seen:
    """One field in one version, as kio shows it."""

    name: str
    kind: str
    is_array: bool
    nested: type[Any] | None
    is_nullable: bool
    tag: int | None
    default: object
    entity: str | None


def _merge_structs(module: str, classes: dict[int, type[Any]]) -> list[Struct]:
    seen: dict[str, dict[int, list[_Seen]]] = {}
    for version, root in classes.items():
        _collect(root, version, seen)
    merged = {name: _merge_struct(module, name, by_version) for name, by_version in seen.items()}
    ordered: list[Struct] = []

    def place(struct: Struct) -> None:
        for field in struct.fields:
            if field.struct_name is not None:
                place(merged[field.struct_name])
        if struct not in ordered:
            ordered.append(struct)

    place(merged[classes[max(classes)].__name__])
    assert len(ordered) == len(merged), (module, set(merged) - {s.name for s in ordered})
    return ordered


def _collect(cls: type[Any], version: int, seen: dict[str, dict[int, list[_Seen]]]) -> None:
    fields = [_inspect(f) for f in dataclasses.fields(cls)]
    known = seen.setdefault(cls.__name__, {}).setdefault(version, fields)
    assert known == fields, (cls, version)
    for field in fields:
        if field.nested is not None:
            _collect(field.nested, version, seen)


def _inspect(field: dataclasses.Field[Any]) -> _Seen:
    annotation = field.type
    assert not isinstance(annotation, str)
    is_nullable = False
    is_array = False
    if isinstance(annotation, types.UnionType):
        (annotation,) = (a for a in annotation.__args__ if a is not types.NoneType)
        is_nullable = True
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
        is_array = True
    kafka_type = field.metadata.get("kafka_type")
    tag = field.metadata.get("tag")
    if kafka_type is None:
        assert isinstance(annotation, type)
        kind, nested = "struct", annotation
    else:
        kind, nested = _KINDS.get(kafka_type, kafka_type), None
    if kind == "uuid" or (kafka_type == "datetime_i64"):
        is_nullable = False
    default = _plain_default(kind, is_array, is_nullable, field)
    name = field.name
    if kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64"):
        name = f"{name}_ms"
    entity = _ENTITIES.get(annotation)
    return _Seen(name, kind, is_array, nested, is_nullable, tag, default, entity)


_ENTITIES: dict[Any, str] = {
    kio_types.TopicName: entity_types.TOPIC,
    kio_types.GroupId: entity_types.GROUP,
    kio_types.TransactionalId: entity_types.TRANSACTIONAL_ID,
    kio_types.BrokerId: entity_types.BROKER,
    kio_types.ProducerId: entity_types.PRODUCER,
}

_KINDS = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
}

_IMPLICIT_DEFAULTS: dict[str, object] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "struct": "struct",
}


def _plain_default(
    kind: str, is_array: bool, is_nullable: bool, field: dataclasses.Field[Any]
) -> object:
    value = field.default
    if value is None and is_nullable:
        return None
    if is_array:
        assert value in (dataclasses.MISSING, ()), field
        return "empty"
    if kind == "records" and not is_nullable:
        return b""
    if kind == "struct" or value is dataclasses.MISSING:
        return _IMPLICIT_DEFAULTS.get(kind, 0)
    if kind == "uuid":
        assert value in (None, uuid.UUID(int=0)), field
        return None
    if value is None:
        assert field.metadata["kafka_type"] == "datetime_i64", field
        return -1
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, enum.Enum):
        return int(value.value)
    for plain in (bool, int, float, str, bytes):
        if isinstance(value, plain):
            return plain(value)  # type: ignore[arg-type]
    raise TypeError(f"unexpected default {value!r} of {field.name}")


def _merge_struct(module: str, name: str, by_version: dict[int, list[_Seen]]) -> Struct:
    versions = _contiguous(by_version)
    order = _merge_order([[f.name for f in by_version[v]] for v in sorted(by_version)])
    fields = []
    for field_name in order:
        present = {v: f for v, seen in by_version.items() for f in seen if f.name == field_name}
        fields.append(_merge_field(module, name, present))
    return Struct(name, versions, tuple(fields))


def _merge_field(module: str, struct: str, present: dict[int, _Seen]) -> Field:
    newest = present[max(present)]
    for seen in present.values():
        same = dataclasses.replace(
            seen, is_nullable=newest.is_nullable, nested=newest.nested, default=newest.default
        )
        assert same == newest, (module, struct, seen, newest)
    nullable = [v for v, seen in present.items() if seen.is_nullable]
    key = (module, struct, newest.name)
    return Field(
        name=newest.name,
        kind=newest.kind,
        is_array=newest.is_array,
        struct_name=None if newest.nested is None else newest.nested.__name__,
        versions=_contiguous(present),
        nullable=_contiguous(nullable) if nullable else None,
        tag=newest.tag,
        default=facts.DEFAULTS.get(key, newest.default),
        ignorable=module.endswith("_response") or key in facts.IGNORABLE,
        entity=newest.entity or entity_types.unmarked(key, newest.kind),
    )


def _contiguous(versions: Iterable[int]) -> VersionRange:
    ordered = sorted(versions)
    assert ordered == list(range(ordered[0], ordered[-1] + 1)), ordered
    return VersionRange(ordered[0], ordered[-1])


def _merge_order(orders: list[list[str]]) -> list[str]:
    """One order that agrees with every version's (oldest first). Example: [a, b], [a, c, b],
    [c, b, d] merge to [a, c, b, d]."""
    merged: list[str] = []
    for names in reversed(orders):
        position = 0
        for name in names:
            if name in merged:
                position = merged.index(name) + 1
            else:
                merged.insert(position, name)
                position += 1
    for names in orders:
        assert [n for n in merged if n in names] == names, (merged, names)
    return merged
