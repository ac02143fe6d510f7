"""Writes the encoders, which hold Kafka's rule for values that a version cannot carry: an error,
unless the field may be ignored."""

from __future__ import annotations

from functools import partial

from scripts.wire_generator.branching import INDENT, field_runs, joined, piece_by_version
from scripts.wire_generator.model import Field, Struct
from scripts.wire_generator.module_writer import (
    NUMBER_ARRAYS,
    ModuleWriter,
    literal,
    presence_conditions,
    tagged_fields,
    version_check,
)
from scripts.wire_generator.naming import snake_case


def write_encoder(module: ModuleWriter, struct: Struct) -> str:
    """`encode_<message>` for the message itself, `_encode_<struct>` for its parts."""
    message = module.message
    is_root = struct is message.root
    name = f"{'' if is_root else '_'}encode_{snake_case(struct.name)}"
    lines = [f"def {name}(writer: Writer, message: {struct.name}, version: int) -> None:"]
    body = []
    if is_root:
        body.append('"""Raises UnsupportedVersion and InvalidMessage."""')
        body += version_check(module)
    pieces = []
    for run in field_runs(struct):
        statements = (
            partial(_encode_run, module, struct, run)
            if run[0].is_fixed
            else partial(_encode_field, module, struct, run[0])
        )
        pieces.append(piece_by_version(struct, statements))
    for f in struct.fields:
        if f.tag is not None:
            pieces.append(piece_by_version(struct, partial(_refuse_absent, module, struct, f)))
    pieces.append(piece_by_version(struct, partial(_encode_tagged, module, struct)))
    body += joined(pieces)
    return "\n".join(lines + [INDENT + line for line in body or ["pass"]])


def _refuse_absent(module: ModuleWriter, struct: Struct, f: Field, version: int) -> list[str]:
    """Kafka's rule: what this version cannot carry is an error, unless it may be ignored."""
    if version in f.versions or f.ignorable:
        return []
    raised = module.use("unsupported_field")
    return [
        f"if {_differs_from_default(module, f)}:",
        f'{INDENT}raise {raised}("{struct.name}", "{f.name}", version)',
    ]


def _differs_from_default(module: ModuleWriter, f: Field) -> str:
    value = f"message.{f.name}"
    if f.default == "struct":
        module.default_checks.add(f.struct_name or "")
        return f"not _is_default_{snake_case(f.struct_name or '')}({value})"
    if f.default == "empty":
        return f"{value} is None or {value}" if f.nullable else value
    if f.default is None and f.kind != "uuid":
        return f"{value} is not None"
    if f.kind == "bool":
        return f"not {value}" if f.default else value
    if f.default in ("", b""):
        return f"{value} is None or {value}" if f.nullable else value
    return f"{value} != {literal(module, f)}"


def write_default_check(module: ModuleWriter, struct: Struct) -> str:
    """Whether a struct equals its default, for structs whose defaults are not written."""
    name = snake_case(struct.name)
    conditions = [f"not ({_differs_from_default(module, f)})" for f in struct.fields]
    lines = [
        f"def _is_default_{name}(message: {struct.name}) -> bool:",
        f"{INDENT}return {' and '.join(_simplify(c) for c in conditions)}",
    ]
    return "\n".join(lines)


def _simplify(condition: str) -> str:
    """`not (x != y)` reads better as `x == y`."""
    inner = condition.removeprefix("not (").removesuffix(")")
    if " != " in inner and " or " not in inner:
        return inner.replace(" != ", " == ")
    if inner.startswith("message.") and " " not in inner:
        return f"not {inner}"
    if inner.endswith(" is not None") and " or " not in inner:
        return inner.replace(" is not None", " is None")
    return condition


def _encode_run(module: ModuleWriter, struct: Struct, run: list[Field], version: int) -> list[str]:
    lines = []
    for f in run:
        lines += _refuse_absent(module, struct, f, version)
    present = [f for f in run if version in f.versions]
    if len(present) == 1:
        lines.append(f"writer.write_{present[0].kind}(message.{present[0].name})")
    elif present:
        values = ", ".join(f"message.{f.name}" for f in present)
        lines.append(f"writer.buf += {module.layout(present)}.pack({values})")
    return lines


def _encode_field(module: ModuleWriter, struct: Struct, f: Field, version: int) -> list[str]:
    if version not in f.versions:
        return _refuse_absent(module, struct, f, version)
    return _encode_value(module, f, version, "writer")


def _encode_value(module: ModuleWriter, f: Field, version: int, writer: str) -> list[str]:
    value = f"message.{f.name}"
    flexible = module.message.is_flexible(version)
    nullable = f.nullable is not None and version in f.nullable
    prefix = f"{'nullable_' if nullable else ''}{'compact_' if flexible else ''}"
    if f.is_array:
        length = f'{writer}.write_{prefix}array_length({value}, "{f.name}")'
        if f.nullable is None:
            return [length, *_encode_items(f, value, writer, flexible)]
        items = _encode_items(f, value, writer, flexible)
        return [length, f"if {value}:", *(INDENT + line for line in items)]
    if f.struct_name is not None:
        return _encode_struct(module, f, writer, nullable)
    if f.kind in ("string", "bytes", "records"):
        kind = "string" if f.kind == "string" else "bytes"
        return [f'{writer}.write_{prefix}{kind}({value}, "{f.name}")']
    return [f"{writer}.write_{f.kind}({value})"]


def _encode_items(f: Field, value: str, writer: str, flexible: bool) -> list[str]:
    if f.kind in NUMBER_ARRAYS:
        return [f"{writer}.write_{f.kind}_array({value})"]
    item = snake_case(f.struct_name) if f.struct_name is not None else f"{f.kind}_item"
    if f.struct_name is not None:
        write = f"_encode_{item}({writer}, {item}, version)"
    elif f.kind == "string":
        write = f'{writer}.write_{"compact_" if flexible else ""}string({item}, "{f.name}")'
    else:
        assert f.kind == "uuid", f
        write = f"{writer}.write_uuid({item})"
    return [f"for {item} in {value}:", f"{INDENT}{write}"]


def _encode_struct(module: ModuleWriter, f: Field, writer: str, nullable: bool) -> list[str]:
    write = f"_encode_{snake_case(f.struct_name or '')}({writer}, message.{f.name}, version)"
    if f.nullable is None:
        return [write]
    missing = (
        f"{writer}.write_int8(-1)" if nullable else f'raise {module.use("null_field")}("{f.name}")'
    )
    present = [f"{writer}.write_int8(1)"] if nullable else []
    return [
        f"if message.{f.name} is None:",
        f"{INDENT}{missing}",
        "else:",
        *(INDENT + line for line in [*present, write]),
    ]


def _encode_tagged(module: ModuleWriter, struct: Struct, version: int) -> list[str]:
    if not module.message.is_flexible(version):
        return []
    tagged = tagged_fields(struct)
    if not tagged:
        return ["writer.buf.append(0)"]
    lines = ["tagged: list[tuple[int, Writer]] = []"]
    for f in tagged:
        differs = _differs_from_default(module, f)
        presence = presence_conditions(module, struct, f)
        if presence and " or " in differs:
            differs = f"({differs})"
        lines.append(f"if {' and '.join([*presence, differs])}:")
        body = ["content = Writer()", *_encode_value(module, f, f.versions.last, "content")]
        body.append(f"tagged.append(({f.tag}, content))")
        lines += [INDENT + line for line in body]
    return [*lines, "writer.write_tagged_fields(tagged)"]
