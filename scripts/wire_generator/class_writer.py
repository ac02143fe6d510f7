"""Writes the message classes."""

from __future__ import annotations

from scripts.wire_generator.branching import INDENT
from scripts.wire_generator.entity_types import TEXT, ByType
from scripts.wire_generator.model import Field, Struct
from scripts.wire_generator.module_writer import ModuleWriter, literal

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "UUID",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview",
}


def write_class(module: ModuleWriter, struct: Struct) -> str:
    """One class: its slots, and a constructor with the schema's defaults."""
    what = "The message." if struct is module.message.root else f"Part of {module.message.name}."
    lines = [f"class {struct.name}(Message):", f'{INDENT}"""{what}"""', ""]
    if not struct.fields:
        return "\n".join([*lines, f"{INDENT}__slots__ = ()"])
    slots = "".join(f'"{name}", ' for name in sorted(f.name for f in struct.fields))
    lines.append(f"{INDENT}__slots__ = ({slots})")
    lines += ["", f"{INDENT}def __init__(", f"{INDENT * 2}self,", f"{INDENT * 2}*,"]
    for f in struct.fields:
        lines.append(f"{INDENT * 2}{f.name}: {_parameter(module, f)},")
    lines.append(f"{INDENT}) -> None:")
    for f in struct.fields:
        lines.append(f"{INDENT * 2}self.{f.name} = {_initial(f)}{_comment(struct, f)}")
    return "\n".join(lines)


def _type(module: ModuleWriter, f: Field) -> str:
    python_type = f.struct_name or PYTHON_TYPES.get(f.kind, "int")
    if f.kind == "uuid":
        module.use("UUID")
    if f.is_array:
        python_type = f"list[{python_type}]"
    return f"{python_type} | None" if f.nullable else python_type


def _parameter(module: ModuleWriter, f: Field) -> str:
    annotation = _type(module, f)
    if f.default == "empty":
        return f"{annotation} = {module.use('EMPTY')}"
    if f.default == "struct":
        return f"{annotation.removesuffix(' | None')} | None = None"
    return f"{annotation} = {literal(module, f)}"


def _initial(f: Field) -> str:
    if f.default == "empty":
        return f"[] if {f.name} is EMPTY else {f.name}"
    if f.default == "struct":
        assert f.nullable is None, f
        return f"{f.struct_name}() if {f.name} is None else {f.name}"
    return f.name


def _comment(struct: Struct, f: Field) -> str:
    notes = []
    if f.versions != struct.versions:
        notes.append(f"versions {f.versions.first} to {f.versions.last}")
    if f.tag is not None:
        notes.append(f"tag {f.tag}")
    if f.nullable is not None and f.nullable != f.versions:
        notes.append(f"nullable in {f.nullable.first} to {f.nullable.last}")
    if isinstance(f.entity, ByType):
        notes.append(" or ".join(entity for _, entity in f.entity.entities))
    elif f.entity not in (None, TEXT):
        notes.append(f"{f.entity}")
    return f"  # {', '.join(notes)}" if notes else ""
