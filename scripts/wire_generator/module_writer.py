"""What the writers of one module's parts share: imports, struct layouts, literals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scripts.wire_generator.branching import INDENT
from scripts.wire_generator.model import FIXED_FORMATS, Field, Message, Struct
from scripts.wire_generator.naming import struct_constant

NUMBER_ARRAYS = frozenset({"int8", "int16", "int32", "int64"})
"""Kinds whose arrays one struct call reads."""


@dataclass(slots=True)
class ModuleWriter:
    """Collects what the functions of one module need from outside."""

    message: Message
    imports: set[str] = field(default_factory=set)
    layouts: dict[str, str] = field(default_factory=dict)
    default_checks: set[str] = field(default_factory=set)

    def use(self, name: str) -> str:
        self.imports.add(name)
        return name

    def layout(self, fields: Iterable[Field]) -> str:
        """The name of the module constant with the struct layout of these fields."""
        kinds = [f.kind for f in fields]
        name = struct_constant(kinds)
        self.layouts[name] = "".join(FIXED_FORMATS[k] for k in kinds)
        return name


def literal(module: ModuleWriter, f: Field) -> str:
    """The default of a field as an expression."""
    if f.default == "empty":
        return "[]"
    if f.default == "struct":
        return f"{f.struct_name}()"
    if f.kind == "uuid":
        return module.use("ZERO_UUID")
    if isinstance(f.default, str):
        assert '"' not in f.default
        return f'"{f.default}"'
    return repr(f.default) if f.default != b"" else 'b""'


def version_check(module: ModuleWriter) -> list[str]:
    """The statements that refuse versions which the message does not have."""
    message = module.message
    return [
        f"if not {message.versions.first} <= version <= {message.versions.last}:",
        f'{INDENT}raise {module.use("unsupported_version")}("{message.name}", version)',
    ]


def tagged_fields(struct: Struct) -> list[Field]:
    """All tagged fields in the order of their tags. What one tag means does not change."""
    tagged = sorted((f for f in struct.fields if f.tag is not None), key=lambda f: f.tag or 0)
    assert [f.tag for f in tagged] == sorted({f.tag or 0 for f in tagged}), struct.name
    assert all(f.nullable in (None, f.versions) for f in tagged), struct.name
    return tagged


def presence_conditions(module: ModuleWriter, struct: Struct, f: Field) -> list[str]:
    """Conditions under which a flexible version has this tagged field."""
    conditions = []
    if f.versions.first > max(struct.versions.first, module.message.first_flexible_version):
        conditions.append(f"version >= {f.versions.first}")
    if f.versions.last < struct.versions.last:
        conditions.append(f"version <= {f.versions.last}")
    return conditions
