"""The snapshot of a fold that a roll has frozen, and a thread is to write (fold_snapshots.py)."""

from __future__ import annotations

from queue import SimpleQueue

from data_plane.log.checkpoints import TEMPORARY_SUFFIX
from data_plane.log.file_system import FileSystem, SyncSite
from data_plane.log.fold import Fold


class PendingSnapshot:
    """The state of `fold` now, which is that before `offset`, for the file at `path`."""

    __slots__ = (
        "_frozen",
        "_fs",
        "_is_durable",
        "_naming",
        "_writing",
        "is_cancelled",
        "is_written",
        "offset",
        "path",
    )

    def __init__(
        self, fs: FileSystem, path: str, fold: Fold, offset: int, *, is_durable: bool = False
    ) -> None:
        """`is_durable`: its bytes are synced before it gets its name; else a flush does that."""
        self._is_durable = is_durable
        self.offset = offset
        self.path = path
        self.is_written = False
        self.is_cancelled = False
        self._fs = fs
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
            if self._is_durable:
                self._fs.sync_data(file, SyncSite.SNAPSHOT)
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
