"""The ids of a log's messages, as a fold.

    batch with IDS_FLAG   the `tw-id` of each of its records is remembered, with the record's offset
                          and the batch's time, which is that of its append

It sees no other batches: what was stored while the topic had no window, and what the broker makes
itself (delivered messages keep their ids), has not been looked at for duplicates and is none of it.

Invariants
- The log is needed from the lowest offset on whose id is remembered (`needed_from`), for a replica
  that begins later to know the same ids.
- The state depends on the log, but for what is forgotten: that is older than the window and would
  not count (forgetting.py).

Deliberately absent: the window (judgement.py), upkeep of what is on the disk (forgetting.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.log.file_system import Buffer
from data_plane.log.fold import FoldContext, HoldsAll, RecordHold, SnapshotFile, StoredBatch
from data_plane.log.log import Log
from data_plane.wire.kernel import list_keys
from data_plane.wire.kernel_types import IDS_FLAG
from data_plane.wire.records import unpacked_records
from features.dedup import snapshot
from features.dedup.ids import ids_in
from features.dedup.remembered_ids import FrozenIds, RememberedIds


class MessageIds:
    """The fold of one log."""

    extension = snapshot.SNAPSHOT_SUFFIX
    batch_flags = IDS_FLAG

    def __init__(self, context: FoldContext) -> None:
        self._context = context
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.ids = RememberedIds(self._context.fs, self._context.folder)

    def __len__(self) -> int:
        return len(self.ids)

    def apply(self, batch: StoredBatch) -> None:
        header = batch.header
        if not header.log_append_time:
            # The window has gone while the batch was on its way: nobody knows when it came.
            return
        records, start, end = unpacked_records(batch.buf, header)
        base, time_ms, count = header.base_offset, header.max_timestamp, header.record_count
        if count == header.next_offset - base:
            for index, message_id in ids_in(records, start, end, count):
                self.ids.add(message_id, base + index, time_ms)
        else:
            # Where duplicates were taken out there are gaps.
            deltas = [delta for delta, _, _ in list_keys(records, start, end, count)]
            for index, message_id in ids_in(records, start, end, count):
                self.ids.add(message_id, base + deltas[index], time_ms)

    # What it holds on to

    def needed_from(self, start_offset: int) -> int | None:
        return self.ids.offset_min

    def held_from(self, start_offset: int) -> int | None:
        return None

    def freeze_held(self) -> RecordHold:
        return HoldsAll()

    def facts_in(self, batch: StoredBatch) -> bytes | bool:
        return False

    # Snapshots

    def snapshot(self) -> bytes:
        frozen = self.freeze()
        try:
            return frozen.encoded()
        finally:
            frozen.close()

    def freeze(self) -> FrozenMessageIds:
        return FrozenMessageIds(self.ids)

    def restore(self, pieces: Iterable[Buffer]) -> None:
        self._begin_anew()
        data = b"".join(pieces)
        if data:
            self.ids.restore(snapshot.decode(data, self._context.fs, self._context.folder))


class FrozenMessageIds:
    """The fold as it was."""

    def __init__(self, ids: RememberedIds) -> None:
        self._ids = ids
        self._state: FrozenIds | None = ids.freeze()

    def encoded(self) -> bytes:
        assert self._state is not None
        return snapshot.encode(self._state)

    def write(self, file: SnapshotFile) -> None:
        file.write_at(0, self.encoded())

    def close(self) -> None:
        if self._state is not None:
            self._ids.thaw(self._state)
            self._state = None


def make_fold(context: FoldContext) -> MessageIds | None:
    """For topics that read headers, which they do for good: a window may come and go."""
    return None if context.config.record_rules is None else MessageIds(context)


def fold_of(log: Log) -> MessageIds | None:
    """The log's, while it is loaded and has it."""
    for fold in log.folds_if_loaded or ():
        if isinstance(fold, MessageIds):
            return fold
    return None
