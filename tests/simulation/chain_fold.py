"""A fold that every log of every broker has in the simulator, as a feature of a broker would.

It chains the checksums of all batches since the log began, so that one batch that was missed, seen
twice or in another order shows in its state, whatever came since (audit.py). On brokers with an
even number its snapshots are written by threads.
"""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, FrozenBytes, HoldsAll, StoredBatch

HEAD = b"chain"


class Chain:
    """The batches so far. `first_offset` is where they began, -1 without one."""

    def __init__(self) -> None:
        self.first_offset = -1
        self.batches_count = 0
        self.checksum = 0

    @property
    def state(self) -> tuple[int, int, int]:
        return self.first_offset, self.batches_count, self.checksum

    def add(self, base_offset: int, last_offset: int, crc: int) -> None:
        if self.first_offset < 0:
            self.first_offset = base_offset
        self.batches_count += 1
        self.checksum = crc32c(b"%d %d %d" % (base_offset, last_offset, crc), self.checksum)


class ChainFold(Chain):
    """See the module."""

    extension = ".chain"

    def __init__(self, context: FoldContext) -> None:
        super().__init__()
        self.context = context

    def __len__(self) -> int:
        return self.batches_count

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        self.add(header.base_offset, header.last_offset, header.crc)

    def snapshot(self) -> bytes:
        return b"%b %d %d %d" % (HEAD, *self.state)

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenBytes:
        return FrozenBytes(self.snapshot())

    def restore(self, pieces: Iterable[Buffer]) -> None:
        data = b"".join(pieces)
        head, *state = data.split(b" ") if data else (HEAD, b"-1", b"0", b"0")
        if head != HEAD or len(state) != 3:
            raise ValueError("not a whole chain")
        self.first_offset, self.batches_count, self.checksum = map(int, state)
