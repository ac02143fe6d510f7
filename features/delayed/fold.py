"""What is pending of a log, as a fold: hidden records come in, and go when they are fired.

    batch with HIDDEN_FLAG   its records with `tw-deliver-at` are pending
    batch with FACTS_FLAG    the originals that its records name in `tw-source` are fired

It sees no other batches. Beside what is pending it knows from where to where the log has flagged
batches: all other offsets readers may be shown without a look.

Invariants
- The log needs nothing from below the lowest pending offset for it (`needed_from`).
- While the log has hidden records, compaction leaves all of it: it would take them for values of
  their keys, and facts for superseded ones.

Deliberately absent: firing (firing.py), upkeep of what is on the disk (upkeep.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, HoldsAll, RecordHold, SnapshotFile, StoredBatch
from data_plane.wire.kernel import list_keys, scan_headers
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, unpacked_records
from features.delayed import snapshot
from features.delayed.hidden import due_times
from features.delayed.pending_set import FrozenPending, PendingSet
from features.delayed.snapshot import FoldState
from features.delayed.wheel import DUE_END_MS

SOURCE_HEADER: Final = b"tw-source"
NOTHING: Final = -1


class DelayedMessages:
    """The fold of one log."""

    extension = snapshot.SNAPSHOT_SUFFIX
    batch_flags = HIDDEN_FLAG | FACTS_FLAG

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.pending = PendingSet(self._context.fs, self._context.folder)
        # Flagged batches with hidden records lie in [hidden_from, hidden_end).
        self.hidden_from = NOTHING
        self.hidden_end = NOTHING

    def __len__(self) -> int:
        return len(self.pending)

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        records, start, end = unpacked_records(batch.buf, header)
        if header.attributes & HIDDEN_FLAG:
            if self.hidden_from == NOTHING:
                self.hidden_from = header.base_offset
            self.hidden_end = header.next_offset
            deltas = self._deltas(header, records, start, end)
            for index, due_ms in due_times(records, start, end, header.record_count):
                self.pending.add(min(due_ms, DUE_END_MS - 1), header.base_offset + deltas[index])
        if header.attributes & FACTS_FLAG:
            for _, _, value in scan_headers(
                records, start, end, header.record_count, SOURCE_HEADER
            ):
                self.pending.remove(source_offset(value))

    @staticmethod
    def _deltas(header: BatchHeader, buf: Buffer, start: int, end: int) -> Sequence[int]:
        """Of each record; thinning and compaction leave gaps in a batch."""
        count = header.record_count
        if count == header.next_offset - header.base_offset:
            return range(count)
        return [delta for delta, _, _ in list_keys(buf, start, end, count)]

    def shown_whole_until(self, offset: int, end: int) -> int:
        """Up to where, in [offset, end], no record is hidden from `offset` on."""
        if self.hidden_from == NOTHING or offset >= self.hidden_end:
            return end
        return max(offset, min(end, self.hidden_from))

    # What it holds on to

    def needed_from(self, start_offset: int) -> int | None:
        return self.pending.lowest_offset

    @property
    def due_ms(self) -> int | None:
        return self.pending.next_ms

    def held_from(self, start_offset: int) -> int | None:
        return start_offset if self.hidden_end > start_offset else None

    def freeze_held(self) -> RecordHold:
        return HoldsAll()

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        return bool(batch.header.attributes & FACTS_FLAG)

    # Snapshots

    def snapshot(self) -> bytes:
        frozen = self.freeze()
        try:
            return frozen.encoded()
        finally:
            frozen.close()

    def freeze(self) -> FrozenMessages:
        return FrozenMessages(self.pending, self.hidden_from, self.hidden_end)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self._begin_anew()
        data = b"".join(pieces)
        if data:
            state = snapshot.decode(data, self._context.fs, self._context.folder)
            self.hidden_from, self.hidden_end = state.hidden_from, state.hidden_end
            self.pending.restore(state.pending)


class FrozenMessages:
    """The fold as it was."""

    def __init__(self, pending: PendingSet, hidden_from: int, hidden_end: int) -> None:
        self._pending = pending
        self._state: FrozenPending | None = pending.freeze()
        self._hidden = (hidden_from, hidden_end)

    def encoded(self) -> bytes:
        assert self._state is not None
        return snapshot.encode(FoldState(*self._hidden, self._state))

    def write(self, file: SnapshotFile) -> None:
        file.write_at(0, self.encoded())

    def close(self) -> None:
        if self._state is not None:
            self._pending.thaw(self._state)
            self._state = None


def source_of(topic: str, partition: int, offset: int) -> bytes:
    """What `tw-source` says of a record."""
    return f"{topic}/{partition}/{offset}".encode()


def source_offset(value: bytes | None) -> int:
    """The offset that it says."""
    assert value is not None
    return int(value.rpartition(b"/")[2])


def make_fold(context: FoldContext) -> DelayedMessages | None:
    """For topics that read headers, which is a matter of their record rules."""
    return None if context.config.record_rules is None else DelayedMessages(context)
