"""A fold that becomes as large as a record says, to see what a large one costs the loop.

Its entries lie in pieces, of which only the last one is changed, by being appended to: so a frozen
view is those pieces and a length. That is what folds of millions of entries have to be like.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, HoldsAll, SnapshotFile, StoredBatch

PIECE_ENTRIES = 1 << 16
HEAD = b"entries\n"
ENTRY_BYTES = 8


class FrozenEntries:
    """The first `count` entries of `pieces`."""

    def __init__(self, pieces: tuple[array[int], ...], count: int) -> None:
        self._pieces = pieces
        self._count = count

    def write(self, file: SnapshotFile) -> None:
        file.write_at(0, HEAD)
        position, left = len(HEAD), self._count
        for piece in self._pieces:
            data = piece[:left].tobytes()
            file.write_at(position, data)
            position += len(data)
            left -= PIECE_ENTRIES

    def close(self) -> None:
        self._pieces = ()


class LargeFold:
    """Each record adds as many entries as its value says."""

    extension = ".entries"

    def __init__(self, context: FoldContext) -> None:
        self.context = context
        self.pieces: list[array[int]] = []
        self.count = 0
        # The sizes of what the last restore was given.
        self.restored_from: list[int] = []

    def __len__(self) -> int:
        return self.count

    def apply(self, batch: StoredBatch) -> None:
        for record in batch.records:
            self.add(range(self.count, self.count + int(record.value or b"0")))

    def add(self, entries: Iterable[int]) -> None:
        left = iter(entries)
        for entry in left:
            if self.count % PIECE_ENTRIES == 0:
                self.pieces.append(array("q"))
            self.pieces[-1].append(entry)
            self.count += 1

    def snapshot(self) -> bytes:
        return HEAD + b"".join(piece.tobytes() for piece in self.pieces)

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> HoldsAll:
        return HoldsAll()

    def freeze(self) -> FrozenEntries:
        return FrozenEntries(tuple(self.pieces), self.count)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self.pieces, self.count, self.restored_from = [], 0, []
        rest = b""
        left = iter(pieces)
        first = bytes(next(left, HEAD))
        if not first.startswith(HEAD):
            raise ValueError("no entries")
        for piece in chain([first], left):
            self.restored_from.append(len(piece))
            data = rest + bytes(piece)
            if len(self.restored_from) == 1:
                data = data[len(HEAD) :]
            end = len(data) - len(data) % ENTRY_BYTES
            self.add(memoryview(data)[:end].cast("q"))
            rest = data[end:]
        if rest:
            raise ValueError("half an entry")
