r"""Reading Java's .properties syntax, which Apache Kafka's server.properties is written in.

Comments begin with `#` or `!`; key and value are parted by `=`, `:` or blanks; a backslash at the
end of a line continues it; `\t`, `\n`, `\r`, `\f`, `\uXXXX` and `\` before any character are
escapes.

>>> for entry in parse_properties("a.b = 1\\\n  2\n! no\nc\n"):
...     print(entry)
Entry(key='a.b', value='12', line=1)
Entry(key='c', value='', line=4)

Unlike Java, text is UTF-8 and a malformed escape is reported with its line instead of an exception
without one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEX_DIGITS = re.compile("[0-9a-fA-F]{4}")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """One property and the line that it begins on, counted from 1."""

    key: str
    value: str
    line: int


class MalformedProperties(ValueError):
    """The text is not in .properties syntax; `line` says where."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def parse_properties(text: str) -> list[Entry]:
    """All properties in the order of the text, repeated keys included."""
    entries = []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    index = 0
    while index < len(lines):
        first = index
        logical = lines[index].lstrip(_BLANKS)
        index += 1
        if not logical or logical[0] in "#!":
            continue
        while _is_continued(logical) and index < len(lines):
            logical = logical[:-1] + lines[index].lstrip(_BLANKS)
            index += 1
        if _is_continued(logical):
            logical = logical[:-1]
        entries.append(_split(logical, first + 1))
    return entries


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(logical: str, line: int) -> Entry:
    end = 0
    while end < len(logical) and logical[end] not in "=:" + _BLANKS:
        end += 2 if logical[end] == "\\" else 1
    key = logical[:end]
    rest = logical[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Entry(_unescape(key, line), _unescape(rest, line), line)


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\" or position + 1 == len(text):
            parts.append(character)
            position += 1
            continue
        escaped = text[position + 1]
        position += 2
        if escaped == "u":
            digits = text[position : position + 4]
            if _HEX_DIGITS.fullmatch(digits) is None:
                raise MalformedProperties(line, f"\\u{digits} is not \\u and four digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)
