"""A filter made ready for use: whether a record with these tags passes.

Each tag that the filter names has bits, and so has each `name:*`. A record's tags give a *mask*:
the bits of those that it has. What the filter says of a mask is a few additions (evaluation.py):

    (a or b or c) and not region:*        bits: a 1, b 2, c 4, region:* 8
    tags {b, region:eu}                   mask: 2 | 8
                                          no

So a set of tags costs a look into a table for each of its tags, and the additions; what was decided
is remembered, within bounds.

The same object may be used by several threads: each looks and adds, and at worst decides twice.
"""

from __future__ import annotations

from typing import Final

from data_plane.wire.kernel import map_header_sets
from data_plane.wire.records import Buffer
from features.filtering.evaluation import Evaluation
from features.filtering.language import Expression
from features.filtering.tags import (
    TAG_HEADER,
    TAGS_BYTES_MAX,
    TAGS_PER_RECORD_MAX,
    split_tags,
)

# Sets of tags, each with some 150 bytes beside what it says; larger sets are decided every time.
# With more of them the memory starts again. In all a filter takes some 250 KiB at most.
REMEMBERED_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 64 << 10
SET_BYTES_MAX: Final = 512

# A record whose tags nobody has put together, since there are too many, does not pass.
_ONLY_VERDICTS: Final = bytes.maketrans(b"\xff", b"\x00")


class Matcher:
    """One filter. `expression` is what it was made from."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._evaluation = Evaluation(expression)
        # By the tags as they are stored.
        self._by_set: dict[bytes, int] = {}
        self._set_bytes = 0

    def passes(self, stored_tags: bytes) -> bool:
        """Whether a record with these tags passes; see tags.py for how they are stored."""
        found = self._by_set.get(stored_tags)
        return bool(self._decide_set(stored_tags) if found is None else found)

    def select(self, buf: Buffer, start: int, end: int, record_count: int) -> bytes | bool:
        """Which of a batch's plain records pass: a byte for each, or all or none of them. Raises
        InvalidRecords."""
        found = map_header_sets(
            buf,
            start,
            end,
            record_count,
            TAG_HEADER,
            self._by_set,
            self._decide_set,
            TAGS_PER_RECORD_MAX,
            TAGS_BYTES_MAX,
        )
        if found is None:
            return self.passes(b"")
        # The last byte of each number, which is 0 or 1 but for such a record.
        verdicts = bytes(found[3::4]).translate(_ONLY_VERDICTS)
        if 1 not in verdicts:
            return False
        return verdicts if 0 in verdicts else True

    def _decide_set(self, stored_tags: bytes) -> int:
        mask = 0
        bits, name_bits = self._evaluation.bits, self._evaluation.name_bits
        for tag in split_tags(stored_tags):
            mask |= bits.get(tag, 0)
            if name_bits:
                name, colon, _ = tag.partition(b":")
                if colon:
                    mask |= name_bits.get(name, 0)
        verdict = int(self._evaluation.decide(mask))
        if len(stored_tags) <= SET_BYTES_MAX:
            self._set_bytes += len(stored_tags)
            if len(self._by_set) >= REMEMBERED_MAX or self._set_bytes > REMEMBERED_BYTES_MAX:
                self._by_set = {}
                self._set_bytes = len(stored_tags)
            self._by_set[stored_tags] = verdict
        return verdict
