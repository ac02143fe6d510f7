"""All commands explain themselves in one shape and in the same words, whoever has made them."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tidewheel.cli.main import app
from typer.testing import CliRunner

from stack.arguments import make_parser
from tests.repository.source_tree import ROOT

STACK = (
    "up",
    "down",
    "status",
    "reassign",
    "features",
    "subscriptions",
    "cell",
    "cell recover",
    "tenants",
    "users",
    "acls",
    "quotas",
    "deleted",
    "demo",
)
SDK = (
    *("produce", "consume", "lag", "brokers", "partitions", "drain", "topics", "groups"),
    *(f"topics {name}" for name in ("list", "create", "describe", "config", "partitions")),
    *("topics delete", "groups list", "groups describe", "groups delete", "groups reset"),
    *("topics undelete", "login", "logout", "usage", "audit", "keys"),
    *(f"keys {name}" for name in ("list", "create", "rotate", "revoke")),
)
SCRIPTS = {
    "test": ["scripts/run_tests.py"],
    "check": ["scripts/run_checks.py"],
    "lock": ["scripts/lock.py"],
    "bench": ["-m", "benchmarks"],
}
SECTIONS = ("Arguments", "Options", "Commands")
ROW = re.compile(r"^  (\S.*?)(?:  +(\S.*))?$")


def shown(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    words = command.split()
    if command in STACK:
        with pytest.raises(SystemExit) as ended:
            make_parser().parse_args([*words, "--help"])
        assert ended.value.code == 0
        return capsys.readouterr().out
    if command in SDK:
        return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).stdout
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, *SCRIPTS[command], "--help"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def rows(text: str, section: str) -> Iterator[tuple[str, str]]:
    """The names in a section, each with its text."""
    lines = iter(text.splitlines())
    for line in lines:
        if line == f"{section}:":
            break
    name, words = "", ""
    for line in itertools.takewhile(bool, lines):
        begins = ROW.match(line)
        if begins is None:
            words = f"{words} {line.strip()}".strip()
            continue
        if name:
            yield name, words
        name, words = begins[1], begins[2] or ""
    if name:
        yield name, words


@pytest.fixture(autouse=True)
def a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("command", [*STACK, *SDK, *SCRIPTS])
def test_help_has_one_shape(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(command, capsys)
    first, *rest = text.splitlines()
    assert re.fullmatch(rf"Usage: (\S+ )?{command} \[OPTIONS\]( [A-Z\[\]. ]+)?", first)
    headings = [line[:-1] for line in rest if re.fullmatch(r"\w.*:", line)]
    assert headings == [name for name in SECTIONS if name in headings]
    assert [*rows(text, "Options")][-1] == ("-h, --help", "Show this message and exit.")
    # What is not ASCII is escaped here, and longer.
    assert max(len(re.sub(r"\\u\w{4}", " ", line)) for line in rest) <= 80
    for section in SECTIONS:
        for name, words in rows(text, section):
            sentence = words.partition("  [")[0].partition(" [")[0]
            assert re.match("[A-Z]", sentence), f"{name}: {words}"
            assert sentence.endswith("."), f"{name}: {words}"
            # Nothing of Python, and placeholders in capitals.
            assert not re.search("<(str|int|bool|list|Path)", name)
            if section == "Arguments":
                assert name.isupper()


def test_what_is_the_same_is_called_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, dict[str, str]] = {}
    for command in (*STACK, *SDK):
        for name, words in rows(shown(command, capsys), "Options"):
            for option in re.findall(r"--[a-z-]+", name):
                value = name.rpartition(" ")[2] if name[-1].isupper() or name[-1] in ">]." else ""
                found.setdefault(option, {})[command] = f"{value}: {words}"
    for option in ("--json", "--internal"):
        assert len(set(found[option].values())) == 1, found[option]
    # The SDK's commands ask, at a terminal; those of the stack never do.
    asked = {text for command, text in found["--yes"].items() if command in SDK}
    assert asked == {": Do not ask."}
    needed = {text for command, text in found["--yes"].items() if command in STACK}
    assert all(text.startswith(": Needed for ") for text in needed), needed
    # The demo uses brokers of its own unless it is told some.
    addresses = {c: text for c, text in found["--url"].items() if c != "demo"}
    assert len(set(addresses.values())) == 1, addresses
    # One says where to, a broker, and the other where to, an offset.
    del found["--to"]
    for option, uses in found.items():
        placeholders = {text.partition(":")[0].strip("[]") for text in uses.values()}
        assert len(placeholders) == 1, (option, uses)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["up", "--brokrs", "1"], "No such option: --brokrs. Did you mean --brokers?"),
        (["up", "--broker", "1"], "No such option: --broker. Did you mean --brokers?"),
        (["up", "--port", "x"], "Invalid value for '--port': 'x' is not a whole number."),
        (["up", "--set"], "Option '--set' requires an argument."),
        (["up", "more"], "Got unexpected extra argument (more)"),
        (["demo", "-p", "0"], "Invalid value for '-p' / '--partitions': 0 is less than 1."),
        (["cell", "mend"], "No such command 'mend'."),
        (["cell"], "Missing argument 'COMMAND'."),
        (["reassign", "--list", "--cancel"], "--cancel and --list do not go together."),
    ],
)
def test_a_mistake_is_answered_by_the_command_that_it_is_of(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(arguments)
    assert ended.value.code == 2
    usage, where, empty, error = capsys.readouterr().err.splitlines()
    assert f"{arguments[0]} [OPTIONS]" in usage
    assert where.endswith(f"{arguments[0]} -h' for help.")
    assert (empty, error) == ("", f"Error: {says}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topics", "partitions", "t", "x"], "'N': This is not a whole number."),
        (["consume", "t", "-n", "0"], "'--count' / '-n': It must be 1 or more."),
        (["produce", "t", "--acks", "5"], "'--acks': '5' is not one of 'all', '1', '0'."),
    ],
)
def test_the_sdks_commands_say_it_in_the_same_way(arguments: list[str], says: str) -> None:
    errors = CliRunner().invoke(app, arguments).stderr.splitlines()
    assert errors[-1] == f"Error: Invalid value for {says}"
    assert (errors[0].startswith("Usage: "), errors[2]) == (True, "")


def test_a_path_that_is_not_there_is_named_instead_of_running_no_test() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/run_tests.py", "tests/no_such.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "There is no tests/no_such.py here" in done.stderr
