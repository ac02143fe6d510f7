"""Writes data_plane/wire/messages, or with --check only says whether it is current.

The code is formatted by ruff, so that generated modules pass the same checks as all others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.wire_generator.emit import write_module
from scripts.wire_generator.entity_types import TEXT, ByType
from scripts.wire_generator.kafka_jar import differences
from scripts.wire_generator.kio_source import load_apis, load_messages
from scripts.wire_generator.model import Api, Message
from scripts.wire_generator.naming import snake_case
from scripts.wire_generator.own_apis import OWN_APIS, OWN_MESSAGES

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ROOT / "data_plane" / "wire" / "messages"


def generate() -> dict[str, str]:
    """File name to unformatted source, for every file of the messages package."""
    apis = [*load_apis(), *OWN_APIS]
    messages = [*load_messages(), *OWN_MESSAGES]
    files = {
        "__init__.py": '"""Message classes and their codecs, one module per message. Written by '
        'scripts/generate_wire;\ndo not edit."""\n',
        "api_table.py": _write_api_table(apis),
        "entity_types.py": _write_entity_types(messages),
    }
    for message in messages:
        files[f"{message.module}.py"] = write_module(message)
    return files


def _write_api_table(apis: list[Api]) -> str:
    lines = [
        '"""Keys and versions of the APIs.',
        "",
        "Written by scripts/generate_wire; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ApiKey(IntEnum):",
        '    """Kafka\'s keys of APIs that have codecs here; from 20000 on our own."""',
        "",
    ]
    lines += [f"    {snake_case(api.name).upper()} = {api.key}" for api in apis]
    lines += ["", "", "API_TABLE: tuple[tuple[ApiKey, str, int, int, int], ...] = ("]
    for api in apis:
        versions = api.request.versions
        assert versions == api.response.versions, api.name
        assert api.request.first_flexible_version == api.response.first_flexible_version, api.name
        assert api.request.name == f"{api.name}Request", api.request.name
        assert api.response.name == f"{api.name}Response", api.response.name
        lines.append(
            f'    (ApiKey.{snake_case(api.name).upper()}, "{api.name}", {versions.first},'
            f" {versions.last}, {api.request.first_flexible_version}),"
        )
    lines += [
        ")",
        '"""Key, name, first version, last version, first flexible version (32767: never)."""',
        "",
    ]
    return "\n".join(lines)


def _write_entity_types(messages: list[Message]) -> str:
    lines = [
        '"""What the strings and ids in the messages mean.',
        "",
        "Written by scripts/generate_wire; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "ENTITY_TYPES: Final[dict[str, dict[str, str]]] = {",
    ]
    for message in messages:
        fields = [
            (f"{struct.name}.{f.name}", f.entity)
            for struct in message.structs
            for f in struct.fields
        ]
        named = [(path, entity) for path, entity in fields if entity not in (None, TEXT)]
        if not named:
            continue
        lines.append(f'    "{message.module}": {{')
        for path, entity in named:
            if isinstance(entity, ByType):
                kinds = ", ".join(f"{number} {kind}" for number, kind in entity.entities)
                entity = f"by {entity.selector}: {kinds}"
            lines.append(f'        "{path}": "{entity}",')
        lines.append("    },")
    return "\n".join(
        [
            *lines,
            "}",
            '"""Message to field to meaning: Kafka\'s entity types, and what its schemas do not',
            "mark (scripts/wire_generator/entity_types.py). Strings that do not stand here are",
            'plain text."""',
            "",
        ]
    )


def formatted(sources: dict[str, str]) -> dict[str, str]:
    """Sources after ruff's formatter, under this repository's settings."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            (Path(folder) / name).write_text(source)
        ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache"]
        subprocess.run([*ruff, "--config", str(ROOT / "pyproject.toml"), folder], check=True)
        return {name: (Path(folder) / name).read_text() for name in sources}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if not current")
    parser.add_argument("--into", type=Path, default=MESSAGES, help="folder to write or compare")
    parser.add_argument("--compare-with", type=Path, metavar="JAR", help="a kafka-clients jar")
    options = parser.parse_args()
    if options.compare_with is not None:
        found = list(differences(options.compare_with, load_messages()))
        print("\n".join(found) or "no differences")
        return 1 if found else 0
    wanted = formatted(generate())
    present = {path.name: path.read_text() for path in options.into.glob("*.py")}
    stale = sorted(n for n in wanted.keys() | present.keys() if wanted.get(n) != present.get(n))
    if options.check:
        for name in stale:
            print(f"not current: {options.into / name}; run scripts/generate_wire")
        return 1 if stale else 0
    options.into.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in wanted:
            (options.into / name).write_text(wanted[name])
        else:
            (options.into / name).unlink()
    print(f"{len(wanted)} modules, {len(stale)} changed")
    return 0
