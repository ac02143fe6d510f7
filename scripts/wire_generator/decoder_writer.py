"""Writes the decoders."""

from __future__ import annotations

from functools import partial

from scripts.wire_generator.branching import INDENT, field_runs, joined, piece_by_version
from scripts.wire_generator.model import Field, Message, Struct
from scripts.wire_generator.module_writer import (
    NUMBER_ARRAYS,
    ModuleWriter,
    literal,
    presence_conditions,
    tagged_fields,
    version_check,
)
from scripts.wire_generator.naming import snake_case


def write_decoder(module: ModuleWriter, struct: Struct) -> str:
    """`decode_<message>` for the message itself, `_decode_<struct>` for its parts."""
    message = module.message
    is_root = struct is message.root
    name = f"{'' if is_root else '_'}decode_{snake_case(struct.name)}"
    lines = [f"def {name}(reader: Reader, version: int) -> {struct.name}:"]
    body = []
    if is_root:
        body.append('"""Raises MalformedFrame and UnsupportedVersion."""')
        body += version_check(module)
    body.append(f"message = object.__new__({struct.name})")
    pieces = []
    for run in field_runs(struct):
        statements = (
            partial(_decode_run, module, run)
            if run[0].is_fixed
            else partial(_decode_field, module, run[0])
        )
        pieces.append(piece_by_version(struct, statements))
    tagged = [f for f in struct.fields if f.tag is not None]
    defaults = [f"message.{f.name} = {literal(module, f)}" for f in tagged]
    pieces.append(piece_by_version(struct, lambda v: defaults))
    pieces.append(piece_by_version(struct, partial(_decode_tagged, module, struct)))
    body += joined(pieces)
    body.append("return message")
    return "\n".join(lines + [INDENT + line for line in body])


def _decode_run(module: ModuleWriter, run: list[Field], version: int) -> list[str]:
    present = [f for f in run if version in f.versions]
    lines = []
    if len(present) == 1:
        lines.append(f"message.{present[0].name} = reader.read_{present[0].kind}()")
    elif present:
        targets = ", ".join(f"message.{f.name}" for f in present)
        lines.append(f"({targets}) = reader.unpack({module.layout(present)})")
    absent = [f for f in run if version not in f.versions]
    return lines + [f"message.{f.name} = {literal(module, f)}" for f in absent]


def _decode_field(module: ModuleWriter, f: Field, version: int) -> list[str]:
    if version not in f.versions:
        return [f"message.{f.name} = {literal(module, f)}"]
    return _decode_value(module, f, version)


def _decode_value(module: ModuleWriter, f: Field, version: int) -> list[str]:
    target = f"message.{f.name}"
    flexible = module.message.is_flexible(version)
    nullable = f.nullable is not None and version in f.nullable
    prefix = f"{'nullable_' if nullable else ''}{'compact_' if flexible else ''}"
    if f.is_array:
        return _decode_array(module, f, prefix, flexible, nullable)
    if f.struct_name is not None:
        read = f"_decode_{snake_case(f.struct_name)}(reader, version)"
        if nullable:
            read = f'{read} if reader.read_present("{f.name}") else None'
        return [f"{target} = {read}"]
    if f.kind in ("string", "bytes", "records"):
        return [f'{target} = reader.read_{prefix}{f.kind}("{f.name}")']
    return [f"{target} = reader.read_{f.kind}()"]


def _decode_array(
    module: ModuleWriter, f: Field, prefix: str, flexible: bool, nullable: bool
) -> list[str]:
    size = min_item_bytes(module.message, f, flexible)
    count = f'reader.read_{prefix}array_length({size}, "{f.name}")'
    if not nullable:
        return [f"message.{f.name} = {_decode_items(f, count, flexible)}"]
    items = _decode_items(f, "count", flexible)
    return [f"count = {count}", f"message.{f.name} = None if count < 0 else {items}"]


def _decode_items(f: Field, count: str, flexible: bool) -> str:
    if f.kind in NUMBER_ARRAYS:
        return f"reader.read_{f.kind}_array({count})"
    if f.struct_name is not None:
        item = f"_decode_{snake_case(f.struct_name)}(reader, version)"
    elif f.kind == "string":
        item = f'reader.read_{"compact_" if flexible else ""}string("{f.name}")'
    else:
        assert f.kind == "uuid", f
        item = "reader.read_uuid()"
    return f"[{item} for _ in range({count})]"


def _decode_tagged(module: ModuleWriter, struct: Struct, version: int) -> list[str]:
    if not module.message.is_flexible(version):
        return []
    tagged = tagged_fields(struct)
    if not tagged:
        return ["reader.skip_tagged_fields()"]
    lines = ["for _ in range(reader.read_tagged_fields_count()):"]
    body = ["tag = reader.read_uvarint()", "end = reader.read_tagged_field_end()"]
    for index, f in enumerate(tagged):
        keyword = "elif" if index else "if"
        condition = " and ".join([f"tag == {f.tag}", *presence_conditions(module, struct, f)])
        body.append(f"{keyword} {condition}:")
        body += [INDENT + line for line in _decode_value(module, f, f.versions.last)]
    body += ["else:", f"{INDENT}reader.pos = end", "reader.check_tagged_field_end(end)"]
    return lines + [INDENT + line for line in body]


def min_item_bytes(message: Message, f: Field, flexible: bool) -> int:
    """The fewest bytes that one item of this array takes in any such version."""
    versions = [
        v
        for v in range(f.versions.first, f.versions.last + 1)
        if message.is_flexible(v) == flexible
    ]
    if f.struct_name is None:
        return _min_bytes(message, f.kind, flexible)
    struct = message.struct(f.struct_name)
    size = min(_min_struct_bytes(message, struct, v) for v in versions)
    assert size > 0, f"items of {f.name} could take no bytes at all"
    return size


def _min_struct_bytes(message: Message, struct: Struct, version: int) -> int:
    flexible = message.is_flexible(version)
    size = 1 if flexible else 0
    for f in struct.fields_in(version):
        if f.is_array:
            size += 1 if flexible else 4
        elif f.struct_name is None:
            size += _min_bytes(message, f.kind, flexible)
        elif f.nullable is not None and version in f.nullable:
            size += 1
        else:
            size += _min_struct_bytes(message, message.struct(f.struct_name), version)
    return size


def _min_bytes(message: Message, kind: str, flexible: bool) -> int:
    if kind == "string":
        return 1 if flexible else 2
    if kind in ("bytes", "records"):
        return 1 if flexible else 4
    return {"uuid": 16, "bool": 1, "int8": 1, "int16": 2, "uint16": 2}.get(
        kind, 8 if kind in ("int64", "float64") else 4
    )
