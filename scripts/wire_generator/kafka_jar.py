"""Compares the merged schemas with those inside a kafka-clients jar.

Run by hand when kio or the reference version of Kafka changes:

    scripts/generate_wire --compare-with kafka-clients-4.3.1.jar

kafka-clients carries the message definitions that Kafka generates its own codecs from
(common/message/*.json). Every difference in versions, field sets, order, types, nullability,
defaults, tags and ignorable fields is named; each must end in facts.py or be explained there.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.wire_generator.model import NEVER, Field, Message, Struct, VersionRange
from scripts.wire_generator.naming import snake_case

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_ZEROS: dict[str, object] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
}


def differences(jar: Path, messages: list[Message]) -> Iterator[str]:
    """One line for each difference between our schemas and those in the jar."""
    with zipfile.ZipFile(jar) as archive:
        for message in messages:
            text = archive.read(f"common/message/{message.name}.json").decode()
            yield from _compare(message, json.loads(_COMMENT.sub("", text)))


def _compare(message: Message, theirs: dict[str, Any]) -> Iterator[str]:
    versions = _range(theirs["validVersions"], VersionRange(0, NEVER - 1))
    if versions != message.versions:
        yield f"{message.module}: versions {message.versions}, in Kafka {versions}"
    flexible = _range(theirs["flexibleVersions"], VersionRange(0, NEVER))
    first = NEVER if flexible is None else max(flexible.first, message.versions.first)
    if first != message.first_flexible_version:
        yield f"{message.module}: flexible from {message.first_flexible_version}, in Kafka {first}"
    collected: dict[str, dict[str, Field]] = {}
    order: dict[str, list[str]] = {}
    common = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    _collect(message, theirs["name"], theirs["fields"], message.versions, common, collected, order)
    for struct in message.structs:
        yield from _compare_struct(message, struct, collected.pop(struct.name, {}), order)
    for name in collected:
        yield f"{message.module}: {name} only in Kafka"


def _compare_struct(
    message: Message, struct: Struct, theirs: dict[str, Field], order: dict[str, list[str]]
) -> Iterator[str]:
    place = f"{message.module}: {struct.name}"
    ours = {f.name: f for f in struct.fields}
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(name), theirs.get(name)
        if mine is None or other is None:
            yield f"{place}.{name} only {'in Kafka' if mine is None else 'here'}"
            continue
        # Response fields are all ignorable here, on purpose; and the flag says nothing about a
        # field that every version has.
        flag_matters = message.module.endswith("_request") and mine.versions != struct.versions
        for attribute in Field.__dataclass_fields__:
            if attribute == "ignorable" and not flag_matters:
                continue
            a, b = getattr(mine, attribute), getattr(other, attribute)
            if (a, type(a)) != (b, type(b)) and not _is_null_records(mine, attribute):
                yield f"{place}.{name}: {attribute} {a!r}, in Kafka {b!r}"
    for version in range(struct.versions.first, struct.versions.last + 1):
        names = [f.name for f in struct.fields_in(version)]
        expected = [n for n in order[struct.name] if n in names]
        if names != expected:
            yield f"{place}: order in version {version} is {names}, in Kafka {expected}"


def _is_null_records(f: Field, attribute: str) -> bool:
    """Kafka's default of records is null even where null cannot be written; ours is empty."""
    return f.kind == "records" and f.nullable is None and attribute == "default"


def _collect(
    message: Message,
    struct: str,
    fields: list[dict[str, Any]],
    versions: VersionRange,
    common: dict[str, list[dict[str, Any]]],
    collected: dict[str, dict[str, Field]],
    order: dict[str, list[str]],
) -> None:
    """Gathers the fields of each struct. One struct may be used by several fields, in different
    versions: its versions are those of all uses together."""
    order.setdefault(struct, [snake_case(f["name"]) for f in fields])
    known = collected.setdefault(struct, {})
    for entry in fields:
        field = _field(entry, versions)
        if field is None:
            continue
        before = known.get(field.name)
        known[field.name] = field if before is None else _widened(before, field)
        if field.struct_name is not None:
            nested = entry.get("fields") or common[field.struct_name]
            _collect(message, field.struct_name, nested, field.versions, common, collected, order)


def _widened(a: Field, b: Field) -> Field:
    versions = VersionRange(
        min(a.versions.first, b.versions.first), max(a.versions.last, b.versions.last)
    )
    return Field(
        a.name,
        a.kind,
        a.is_array,
        a.struct_name,
        versions,
        a.nullable if a.nullable == b.nullable else None,
        a.tag,
        a.default,
        a.ignorable,
    )


def _field(entry: dict[str, Any], within: VersionRange) -> Field | None:
    versions = _range(entry["versions"], within)
    if versions is None:
        return None
    kind: str = entry["type"]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    is_struct = kind[0].isupper()
    return Field(
        name=snake_case(entry["name"]),
        kind="struct" if is_struct else kind,
        is_array=is_array,
        struct_name=kind if is_struct else None,
        versions=versions,
        nullable=_range(entry.get("nullableVersions", "none"), versions),
        tag=entry.get("tag"),
        default=_default(entry, kind, is_array),
        ignorable=bool(entry.get("ignorable")),
    )


def _default(entry: dict[str, Any], kind: str, is_array: bool) -> object:
    text = entry.get("default")
    if text == "null":
        return None
    if is_array:
        return "empty"
    if kind[0].isupper():
        return "struct"
    if text is None:
        return _ZEROS.get(kind, 0)
    if kind == "bool":
        return str(text).lower() == "true"
    return text if kind == "string" else int(str(text), 0)


def _range(text: str, within: VersionRange) -> VersionRange | None:
    """`3+`, `0-2`, `4` or `none`, cut to the versions that exist."""
    if text == "none":
        return None
    first, last = text, text
    if text.endswith("+"):
        first, last = text[:-1], str(within.last)
    elif "-" in text:
        first, last = text.split("-")
    cut = VersionRange(max(int(first), within.first), min(int(last), within.last))
    return cut if cut.first <= cut.last else None
