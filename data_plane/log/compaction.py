"""Compaction: of each key the newest record stays, of a tombstone for a while, as in Kafka.

    dirty:   [first dirty offset, end)   sealed, below high watermark, LSO and the recovery point on
                                         disk (recovery must not meet the gaps), older than
                                         min.compaction.lag.ms
    plan     on the loop: which segments                      (plan_compaction)
    run      in a thread: map key → last offset over the dirty part, then rewrite every segment up
             to its end into `.log.cleaned` with new indexes, several small ones into one; sync
    finish   on the loop: rename `.cleaned` → `.swap`, sync the folder, unlink the originals,
             rename `.swap` to the final names, swap the segment objects

What stays: the last record of each key; a tombstone until `delete.retention.ms` after the pass that
first saw it settled, which that pass writes into the batch (bit 6, KIP-534); the markers of
transactions, likewise, and never records of aborted transactions; the last record of a producer's
last batch, so that its sequence goes on (Kafka keeps an empty batch there; batches without records
harm too many clients). Superseded, that one loses its value: a tombstone that supersedes it goes in
time, and the value must not come back. For the same reason no tombstone goes behind a segment that
is damaged and stays as it is. A record without a key is dropped, but never the log's last batch: a
follower that has all before it would wait for it in vain. What folds hold on to stays, and
what shadows it from readers (held_records.py). What a feature hides is no value of its key, and
facts stay (record_kinds.py).

Retention may drop segments while a job runs, and power loss may bring them back until the log start
is durable. So nothing is planned before it is, and what a job has rewritten does not come in behind
old records that would miss what went (CompactionJob._swap_in).

Crash safety, as in Kafka: `.cleaned` files are dropped at the start; a `.log.swap` is whole, since
it is renamed only after its bytes were synced, so the start finishes the swap. Indexes are always
made again then.

Deliberately absent: the schedule (maintenance.py) and throttling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from data_plane.log import held_records, segment_age
from data_plane.log.batch_walk import BatchWalk, pieces_around
from data_plane.log.cleaned_end import note_cleaned_end
from data_plane.log.cold_files import cold_file
from data_plane.log.compaction_swap import discard, swap_in
from data_plane.log.compaction_writer import GroupWriter
from data_plane.log.config import INT64_MAX
from data_plane.log.held_records import HeldRecords
from data_plane.log.key_map import BUFFER_BYTES, KeyMap
from data_plane.log.log_reads import aborted_transactions
from data_plane.log.log_state import LogState
from data_plane.log.record_kinds import RecordKinds
from data_plane.log.segment import Segment
from data_plane.log.segment_rewrite import SegmentRewrite, neighbours


class Dirt(NamedTuple):
    """How much there is to compact: bytes already compacted, bytes that may be now, and since
    when the oldest of them waits."""

    clean_bytes: int
    dirty_bytes: int
    oldest_ms: int

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_segments(log: LogState, wall_ms: int) -> list[Segment]:
    """The sealed segments at the front of the log that may be rewritten."""
    config = log.config
    bound = min(log.last_stable_offset, log.high_watermark, log.checkpointed_recovery_point)
    bound = min(bound, held_records.settled_end(log))
    found = []
    for segment in log.segments[:-1]:
        if segment.next_offset > bound:
            break
        if config.min_compaction_lag_ms > 0 and _is_too_young(log, segment, wall_ms):
            break
        found.append(segment)
    return found


def _is_too_young(log: LogState, segment: Segment, wall_ms: int) -> bool:
    youngest_ms = segment_age.newest_ms(segment)
    if youngest_ms is None:
        log.wants_ages = True
        return True
    return wall_ms - youngest_ms < log.config.min_compaction_lag_ms


def awaits_checkpoint(log: LogState) -> bool:
    """Whether sealed segments are durable, but no checkpoint on disk says so yet."""
    if not log.is_loaded or not log.is_compactable:
        return False
    durable_end = min(log.recovery_point, log.segments[-1].base_offset)
    return log.checkpointed_recovery_point < durable_end


def measure_dirt(log: LogState, wall_ms: int) -> Dirt:
    """See Dirt."""
    clean = dirty = 0
    oldest_ms = wall_ms
    segments = cleanable_segments(log, wall_ms)
    released = range(log.superseded_from, held_records.released_end(log))
    if not segments or segments[-1].next_offset < log.cleaner_offset:
        # A pass sees less than what is clean, and could not say what is superseded.
        released = range(0)
    for segment in segments:
        # One that is clean in part (the key map was full, or what followed was cut off) is due.
        is_released = segment.base_offset < released.stop and segment.next_offset > released.start
        if segment.next_offset <= log.cleaner_offset and not is_released:
            clean += segment.size
        else:
            dirty += segment.size
            if segment.size and log.config.max_compaction_lag_ms < INT64_MAX:
                appended_ms = segment_age.oldest_ms(segment)
                if appended_ms is None:
                    log.wants_ages = True
                else:
                    oldest_ms = min(oldest_ms, appended_ms)
    return Dirt(clean, dirty, oldest_ms)


def compaction_priority(log: LogState, wall_ms: int) -> float:
    """0 when nothing is due, otherwise more for dirtier logs; over 1 when a record has waited
    max.compaction.lag.ms."""
    if log.compacting or log.wants_folds or not log.is_compactable or may_grow_back(log):
        return 0.0
    dirt = measure_dirt(log, wall_ms)
    if not dirt.dirty_bytes:
        return 0.0
    if wall_ms - dirt.oldest_ms > log.config.max_compaction_lag_ms:
        return 1.0 + dirt.ratio
    return dirt.ratio if dirt.ratio >= log.config.min_cleanable_dirty_ratio else 0.0


def may_grow_back(log: LogState) -> bool:
    """Whether power loss could bring segments back that retention has dropped: a tombstone that
    went meanwhile would be missing behind them. The next flush ends this."""
    pending = log.pending_deletion
    return pending is not None and pending[-1][0].next_offset > log.durable_disk_start


def plan_compaction(
    log: LogState, wall_ms: int, buffer_bytes: int = BUFFER_BYTES
) -> CompactionJob | None:
    """A job when compaction is due, whose key map takes no more than `buffer_bytes`."""
    if log.log_directory.failure is not None or not log.config.compact:
        return None
    if compaction_priority(log, wall_ms) <= 0.0:
        return None
    segments = cleanable_segments(log, wall_ms)
    return CompactionJob(log, segments, wall_ms, buffer_bytes)


class CompactionJob(SegmentRewrite):
    """Rewrites `segments`, the front of the log. `run` in a worker thread, then `finish`."""

    def __init__(
        self, log: LogState, segments: list[Segment], wall_ms: int, buffer_bytes: int = BUFFER_BYTES
    ) -> None:
        super().__init__(log)
        self._buffer_bytes = buffer_bytes
        self._segments = segments
        self._wall_ms = wall_ms
        kept_from, dirty_from = log.superseded_from, log.cleaner_offset
        self._kept_from = kept_from
        # Whether this goes on where the map of the pass before was full: see held_records.py.
        self._goes_on = kept_from >= 0 and log.round_kept_offset is not None
        if kept_from >= 0 and not self._goes_on:
            dirty_from = min(dirty_from, kept_from)
        self._first_dirty_offset = max(dirty_from, segments[0].base_offset)
        self._holds = held_records.take_settled(log)
        self._held = None
        if kept_from >= 0 or (self._holds is not None and self._holds.holds):
            # In a round `cleaner_offset` has been put back to where the map was full.
            kept_end = INT64_MAX if self._goes_on else log.cleaner_offset
            self._held = HeldRecords(self._holds, kept_from, kept_end)
        self._kinds = RecordKinds(log.folds)
        self._folds = log.folds_if_loaded
        self._end_offset = segments[-1].next_offset
        self._aborted = aborted_transactions(log, segments[0].base_offset, self._end_offset)
        # What they have written last stays; looked through by the thread.
        self._producers = log.producers.freeze()
        self._last_offsets: frozenset[int] = frozenset()
        # Where the active segment has nothing this is the log's last record.
        self._log_last_offset = log.log_end_offset - 1
        # Whether tombstones may go: all that lies before them was looked through.
        self._forgets = kept_from < 0 or self._first_dirty_offset <= max(
            kept_from, segments[0].base_offset
        )
        self._is_full = False
        log.compacting = True

    def _rewrite_all(self) -> None:
        self._last_offsets = self._producers.last_offsets() | {self._log_last_offset}
        dirty = self._end_offset - self._first_dirty_offset
        keys = KeyMap(self._buffer_bytes, self._aborted, dirty, self._kinds)
        for segment in self._segments:
            if segment.next_offset > self._first_dirty_offset:
                self._map(segment, keys)
                if keys.is_full:
                    self._is_full = True
                    # What lies behind may shadow what this pass does not know as superseded.
                    self._forgets &= self._kept_from < 0
                    self._end_offset = keys.end_offset
                    break
        for group in neighbours(self.log, self._segments, self._end_offset):
            for part in self._sound_parts(group):
                self._results.append(self._rewrite(part, self._writer(part, keys)))

    def _map(self, segment: Segment, keys: KeyMap) -> None:
        with cold_file(segment) as file:
            self._verify(segment, file)
            # What cannot be read says nothing: older records of its keys stay.
            for start, end in pieces_around(segment.bad_ranges, 0, segment.size):
                for chunk in BatchWalk(file, start, end, check_crc=False):
                    self._stop_sign.look()
                    keys.add(chunk, self._first_dirty_offset)

    def _sound_parts(self, group: list[Segment]) -> Iterator[list[Segment]]:
        """The group around its damaged segments, over which nothing is ever written: somebody may
        want to repair them. What lies beside them is rewritten, since the pass counts it as clean;
        from the first of them on no tombstone goes."""
        part: list[Segment] = []
        for segment in group:
            with cold_file(segment) as file:
                self._verify(segment, file)
            if not segment.bad_ranges:
                part.append(segment)
                continue
            if part:
                yield part
            part = []
            self._forgets = False
        if part:
            yield part

    def _writer(self, group: list[Segment], keys: KeyMap) -> GroupWriter:
        return GroupWriter(
            self.log,
            group,
            keys,
            self._aborted,
            self._last_offsets,
            self._wall_ms,
            kinds=self._kinds,
            may_forget=self._forgets,
            held=self._held,
        )

    def _close(self) -> None:
        self._producers.close()
        if self._holds is not None:
            self._holds.close()

    def _put_in_place(self) -> None:
        if self._kinds.lets_go and self.log.folds_if_loaded is not self._folds:
            # The log was cut, perhaps below facts by which records went.
            self._discard_from(0)
            return
        if self._results:
            cleaned_end = self._end_offset
            if self._kinds.lets_go:
                assert self._holds is not None, "who hides records has said what is held"
                # By facts that lie below, perhaps behind what is cleaned.
                cleaned_end = max(cleaned_end, self._holds.end_offset)
            note_cleaned_end(self.log, cleaned_end)
        self._note_clean(*self._swap_in())

    def _note_clean(self, clean_end: int, is_whole: bool) -> None:
        log = self.log
        before, kept = log.superseded_from, INT64_MAX
        if self._held is not None and self._held.first_kept_offset >= 0:
            kept = self._held.first_kept_offset
        if self._goes_on and log.round_kept_offset is not None:
            kept = min(kept, log.round_kept_offset)
        # Not one that had less to look at than what was clean: what is beyond its end may have
        # superseded records that stay.
        ends_round = is_whole and not self._is_full and self._end_offset >= log.cleaner_offset
        log.round_kept_offset = kept if is_whole and self._is_full else None
        if not ends_round and before >= 0:
            kept = min(kept, before)
        log.superseded_from = -1 if kept == INT64_MAX else kept
        looked_again = before >= 0 and not self._goes_on
        if looked_again and self._is_full:
            # What lies behind was clean, but for what the map has no more room for.
            log.cleaner_offset = clean_end
        else:
            log.cleaner_offset = max(log.cleaner_offset, clean_end)

    def _swap_in(self) -> tuple[int, bool]:
        """Put in place what may be; returns up to where the log is clean then, and whether that was
        all.

        A group that retention or a truncation has changed meanwhile stays as it is. What it still
        holds is dirty, and nothing may go behind it that its old records need: no tombstone or
        marker, no list of aborted transactions. That holds for what retention has dropped, too:
        until the log start is durable, power loss may bring it back."""
        log = self.log
        # Damaged segments are in no result, and clean as they stand.
        clean = set(self._segments)
        is_unchanged = True
        for result in self._results:
            clean.difference_update(result.originals)
            if (is_unchanged or not result.forgets) and swap_in(log, result):
                clean.add(result.segment)
            else:
                discard(log, result)
                is_unchanged = False
        # Where the log was cut or began anew, other segments stand now.
        dirty = (one.base_offset for one in log.segments if one not in clean)
        clean_end = min(self._end_offset, log.log_end_offset, next(dirty, self._end_offset))
        return clean_end, is_unchanged and clean_end == self._end_offset
