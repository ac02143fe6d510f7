"""The id of a virtual topic's source (virtual_topics.py), as topics and their creations store it.

    {"name": "pay", "configs": {"tidewheel.source": "orders"}, "source_id": "5f…", …}

The id says which topic is read, the property how it was called. A later topic of the same name is
another one, and is never read. Who does not know the field would serve the topic as a plain one, so
nothing has it below level 1 of the feature tidewheel.virtual.topics (changes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

SOURCE_FIELD: Final = "source_id"


def named_source(source_id: UUID | None) -> dict[str, Any]:
    """The field by name; nothing for a topic that is not virtual."""
    return {} if source_id is None else {SOURCE_FIELD: source_id.hex}


def source_in(named: Mapping[str, Any]) -> UUID | None:
    """The inverse of `named_source`."""
    source_id = named.get(SOURCE_FIELD)
    return None if source_id is None else UUID(source_id)
