"""Which names a topic may have, and Kafka's words for those that it may not.

`.` and `_` are the same in metric names, so two topics that differ only there collide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

NAME_CHARACTERS_MAX = 249
QUOTED_CHARACTERS_MAX = 300
# What DescribeQuorum names. No client may make a topic of this name.
METADATA_TOPIC = "__cluster_metadata"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Why `name` cannot be a topic's, None when it can."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARACTERS_MAX:
        reason = (
            f"the length of '{quoted_name(name)}' is longer than the max allowed length "
            f"{NAME_CHARACTERS_MAX}"
        )
    elif _LEGAL.fullmatch(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


def quoted_name(name: str) -> str:
    """`name` for an error message, which may stand there once for each of many partitions: one
    that is far longer than any topic's is cut."""
    return name if len(name) <= QUOTED_CHARACTERS_MAX else f"{name[:QUOTED_CHARACTERS_MAX]}…"


class CollisionIndex:
    """The names of existing topics by what collides with them; asked for many names at once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._by_folded: dict[str, str] | None = None

    def find(self, name: str) -> str | None:
        """The first existing name, in their order, that collides with another name."""
        if "." not in name and "_" not in name:
            return None
        if self._by_folded is None:
            self._by_folded = {
                other.replace(".", "_"): other
                for other in sorted(self._names, reverse=True)
                if "." in other or "_" in other
            }
        return self._by_folded.get(name.replace(".", "_"))
