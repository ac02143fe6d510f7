"""What is left of a log that is cut: made beside it, before anything of the log is touched.

    the segment to be cut ──► the batches below the cut, in a copy where others may have it mapped
    snapshots and batches ──► the folds as they stood at the cut

Reading, walking and copying may take seconds for a gigabyte, so this may run in a worker thread
(cut_job.py); putting it in the place of what there is takes no time (truncation.py). What is made
here is of use only while the log has the very segments that it was made of.

A segment that has been mapped is replaced by a copy: cutting a mapped file kills the process when
somebody still sends from the lost pages. A copy that a crash has left is removed when the log is
loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from data_plane.log import loading
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import File, SyncSite
from data_plane.log.fold import Fold
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import COPY_SUFFIX
from data_plane.log.segment import LOG_SUFFIX, Segment
from data_plane.log.segment_checks import load_indexes

COPY_CHUNK_BYTES = 1 << 20


class Remainder(NamedTuple):
    """A log cut at `offset`: `original` becomes `active`, with the bytes of the file at `copy_path`
    or its own first ones. Without `active` it stays, and the log goes on in a new segment."""

    offset: int
    original: Segment
    active: Segment | None
    copy_path: str | None
    folds: list[Fold]

    @property
    def cuts_in_place(self) -> bool:
        """Whether bytes of the original file are cut off. Nobody may have mapped it."""
        active = self.active
        return active is not None and self.copy_path is None and active.size < self.original.size


def last_segment_below(segments: Sequence[Segment], offset: int) -> Segment:
    """The one to be cut at `offset`, or to be the last one if it ends there."""
    return next(segment for segment in reversed(segments) if segment.base_offset < offset)


def prepare(
    log: LogState,
    segments: Sequence[Segment],
    offset: int,
    file: File,
    copy_number: int,
    between: Callable[[], None] | None = None,
) -> Remainder:
    """See the module. `file` is that of `last_segment_below`, `between` is called often in a copy
    and may end it by raising. In any thread; raises OSError, and what a fold raises."""
    original = last_segment_below(segments, offset)
    fs = log.log_directory.fs
    names = fs.list_directory(log.folder)
    folds = log.new_folds()
    if original.next_offset == offset:
        # What lies before may have been compacted, and not say all any more that the folds were
        # made of: of a producer whose next records are those that go now, the last ones that stay
        # may be missing. The snapshots that stood there say it.
        if min(loading.restore_folds(fs, log.folder, names, folds, offset)) == offset:
            return Remainder(offset, original, None, None, folds)
        folds = log.new_folds()
    position = _position_of(original, file, offset)
    copy_path = None
    if position < original.size and original.ever_mapped:
        copy_path = original.path(f"{LOG_SUFFIX}.{copy_number}{COPY_SUFFIX}")
    try:
        if copy_path is not None:
            _copy(log, file, position, copy_path, between)
        active = _cut(original, position)
        base = active.base_offset
        starts = loading.restore_folds(fs, log.folder, names, folds, base)
        loading.replay(segments[: segments.index(original)], folds, starts, base)
        active.start_indexes()
        _walk(log, active, file, copy_path, folds, starts, offset)
    except BaseException:
        if copy_path is not None:
            with contextlib.suppress(OSError):
                fs.unlink(copy_path)
        raise
    return Remainder(offset, original, active, copy_path, folds)


def sync_copy(log: LogState, remainder: Remainder) -> None:
    """Make the copy's bytes durable, before it gets the segment's name. Raises OSError."""
    if remainder.copy_path is not None:
        fs = log.log_directory.fs
        copy = fs.open(remainder.copy_path)
        try:
            fs.sync_data(copy, SyncSite.COPIED_DATA)
        finally:
            copy.close()


def _copy(
    log: LogState, file: File, size: int, path: str, between: Callable[[], None] | None
) -> None:
    copy = log.log_directory.fs.open(path, create=True)
    try:
        copy.truncate(0)
        for start in range(0, size, COPY_CHUNK_BYTES):
            if between is not None:
                between()
            copy.write_at(start, file.read_at(start, min(COPY_CHUNK_BYTES, size - start)))
    finally:
        copy.close()


def _cut(original: Segment, size: int) -> Segment:
    """The segment without what lies behind its first `size` bytes, to be walked."""
    base = original.base_offset
    cut = Segment(original.directory, original.folder, base, base, size)
    cut.first_append_ms = original.first_append_ms
    cut.last_append_ms = original.last_append_ms
    cut.bad_ranges = [bad for bad in original.bad_ranges or () if bad.start < size] or None
    return cut


def _walk(
    log: LogState,
    active: Segment,
    file: File,
    copy_path: str | None,
    folds: list[Fold],
    starts: list[int],
    offset: int,
) -> None:
    if copy_path is None:
        loading.walk_active(log, active, file, folds, starts, offset)
        return
    copy = log.log_directory.fs.open(copy_path, write=False)
    try:
        loading.walk_active(log, active, copy, folds, starts, offset)
    finally:
        copy.close()


def _position_of(segment: Segment, file: File, offset: int) -> int:
    """Where the batches at or above `offset` begin."""
    index, _ = load_indexes(segment, file)
    try:
        return segment.position_of(file.read_at, offset, index)
    except CorruptSegment as error:
        # The first of them is damaged, and so may others be that lie right before it.
        position = error.position
        for bad in reversed(segment.bad_ranges or ()):
            if bad.start < position <= bad.end:
                position = bad.start
        return position
