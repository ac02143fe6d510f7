"""The second half of a rewrite's thread work: the writer of a new segment (SegmentWriter), of what
compaction leaves (GroupWriter), or of what folds need, and facts (HeldWriter, thinning.py).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from operator import or_
from typing import NamedTuple

from data_plane.log.batch_walk import Chunk
from data_plane.log.file_system import Buffer, SyncSite
from data_plane.log.fold import HoldingFold, StoredBatch, sees
from data_plane.log.held_records import HeldRecords
from data_plane.log.indexes import AbortedTransaction, encode_aborted
from data_plane.log.key_map import AbortedRanges, KeyMap
from data_plane.log.log_state import LogState
from data_plane.log.record_kinds import RecordKinds
from data_plane.log.segment import (
    APPEND_TIME_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from data_plane.log.segment_age import encode_append_ms, newest_append_ms
from data_plane.wire.kernel import list_keys
from data_plane.wire.records import BatchHeader, filter_batch, read_batch_header, unpacked_records

CLEANED_SUFFIX = ".cleaned"
WRITE_BYTES = 1 << 20


class CompactedSegment(NamedTuple):
    """What replaces `originals`; its files carry the suffix `.cleaned`.

    `forgets`: it lacks a tombstone, a marker or an aborted transaction of the originals, and must
    not come into the log behind old records that these speak of."""

    originals: list[Segment]
    segment: Segment
    suffixes: list[str]
    forgets: bool


class SegmentWriter(ABC):
    """Writes one new segment from the kept records of several old ones."""

    def __init__(self, log: LogState, group: list[Segment], *, may_forget: bool) -> None:
        """`may_forget`: whether the lists of aborted transactions go."""
        self._fs = log.log_directory.fs
        self._group = group
        self._may_forget = may_forget
        self._listed = [entry for one in group for entry in one.aborted_transactions()]
        self._has_forgotten = may_forget and bool(self._listed)
        self._interval_bytes = log.config.index_interval_bytes
        first = group[0]
        self._segment = Segment(
            log.log_directory, log.folder, first.base_offset, first.base_offset, 0
        )
        self._segment.start_indexes()
        self._file = self._fs.open(self._path(LOG_SUFFIX), create=True)
        self._file.truncate(0)
        self._pending = bytearray()

    def _path(self, suffix: str) -> str:
        return self._segment.path(suffix) + CLEANED_SUFFIX

    def add(self, chunk: Chunk) -> None:
        """Keep what is to be kept of a chunk's batches."""
        for header in chunk.headers:
            kept = self._kept(chunk.data, header)
            if kept is None:
                continue
            position = self._segment.size + len(self._pending)
            new_header = read_batch_header(kept, 0)
            self._segment.add_batch(new_header, position, self._interval_bytes)
            self._pending += kept
            if len(self._pending) >= WRITE_BYTES:
                self._write()

    @abstractmethod
    def _kept(self, data: Buffer, header: BatchHeader) -> Buffer | None:
        """The batch as it stays, None when nothing of it does."""

    def _write(self) -> None:
        self._file.write_at(self._segment.size, self._pending)
        self._segment.size += len(self._pending)
        self._pending = bytearray()

    def close(self) -> CompactedSegment:
        """Finish and sync the new segment's files."""
        segment = self._segment
        self._write()
        last = self._group[-1]
        segment.next_offset = last.next_offset
        segment.unverified_end = 0
        segment.sealed = True
        if not segment.size:
            segment.max_timestamp = last.max_timestamp
        assert segment.time_index is not None
        assert segment.offset_index is not None
        if segment.max_timestamp >= 0 and segment.max_timestamp_offset >= 0:
            segment.time_index.append_if_later(
                segment.max_timestamp, segment.max_timestamp_offset - segment.base_offset
            )
        # No record of an aborted transaction is left, as all of them lie before their marker:
        # unless in a damaged segment before these, and only this list makes them aborted.
        segment.aborted = [] if self._may_forget else self._listed
        self._fs.sync_data(self._file, SyncSite.COMPACTED_DATA)
        self._file.close()
        files = {
            INDEX_SUFFIX: segment.offset_index.encode(),
            TIME_INDEX_SUFFIX: segment.time_index.encode(),
        }
        if self._listed:
            # An empty one takes the place of that of the original.
            files[TRANSACTION_INDEX_SUFFIX] = encode_aborted(segment.aborted)
        if segment.has_untimed:
            # Later than that of some, which is on the safe side.
            segment.last_append_ms = newest_append_ms(self._group)
            files[APPEND_TIME_SUFFIX] = encode_append_ms(segment)
        for suffix, content in files.items():
            file = self._fs.open(self._path(suffix), create=True)
            try:
                file.truncate(0)
                file.write_at(0, content)
                self._fs.sync_data(file, SyncSite.COMPACTED_INDEX)
            finally:
                file.close()
        # The `.log` last: once it is renamed, the swap is decided.
        return CompactedSegment(self._group, segment, [*files, LOG_SUFFIX], self._has_forgotten)

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(OSError):
                self._fs.unlink(self._path(suffix))


class GroupWriter(SegmentWriter):
    """Keeps what compaction leaves."""

    def __init__(
        self,
        log: LogState,
        group: list[Segment],
        keys: KeyMap,
        aborted: Iterable[AbortedTransaction],
        last_offsets: frozenset[int],
        wall_ms: int,
        *,
        kinds: RecordKinds,
        may_forget: bool = True,
        held: HeldRecords | None = None,
    ) -> None:
        """`may_forget`: whether tombstones and markers go whose time is over, and what is hidden
        and not held. `held`: what folds hold on to."""
        super().__init__(log, group, may_forget=may_forget)
        self._kinds = kinds
        self._held = held
        self._keys = keys
        self._aborted = AbortedRanges(aborted)
        self._last_offsets = last_offsets
        self._wall_ms = wall_ms
        self._horizon_ms = wall_ms + log.config.delete_retention_ms

    def _kept(self, data: Buffer, header: BatchHeader) -> Buffer | None:
        """The batch as it stays, None when nothing of it does."""
        horizon_ms = header.delete_horizon_ms
        if header.is_control:
            return self._kept_marker(data, header, horizon_ms)
        if self._aborted.contains(header):
            return None
        records, start, end = unpacked_records(data, header)
        keep, blanks = bytearray(header.record_count), bytearray(header.record_count)
        values = self._kinds.values_in(data, header)
        facts = self._kinds.facts_in(data, header)
        has_tombstone = renews_horizon = False
        held = self._held
        # Of a batch that the leader has cleaned the last offset may be without its record.
        last_index = header.record_count - 1
        holds_last = header.last_offset in self._last_offsets
        for index, (delta, key, is_tombstone) in enumerate(
            list_keys(records, start, end, header.record_count)
        ):
            offset = header.base_offset + delta
            is_last = holds_last and index == last_index
            is_fact = facts is not None and bool(facts[index])
            if values is not None and not values[index]:
                keep[index] = is_last or is_fact or self._stays_hidden(offset)
                continue
            is_superseded = self._keys.is_superseded(key, offset)
            if held is not None and not is_tombstone:
                held.add_value(key, offset, self._keys.newest(key))
            if is_superseded:
                # The end of a producer's sequence outlives its value, and so does a fact: what
                # supersedes it may be a tombstone, and go first.
                keep[index] = is_last or is_fact
                blanks[index] = keep[index] and key is not None and not is_tombstone
                if held is not None and held.holds(offset):
                    held.keep(offset)
                    keep[index], blanks[index] = 1, 0
                has_tombstone |= bool(blanks[index])
            elif is_tombstone and held is not None and held.shadows(key):
                keep[index] = 1
                has_tombstone = renews_horizon = True
            elif is_tombstone and self._is_forgotten(horizon_ms):
                keep[index] = is_last or is_fact
                if held is not None and held.holds(offset):
                    held.keep(offset)
                    keep[index] = 1
                self._has_forgotten |= not keep[index]
            else:
                keep[index] = 1
                has_tombstone |= is_tombstone
        sets_horizon = renews_horizon or (has_tombstone and horizon_ms is None)
        if all(keep) and not sets_horizon and not any(blanks):
            return memoryview(data)[header.position : header.end_position]
        return filter_batch(
            data,
            header.position,
            keep,
            delete_horizon_ms=self._horizon_ms if sets_horizon else None,
            blanks=blanks if any(blanks) else None,
        )

    def _stays_hidden(self, offset: int) -> bool:
        if not self._may_forget or (self._held is not None and self._held.holds(offset)):
            return True
        self._kinds.lets_go = True
        return False

    def _is_forgotten(self, horizon_ms: int | None) -> bool:
        return self._may_forget and horizon_ms is not None and self._wall_ms >= horizon_ms

    def _kept_marker(
        self, data: Buffer, header: BatchHeader, horizon_ms: int | None
    ) -> Buffer | None:
        if horizon_ms is None:
            return filter_batch(data, header.position, b"\1", delete_horizon_ms=self._horizon_ms)
        if self._is_forgotten(horizon_ms) and header.last_offset not in self._last_offsets:
            self._has_forgotten = True
            return None
        return memoryview(data)[header.position : header.end_position]


class HeldWriter(SegmentWriter):
    """Keeps what `folds` need, and facts. Markers of transactions stay: whoever replays the rest
    has to hear of the end of each. So does the last record of a producer's last batch: who gets an
    earlier one and not that would take what comes next for out of sequence."""

    def __init__(
        self,
        log: LogState,
        group: list[Segment],
        held: HeldRecords,
        folds: Sequence[HoldingFold],
        last_offsets: frozenset[int],
    ) -> None:
        """`last_offsets` are those of producers' last batches."""
        super().__init__(log, group, may_forget=False)
        self._last_offsets = last_offsets
        self._held = held
        self._folds = folds
        # Whether all of it is written as it was.
        self.is_unchanged = True

    def _kept(self, data: Buffer, header: BatchHeader) -> Buffer | None:
        if header.is_control:
            return memoryview(data)[header.position : header.end_position]
        batch = StoredBatch(header, data)
        facts = [fold.facts_in(batch) for fold in self._folds if sees(fold, header)]
        if True in facts:
            return memoryview(data)[header.position : header.end_position]
        records, start, end = unpacked_records(data, header)
        keep = bytearray(header.record_count)
        for index, (delta, _, _) in enumerate(list_keys(records, start, end, header.record_count)):
            keep[index] = self._held.needs(header.base_offset + delta)
        for found in facts:
            if not isinstance(found, bool):
                keep = bytearray(map(or_, keep, found))
        if keep and header.last_offset in self._last_offsets:
            keep[-1] = 1
        if all(keep):
            return memoryview(data)[header.position : header.end_position]
        self.is_unchanged = False
        return filter_batch(data, header.position, keep) if any(keep) else None
