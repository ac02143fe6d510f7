"""Thinning: of what lies below the log start on the disk only that stays which folds hold on to,
and what tells them to let go.

    segments   0 1 2 3   4 5 6 7   8 9 …      log start 8; folds hold 1, 2, 6; 5 has let go of 3
    thinned    . 1 2 .   . 5 6 .   8 9 …      offsets stay, readers see none of it

So a record that is held for a month does not keep all that was produced meanwhile. The files are
written and swapped as those of a compaction are (segment_rewrite.py), whatever the topic's
cleanup.policy is; the log remembers up to where folds were asked as cleaned (cleaned_end.py): cut
below, it begins anew.

A fact lets go of a record. It stays, also when that one is gone here: another replica, or an older
snapshot, may have the record from before, and goes on with what is here (`HoldingFold.facts_in`).
Retention takes facts with their segments, from the front: who ends below begins anew then, and has
neither. Passes go front to back, and end at what is damaged until that is mended.

- Nothing is thinned at or behind a damaged segment, nor behind one that could not be swapped in.
- Nor while power loss could bring back what retention has dropped.
- The front that no fold needs stays as it is, and with it all where none needs anything: retention
  drops that for nothing.
- The end of each producer's sequence stays, as in a compaction.
- The log's last batch stays: a follower that has all before it would wait for it in vain.
- What a fold holds is asked as of a log end that is settled (held_records.py), and dropped only
  below that, the high watermark, the recovery point on disk, and the durable log start.

Due is it when more has come below the log start than was left there by the last pass, or when the
folds have half as many entries as then. So a byte is rewritten a few times, however long it stays.
After a start all of it counts as new. A job takes GROUPS_MAX new segments at most, which the loop
swaps in one after the other, and the next one goes on behind them.

Deliberately absent: the schedule (maintenance.py).
"""

from __future__ import annotations

from data_plane.log import held_records
from data_plane.log.cleaned_end import note_cleaned_end
from data_plane.log.cold_files import cold_file
from data_plane.log.committed_needs import Thinned
from data_plane.log.compaction import may_grow_back
from data_plane.log.compaction_swap import discard, swap_in
from data_plane.log.compaction_writer import HeldWriter
from data_plane.log.fold import HoldsAll
from data_plane.log.held_records import NO_OFFSET, HeldRecords
from data_plane.log.log_state import LogState
from data_plane.log.segment import Segment
from data_plane.log.segment_rewrite import SegmentRewrite, neighbours

# Each is some syncs of a folder, on the loop.
GROUPS_MAX = 8


def thinning_priority(log: LogState) -> float:
    """0 when nothing is due, or not settled yet; else the share of what is new, 1 at most."""
    segments = log.segments_if_loaded
    if segments is None or not log.needs.folds or segments[0].next_offset > log.log_start_offset:
        return 0.0
    if log.log_directory.failure is not None or log.is_closed or log.is_uncleanable:
        return 0.0
    if log.compacting or log.wants_folds or may_grow_back(log):
        return 0.0
    if not _new_share(log, _below_log_start(log, log.log_start_offset)):
        # Before anybody is asked what is held.
        return 0.0
    if not _say_what_they_hold(log):
        return 0.0
    segments = _thinnable_segments(log)
    return 0.0 if _is_all_held(log) else _new_share(log, segments)


def _thinnable_segments(log: LogState) -> list[Segment]:
    needed_from = _needed_from(log)
    if needed_from >= log.log_start_offset:
        return []
    end_offset = min(
        held_records.settled_end(log), log.last_stable_offset, log.checkpointed_recovery_point
    )
    # With the power a log start that is not durable may be lost, and readers begin earlier.
    end_offset = min(end_offset, log.log_start_offset, log.durable_log_start)
    return [one for one in _below_log_start(log, end_offset) if one.next_offset > needed_from]


def _below_log_start(log: LogState, end_offset: int) -> list[Segment]:
    """The sealed segments up to `end_offset`, before the first one that is damaged, and the last
    one that has anything."""
    last = next((one for one in reversed(log.segments) if one.size), None)
    found = []
    for segment in log.segments[:-1]:
        if segment.next_offset > end_offset or segment.bad_ranges or segment is last:
            break
        found.append(segment)
    return found


def _new_share(log: LogState, segments: list[Segment]) -> float:
    """How much of `segments` a pass has not seen yet, or has seen when twice as much was held; 0
    where it is not worth its while."""
    last = log.needs.thinned or Thinned(0, 0, 0)
    size_bytes = sum(one.size for one in segments)
    new_bytes = sum(one.size for one in segments if one.next_offset > last.end_offset)
    if new_bytes > last.size_bytes or (last.goes_on and new_bytes):
        return new_bytes / size_bytes
    is_half_gone = 2 * _entries_count(log) <= last.entries_count
    return 0.5 if size_bytes and is_half_gone and last.entries_count else 0.0


def _entries_count(log: LogState) -> int:
    return sum(map(len, log.needs.folds))


def plan_thinning(log: LogState) -> ThinningJob | None:
    """A job when a pass is due."""
    if thinning_priority(log) <= 0.0:
        return None
    segments = _thinnable_segments(log)
    last = log.needs.thinned
    if last is not None and last.goes_on:
        rest = [one for one in segments if one.base_offset >= last.end_offset]
        segments = rest if any(one.size for one in rest) else segments
    return ThinningJob(log, segments)


def _needed_from(log: LogState) -> int:
    """From where on folds need the log; its start for readers, where none needs what is below."""
    start_offset, log_start_offset = log.disk_start_offset, log.log_start_offset
    needed = (fold.needed_from(start_offset) for fold in log.needs.folds)
    return min((offset for offset in needed if offset is not None), default=log_start_offset)


def _say_what_they_hold(log: LogState) -> bool:
    """Not a fold that needs the log and holds no single records: it needs all of it."""
    start_offset = log.disk_start_offset
    return all(
        fold.needed_from(start_offset) is None or fold.held_from(start_offset) is not None
        for fold in log.needs.folds
    )


def _is_all_held(log: LogState) -> bool:
    """Whether a fold needs all that is on the disk, as the next pass would find after it has read
    it. Asked once that is settled."""
    frozen, start_offset = log.frozen_holds, log.disk_start_offset
    return bool(frozen) and any(
        start <= start_offset and isinstance(hold, HoldsAll) for start, hold in frozen[0].holds
    )


class ThinningJob(SegmentRewrite):
    """Rewrites `segments`, those from the first one on that a fold needs, or behind the last pass.
    `run` in a worker thread, then `finish`."""

    def __init__(self, log: LogState, segments: list[Segment]) -> None:
        super().__init__(log)
        self._segments = segments
        self._entries_count = _entries_count(log)
        holds = held_records.take_settled(log)
        assert holds is not None, "a log without folds that hold anything has nothing to thin"
        self._holds = holds
        # Asked for nothing but facts.
        self._folds = log.needs.folds
        self._folds_then = log.folds_if_loaded
        # What they have written last stays; looked through by the thread.
        self._producers = log.producers.freeze()
        self._last_offsets: frozenset[int] = frozenset()
        # Up to where what was thinned may be looked at as done.
        self._end_offset = segments[-1].next_offset
        self._goes_on = False
        # Those that lose nothing stay as they are.
        self._whole: set[Segment] = set()
        log.compacting = True

    def _rewrite_all(self) -> None:
        self._last_offsets = self._producers.last_offsets()
        held = HeldRecords(self._holds, NO_OFFSET, 0)
        groups = neighbours(self.log, self._segments, self._end_offset)
        if len(groups) > GROUPS_MAX:
            self._end_offset = groups[GROUPS_MAX][0].base_offset
            self._goes_on = True
        for group in groups[:GROUPS_MAX]:
            sound = self._sound_front(group)
            if sound:
                self._thin(sound, held)
            if len(sound) < len(group):
                self._end_offset = group[len(sound)].base_offset
                self._goes_on = False
                break

    def _sound_front(self, group: list[Segment]) -> list[Segment]:
        for number, segment in enumerate(group):
            with cold_file(segment) as file:
                self._verify(segment, file)
            if segment.bad_ranges:
                return group[:number]
        return group

    def _thin(self, group: list[Segment], held: HeldRecords) -> None:
        writer = HeldWriter(self.log, group, held, self._folds, self._last_offsets)
        result = self._rewrite(group, writer)
        if writer.is_unchanged and len(group) == 1:
            discard(self.log, result)
            self._whole.update(group)
        else:
            self._results.append(result)

    def _close(self) -> None:
        self._producers.close()
        self._holds.close()
        if not self.log.config.compact:
            # The next pass, which is not soon, asks anew.
            self.log.drop_frozen_holds()

    def _put_in_place(self) -> None:
        log = self.log
        if log.folds_if_loaded is not self._folds_then:
            # The log was cut, perhaps below facts by which records went.
            self._discard_from(0)
            return
        if self._results:
            note_cleaned_end(log, self._holds.end_offset)
        for number, result in enumerate(self._results):
            if not self._follows_on(result.originals[0]) or not swap_in(log, result):
                self._discard_from(number)
                return
        needed_from, left = _needed_from(log), _below_log_start(log, self._end_offset)
        size_bytes = sum(segment.size for segment in left if segment.next_offset > needed_from)
        log.needs.thinned = Thinned(
            self._end_offset, size_bytes, self._entries_count, self._goes_on
        )

    def _follows_on(self, segment: Segment) -> bool:
        """Whether all that lies before `segment` was thinned, or left the log durably."""
        done = {one.segment for one in self._results} | self._whole
        offsets = range(self._segments[0].base_offset, segment.base_offset)
        before = [one for one in self.log.segments if one.base_offset in offsets]
        return done.issuperset(before) and not may_grow_back(self.log)
