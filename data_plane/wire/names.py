"""The names in messages: of topics, groups and transactional ids.

A namespace gives its clients names that the rest of the broker knows under others. The translators
of the messages (`translate_…` in messages/) put each name of a message through a `NameMap`: a
request's from outside to inside, a response's back. Which fields are names stands in
messages/entity_types.py; bytes, such as what members of a group tell each other, are never touched.

Invariants
- A map and the one for the other direction undo each other.
- Translation is in place. Whoever translates owns the message, and no part of it stands in two
  places.
- Where names are the same inside and outside nothing is translated at all: callers ask first.
"""

from __future__ import annotations

from typing import Protocol


class NameMap(Protocol):
    """One direction of a namespace."""

    def topic(self, name: str) -> str: ...

    def group(self, group_id: str) -> str: ...

    def transactional_id(self, transactional_id: str) -> str: ...
