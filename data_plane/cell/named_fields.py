"""Fields by name at the end of what is stored, and those of them that this version does not know.

    ["create_topic", "orders", …, {"tenant": "acme", "color": "red"}]    `color`: of a later version

What is not known is kept as text with what it belongs to, and written again as it came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def split_named(item: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """What has a position, and what has a name: the object at the end, if there is one."""
    if item and isinstance(item[-1], dict):
        return item[:-1], item[-1]
    return item, {}


def unknown_in(named: Mapping[str, Any], *known: str) -> str:
    """The fields that this version does not know, as they are kept; "" when there are none."""
    unknown = {name: value for name, value in named.items() if name not in known}
    if not unknown:
        return ""
    return json.dumps(unknown, sort_keys=True, separators=(",", ":"))


def unknown_named(unknown_fields: str) -> dict[str, Any]:
    """The inverse of `unknown_in`: to be written again."""
    fields: dict[str, Any] = json.loads(unknown_fields) if unknown_fields else {}
    return fields
