"""Snapshots of folds that are still to be written: a roll holds the state, a thread writes it.

    roll: hold_snapshots ──► log.pending_snapshots ──► FlushJob.run: write, then sync
    truncation: cancel what lies above ──┘

A large state takes seconds to encode. At a roll it is frozen, which takes no time, and the flush
that lets the recovery point pass writes it before it syncs anything. Until then nothing relies on
it: recovery walks from the recovery point, and no segment goes or is rewritten above that. Small
states (`LogDirectory.entries_written_at_once_max`) are written at the roll, since that costs less
than a job; so are those beyond PENDING_MAX, when segments fill faster than flushes come.

Invariants
- A file with a snapshot's name is whole, or power was lost: it is written under another name.
- What was cancelled never appears, not even when a thread is writing it at that moment: the same
  offset may be reached again with other records.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING

from data_plane.log.checkpoints import TEMPORARY_SUFFIX, write_file
from data_plane.log.file_system import SyncSite
from data_plane.log.flush import Dirty
from data_plane.log.fold import Fold

if TYPE_CHECKING:
    from data_plane.log.log_state import LogState as Log

PENDING_MAX = 16


class PendingSnapshot:
    """The state of `fold` now, which is that before `offset`."""

    __slots__ = (
        "_frozen",
        "_fs",
        "_naming",
        "_writing",
        "is_cancelled",
        "is_written",
        "offset",
        "path",
    )

    def __init__(self, log: Log, fold: Fold, offset: int) -> None:
        self.offset = offset
        self.path = snapshot_path(log, fold, offset)
        self.is_written = False
        self.is_cancelled = False
        self._fs = log.log_directory.fs
        self._frozen = fold.freeze()
        # Tokens: of who writes, and, taken for a moment only, of who gives or takes the name.
        self._writing: SimpleQueue[None] = SimpleQueue()
        self._writing.put(None)
        self._naming: SimpleQueue[None] = SimpleQueue()
        self._naming.put(None)

    def write(self) -> None:
        """In a worker thread; does nothing the second time. Raises OSError."""
        self._writing.get()
        try:
            if not self.is_written and not self.is_cancelled:
                self._write()
        finally:
            self._writing.put(None)

    def _write(self) -> None:
        temporary = self.path + TEMPORARY_SUFFIX
        file = self._fs.open(temporary, create=True)
        try:
            if file.size() > 0:
                file.truncate(0)
            self._frozen.write(file)
        finally:
            file.close()
        self._naming.get()
        try:
            if self.is_cancelled:
                self._fs.unlink(temporary)
            else:
                self._fs.rename(temporary, self.path)
                self.is_written = True
        finally:
            self._naming.put(None)

    def cancel(self) -> None:
        """Its name is not given any more; a file that has it already is the caller's to remove."""
        self._naming.get()
        self.is_cancelled = True
        self._naming.put(None)

    def close(self) -> None:
        """Let go of the state; on the loop, when nobody writes."""
        self._frozen.close()


def snapshot_path(log: Log, fold: Fold, offset: int) -> str:
    return f"{log.folder}/{offset:020d}{fold.extension}"


def write_snapshots(log: Log, folds: list[Fold], offset: int) -> None:
    """Store the folds' state before `offset` here and now, for the next flush to sync."""
    for fold in folds:
        path = snapshot_path(log, fold, offset)
        write_file(log.log_directory.fs, path, fold.snapshot(), None)
        log.sync_later(path, SyncSite.SNAPSHOT)
    log.dirty |= Dirty.FOLDER


def hold_snapshots(log: Log, offset: int) -> None:
    """As `write_snapshots`, by the next flush where the state is large."""
    at_once_max = log.log_directory.entries_written_at_once_max
    for fold in log.folds:
        if len(fold) <= at_once_max or len(log.pending_snapshots) >= PENDING_MAX:
            write_snapshots(log, [fold], offset)
            continue
        pending = PendingSnapshot(log, fold, offset)
        log.pending_snapshots = (*log.pending_snapshots, pending)
        log.sync_later(pending.path, SyncSite.SNAPSHOT)
        log.dirty |= Dirty.FOLDER


def write_pending(log: Log, up_to: int) -> None:
    """Have what is pending on the disk now, for a truncation to `up_to` that may begin with it.
    Raises OSError."""
    for pending in log.pending_snapshots:
        if pending.offset <= up_to:
            pending.write()
    forget_written(log)


def cancel_pending(log: Log, above: int) -> None:
    """The log ends at `above`, or begins anew: later states are none of it."""
    for pending in log.pending_snapshots:
        if pending.offset > above:
            pending.cancel()
    forget_written(log)


def forget_written(log: Log) -> None:
    """Let go of the states that are on the disk, or never will be; on the loop."""
    left = []
    for pending in log.pending_snapshots:
        if pending.is_written or pending.is_cancelled:
            pending.close()
        else:
            left.append(pending)
    log.pending_snapshots = tuple(left)
