"""Making the folds that a log has not got yet, by a thread, while the log goes on.

    the topic's configuration calls for a fold ──► small log: made there and then (Log)
                                               └─► `wants_folds` ──► maintenance ──► this job
    run      in a thread: from snapshots, or from the disk's start, up to the log end
    finish   on the loop: what has come meanwhile, and the log has them

Until then the log has the folds that it had, and loses nothing, by compaction, thinning or
retention: nobody could say what the new ones hold. A cut makes all folds anew, so what was begun
before it is dropped. So it is where the configuration has changed again, and where segments have
gone: the next look begins again. What is damaged is passed over, as when a log is loaded.

Deliberately absent: folds that are not wanted any more, which just go (Log); a log whose active
segment is damaged, which gets the others when it is loaded next, or cut for it.
"""

from __future__ import annotations

from data_plane.log import log_reads
from data_plane.log.batch_walk import BatchWalk, pieces_around
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.errors import CorruptSegment, LogDeleted, OffsetOutOfRange
from data_plane.log.file_system import Buffer
from data_plane.log.fold import StoredBatch, sees
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.loading import restore_folds
from data_plane.log.log_state import LogState
from data_plane.wire.records import BatchHeader, iter_batch_headers

READ_BYTES = 1 << 20


class FoldsJob:
    """See the module."""

    lane = Lane.CLEANER

    def __init__(self, log: LogState) -> None:
        self.log = log
        self._before = log.folds
        known = set(map(type, self._before))
        self._wanted = log.new_folds()
        self._fresh = [fold for fold in self._wanted if type(fold) not in known]
        self._starts: list[int] = []
        self._offset = log.segments[0].base_offset
        self._base_offset = log.active.base_offset
        self._is_done = False
        self._is_overtaken = False
        log.compacting = True

    def run(self) -> None:
        """Raises LogDirFailure, and what a fold raises."""
        log = self.log
        directory = log.log_directory
        directory.check_online()
        try:
            names = directory.fs.list_directory(log.folder)
            fresh = self._fresh
            self._starts = restore_folds(directory.fs, log.folder, names, fresh, self._base_offset)
            self._offset = max(self._offset, min(self._starts))
            while self._offset < log.log_end_offset:
                directory.stop_sign.look()
                try:
                    self._read_on()
                except CorruptSegment:
                    # Reported already.
                    if self._offset >= log.active.base_offset:
                        return
                    self._read_around()
            self._is_done = True
        except (JobStopped, LogDeleted, OffsetOutOfRange, Retired):
            self._is_overtaken = True
        except OSError as error:
            if not log.is_deleted_meanwhile(error):
                raise directory.fail(error) from error

    def _read_on(self) -> None:
        log, end_offset = self.log, self.log.log_end_offset
        read = log_reads.read_cold(
            log,
            self._offset,
            READ_BYTES,
            max_offset=end_offset,
            at_least_one_batch=True,
            of_disk=True,
        )
        for buffer in read.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                self._apply(header, buffer)
        # Compaction may have left nothing up to there.
        self._offset = read.next_offset if read.next_offset > self._offset else end_offset

    def _read_around(self) -> None:
        """The rest of a sealed segment that is damaged."""
        segment = next(one for one in self.log.segments if one.next_offset > self._offset)
        with cold_file(segment) as file:
            for start, stop in pieces_around(segment.bad_ranges, 0, segment.size):
                for chunk in BatchWalk(file, start, stop, check_crc=False):
                    for header in chunk.headers:
                        if header.base_offset >= self._offset:
                            self._apply(header, chunk.data)
        self._offset = segment.next_offset

    def _apply(self, header: BatchHeader, data: Buffer) -> None:
        batch = StoredBatch(header, data)
        for fold, start in zip(self._fresh, self._starts, strict=True):
            if header.base_offset >= start and sees(fold, header):
                fold.apply(batch)

    def finish(self) -> None:
        """Give the log what was made; on the loop, also after a failed `run`. Raises LogDirFailure,
        and what a fold raises."""
        log = self.log
        log.compacting = log.wants_folds = False
        if log.is_closed or log.log_directory.failure is not None:
            return
        if log.folds_if_loaded is not self._before:
            return
        if self._is_overtaken or self._is_outdated():
            log.wants_folds = True
            return
        if not self._is_done:
            return
        try:
            while self._offset < log.log_end_offset:
                # What has come since the thread was at the end: little.
                self._read_on()
        except (CorruptSegment, OffsetOutOfRange):
            log.wants_folds = True
            return
        made = {type(fold): fold for fold in (*self._before, *self._fresh)}
        log.set_folds([made[type(fold)] for fold in self._wanted])

    def _is_outdated(self) -> bool:
        return list(map(type, self.log.new_folds())) != list(map(type, self._wanted))
