"""House rules that no linter knows, as tests."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.repository.source_tree import (
    is_generated,
    name_of,
    python_modules,
    tracked_files,
)

MODULE_LINES_MAX = 500
TEST_MODULE_LINES_MAX = 850  # A table of cases reads from top to bottom.
FUNCTION_LINES_MAX = 70

# Names that say nothing about what is inside.
EMPTY_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
EMPTY_NAMES |= {"manager.py", "managers.py"}

# path → why the rule does not help there. Keep these lists short.
EMPTY_NAMES_ALLOWED = {"data_plane/log/manager.py": "LogManager is Kafka's own noun for it"}
LONG_MODULES_ALLOWED = {
    "data_plane/broker/fetch/fetch_handler.py": "one request's way to its answer, hand-tuned",
    "data_plane/log/log.py": "the only writer of a partition; its parts are modules already",
    "data_plane/replica/partition.py": "one class: a replica's role, and all that is done with it",
    "data_plane/server/connection.py": "one protocol object: all of its callbacks share its state",
    "data_plane/wire/kernel_batches.py": "compiled as one unit, so that calls stay C calls",
    "data_plane/wire/kernel_records.py": "compiled as one unit, so that calls stay C calls",
    "data_plane/wire/kernel_requests.py": "compiled as one unit, so that calls stay C calls",
    "data_plane/wire/records.py": "the whole of record batch v2",
    "sdk/tidewheel/consumer.py": "one class, a third of it its public documentation",
    "sdk/tidewheel/producer.py": "one class, a third of it its public documentation",
}
LONG_FUNCTIONS_ALLOWED = {
    "data_plane/server/composition.py:make_services": "the composition root is one list of parts",
    "data_plane/wire/kernel_records.py:_walk_ordinary": "one flat loop, which is what it is for",
    "data_plane/wire/kernel_requests.py:_parse_fetch": "one pass in C over one request",
    "data_plane/wire/kernel_requests.py:_parse_produce": "one pass in C over one request",
}

# Split, so that this file does not contain what it forbids.
FORBIDDEN_TEXTS = {
    "a package registry": [
        *("pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com"),
        *("proxy.golang" + ".org", "repo1" + ".maven", "repo.maven" + ".apache", "crates" + ".io"),
        "anaconda" + ".org",
    ],
    "a place on somebody's machine": ["/ho" + "me/", "/ro" + "ot/", "/Us" + "ers/", "/wo" + "rk/"],
    "unfinished work": ["TO" + "DO", "FIX" + "ME", "XX" + "X "],
}
BINARY_SUFFIXES = {".png", ".gif", ".ico", ".bin", ".log", ".index", ".zip", ".jar"}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def own_modules() -> list[Path]:
    return [path for path in python_modules() if not is_generated(path)]


def test_modules_are_short_enough_to_be_read() -> None:
    long = [
        f"{name_of(path)}: {lines} lines"
        for path in own_modules()
        if (lines := path.read_bytes().count(b"\n"))
        > (TEST_MODULE_LINES_MAX if name_of(path).startswith("tests/") else MODULE_LINES_MAX)
        and name_of(path) not in LONG_MODULES_ALLOWED
    ]
    assert not long, f"more than {MODULE_LINES_MAX} lines; split them by what they know:\n" + (
        "\n".join(long)
    )


def test_functions_fit_on_a_screen() -> None:
    long = []
    for path in own_modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                name = f"{name_of(path)}:{node.name}"
                if lines > FUNCTION_LINES_MAX and name not in LONG_FUNCTIONS_ALLOWED:
                    long.append(f"{name}: {lines} lines")
    assert not long, f"more than {FUNCTION_LINES_MAX} lines:\n" + "\n".join(long)


def test_file_names_say_what_is_inside() -> None:
    empty = [
        name_of(path)
        for path in tracked_files()
        if path.name in EMPTY_NAMES and name_of(path) not in EMPTY_NAMES_ALLOWED
    ]
    assert not empty


def test_every_module_says_what_it_is() -> None:
    silent = [
        name_of(path)
        for path in python_modules()
        if path.stat().st_size > 0 and not ast.get_docstring(parsed(path))
    ]
    assert not silent, "modules without a docstring:\n" + "\n".join(silent)


@pytest.mark.parametrize("what", list(FORBIDDEN_TEXTS))
def test_no_file_names(what: str) -> None:
    pattern = re.compile("|".join(map(re.escape, FORBIDDEN_TEXTS[what])))
    found = []
    for path in tracked_files():
        if path.suffix in BINARY_SUFFIXES or name_of(path) == "LICENSE":
            continue
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        ):
            if match := pattern.search(line):
                found.append(f"{name_of(path)}:{number}: {match.group()}")
    assert not found, f"{what}:\n" + "\n".join(found[:30])


def test_exceptions_are_still_needed() -> None:
    names = {name_of(path) for path in tracked_files()}
    listed = [*EMPTY_NAMES_ALLOWED, *LONG_MODULES_ALLOWED]
    listed += [entry.partition(":")[0] for entry in LONG_FUNCTIONS_ALLOWED]
    assert [name for name in listed if name not in names] == []
