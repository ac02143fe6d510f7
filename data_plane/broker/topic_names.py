"""Which names a topic may have, and Kafka's words for those that it may not.

`.` and `_` are the same in metric names, so two topics that differ only there collide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME_CHARACTERS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Why `name` cannot be a topic's, None when it can."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARACTERS_MAX:
        reason = (
            f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
        )
    elif _LEGAL.fullmatch(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


def colliding_name(name: str, others: Iterable[str]) -> str | None:
    """One of `others` that differs from `name` in `.` and `_` only, the first by name."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    length = len(name)
    return min(
        (
            other
            for other in others
            if len(other) == length and other != name and other.replace(".", "_") == folded
        ),
        default=None,
    )
