"""Who made which changes of a commit, for those who follow the feed.

A commit may have changes of several. Each author's changes follow a `NameAuthor`:

    [NameAuthor(alice), CreateTopic a, NameAuthor(bob), DeleteTopic b, NameAuthor(None), …]

Where no name stands, and behind None, the cell made them by itself.

Deliberately absent: any trace in the image. Who made a topic last year, nobody can tell from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KAFKA_SOURCE: Final = "kafka"
CELL_ADMIN_SOURCE: Final = "cell_admin"
PRINCIPAL_CHARACTERS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Author:
    """By which way somebody asked, for which tenant, and as whom; "" what there is not."""

    source: str
    tenant: str
    principal: str

    def __post_init__(self) -> None:
        if len(self.principal) > PRINCIPAL_CHARACTERS_MAX:
            # What is written of him, not what he may do.
            cut = self.principal[:PRINCIPAL_CHARACTERS_MAX]
            object.__setattr__(self, "principal", cut)


@dataclass(frozen=True, slots=True)
class NameAuthor:
    """The changes that follow it in this commit are this author's. It changes nothing itself."""

    author: Author | None


def encode_author(author: Author | None) -> list[str]:
    return [] if author is None else [author.source, author.tenant, author.principal]


def decode_author(fields: Sequence[str]) -> Author | None:
    if not fields:
        return None
    source, tenant, principal = fields
    return Author(source, tenant, principal)
