"""Cutting a log's tail where that takes long: a worker thread makes what is left, the loop swaps.

    on the loop: log.cut_job(offset)    thread: run()    on the loop: finish(), the log is cut
                                                         thread: tidy()

The log goes on meanwhile: it is read, may lead, grow, lose segments or be deleted. `finish` cuts it
only while it has exactly the segments and the end that `run` has seen; else the work is thrown away
and the log is as it was. Who still wants the cut asks again.

Invariants
- `run` changes nothing of the log and of what a start would find but by adding a file that a start
  removes. What is checked or written there would be so without it, too: a segment that nobody has
  checked yet, snapshots that wait for a flush.
- When the check finds damage nothing is cut: where to cut has to be asked again.

Deliberately absent: whether anybody still wants it (data_plane/replica/partition.py), threads.
"""

from __future__ import annotations

import contextlib

from data_plane.log import truncation
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.lanes import JobStopped
from data_plane.log.log_state import LogState
from data_plane.log.remainder import Remainder, last_segment_below, prepare, sync_copy
from data_plane.log.segment_checks import verify


class CutJob:
    """See the module."""

    __slots__ = (
        "_copy_number",
        "_end_offset",
        "_files",
        "_pending",
        "_remainder",
        "_segments",
        "log",
        "offset",
    )

    def __init__(self, log: LogState, offset: int) -> None:
        self.log = log
        self.offset = offset
        self._segments = log.segments
        self._end_offset = log.log_end_offset
        self._pending = log.pending_snapshots
        self._copy_number = log.log_directory.next_copy_number()
        self._remainder: Remainder | None = None
        # Open until `tidy`: a large file that loses its last name is freed when it is closed.
        self._files = contextlib.ExitStack()

    def run(self) -> None:
        """In a worker thread. Raises LogDirFailure, and what a fold raises."""
        log = self.log
        directory = log.log_directory
        directory.check_online()
        try:
            self._remainder = self._prepare()
        except (Retired, JobStopped):
            return
        except OSError as error:
            if not self._is_gone(error):
                raise directory.fail(error) from error

    def _is_gone(self, error: OSError) -> bool:
        """Whether `error` only says that the loop takes files away that a job has begun with."""
        # They are retired before their names go, and so are those of a log that is deleted.
        return isinstance(error, FileNotFoundError) and any(one.retired for one in self._segments)

    def _prepare(self) -> Remainder | None:
        log, offset = self.log, self.offset
        directory = log.log_directory
        segment = last_segment_below(self._segments, offset)
        file = self._files.enter_context(cold_file(segment))
        look = directory.stop_sign.look
        if segment.unverified_end and segment.next_offset > offset:
            # A batch that lies about its last offset lies about where to cut.
            found = verify(segment, file, look)
            log.report_bad_ranges(segment, found)
            if found:
                return None
        for pending in self._pending:
            # It may begin with one of them.
            if pending.offset <= offset:
                pending.write()
        remainder = prepare(log, self._segments, offset, file, self._copy_number, look)
        with directory.syncing():
            sync_copy(log, remainder)
        return remainder

    def finish(self) -> bool:
        """Cut the log; on the loop. False when it stays as it is. Raises LogDirFailure."""
        log, remainder = self.log, self._remainder
        if remainder is None or not self._is_as_seen():
            return False
        if remainder.cuts_in_place and remainder.original.ever_mapped:
            # Since then: it takes a copy.
            return False
        self._remainder = None
        with log.log_directory.guarding():
            truncation.become(log, remainder)
        return True

    def _is_as_seen(self) -> bool:
        log = self.log
        return (
            not log.is_closed
            and log.is_loaded
            and log.segments is self._segments
            and log.log_end_offset == self._end_offset
            and log.log_start_offset < self.offset
            and log.log_directory.failure is None
        )

    def tidy(self) -> None:
        """Let go of what is not needed any more, whatever came of the job; in a worker thread,
        after `finish`. Raises LogDirFailure."""
        remainder, self._remainder = self._remainder, None
        try:
            if remainder is not None and remainder.copy_path is not None:
                directory = self.log.log_directory
                # Who has removed the segment has removed its copy, too.
                with directory.guarding(), contextlib.suppress(FileNotFoundError):
                    directory.fs.unlink(remainder.copy_path)
        finally:
            self._files.close()
