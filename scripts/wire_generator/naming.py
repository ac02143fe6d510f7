"""Names in the generated code."""

from __future__ import annotations

import re

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])([A-Z])|(?<!^)([A-Z])(?=[a-z])")


def snake_case(name: str) -> str:
    """`FetchTopic` to `fetch_topic`."""
    return _WORD_STARTS.sub(r"_\1\2", name).lower()


def struct_constant(kinds: list[str]) -> str:
    """`[int32, int64, int64]` to `_INT32_2_INT64`: repeats are counted."""
    parts: list[str] = []
    position = 0
    while position < len(kinds):
        kind = kinds[position]
        count = 1
        while position + count < len(kinds) and kinds[position + count] == kind:
            count += 1
        parts.append(kind.upper() if count == 1 else f"{count}X{kind.upper()}")
        position += count
    return "_" + "_".join(parts)
