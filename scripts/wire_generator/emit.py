"""Writes one Python module per message.

How the code is put together. For every field (or run of adjacent fixed-width fields, which one
struct call reads) and every version of its structure we write the statements that this version
needs. Versions with the same statements form one branch, and neighbours that branch at the same
versions share an `if`. For a field that changes at version 12 of 4 to 18 that gives

    if version >= 12:
        message.topic = reader.read_compact_string("topic")
    else:
        message.topic = reader.read_string("topic")

and for one that never changes, a plain statement. So what the code does in one version can be
read off top to bottom, and no branch is tested that makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scripts.wire_generator.model import (
    FIXED_FORMATS,
    NEVER,
    Field,
    Message,
    Struct,
    VersionRange,
)
from scripts.wire_generator.naming import snake_case, struct_constant

INDENT = "    "

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "UUID",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview",
}

NUMBER_ARRAYS = frozenset({"int8", "int16", "int32", "int64"})


@dataclass(slots=True)
class Piece:
    """Statements of one step of a codec: the same for a range of versions, for each range."""

    branches: list[tuple[VersionRange, list[str]]]


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


def write_module(message: Message) -> str:
    """The source of one message's module, before formatting."""
    module = ModuleWriter(message)
    classes = [_write_class(module, struct) for struct in message.structs]
    decoders = [_write_decoder(module, struct) for struct in message.structs]
    encoders = [_write_encoder(module, struct) for struct in message.structs]
    checks = [
        _write_default_check(module, struct)
        for struct in message.structs
        if struct.name in module.default_checks
    ]
    parts = [_write_head(module), *classes, *decoders, *encoders, *checks]
    return "\n\n\n".join(parts) + "\n"


def _write_head(module: ModuleWriter) -> str:
    message = module.message
    api = "" if message.api_key is None else f" (API key {message.api_key})"
    flexible = message.first_flexible_version
    flexible_text = "never flexible" if flexible == NEVER else f"flexible from {flexible}"
    lines = [
        f'"""{message.name}{api}, versions {message.versions.first} to {message.versions.last},'
        f" {flexible_text}.",
        "",
        "Written by scripts/generate_wire; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    if module.layouts:
        lines.append("from struct import Struct")
    if "UUID" in module.imports:
        lines.append("from uuid import UUID")
    if lines[-1]:
        lines.append("")
    names = (module.imports - {"UUID"}) | {"Message", "Reader", "Writer"}
    ordered = sorted(names, key=lambda n: (not n.isupper(), n[0].islower(), n))
    lines += [f"from data_plane.wire.primitives import {', '.join(ordered)}", ""]
    for name, layout in sorted(module.layouts.items()):
        lines.append(f'{name} = Struct(">{layout}")')
    return "\n".join(lines)


# Classes


def _write_class(module: ModuleWriter, struct: Struct) -> str:
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
    return f"{annotation} = {_literal(module, f)}"


def _literal(module: ModuleWriter, f: Field) -> str:
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
    return f"  # {', '.join(notes)}" if notes else ""


# Branching on versions


def _piece(struct: Struct, statements: Callable[[int], list[str]]) -> Piece:
    branches: list[tuple[VersionRange, list[str]]] = []
    for version in range(struct.versions.first, struct.versions.last + 1):
        lines = statements(version)
        if branches and branches[-1][1] == lines:
            branches[-1] = (VersionRange(branches[-1][0].first, version), lines)
        else:
            branches.append((VersionRange(version, version), lines))
    return Piece(branches)


def _join(pieces: list[Piece]) -> list[str]:
    """The statements of all pieces in order, with neighbours that branch alike under one `if`."""
    lines: list[str] = []
    merged: list[Piece] = []
    for piece in pieces:
        ranges = [r for r, _ in piece.branches]
        if merged and [r for r, _ in merged[-1].branches] == ranges:
            for (_, known), (_, more) in zip(merged[-1].branches, piece.branches, strict=True):
                known += more
        else:
            merged.append(Piece([(r, list(statements)) for r, statements in piece.branches]))
    for piece in merged:
        lines += _branch(piece)
    return lines


def _branch(piece: Piece) -> list[str]:
    """One `if` chain, newest versions first, or oldest first when the newest need nothing."""
    if len(piece.branches) == 1:
        return piece.branches[0][1]
    branches = [(f"version >= {r.first}", lines) for r, lines in reversed(piece.branches)]
    if not branches[0][1]:
        branches = [(f"version <= {r.last}", lines) for r, lines in piece.branches]
    if branches[-1][1]:
        branches[-1] = ("", branches[-1][1])
    else:
        branches.pop()
    chain: list[str] = []
    for index, (condition, statements) in enumerate(branches):
        keyword = "elif" if index else "if"
        if len(branches) == 1 and _is_one_if(statements):
            # Nested conditions with nothing else in them read better as one.
            return [statements[0].replace("if ", f"if {condition} and ", 1), *statements[1:]]
        chain.append(f"{keyword} {condition}:" if condition else "else:")
        chain += [INDENT + line for line in statements or ["pass"]]
    return chain


def _is_one_if(statements: list[str]) -> bool:
    return (
        statements[0].startswith("if ")
        and " or " not in statements[0]
        and all(line.startswith(INDENT) for line in statements[1:])
    )


def _runs(struct: Struct) -> list[list[Field]]:
    """Untagged fields in wire order, with adjacent fixed-width fields together."""
    runs: list[list[Field]] = []
    for f in struct.fields:
        if f.tag is not None:
            continue
        if runs and f.is_fixed and runs[-1][0].is_fixed:
            runs[-1].append(f)
        else:
            runs.append([f])
    return runs


# Decoding


def _write_decoder(module: ModuleWriter, struct: Struct) -> str:
    message = module.message
    is_root = struct is message.root
    name = f"{'' if is_root else '_'}decode_{snake_case(struct.name)}"
    lines = [f"def {name}(reader: Reader, version: int) -> {struct.name}:"]
    body = []
    if is_root:
        body.append('"""Raises MalformedFrame and UnsupportedVersion."""')
        body += _version_check(module)
    body.append(f"message = object.__new__({struct.name})")
    pieces = []
    for run in _runs(struct):
        if run[0].is_fixed:
            pieces.append(_piece(struct, lambda v, run=run: _decode_run(module, run, v)))  # type: ignore[misc]
        else:
            pieces.append(_piece(struct, lambda v, f=run[0]: _decode_field(module, f, v)))  # type: ignore[misc]
    tagged = [f for f in struct.fields if f.tag is not None]
    defaults = [f"message.{f.name} = {_literal(module, f)}" for f in tagged]
    pieces.append(_piece(struct, lambda v: defaults))
    pieces.append(_piece(struct, lambda v: _decode_tagged(module, struct, v)))
    body += _join(pieces)
    body.append("return message")
    return "\n".join(lines + [INDENT + line for line in body])


def _version_check(module: ModuleWriter) -> list[str]:
    message = module.message
    return [
        f"if not {message.versions.first} <= version <= {message.versions.last}:",
        f'{INDENT}raise {module.use("unsupported_version")}("{message.name}", version)',
    ]


def _decode_run(module: ModuleWriter, run: list[Field], version: int) -> list[str]:
    present = [f for f in run if version in f.versions]
    lines = []
    if len(present) == 1:
        lines.append(f"message.{present[0].name} = reader.read_{present[0].kind}()")
    elif present:
        targets = ", ".join(f"message.{f.name}" for f in present)
        lines.append(f"({targets}) = reader.unpack({module.layout(present)})")
    absent = [f for f in run if version not in f.versions]
    return lines + [f"message.{f.name} = {_literal(module, f)}" for f in absent]


def _decode_field(module: ModuleWriter, f: Field, version: int) -> list[str]:
    if version not in f.versions:
        return [f"message.{f.name} = {_literal(module, f)}"]
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
    tagged = _tagged(struct)
    if not tagged:
        return ["reader.skip_tagged_fields()"]
    lines = ["for _ in range(reader.read_uvarint()):"]
    body = ["tag = reader.read_uvarint()", "end = reader.read_tagged_field_end()"]
    for index, f in enumerate(tagged):
        keyword = "elif" if index else "if"
        condition = " and ".join([f"tag == {f.tag}", *_presence(module, struct, f)])
        body.append(f"{keyword} {condition}:")
        body += [INDENT + line for line in _decode_value(module, f, f.versions.last)]
    body += ["else:", f"{INDENT}reader.pos = end", "reader.check_tagged_field_end(end)"]
    return lines + [INDENT + line for line in body]


def _tagged(struct: Struct) -> list[Field]:
    """All tagged fields in the order of their tags. What one tag means does not change."""
    tagged = sorted((f for f in struct.fields if f.tag is not None), key=lambda f: f.tag or 0)
    assert [f.tag for f in tagged] == sorted({f.tag or 0 for f in tagged}), struct.name
    assert all(f.nullable in (None, f.versions) for f in tagged), struct.name
    return tagged


def _presence(module: ModuleWriter, struct: Struct, f: Field) -> list[str]:
    """Conditions under which a flexible version has this tagged field."""
    conditions = []
    if f.versions.first > max(struct.versions.first, module.message.first_flexible_version):
        conditions.append(f"version >= {f.versions.first}")
    if f.versions.last < struct.versions.last:
        conditions.append(f"version <= {f.versions.last}")
    return conditions


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


# Encoding


def _write_encoder(module: ModuleWriter, struct: Struct) -> str:
    message = module.message
    is_root = struct is message.root
    name = f"{'' if is_root else '_'}encode_{snake_case(struct.name)}"
    lines = [f"def {name}(writer: Writer, message: {struct.name}, version: int) -> None:"]
    body = []
    if is_root:
        body.append('"""Raises UnsupportedVersion and InvalidMessage."""')
        body += _version_check(module)
    pieces = []
    for run in _runs(struct):
        if run[0].is_fixed:
            pieces.append(_piece(struct, lambda v, run=run: _encode_run(module, struct, run, v)))  # type: ignore[misc]
        else:
            pieces.append(
                _piece(struct, lambda v, f=run[0]: _encode_field(module, struct, f, v))  # type: ignore[misc]
            )
    for f in struct.fields:
        if f.tag is not None:
            pieces.append(_piece(struct, lambda v, f=f: _refuse_absent(module, struct, f, v)))  # type: ignore[misc]
    pieces.append(_piece(struct, lambda v: _encode_tagged(module, struct, v)))
    body += _join(pieces)
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
    return f"{value} != {_literal(module, f)}"


def _write_default_check(module: ModuleWriter, struct: Struct) -> str:
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
    tagged = _tagged(struct)
    if not tagged:
        return ["writer.buf.append(0)"]
    lines = ["tagged: list[tuple[int, Writer]] = []"]
    for f in tagged:
        differs = _differs_from_default(module, f)
        presence = _presence(module, struct, f)
        if presence and " or " in differs:
            differs = f"({differs})"
        lines.append(f"if {' and '.join([*presence, differs])}:")
        body = ["content = Writer()", *_encode_value(module, f, f.versions.last, "content")]
        body.append(f"tagged.append(({f.tag}, content))")
        lines += [INDENT + line for line in body]
    return [*lines, "writer.write_tagged_fields(tagged)"]
