"""Which offsets of a log are marked: a bit for each, in blocks that are as large as needed.

    blocks   {0: 0b1011, 7: …}     offsets 0, 1 and 3, and some from 7 * 32768 on

Some 128 KiB for a million of marked offsets. A copy costs a reference for each block, as blocks are
integers, which never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

BLOCK_BITS: Final = 1 << 15
_MASK: Final = (1 << BLOCK_BITS) - 1


class Bits(NamedTuple):
    """Some offsets: bit n of `bits` stands for `base` + n."""

    base: int
    bits: int

    @property
    def size(self) -> int:
        return self.bits.bit_count()

    def offsets(self) -> list[int]:
        """In their order."""
        text = bin(self.bits)[:1:-1]
        found, place = [], text.find("1")
        while place >= 0:
            found.append(self.base + place)
            place = text.find("1", place + 1)
        return found


def bits_of(offsets: Iterable[int]) -> Bits:
    """These, of which there is one at least, in their order."""
    found = list(offsets)
    base = found[0]
    marks = bytearray((found[-1] - base) // 8 + 1)
    for offset in found:
        marks[(offset - base) // 8] |= 1 << (offset - base) % 8
    return Bits(base, int.from_bytes(marks, "little"))


class Marks:
    """A set of offsets."""

    def __init__(self, blocks: Mapping[int, int] | None = None) -> None:
        self.blocks = dict(blocks or {})

    def __len__(self) -> int:
        """Of its blocks."""
        return len(self.blocks)

    def __contains__(self, offset: int) -> bool:
        block, bit = divmod(offset, BLOCK_BITS)
        return bool(self.blocks.get(block, 0) >> bit & 1)

    def within(self, start: int, end: int) -> list[int]:
        """Those in [start, end), in their order."""
        found: list[int] = []
        for block in range(start // BLOCK_BITS, -(-end // BLOCK_BITS)):
            offsets = Bits(block * BLOCK_BITS, self.blocks.get(block, 0)).offsets()
            found += (offset for offset in offsets if start <= offset < end)
        return found

    def copy(self) -> Marks:
        return Marks(self.blocks)

    def add(self, added: Bits) -> None:
        for block, bits in _by_block(added):
            self.blocks[block] = self.blocks.get(block, 0) | bits

    def missing(self, bits: Bits) -> Bits:
        """Those of `bits` that are not in it."""
        left = bits.bits
        for block, known in _by_block(bits):
            shift = block * BLOCK_BITS - bits.base
            known &= self.blocks.get(block, 0)
            left &= ~(known << shift if shift >= 0 else known >> -shift)
        return Bits(bits.base, left)

    def remove(self, removed: Bits) -> None:
        for block, bits in _by_block(removed):
            left = self.blocks.get(block, 0) & ~bits
            if left:
                self.blocks[block] = left
            else:
                self.blocks.pop(block, None)


def _by_block(bits: Bits) -> Iterable[tuple[int, int]]:
    block, shift = divmod(bits.base, BLOCK_BITS)
    left = bits.bits << shift
    while left:
        if left & _MASK:
            yield block, left & _MASK
        left >>= BLOCK_BITS
        block += 1
