"""How the commands that are made with argparse explain themselves: in the shape, and in the words,
of the SDK's commands (tidewheel/cli/help.py), which Typer makes.

    Usage: ./tidewheel COMMAND [OPTIONS] ARGUMENTS
    a description, then the sections Arguments, Options and Commands

- A placeholder is in capitals, a text begins with a capital and ends with a full stop; what an
  option is without being given stands in brackets at its end.
- `--help` comes last. Options are not abbreviated: a part of a name may be another name's, too.
- A mistake is answered with the usage, where the help is, and one sentence.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from stack.errors import EXIT_USAGE

WIDTH_MAX: Final = 80
WIDTH_MIN: Final = 50
NAMES_WIDTH_MAX: Final = 30
HELP_HELP: Final = "Show this message and exit."

_IN_OTHER_WORDS: Final = (
    (
        r"argument (\S+): expected (?:one|at least one) argument",
        r"Option '\1' requires an argument.",
    ),
    (r"argument (\S+): not allowed with argument (\S+)", r"\1 and \2 do not go together."),
    (r"argument COMMAND: invalid choice: '(.*?)'.*", r"No such command '\1'."),
    (
        r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)",
        r"Invalid value for '\1': '\2' is not one of \3.",
    ),
    (r"argument (\S+): (.*)", r"Invalid value for '\1': \2."),
    (r"the following arguments are required: (.*)", r"Missing argument '\1'."),
)


def whole_number(text: str) -> int:
    """An `int` of the command line."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def positive_number(text: str) -> int:
    """A count of the command line, from 1 on."""
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def write_any_text() -> None:
    """A terminal or pipe that is not UTF-8 gets escapes for what it cannot show, and no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class CommandParser(argparse.ArgumentParser):
    """A parser that explains itself as the module says. Also for subcommands."""

    def __init__(self, *, add_help: bool = True, **settings: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, **settings)
        if add_help:
            self.add_argument("-h", "--help", action="help", help=HELP_HELP)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's; but what a subcommand does not know is its own mistake to tell."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return found, unknown

    def format_usage(self) -> str:
        """One line, however many options there are."""
        pieces = [self.prog, "[OPTIONS]", *map(_usage_piece, self._arguments())]
        text = " ".join(pieces)
        indent = " " * len("Usage: ")
        return (
            textwrap.fill(text, _width(), initial_indent="Usage: ", subsequent_indent=indent) + "\n"
        )

    def format_help(self) -> str:
        """The whole help."""
        parts = [self.format_usage()]
        for text in filter(None, (self.description, self.epilog)):
            parts.append(_indented(text))
        options = sorted(self._options(), key=lambda action: action.dest == "help")
        commands = [each for action in self._actions for each in _commands_of(action)]
        arguments = [a for a in self._arguments() if a.help and not _commands_of(a)]
        sections = {
            "Arguments": [(_name_of(a), self._help_of(a)) for a in arguments],
            "Options": [(_option_names(a), self._help_of(a)) for a in options],
            "Commands": commands,
        }
        for title, rows in sections.items():
            if rows:
                parts.append(f"{title}:\n{_definitions(rows)}")
        return "\n".join(parts)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        for pattern, words in _IN_OTHER_WORDS:
            if re.fullmatch(pattern, message):
                message = re.sub(pattern, words, message).replace("/--", "' / '--")
                break
        usage = f"{self.format_usage()}Try '{self.prog} -h' for help.\n\n"
        self.exit(EXIT_USAGE, f"{usage}Error: {message}\n")

    def _options(self) -> list[argparse.Action]:
        return [a for a in self._actions if a.option_strings and a.help != argparse.SUPPRESS]

    def _arguments(self) -> list[argparse.Action]:
        return [action for action in self._actions if not action.option_strings]

    def _help_of(self, action: argparse.Action) -> str:
        return (action.help or "") % {**vars(action), "prog": self.prog}

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"Got unexpected extra argument ({word})"
        name = word.partition("=")[0]
        known = [each for action in self._options() for each in action.option_strings]
        near = difflib.get_close_matches(name, known)
        return f"No such option: {name}" + (f". Did you mean {near[0]}?" if near else "")


def _width() -> int:
    return max(WIDTH_MIN, min(shutil.get_terminal_size().columns, WIDTH_MAX) - 2)


def _indented(text: str) -> str:
    paragraphs = (" ".join(each.split()) for each in text.strip().split("\n\n"))
    filled = (
        textwrap.fill(each, _width(), initial_indent="  ", subsequent_indent="  ")
        for each in paragraphs
    )
    return "\n\n".join(filled) + "\n"


def _name_of(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


def _usage_piece(action: argparse.Action) -> str:
    name = _name_of(action)
    if _commands_of(action):
        return f"{name} [ARGS]..."
    if action.nargs in ("*", "+"):
        name += "..."
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _option_names(action: argparse.Action) -> str:
    # As Typer does: what is short comes first.
    names = ", ".join(sorted(action.option_strings, key=len))
    if action.nargs == 0:
        return names
    if action.choices is not None and action.metavar is None:
        return f"{names} <{'|'.join(map(str, action.choices))}>"
    value = _name_of(action) + ("..." if action.nargs in ("*", "+") else "")
    return f"{names} [{value}]" if action.nargs == "?" else f"{names} {value}"


def _commands_of(action: argparse.Action) -> list[tuple[str, str]]:
    if not isinstance(action, argparse._SubParsersAction):
        return []
    return [(each.dest, each.help or "") for each in action._get_subactions()]


def _definitions(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns; a name that is too long for its column has a line of its own."""
    column = min(max(len(name) for name, _ in rows), NAMES_WIDTH_MAX) + 2
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(10, _width() - column - 2), break_on_hyphens=False) or [
            ""
        ]
        if len(name) > column - 2:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:{column}}{wrapped.pop(0)}".rstrip())
        lines.extend(f"  {'':{column}}{line}" for line in wrapped)
    return "\n".join(lines) + "\n"
