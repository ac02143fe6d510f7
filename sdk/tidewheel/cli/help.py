"""How the commands explain themselves: plain text of one shape.

    Usage: tidewheel COMMAND [OPTIONS] ARGUMENTS
    a description, then the sections Arguments, Options and Commands

Typer draws boxes around it by default and adds the types of Python to the names; here a
placeholder in capitals says what is wanted. A checkout's other commands, which are no part of the
SDK, keep to the same shape, so that nobody sees where one ends and the other begins.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

_IN_OTHER_WORDS: Final = (
    (re.compile("Input should be a valid integer.*"), "This is not a whole number."),
    (re.compile("Input should be greater than or equal to (.*)"), r"It must be \1 or more."),
    (re.compile("Input should be less than or equal to (.*)"), r"It must be \1 or less."),
    (re.compile("Value error, "), ""),
)


def examples(program: str, *lines: str) -> str:
    """The end of a command's help: lines to copy, kept as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {program} {line}" for line in lines)])


class PlainCommand(TyperCommand):
    """One command."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """[OPTIONS], and the arguments as they are written."""
        arguments = (p for p in self.get_params(ctx) if p.param_type_name == "argument")
        return ["[OPTIONS]", *map(_usage_piece, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options with what they mean."""
        params = self.get_params(ctx)
        arguments = [p for p in params if p.param_type_name == "argument"]
        options = [p.get_help_record(ctx) for p in params if p.param_type_name == "option"]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(_name_of(p), getattr(p, "help", "")) for p in arguments])
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def get_short_help_str(self, limit: int = 45) -> str:
        """Whole, where Typer cuts off after `limit` characters."""
        del limit
        return _first_paragraph(self.help)

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        """Parses; what is wrong with a value is said in plain words."""
        try:
            return super().make_context(*arguments, **named)
        except typer.BadParameter as error:
            for pattern, words in _IN_OTHER_WORDS:
                error.message = pattern.sub(words, error.message)
            raise


class PlainGroup(TyperGroup):
    """Commands under one name. `elsewhere` are further ones that somebody else runs: they are
    proposed, too, to who mistypes them."""

    elsewhere: tuple[str, ...] = ()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command; one that is not there is answered with those that are named alike."""
        name = args[0] if args else ""
        if name not in self.commands and not name.startswith("-"):
            alike = difflib.get_close_matches(name, [*self.commands, *self.elsewhere])
            proposal = f" Did you mean {', '.join(map(repr, alike))}?" if alike else ""
            ctx.fail(f"No such command {name!r}.{proposal}")
        return super().resolve_command(ctx, args)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Whole, where Typer cuts off after `limit` characters."""
        del limit
        return _first_paragraph(self.help)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _name_of(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _usage_piece(argument: Any) -> str:
    name = _name_of(argument) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"
