"""Topics whose records have tags, and the truth about them: what was sent, and what a filter says.

    producer      encodes a batch ──► its records are kept under its checksum (`SentBatches`)
    history       the committed log of a partition: batches, with their checksums
    subscriber    what it was given between two offsets = those of these records that pass

A checksum covers everything that a producer wrote, and no broker changes it here, so what was sent
is known without asking a broker. Tags follow from a record's number, in a compacted topic from its
key, so that all values of a key have the same ones, and its tombstone, too.

FILTERS are texts with what they mean in Python, beside the broker's parser and matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.wire.records import NewRecord, read_batch_header
from tests.simulation.admin import TopicPlan

# Their names say who else writes and reads them: promised records, and compacted ones.
TAGGED = "datatags"
TAGGED_TABLE = "tabletags"
TAGGED_TOPICS = (TAGGED, TAGGED_TABLE)
TAG = b"tw-tag"
RARE_EVERY = 29

Tags = frozenset[bytes]


def _has_k(tags: Tags) -> bool:
    return any(tag.startswith(b"k:") for tag in tags)


FILTERS: dict[str, Callable[[Tags], bool]] = {
    "": lambda tags: True,
    "a": lambda tags: b"a" in tags,
    "a or b": lambda tags: b"a" in tags or b"b" in tags,
    "not a": lambda tags: b"a" not in tags,
    "a and not b": lambda tags: b"a" in tags and b"b" not in tags,
    "k:*": _has_k,
    "k:1 or rare": lambda tags: b"k:1" in tags or b"rare" in tags,
    "(a or b) and not k:*": lambda tags: (b"a" in tags or b"b" in tags) and not _has_k(tags),
    "rare": lambda tags: b"rare" in tags,
    "nowhere": lambda tags: False,
}


def tags_of(number: int) -> tuple[bytes, ...]:
    """Of the record with this number; some have none."""
    tags = []
    if number % 2:
        tags.append(b"a")
    if number % 3 == 0:
        tags.append(b"b")
    if number % 5 == 0:
        tags.append(b"k:%d" % (number % 4))
    if number % RARE_EVERY == 0:
        tags.append(b"rare")
    return tuple(tags)


def tags_of_key(key: bytes) -> tuple[bytes, ...]:
    """Of all records with this key (keyed.py)."""
    return tags_of(int(key[1:]))


def with_tags(record: NewRecord, tags: tuple[bytes, ...]) -> NewRecord:
    """The record, with headers that say so."""
    return record._replace(headers=tuple((TAG, tag) for tag in tags))


def plan_tagged(rng: Random) -> TopicPlan:
    """Segments of it are sealed within a second; in some cells it forgets, too."""
    configs = {HEADERS_PROPERTY: "true", "segment.ms": rng.choice(("200", "600"))}
    if rng.random() < 0.3:
        configs |= {"retention.ms": "1000", "file.delete.delay.ms": rng.choice(("0", "200"))}
    return TopicPlan(TAGGED, rng.randint(1, 2), 3, configs)


def plan_tagged_table(rng: Random) -> TopicPlan:
    """A compacted one, whose cleaner always has something to do."""
    configs = {
        HEADERS_PROPERTY: "true",
        "cleanup.policy": "compact",
        "segment.ms": rng.choice(("200", "600")),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": rng.choice(("300", "1500")),
        "file.delete.delay.ms": "500",
    }
    return TopicPlan(TAGGED_TABLE, 1, 3, configs)


class SentBatches:
    """The records of all batches that were sent to topics with tags, by checksum."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[NewRecord, ...]] = {}

    def sent(self, batch: bytes | bytearray, records: Sequence[NewRecord]) -> None:
        """A producer sends it, perhaps not for the first time."""
        self._records[read_batch_header(batch, 0).crc] = tuple(records)

    def of(self, crc: int) -> tuple[NewRecord, ...] | None:
        """What the batch with this checksum says; None for one that nobody has sent."""
        return self._records.get(crc)
