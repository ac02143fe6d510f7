"""A filter made ready for use: whether a record with these tags passes.

Each tag that the filter names has a bit, and so has each `name:*`. A record's tags give a *mask*:
the bits of those that it has. The filter is an expression over the mask, in which a run of tags
that are joined by `or` or `and` is one step:

    (a or b or c) and not region:*        bits: a 1, b 2, c 4, region:* 8
    tags {b, region:eu}                   mask: 2 | 8
    (mask & 7) and not (mask & 8)         no

So a set of tags costs a look into a table for each of its tags, and the expression once for each
mask that was not met before; what was decided is remembered, within bounds.

The same object may be used by several threads: each looks and adds, and at worst decides twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.wire.kernel import map_header_sets
from data_plane.wire.records import Buffer
from features.filtering.language import And, AnyValue, Everything, Expression, Not, Or, Tag
from features.filtering.tags import (
    TAG_HEADER,
    TAGS_BYTES_MAX,
    TAGS_PER_RECORD_MAX,
    split_tags,
)

# Sets of tags, and masks, each with some 150 bytes beside what it says; larger sets are decided
# every time. With more of them the memory starts again. In all a filter takes some 370 KiB at most.
REMEMBERED_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 64 << 10
SET_BYTES_MAX: Final = 512

# A record whose tags nobody has put together, since there are too many, does not pass.
_ONLY_VERDICTS: Final = bytes.maketrans(b"\xff", b"\x00")

_Decide = Callable[[int], bool]


class Matcher:
    """One filter. `expression` is what it was made from."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        # By tag, and by the name of those of which any value counts.
        self._bits: dict[bytes, int] = {}
        self._name_bits: dict[bytes, int] = {}
        self._number_terms(expression)
        self._decide = self._made(expression)
        self._by_mask: dict[int, int] = {}
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
        bits, name_bits = self._bits, self._name_bits
        for tag in split_tags(stored_tags):
            mask |= bits.get(tag, 0)
            if name_bits:
                name, colon, _ = tag.partition(b":")
                if colon:
                    mask |= name_bits.get(name, 0)
        verdict = self._by_mask.get(mask)
        if verdict is None:
            verdict = int(self._decide(mask))
            if len(self._by_mask) >= REMEMBERED_MAX:
                self._by_mask = {}
            self._by_mask[mask] = verdict
        if len(stored_tags) <= SET_BYTES_MAX:
            self._set_bytes += len(stored_tags)
            if len(self._by_set) >= REMEMBERED_MAX or self._set_bytes > REMEMBERED_BYTES_MAX:
                self._by_set = {}
                self._set_bytes = len(stored_tags)
            self._by_set[stored_tags] = verdict
        return verdict

    def _number_terms(self, expression: Expression) -> None:
        match expression:
            case Tag(tag):
                self._bits.setdefault(tag, self._next_bit())
            case AnyValue(name):
                self._name_bits.setdefault(name, self._next_bit())
            case Not(operand):
                self._number_terms(operand)
            case And(operands) | Or(operands):
                for operand in operands:
                    self._number_terms(operand)
            case Everything():
                pass

    def _next_bit(self) -> int:
        return 1 << (len(self._bits) + len(self._name_bits))

    def _made(self, expression: Expression) -> _Decide:
        match expression:
            case Tag() | AnyValue():
                wanted = self._bit(expression)
                return lambda mask: mask & wanted != 0
            case Not(operand):
                decide = self._made(operand)
                return lambda mask: not decide(mask)
            case And(operands):
                wanted, rest = self._split(operands)
                return lambda mask: mask & wanted == wanted and all(decide(mask) for decide in rest)
            case Or(operands):
                wanted, rest = self._split(operands)
                return lambda mask: mask & wanted != 0 or any(decide(mask) for decide in rest)
            case Everything():
                return lambda mask: True

    def _split(self, operands: tuple[Expression, ...]) -> tuple[int, list[_Decide]]:
        """(the bits of those that are single terms, the others)"""
        wanted = 0
        rest = []
        for operand in operands:
            if isinstance(operand, Tag | AnyValue):
                wanted |= self._bit(operand)
            else:
                rest.append(self._made(operand))
        return wanted, rest

    def _bit(self, term: Tag | AnyValue) -> int:
        if isinstance(term, Tag):
            return self._bits[term.tag]
        return self._name_bits[term.name]
