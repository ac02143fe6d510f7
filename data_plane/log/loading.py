"""A partition folder's files: loading them at the first use, sealing and creating segments.

What is on disk for the active segment is only its `.log`; its indexes live in memory and are
written when it is sealed, or at a clean close when it is large. Loading walks the active segment's
headers to have them again, and restores the folds from the newest snapshots at or below.

Every sealed segment leaves a snapshot of each fold at its end, the next segment's base. All of
these files are written without a sync: the flush that lets the recovery point pass syncs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from data_plane.log.batch_walk import BadRange, BatchWalk, pieces_around
from data_plane.log.checkpoints import write_file
from data_plane.log.cleaned_end import note_nothing_cleaned, read_cleaned_end
from data_plane.log.compaction_swap import finish_swaps
from data_plane.log.config import INT32_MAX
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import Buffer, File, FileSystem, SyncSite
from data_plane.log.fold import Fold, StoredBatch, sees
from data_plane.log.fold_snapshots import (
    hold_snapshots,
    snapshot_pieces,
    write_missing,
    write_pending,
    write_snapshots,
)
from data_plane.log.indexes import InvalidIndex, OffsetIndex, TimeIndex, encode_aborted
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log_state import LogState
from data_plane.log.log_summary import LogSummary
from data_plane.log.partition_files import read_gaps, read_starts
from data_plane.log.producer_state import ProducerStates
from data_plane.log.segment import (
    APPEND_TIME_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from data_plane.log.segment_age import encode_append_ms
from data_plane.log.stored_epochs import load_epochs
from data_plane.log.unflushed import Dirty
from data_plane.wire.records import BatchHeader

# Below this size it is cheaper to walk the active segment again than to keep files about it.
TAIL_FILES_BYTES_MIN = 1 << 20


class LoadedLog(NamedTuple):
    """What `Log` adopts; the last segment is active."""

    segments: list[Segment]
    folds: list[Fold]
    epochs: LeaderEpochs
    log_start_offset: int
    recovery_point: int

    def close(self) -> None:
        """Nobody wants it any more."""
        for segment in self.segments:
            segment.close_file()


def adopt(log: LogState, loaded: LoadedLog) -> None:
    """Let the log be what was loaded; on the loop."""
    log.set_folds(loaded.folds)
    for segment in loaded.segments:
        segment.ever_mapped |= segment.base_offset in log.mapped_bases
    log.mapped_bases = frozenset()
    log.epochs = loaded.epochs
    log.log_start_offset = loaded.log_start_offset
    log.log_end_offset = loaded.segments[-1].next_offset
    log.recovery_point = min(loaded.recovery_point, log.log_end_offset)
    log.high_watermark = min(max(log.high_watermark, log.log_start_offset), log.log_end_offset)
    if log.recovery_point < log.log_end_offset and log.unflushed_since_ms < 0:
        log.unflushed_since_ms = 0
    log.replace_segments(loaded.segments)


def segment_bases(names: Sequence[str]) -> list[int]:
    """Base offsets of the `.log` files among `names`."""
    return sorted(
        int(name[: -len(LOG_SUFFIX)])
        for name in names
        if name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit()
    )


def open_segments(log: LogState, names: Sequence[str]) -> list[Segment]:
    """The segments of a folder by their names and sizes; all but the last one sealed."""
    bases = segment_bases(names)
    untimed = {name for name in names if name.endswith(APPEND_TIME_SUFFIX)}
    directory = log.log_directory
    segments = []
    for index, base in enumerate(bases):
        next_offset = bases[index + 1] if index + 1 < len(bases) else base
        segment = Segment(directory, log.folder, base, next_offset, 0)
        segment.size = segment.unverified_end = directory.fs.size(segment.path())
        segment.sealed = index + 1 < len(bases)
        segment.has_untimed = f"{base:020d}{APPEND_TIME_SUFFIX}" in untimed
        segments.append(segment)
    return segments


def without_deleted(log: LogState, segments: list[Segment], start_offset: int) -> list[Segment]:
    """The segments that are not wholly below the disk's `start_offset`; the others' files go
    (again)."""
    count = 0
    while count < len(segments) - 1 and segments[count].next_offset <= start_offset:
        count += 1
    return without_first(log, segments, count)


def without_first(log: LogState, segments: list[Segment], count: int) -> list[Segment]:
    """Leave the first `count` segments to the next deletion job."""
    if count:
        log.pending_deletion = [(segment, 0) for segment in segments[:count]]
    return segments[count:]


def load(log: LogState, summary: LogSummary | None) -> LoadedLog:
    """Load a log that was closed cleanly, or that the checkpoint knows to be whole. In any thread:
    its files are open without being counted (LogDirectory.open_files)."""
    fs = log.log_directory.fs
    names = finish_swaps(log)
    segments = open_segments(log, names)
    starts = read_starts(fs, log.folder, names, synced_only=True)
    log.durable_log_start, log.durable_disk_start = starts
    log.gaps = read_gaps(fs, log.folder, names)
    log_start = log.log_start_offset if summary is not None else log.durable_log_start
    is_new = not segments
    if is_new:
        base_offset = max(log_start, log.log_start_offset)
        segments = [Segment(log.log_directory, log.folder, base_offset, base_offset, 0)]
        log.dirty |= Dirty.FOLDER
        note_nothing_cleaned(log)
    log_start = max(log_start, segments[0].base_offset)
    known_start, disk_start = read_starts(fs, log.folder, names)
    # Where nothing was held below the log start, nothing is now that it may have moved on.
    start = log_start if disk_start >= known_start else min(disk_start, log_start)
    segments = without_deleted(log, segments, start)
    active = segments[-1]
    active.start_indexes()
    active.file = fs.open(active.path(), create=is_new)
    try:
        loaded = _load_active(log, summary, names, segments, log_start)
        if not is_new:
            log.cleaned_end = read_cleaned_end(log, names, active.next_offset)
    except BaseException:
        active.close_file()
        raise
    return loaded


def _load_active(
    log: LogState,
    summary: LogSummary | None,
    names: list[str],
    segments: list[Segment],
    log_start: int,
) -> LoadedLog:
    fs = log.log_directory.fs
    folds = log.new_folds()
    active = segments[-1]
    file = active.file
    assert file is not None
    if not load_tail_files(log, names, active, folds, summary):
        starts = restore_folds(fs, log.folder, names, folds, active.base_offset)
        bring_on(log, segments[:-1], folds, starts, active.base_offset)
        end_offset = summary.log_end_offset if summary is not None else 0
        walk_active(log, active, file, folds, starts, end_offset)
    if summary is not None:
        active.first_append_ms = summary.first_append_ms
        if len(segments) == 1 and summary.first_segment_timestamp >= 0:
            # It is the same to the last byte, and no record of it is younger than that.
            active.last_append_ms = summary.first_segment_timestamp
    elif active.size:
        active.first_append_ms = fs.modified_ms(active.path())
    if active.size:
        active.sealed = False
    epochs = load_epochs(fs, log.folder, segments)
    epochs.truncate_from_end(max(active.next_offset, log_start + 1))
    epochs.truncate_from_start(min(log_start, segments[0].base_offset))
    recovery_point = summary.recovery_point if summary is not None else log.recovery_point
    return LoadedLog(segments, folds, epochs, log_start, recovery_point)


def walk_active(
    log: LogState,
    active: Segment,
    file: File,
    folds: list[Fold],
    starts: list[int],
    end_offset: int,
) -> None:
    """Rebuild the active segment's indexes and bring the folds to the log end.

    All bytes are read for it anyway, so they are checked, too: a bad batch is reported and left
    out, what follows it is not. `end_offset`: where the segment is known to end, 0 for unknown."""
    interval_bytes = log.config.index_interval_bytes
    position = 0
    active.next_offset = active.base_offset
    while True:
        walk = BatchWalk(
            file,
            position,
            active.size,
            check_crc=True,
            next_offset=active.next_offset,
            end_offset=end_offset or active.base_offset + INT32_MAX + 1,
        )
        for chunk in walk:
            for header in chunk.headers:
                active.add_batch(header, chunk.position + header.position, interval_bytes)
                apply_to_folds(folds, starts, header, chunk.data)
        if not walk.problem:
            break
        start = walk.end_position
        resume = walk.resume_position()
        if active.bad_range_at(start) is None:
            active.add_bad_ranges([BadRange(start, resume or active.size, walk.problem)])
            log.log_directory.report_corruption(CorruptSegment(active.path(), start, walk.problem))
        if resume is None:
            active.next_offset = max(active.next_offset, end_offset)
            break
        position = resume
    active.unverified_end = 0
    take_aborted(folds, active)


def apply_to_folds(folds: list[Fold], starts: list[int], header: BatchHeader, data: Buffer) -> None:
    """Apply one batch to the folds whose snapshot lies at or below it."""
    if header.producer_id < 0 and len(folds) == 1:
        return  # Nothing for the producer state, which is alone.
    batch = StoredBatch(header, data)
    for fold, start in zip(folds, starts, strict=True):
        if header.base_offset >= start and sees(fold, header):
            fold.apply(batch)


def take_aborted(folds: list[Fold], segment: Segment) -> None:
    """Move what the producer state found aborted into the segment's transaction index."""
    producers = folds[0]
    assert isinstance(producers, ProducerStates)
    found = producers.take_aborted()
    if found:
        segment.aborted_transactions().extend(found)


# Folds


def snapshot_offsets(names: Sequence[str], extension: str) -> list[int]:
    """Offsets of the snapshot files with this extension."""
    return sorted(
        int(name[: -len(extension)])
        for name in names
        if name.endswith(extension) and name[: -len(extension)].isdigit()
    )


def snapshot_names(names: Sequence[str], folds: Sequence[Fold], first: int, end: int) -> list[str]:
    """The snapshot files of `folds` at offsets in [first, end)."""
    return [
        f"{offset:020d}{fold.extension}"
        for fold in folds
        for offset in snapshot_offsets(names, fold.extension)
        if first <= offset < end
    ]


def restore_folds(
    fs: FileSystem, folder: str, names: Sequence[str], folds: list[Fold], offset: int
) -> list[int]:
    """Restore each fold from its newest whole snapshot at or below `offset`.

    Returns from which offset each one must be brought on; -1 for the start of the log."""
    starts = []
    for fold in folds:
        start = -1
        for candidate in reversed(snapshot_offsets(names, fold.extension)):
            if candidate > offset:
                continue
            try:
                path = f"{folder}/{candidate:020d}{fold.extension}"
                if not fs.size(path):
                    # Power loss left the name and nothing else.
                    continue
                with closing(snapshot_pieces(fs, path)) as pieces:
                    fold.restore(pieces)
            except (ValueError, FileNotFoundError):
                fold.restore(())
                continue
            start = candidate
            break
        starts.append(start)
    return starts


def bring_on(
    log: LogState, before: Sequence[Segment], folds: list[Fold], starts: list[int], offset: int
) -> None:
    """Apply what the snapshots lack of the segments `before` the one that begins at `offset`, and
    leave snapshots there, so that the next load need not read it again."""
    if before and min(starts) < offset and replay(before, folds, starts, offset):
        write_missing(log, folds, starts, offset)


def replay(segments: Sequence[Segment], folds: list[Fold], starts: list[int], end: int) -> bool:
    """Apply the batches of sealed segments that the snapshots lack, up to offset `end`. Whether all
    of them could be read."""
    first = min(starts)
    is_whole = True
    for segment in segments:
        if segment.next_offset <= first or segment.base_offset >= end:
            continue
        file = segment.directory.fs.open(segment.path(), write=False)
        try:
            is_whole &= not segment.bad_ranges
            for start, stop in pieces_around(segment.bad_ranges, 0, segment.size):
                walk = BatchWalk(file, start, stop, check_crc=False)
                for chunk in walk:
                    for header in chunk.headers:
                        if header.base_offset < end:
                            apply_to_folds(folds, starts, header, chunk.data)
                if walk.problem:
                    is_whole = False
                    break
        finally:
            file.close()
        producers = folds[0]
        assert isinstance(producers, ProducerStates)
        # The segment's own transaction index has these already.
        producers.take_aborted()
    return is_whole


def folds_of(log: LogState) -> list[Fold]:
    """The folds made anew from what a loaded log holds. Raises OSError, and what a fold raises."""
    fs = log.log_directory.fs
    folds = log.new_folds()
    base = log.active.base_offset
    write_pending(log, base)
    starts = restore_folds(fs, log.folder, fs.list_directory(log.folder), folds, base)
    replay(log.segments, folds, starts, log.log_end_offset)
    return folds


# Segments


def create_segment(log: LogState, base_offset: int) -> Segment:
    """A new, empty active segment; its name is durable after the next flush."""
    segment = Segment(log.log_directory, log.folder, base_offset, base_offset, 0)
    segment.start_indexes()
    segment.open_file(create=True)
    log.dirty |= Dirty.FOLDER
    return segment


def seal(log: LogState, segment: Segment, folds: list[Fold] | None = None) -> None:
    """Write what a segment that takes no more appends keeps beside its `.log`. `folds` when the log
    is not loaded yet, and theirs here and now; else the next flush may write the snapshots."""
    if segment.time_index is not None and segment.max_timestamp >= 0:
        segment.time_index.append_if_later(
            segment.max_timestamp, segment.max_timestamp_offset - segment.base_offset
        )
    write_index_files(log, segment)
    if folds is None:
        hold_snapshots(log, segment.next_offset)
    else:
        write_snapshots(log, folds, segment.next_offset)
    segment.sealed = True
    segment.forget_hints()


def write_index_files(log: LogState, segment: Segment, *, goes_on: bool = False) -> None:
    """The index files as they are in memory; `.txnindex` only when it has entries, `.appendtime`
    only for records without timestamps. `goes_on`: more is to be appended."""
    fs = segment.directory.fs
    assert segment.offset_index is not None
    assert segment.time_index is not None
    write_file(fs, segment.path(INDEX_SUFFIX), segment.offset_index.encode(), None)
    log.sync_later(segment.path(INDEX_SUFFIX), SyncSite.OFFSET_INDEX)
    write_file(fs, segment.path(TIME_INDEX_SUFFIX), segment.time_index.encode(), None)
    log.sync_later(segment.path(TIME_INDEX_SUFFIX), SyncSite.TIME_INDEX)
    aborted = segment.aborted_transactions()
    encoded = encode_aborted(aborted) if aborted else None
    path = segment.path(TRANSACTION_INDEX_SUFFIX)
    _write_if_any(log, path, encoded, SyncSite.TRANSACTION_INDEX)
    encoded = encode_append_ms(segment, goes_on=goes_on) if segment.has_untimed else None
    _write_if_any(log, segment.path(APPEND_TIME_SUFFIX), encoded, SyncSite.APPEND_TIME)


def _write_if_any(log: LogState, path: str, content: bytes | None, site: SyncSite) -> None:
    fs = log.log_directory.fs
    if content is None:
        # A segment of the same name that was cut or truncated may have left one.
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
    else:
        write_file(fs, path, content, None)
        log.sync_later(path, site)


def write_tail(log: LogState) -> None:
    """At a clean close: spare the next start the walk over a large active segment."""
    active = log.active
    if active.size >= TAIL_FILES_BYTES_MIN and not active.bad_ranges:
        write_index_files(log, active, goes_on=True)
        write_snapshots(log, log.folds, active.next_offset)
        log.tail_files_offset = active.next_offset


def load_tail_files(
    log: LogState,
    names: Sequence[str],
    active: Segment,
    folds: list[Fold],
    summary: LogSummary | None,
) -> bool:
    """Load what `write_tail` left; False when it is not there or not of this very end."""
    if summary is None or active.size != summary.active_size or not summary.has_tail_files:
        return False
    end = summary.log_end_offset
    fs = log.log_directory.fs
    starts = restore_folds(fs, log.folder, names, folds, end)
    if min(starts) == end:
        try:
            offset_index = OffsetIndex.decode(fs.read_file(active.path(INDEX_SUFFIX)), active.size)
            time_index = TimeIndex.decode(fs.read_file(active.path(TIME_INDEX_SUFFIX)))
            active.next_offset = end
            active.aborted = None
            active.aborted_transactions()
        except (InvalidIndex, FileNotFoundError):
            active.start_indexes()
        else:
            if walk_tail(log, active, offset_index, time_index):
                return True
    active.next_offset = active.base_offset
    active.max_timestamp = -1
    active.bytes_since_index = 0
    active.start_indexes()
    for fold in folds:
        fold.restore(())
    return False


def walk_tail(
    log: LogState, active: Segment, offset_index: OffsetIndex, time_index: TimeIndex
) -> bool:
    """Account for the batches behind the last index entry; False when they do not end right."""
    end = active.next_offset
    position = offset_index.boundary_at_or_below(active.size)
    active.offset_index = offset_index
    active.time_index = time_index
    last = time_index.last
    if last is not None:
        active.max_timestamp = last[0]
        active.max_timestamp_offset = active.base_offset + last[1]
    walk = BatchWalk(active.open_file(), position, active.size, check_crc=False)
    interval_bytes = 1 << 62
    for chunk in walk:
        for header in chunk.headers:
            active.add_batch(header, chunk.position + header.position, interval_bytes)
    active.bytes_since_index = log.config.index_interval_bytes + 1
    return not walk.problem and active.next_offset == end
