"""What the logs of one data directory share: the port, the LRU of open files, and its failure.

A disk error takes the whole directory offline, in this one place: `fail` remembers the reason and
returns the exception that every log of the directory raises from then on. Nothing is retried; a
restart after repair is the way back, as in Kafka. Corrupt batches, which harm only themselves, are
collected here for whoever writes the broker's log and metrics.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from uuid import UUID

from data_plane.log.errors import CorruptSegment, LogDirFailure
from data_plane.log.file_system import FileSystem
from data_plane.log.lanes import StopSign
from data_plane.log.open_files import OpenFiles
from data_plane.log.vouched_date import VouchedDate

TOPICS_FOLDER = "topics"
CHECKPOINT_FILE = "recovery-point.checkpoint"
WITHDRAWN_FILE = "recovery-point.withdrawn"
# Reports wait for the next tick; more than this at once are only counted.
REPORTS_MAX = 1000
# So many take less to write than a job does.
ENTRIES_WRITTEN_AT_ONCE_MAX = 200
# What it takes some 20 ms to load.
BYTES_LOADED_AT_ONCE_MAX = 1 << 20
ENTRIES_LOADED_AT_ONCE_MAX = 1_000
NOT_THE_DISKS_FAULT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class LogDirectory:
    """One data directory."""

    __slots__ = (
        "_copies_count",
        "_log_start_token",
        "_sync_token",
        "broker_epoch",
        "bytes_loaded_at_once_max",
        "checkpoint_sequence",
        "corrupt_batches",
        "damage",
        "deletions",
        "directories_count",
        "entries_loaded_at_once_max",
        "entries_written_at_once_max",
        "failure",
        "fs",
        "open_files",
        "path",
        "reports",
        "stop_sign",
        "vouched_date",
    )

    def __init__(
        self,
        path: Path | str,
        fs: FileSystem,
        open_files: OpenFiles,
        stop_sign: StopSign | None = None,
        directories_count: int = 1,
        vouched_date: VouchedDate | None = None,
    ) -> None:
        self.path = str(path)
        # How many the broker has, this one included.
        self.directories_count = directories_count
        self.stop_sign = stop_sign if stop_sign is not None else StopSign()
        # Without one the steady time is the date.
        self.vouched_date = vouched_date if vouched_date is not None else VouchedDate(0)
        self.fs = fs
        self.open_files = open_files
        self.failure: str | None = None
        # Under which broker epoch this process writes here; None while it is not registered.
        self.broker_epoch: int | None = None
        # The number of the last checkpoint of the directory; see directory_checkpoint.py.
        self.checkpoint_sequence = 0
        self._copies_count = 0
        # (topic id, partition) of logs that the checkpoint on disk may still name although they are
        # deleted → the last checkpoint that may. See `truncation.mark_successor`.
        self.deletions: dict[tuple[UUID, int], int] = {}
        # One sync in flight per disk: worker threads take the token and put it back.
        self._sync_token: SimpleQueue[None] = SimpleQueue()
        self._sync_token.put(None)
        self._log_start_token: SimpleQueue[None] = SimpleQueue()
        self._log_start_token.put(None)
        self.reports: deque[CorruptSegment] = deque(maxlen=REPORTS_MAX)
        self.corrupt_batches = 0
        # States of more entries than that are not written at a roll; see fold_snapshots.py.
        self.entries_written_at_once_max = ENTRIES_WRITTEN_AT_ONCE_MAX
        # Logs with more to walk, or to decode, are loaded and cut by threads; see load_job.py and
        # cut_job.py.
        self.bytes_loaded_at_once_max = BYTES_LOADED_AT_ONCE_MAX
        self.entries_loaded_at_once_max = ENTRIES_LOADED_AT_ONCE_MAX
        # Logs known to be damaged; see damage.py.
        self.damage: dict[str, int] = {}

    @property
    def topics_path(self) -> str:
        return f"{self.path}/{TOPICS_FOLDER}"

    def fail(self, error: OSError, *, is_midway: bool = False) -> LogDirFailure:
        """Take the directory offline because of `error`; returns what to raise.

        A process that ran out of descriptors or memory says nothing about the disk: that fails
        the call alone. Not where `is_midway`: what is known of a log is then no longer what the
        disk has of it. As nothing is lost, the next start goes on from there."""
        if error.errno not in NOT_THE_DISKS_FAULT:
            if self.failure is None:
                self.failure = str(error)
                self.withdraw_checkpoint()
        elif is_midway:
            return self.take_offline(str(error))
        return LogDirFailure(self.path, self.failure or str(error))

    def take_offline(self, reason: str) -> LogDirFailure:
        """Use the directory no more, although its disk has lost nothing; returns what to raise."""
        if self.failure is None:
            self.failure = reason
        return LogDirFailure(self.path, self.failure)

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """Around whatever may touch the disk: an OSError in it is a LogDirFailure, and `fail`
        decides whether the directory is offline or the work may be tried again."""
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Around a change that must not stop halfway: an OSError in it is a LogDirFailure, and the
        directory offline, whatever has failed."""
        try:
            yield
        except OSError as error:
            raise self.fail(error, is_midway=True) from error

    def withdraw_checkpoint(self) -> None:
        """Let the checkpoint vouch for no broker epoch any more: a disk that failed may have lost
        what was acknowledged, although the machine goes on. A new name does it, and needs no room
        on a full disk; a disk that refuses even that has at least been tried."""
        self.broker_epoch = None
        with contextlib.suppress(OSError):
            self.fs.rename(f"{self.path}/{CHECKPOINT_FILE}", f"{self.path}/{WITHDRAWN_FILE}")

    def check_online(self) -> None:
        """Raises LogDirFailure when the directory is offline."""
        if self.failure is not None:
            raise LogDirFailure(self.path, self.failure)

    @contextlib.contextmanager
    def syncing(self) -> Iterator[None]:
        """Wait for the turn to sync; in a worker thread."""
        self._sync_token.get()
        try:
            yield
        finally:
            self._sync_token.put(None)

    @contextlib.contextmanager
    def moving_log_start(self) -> Iterator[None]:
        """Be the only one who writes where a log starts and removes what lies below: in worker
        threads, and on the loop when a log begins anew."""
        self._log_start_token.get()
        try:
            yield
        finally:
            self._log_start_token.put(None)

    def next_copy_number(self) -> int:
        """For the name of a file that no other is to have; on the loop."""
        self._copies_count += 1
        return self._copies_count

    def report_corruption(self, found: CorruptSegment) -> None:
        """Note a corrupt batch for the next tick's report; from any thread."""
        self.corrupt_batches += 1
        self.reports.append(found)

    def take_reports(self) -> list[CorruptSegment]:
        """The corrupt batches found since the last call."""
        found = []
        while self.reports:
            found.append(self.reports.popleft())
        return found
