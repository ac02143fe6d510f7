"""Writes the translators, which put the names in a message through a `NameMap`.

    def translate_heartbeat_request(message: HeartbeatRequest, names: NameMap, version: int) -> None

A message without names has none. Fields that the version does not carry, null, and whatever is no
name stay as they are.
"""

from __future__ import annotations

from functools import partial

from scripts.wire_generator.branching import INDENT, joined, piece_by_version
from scripts.wire_generator.entity_types import TRANSLATORS, ByType
from scripts.wire_generator.model import Field, Struct
from scripts.wire_generator.module_writer import ModuleWriter
from scripts.wire_generator.naming import snake_case


def write_translator(module: ModuleWriter, struct: Struct) -> str:
    """`translate_<message>` for the message itself, `_translate_<struct>` for its parts."""
    message = module.message
    is_root = struct is message.root
    name = f"{'' if is_root else '_'}translate_{snake_case(struct.name)}"
    selectors = "".join(f", {selector}: int" for selector in _request_selectors(module, struct))
    lines = [
        f"def {name}(message: {struct.name}, names: NameMap, version: int{selectors}) -> None:"
    ]
    body = []
    if is_root:
        body.append('"""Put the names that this version carries through `names`, in place."""')
    module.uses_names = True
    pieces = [
        piece_by_version(struct, partial(_translate_field, module, f))
        for f in struct.fields
        if f.is_name or _has_names(module, f)
    ]
    body += joined(pieces)
    return "\n".join(lines + [INDENT + line for line in body])


def _has_names(module: ModuleWriter, f: Field) -> bool:
    message = module.message
    return f.struct_name is not None and message.has_names(message.struct(f.struct_name))


def _request_selectors(module: ModuleWriter, struct: Struct) -> list[str]:
    """Fields of the request that say what fields of this struct mean."""
    found: list[str] = []
    for f in struct.fields:
        if isinstance(f.entity, ByType) and f.entity.is_of_request:
            found.append(f.entity.selector)
        elif f.struct_name is not None:
            found += _request_selectors(module, module.message.struct(f.struct_name))
    return list(dict.fromkeys(found))


def _translate_field(module: ModuleWriter, f: Field, version: int) -> list[str]:
    if version not in f.versions:
        return []
    value = f"message.{f.name}"
    if f.struct_name is not None:
        return _translate_struct(module, f, value)
    assert f.kind == "string", f
    if isinstance(f.entity, ByType):
        selector = f.entity.selector
        selected = selector if f.entity.is_of_request else f"message.{selector}"
        lines = []
        for index, (number, entity) in enumerate(f.entity.entities):
            lines.append(f"{'elif' if index else 'if'} {selected} == {number}:")
            lines += [INDENT + line for line in _translate_name(f, value, entity)]
    else:
        assert f.entity is not None, f
        lines = _translate_name(f, value, f.entity)
    if f.nullable is None:
        return lines
    return [f"if {value} is not None:", *(INDENT + line for line in lines)]


def _translate_name(f: Field, value: str, entity: str) -> list[str]:
    translate = f"names.{TRANSLATORS[entity]}"
    if f.is_array:
        return [f"{value} = [{translate}(each) for each in {value}]"]
    return [f"{value} = {translate}({value})"]


def _translate_struct(module: ModuleWriter, f: Field, value: str) -> list[str]:
    assert f.struct_name is not None
    part = snake_case(f.struct_name) if f.is_array else value
    selectors = _request_selectors(module, module.message.struct(f.struct_name))
    arguments = ", ".join([part, "names", "version", *selectors])
    call = f"_translate_{snake_case(f.struct_name)}({arguments})"
    if not f.is_array:
        return [call] if f.nullable is None else [f"if {value} is not None:", INDENT + call]
    items = f"{value} or ()" if f.nullable is not None else value
    return [f"for {part} in {items}:", INDENT + call]
