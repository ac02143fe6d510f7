"""Snapshots of folds that are still to be written: a roll holds the state, a thread writes it.

    roll: hold_snapshots ──► log.pending_snapshots ──► FlushJob.run: write, then sync
    truncation: cancel what lies above ──┘

A large state takes seconds to encode. At a roll it is frozen, which takes no time, and the flush
that lets the recovery point pass writes it before it syncs anything. Until then nothing relies on
it: recovery walks from the recovery point, and no segment goes or is rewritten above that. Small
states (`LogDirectory.entries_written_at_once_max`) are written at the roll, since that costs less
than a job; so are those beyond PENDING_MAX, when segments fill faster than flushes come.

A fold that is new to a log, or has lost its snapshots, reads all of the log when that is loaded. It
leaves a snapshot where the active segment begins, so that this happens once; a large log is left to
a thread (`lacks_snapshots`).

Invariants
- A file with a snapshot's name is whole, or power was lost: it is written under another name.
- What was cancelled never appears, not even when a thread is writing it at that moment: the same
  offset may be reached again with other records.
"""

from __future__ import annotations

from collections.abc import Generator

from crc32c import crc32c

from data_plane.log.checkpoints import write_file
from data_plane.log.file_system import Buffer, FileSystem, SyncSite
from data_plane.log.fold import Fold
from data_plane.log.log_state import LogState
from data_plane.log.log_summary import LogSummary
from data_plane.log.pending_snapshot import PendingSnapshot
from data_plane.log.unflushed import Dirty

PENDING_MAX = 16
# A snapshot is read in pieces of that size.
READ_BYTES = 1 << 20


def snapshot_path(log: LogState, fold: Fold, offset: int) -> str:
    return f"{log.folder}/{offset:020d}{fold.extension}"


def write_snapshots(log: LogState, folds: list[Fold], offset: int) -> None:
    """Store the folds' state before `offset` here and now, for the next flush to sync."""
    for fold in folds:
        if len(fold) <= log.log_directory.entries_written_at_once_max:
            _write_at_once(log, fold, offset)
            continue
        path = snapshot_path(log, fold, offset)
        pending = PendingSnapshot(log.log_directory.fs, path, fold, offset)
        try:
            pending.write()
        finally:
            pending.close()
        log.sync_later(path, SyncSite.SNAPSHOT)
    log.dirty |= Dirty.FOLDER


def _write_at_once(log: LogState, fold: Fold, offset: int) -> None:
    path = snapshot_path(log, fold, offset)
    write_file(log.log_directory.fs, path, fold.snapshot(), None)
    log.sync_later(path, SyncSite.SNAPSHOT)
    log.dirty |= Dirty.FOLDER


def snapshot_pieces(fs: FileSystem, path: str) -> Generator[Buffer]:
    """The file's bytes; none of an empty one. Raises FileNotFoundError, with the first piece."""
    file = fs.open(path, write=False)
    try:
        for position in range(0, file.size(), READ_BYTES):
            yield file.read_at(position, READ_BYTES)
    finally:
        file.close()


def are_equal(fold: Fold, other: Fold) -> bool:
    """Whether both have the same state, in the memory of a piece of it."""
    return len(fold) == len(other) and _digest(fold) == _digest(other)


class _Digest:
    """The checksum of what is written, and where."""

    def __init__(self) -> None:
        self.value = 0

    def write_at(self, position: int, data: Buffer) -> None:
        self.value = crc32c(data, crc32c(b"%d:" % position, self.value))


def _digest(fold: Fold) -> int:
    digest = _Digest()
    frozen = fold.freeze()
    try:
        frozen.write(digest)
    finally:
        frozen.close()
    return digest.value


def hold_snapshots(log: LogState, offset: int) -> None:
    """As `write_snapshots`, by the next flush where the state is large."""
    at_once_max = log.log_directory.entries_written_at_once_max
    for fold in log.folds:
        if len(fold) <= at_once_max or len(log.pending_snapshots) >= PENDING_MAX:
            # One more view of a large state would be one more layer of it.
            _write_at_once(log, fold, offset)
            continue
        path = snapshot_path(log, fold, offset)
        pending = PendingSnapshot(log.log_directory.fs, path, fold, offset)
        log.pending_snapshots = (*log.pending_snapshots, pending)
        log.sync_later(pending.path, SyncSite.SNAPSHOT)
        log.dirty |= Dirty.FOLDER


def lacks_snapshots(log: LogState, summary: LogSummary) -> bool:
    """Whether the load of a log that the checkpoint speaks of reads more than is quickly done, as
    a fold has no snapshot where the active segment begins, or where tail files end. Touches no
    file, and lists the folder only of a large log with folds of features. Raises OSError."""
    bytes_max = log.log_directory.bytes_loaded_at_once_max
    if summary.size_bytes <= bytes_max:
        return False
    folds = log.new_folds()
    if len(folds) == 1:
        # The producer state's are as old as the log.
        return False
    names = frozenset(log.log_directory.fs.list_directory(log.folder))

    def are_there(offset: int) -> bool:
        return all(f"{offset:020d}{fold.extension}" in names for fold in folds)

    if summary.size_bytes - summary.active_size > bytes_max:
        return not are_there(summary.active_base_offset)
    return summary.active_size > bytes_max and not are_there(summary.log_end_offset)


def write_missing(log: LogState, folds: list[Fold], starts: list[int], offset: int) -> None:
    """Store the state before `offset` of those folds that were restored from below. It lies below
    the recovery point, so each is durable before it has its name. In any thread; raises OSError."""
    for fold, start in zip(folds, starts, strict=True):
        if start < offset:
            path = snapshot_path(log, fold, offset)
            pending = PendingSnapshot(log.log_directory.fs, path, fold, offset, is_durable=True)
            try:
                pending.write()
            finally:
                pending.close()
            log.dirty |= Dirty.FOLDER


def write_pending(log: LogState, up_to: int) -> None:
    """Have what is pending on the disk now, for a truncation to `up_to` that may begin with it.
    Raises OSError."""
    for pending in log.pending_snapshots:
        if pending.offset <= up_to:
            pending.write()
    forget_written(log)


def cancel_pending(log: LogState, above: int) -> None:
    """The log ends at `above`, or begins anew: later states are none of it."""
    for pending in log.pending_snapshots:
        if pending.offset > above:
            pending.cancel()
    forget_written(log)


def forget_written(log: LogState) -> None:
    """Let go of the states that are on the disk, or never will be; on the loop."""
    if not log.pending_snapshots:
        return
    left = []
    for pending in log.pending_snapshots:
        if pending.is_written or pending.is_cancelled:
            pending.close()
        else:
            left.append(pending)
    log.pending_snapshots = tuple(left)
