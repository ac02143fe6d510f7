"""Opening a log after an unclean shutdown: from the recovery point on nothing is taken on trust.

Segments that end below the recovery point are durable and stay as they are. From the one that
holds or touches it on (what sealing left beside it may not be synced), every batch is walked: size,
magic, CRC32C, order. Where the first unsound batch stands decides what happens:

- below the recovery point it is damage to durable bytes: reported, not served, the rest stays;
- beyond it, and power may have been lost: the log ends there, since unsynced writes may be gone in
  any pattern and what follows a hole was not acknowledged as a prefix of anything; later segments
  go too;
- beyond it after kill -9 alone (the boot id says that the page cache survived): a torn write can
  only be the very end, which is cut; an unsound batch with sound ones behind it is damage as above.

Indexes, snapshots and leader epochs of walked segments are made anew. A segment whose base is not
the end of the one before it shows that a file in between was lost: the log ends before it. Unless
the gap is on record (partition_files.GAPS_FILE).
"""

from __future__ import annotations

import struct

from data_plane.log import loading, partition_files
from data_plane.log.batch_walk import BadRange, BatchWalk, find_sound_batch
from data_plane.log.checkpoints import TEMPORARY_SUFFIX, read_value
from data_plane.log.cleaned_end import note_nothing_cleaned, read_cleaned_end
from data_plane.log.compaction_swap import finish_swaps
from data_plane.log.config import INT32_MAX, INT64_MAX
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import File, SyncSite
from data_plane.log.fold import Fold
from data_plane.log.fold_snapshots import are_equal
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.loading import LoadedLog
from data_plane.log.log_state import LogState
from data_plane.log.log_summary import LogSummary
from data_plane.log.partition_files import read_starts
from data_plane.log.retention import files_to_delete
from data_plane.log.segment import SIDE_SUFFIX, Segment
from data_plane.log.segment_age import append_ms
from data_plane.log.stored_epochs import add_epochs
from data_plane.log.unflushed import Dirty
from data_plane.wire.kernel_types import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
)
from data_plane.wire.records import is_crc_valid

_INT32 = struct.Struct(">i")
RECORD_COUNT_POSITION = BATCH_HEADER_BYTES - _INT32.size
# What is read at once to tell a damaged last batch from a torn one; none is larger than a request.
WHOLE_BATCH_BYTES_MAX = 128 << 20

UNKNOWN_NAMES = Dirty.FOLDER | Dirty.PARENTS | Dirty.EPOCHS


def is_as_summarized(log: LogState, summary: LogSummary) -> bool:
    """Whether the folder's last segment still is the one of the summary, in that size."""
    fs = log.log_directory.fs
    names = fs.list_directory(log.folder)
    bases = loading.segment_bases(names)
    if not bases or bases[-1] != summary.active_base_offset:
        return False
    if partition_files.TRUNCATION_FILE in names or any(n.endswith(".swap") for n in names):
        return False
    if partition_files.LOG_START_FILE in names or partition_files.LOG_START_UNSYNCED_FILE in names:
        log_start, _ = read_starts(fs, log.folder, names)
        if max(log_start, bases[0]) != summary.log_start_offset:
            return False
    path = f"{log.folder}/{bases[-1]:020d}.log"
    return fs.size(path) == summary.active_size


def recover(
    log: LogState, recovery_point: int, summary: LogSummary | None, may_lose: bool
) -> LoadedLog:
    """See the module. Raises OSError."""
    fs = log.log_directory.fs
    names = finish_swaps(log)
    log.gaps = partition_files.read_gaps(fs, log.folder, names)
    truncated_at, is_successor = _read_mark(log, names)
    if is_successor:
        log.forget_summary()
        summary = None
    log_start, disk_start = _read_starts(log, names, may_lose)
    checkpointed_point = min(recovery_point, truncated_at)
    # A synced log start lies at or below the recovery point of its time.
    recovery_point = max(checkpointed_point, log.durable_log_start)
    log.checkpointed_recovery_point = recovery_point
    # Nobody knows which names the last process has synced.
    log.dirty |= UNKNOWN_NAMES
    if log_start > log.durable_log_start:
        log.dirty |= Dirty.LOG_START
    segments = loading.open_segments(log, names)
    segments = _without_deleted(log, segments, disk_start)
    if not segments or (may_lose and segments[0].base_offset > max(log_start, recovery_point)):
        # Nothing is there, or nothing that a lost file does not separate from the log's start.
        return _start_anew(log, segments, disk_start)
    log_start = max(log_start, segments[0].base_offset)
    first = max(
        (i for i, one in enumerate(segments) if one.base_offset < recovery_point), default=0
    )
    folds = log.new_folds()
    for fold in folds:
        # After kill -9 the log may begin at snapshots that nobody has synced.
        base = segments[0].base_offset
        log.sync_later(f"{log.folder}/{base:020d}{fold.extension}", SyncSite.SNAPSHOT)
    vouched = max(recovery_point, segments[0].base_offset)
    names = _without_snapshots_above(log, names, folds, vouched)
    if may_lose:
        _drop_side_files(log, names, segments[first].base_offset)
    walk = _RecoveryWalk(log, recovery_point, may_lose, folds, names, vouched)
    walk.starts = loading.restore_folds(fs, log.folder, names, folds, segments[first].base_offset)
    loading.bring_on(log, segments[:first], folds, walk.starts, segments[first].base_offset)
    epochs = walk.epochs = _epochs_before(log, names, segments[:first], log_start, recovery_point)
    _add_epochs_of_dropped(log, epochs, checkpointed_point)
    kept = segments[:first]
    for index in range(first, len(segments)):
        segment = segments[index]
        goes_on = walk.walk(segment, is_last=index == len(segments) - 1)
        kept.append(segment)
        if not goes_on:
            break
    _delete_segments(log, segments[len(kept) :])
    for segment in kept[first:-1]:
        segment.release()
    if walk.take_snapshots(kept[-1].next_offset):
        # The segment behind is lost, and this one alone does not say what the snapshots do.
        loading.seal(log, kept[-1], folds)
        kept[-1].release()
        kept.append(loading.create_segment(log, kept[-1].next_offset))
    kept[-1].sealed = False
    if kept[-1].next_offset < log_start:
        return _start_anew(log, kept, disk_start)
    _note_first_append(kept[-1], summary)
    epochs.truncate_from_start(min(log_start, kept[0].base_offset))
    _forget_gaps_above(log, kept[-1].next_offset)
    log.cleaned_end = read_cleaned_end(log, names, kept[-1].next_offset)
    return LoadedLog(kept, folds, epochs, log_start, recovery_point)


def _read_starts(log: LogState, names: list[str], may_lose: bool) -> tuple[int, int]:
    """(log start, disk start); what was not synced counts unless power was lost."""
    fs, folder = log.log_directory.fs, log.folder
    starts = read_starts(fs, folder, names, synced_only=True)
    log.durable_log_start, log.durable_disk_start = starts
    if may_lose:
        partition_files.forget_unsynced_log_start(fs, folder)
        return starts
    return read_starts(fs, folder, names)


def _note_first_append(active: Segment, summary: LogSummary | None) -> None:
    if summary is not None and summary.active_base_offset == active.base_offset:
        active.first_append_ms = summary.first_append_ms
    if active.size and active.first_append_ms < 0:
        active.first_append_ms = active.directory.fs.modified_ms(active.path())


def _read_mark(log: LogState, names: list[str]) -> tuple[int, bool]:
    """Where the log was truncated after the directory's last checkpoint, and whether that one
    speaks of another log, which was deleted before this one was made."""
    if partition_files.TRUNCATION_FILE not in names:
        return INT64_MAX, False
    directory = log.log_directory
    mark = read_value(directory.fs, f"{log.folder}/{partition_files.TRUNCATION_FILE}")
    if isinstance(mark, list) and mark[1] >= directory.checkpoint_sequence:
        return int(mark[0]), partition_files.SUCCESSOR in mark[2:]
    return INT64_MAX, False


def _without_deleted(log: LogState, segments: list[Segment], disk_start: int) -> list[Segment]:
    """The segments from the last one on that begins at or below `disk_start` and has whole
    snapshots there. Earlier ones may be half gone; a later one's snapshots may not be synced."""
    fs = log.log_directory.fs
    for index in range(len(segments) - 1, 0, -1):
        base = segments[index].base_offset
        if base > disk_start:
            continue
        names = [f"{base:020d}{fold.extension}" for fold in log.new_folds()]
        if min(loading.restore_folds(fs, log.folder, names, log.new_folds(), base)) == base:
            return loading.without_first(log, segments, index)
    return segments


def _without_snapshots_above(
    log: LogState, names: list[str], folds: list[Fold], recovery_point: int
) -> list[str]:
    """Remove the snapshots that nobody vouches for: a torn tail may have made them. And what a
    kill has left half written."""
    half_written = tuple(fold.extension + TEMPORARY_SUFFIX for fold in folds)
    gone = loading.snapshot_names(names, folds, recovery_point + 1, INT64_MAX)
    gone += [name for name in names if name.endswith(half_written)]
    for name in gone:
        log.log_directory.fs.unlink(f"{log.folder}/{name}")
    return [name for name in names if name not in gone]


def _drop_side_files(log: LogState, names: list[str], base_offset: int) -> None:
    """Remove what others have made of the segments from `base_offset` on. Batches that are lost may
    come again, of the same leader epoch where a broker is alone, but in another order."""
    for name in names:
        number, _, suffix = name.partition(".")
        if SIDE_SUFFIX in f".{suffix}" and number.isdigit() and int(number) >= base_offset:
            log.log_directory.fs.unlink(f"{log.folder}/{name}")


def _start_anew(log: LogState, segments: list[Segment], disk_start: int) -> LoadedLog:
    """An empty log: no segment of it is left, or nothing at or above its start. Those of before go
    now, durably: a later start would take them for the new log's own. It begins where the disk did,
    so that its leader gives it what folds hold below the log start, too."""
    fs, folder = log.log_directory.fs, log.folder
    log_start, _ = read_starts(fs, folder, fs.list_directory(folder))
    if disk_start < max(log.durable_log_start, log_start):
        log.durable_log_start = log.durable_disk_start = disk_start
        partition_files.write_log_start(log, disk_start)
        partition_files.forget_unsynced_log_start(fs, folder)
    pending, log.pending_deletion = log.pending_deletion or [], None
    _delete_segments(log, [*(segment for segment, _ in pending), *segments])
    _drop_side_files(log, fs.list_directory(folder), 0)
    partition_files.delete_derived(fs, folder, log.new_folds(), SyncSite.RECOVERY_FOLDER)
    log.gaps = []
    note_nothing_cleaned(log)
    segment = loading.create_segment(log, disk_start)
    return LoadedLog([segment], log.new_folds(), LeaderEpochs(), disk_start, disk_start)


def _epochs_before(
    log: LogState, names: list[str], before: list[Segment], log_start: int, recovery_point: int
) -> LeaderEpochs:
    """The leader epochs that the walk need not find: those that began below the recovery point.
    Compaction may have taken their first batches."""
    epochs = LeaderEpochs()
    name = partition_files.LEADER_EPOCHS_FILE
    try:
        if name not in names:
            raise FileNotFoundError(name)
        epochs.restore(log.log_directory.fs.read_file(f"{log.folder}/{name}"))
    except (FileNotFoundError, ValueError):
        add_epochs(epochs, before)
    epochs.truncate_from_end(max(recovery_point, log_start + 1))
    return epochs


def _forget_gaps_above(log: LogState, end_offset: int) -> None:
    """What comes in the place of what was cut off may have no gap there."""
    gaps = [gap for gap in log.gaps if gap[1] <= end_offset]
    if gaps != log.gaps:
        log.gaps = gaps
        partition_files.write_gaps(log.log_directory.fs, log.folder, gaps)
        log.log_directory.fs.sync_directory(log.folder, SyncSite.RECOVERY_FOLDER)


def _add_epochs_of_dropped(log: LogState, epochs: LeaderEpochs, checkpointed_point: int) -> None:
    """Take the epochs of what retention has dropped above the checkpoint's recovery point: their
    file may not have them yet, also where a new log start is durable. A log in which nothing is
    left would otherwise speak of an older epoch than that of its end, and be cut, as a follower, to
    where that one ended."""
    dropped = (segment for segment, _ in log.pending_deletion or ())
    add_epochs(epochs, [one for one in dropped if one.next_offset > checkpointed_point])


def _delete_segments(log: LogState, segments: list[Segment]) -> None:
    """Remove the files of segments behind the end; durable before anything is appended there. The
    snapshots at their bases stay: the first may be that of the end."""
    if not segments:
        return
    fs = log.log_directory.fs
    for segment in segments:
        segment.release()
    for path in files_to_delete(log, segments, keep_snapshots=True):
        fs.unlink(path)
    fs.sync_directory(log.folder, SyncSite.RECOVERY_FOLDER)


class _RecoveryWalk:
    """Walks segments in order, carrying folds and epochs."""

    def __init__(
        self,
        log: LogState,
        recovery_point: int,
        may_lose: bool,
        folds: list[Fold],
        names: list[str],
        vouched: int,
    ) -> None:
        self._log = log
        self._names = names
        self._vouched = vouched
        self._recovery_point = recovery_point
        self._may_lose = may_lose
        self._folds = folds
        self.starts = [-1] * len(folds)
        self.epochs = LeaderEpochs()

    def walk(self, segment: Segment, *, is_last: bool) -> bool:
        """Check one segment; False when the log ends in it."""
        end_offset = segment.next_offset
        if segment.has_untimed and end_offset <= self._recovery_point:
            # What is sealed again below is not appended again.
            append_ms(segment)
        segment.next_offset = segment.base_offset
        segment.sealed = False
        segment.start_indexes()
        file = segment.open_file()
        limit = segment.base_offset + INT32_MAX + 1 if is_last else end_offset
        bad = self._walk_batches(segment, file, is_last, limit)
        segment.unverified_end = 0
        was_cut = bad is not None
        if bad is not None:
            segment.size = bad
            file.truncate(bad)
            self._log.log_directory.fs.sync_data(file, SyncSite.RECOVERY_CUT)
        loading.take_aborted(self._folds, segment)
        if was_cut or is_last:
            return not was_cut
        # Of damage at the very end nobody knows how many offsets it has taken.
        bad_ranges = segment.bad_ranges
        is_end_known = not bad_ranges or bad_ranges[-1].end < segment.size
        is_gap = (segment.next_offset, end_offset) in self._log.gaps
        is_short = segment.next_offset != end_offset and is_end_known and not is_gap
        if self._may_lose and is_short and end_offset > self._recovery_point:
            return False
        segment.next_offset = end_offset
        self.take_snapshots(end_offset)
        loading.seal(self._log, segment, self._folds)
        return True

    def take_snapshots(self, offset: int) -> bool:
        """Go on from the snapshots at `offset`, if they are whole and vouched for and say anything
        else than what was walked: that may have been compacted, and no longer hold the last batch
        of a producer whose later ones are lost."""
        log, folds = self._log, self._folds
        if offset > self._vouched:
            return False
        fresh = log.new_folds()
        starts = loading.restore_folds(log.log_directory.fs, log.folder, self._names, fresh, offset)
        if min(starts) != offset or _are_equal(fresh, folds):
            return False
        folds[:] = fresh
        self.starts = starts
        return True

    def _walk_batches(
        self, segment: Segment, file: File, is_last: bool, end_offset: int
    ) -> int | None:
        """Take in the sound batches; returns where to cut, None to keep the whole file."""
        interval_bytes = self._log.config.index_interval_bytes
        position = 0
        while True:
            walk = BatchWalk(
                file,
                position,
                segment.size,
                check_crc=True,
                next_offset=segment.next_offset,
                end_offset=end_offset,
            )
            for chunk in walk:
                for header in chunk.headers:
                    segment.add_batch(header, chunk.position + header.position, interval_bytes)
                    loading.apply_to_folds(self._folds, self.starts, header, chunk.data)
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            if not walk.problem:
                return None
            start = walk.end_position
            may_be_torn = segment.next_offset >= self._recovery_point
            if may_be_torn and self._may_lose:
                return start
            resume = find_sound_batch(file, start + 1, segment.size)
            is_tail = resume is None and is_last
            whole_end = _end_of_whole_batch(segment, file, start) if is_tail else None
            if is_tail and may_be_torn and whole_end is None:
                return start
            self._report(segment, BadRange(start, resume or segment.size, walk.problem))
            if resume is None:
                if is_last:
                    known_end = max(segment.next_offset, self._recovery_point)
                    segment.next_offset = max(known_end, whole_end or known_end)
                return None
            position = resume

    def _report(self, segment: Segment, bad: BadRange) -> None:
        segment.add_bad_ranges([bad])
        self._log.log_directory.report_corruption(
            CorruptSegment(segment.path(), bad.start, bad.reason)
        )


def _end_of_whole_batch(segment: Segment, file: File, position: int) -> int | None:
    """The next offset of a damaged last batch that is all there; None for one that is not.

    A write that kill -9 cut short leaves less than a batch: one of its full length was stored whole
    and has gone bad since. Its length says so, or its checksum, which does not cover the length.
    How many offsets it takes is said twice; where the two differ, one of them may make the checksum
    right, and otherwise it takes one, since nothing vouches for more."""
    size = segment.size - position
    if not BATCH_HEADER_BYTES <= size <= WHOLE_BATCH_BYTES_MAX:
        return None
    data = bytearray(file.read_at(position, size))
    if len(data) < size:
        return None
    header = BatchHeader(0, *BATCH_HEADER.unpack_from(data))
    by_delta, by_count = header.last_offset_delta + 1, header.record_count
    as_long = header._replace(batch_length=size - LOG_OVERHEAD_BYTES)
    if is_crc_valid(data, as_long):
        return segment.next_offset + max(by_delta, 1)
    if header.size != size:
        return None
    _INT32.pack_into(data, LAST_OFFSET_DELTA_POSITION, _int32(by_count - 1))
    if is_crc_valid(data, header):
        return segment.next_offset + max(by_count, 1)
    _INT32.pack_into(data, LAST_OFFSET_DELTA_POSITION, header.last_offset_delta)
    _INT32.pack_into(data, RECORD_COUNT_POSITION, _int32(by_delta))
    if is_crc_valid(data, header):
        return segment.next_offset + max(by_delta, 1)
    return segment.next_offset + (max(by_delta, 1) if by_delta == by_count else 1)


def _int32(value: int) -> int:
    return max(-INT32_MAX - 1, min(INT32_MAX, value))


def _are_equal(folds: list[Fold], others: list[Fold]) -> bool:
    return all(map(are_equal, folds, others))
