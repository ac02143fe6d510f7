"""What jobs have in common that write sealed segments anew: compaction and thinning.

    run      in a thread: rewrite segments into `.log.cleaned` files with new indexes; sync
    finish   on the loop: swap them in (compaction_swap.py)

Retention, a truncation or a deletion may take the segments away meanwhile: then nothing is swapped
in, and the next plan looks again. A log is in one such job at a time (`LogState.compacting`, which
each sets as soon as it is whole).

Deliberately absent: which records stay, and what may be swapped in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from data_plane.log.batch_walk import BatchWalk
from data_plane.log.cold_files import Retired, cold_file
from data_plane.log.compaction_swap import discard
from data_plane.log.compaction_writer import CompactedSegment, SegmentWriter
from data_plane.log.config import INT32_MAX
from data_plane.log.file_system import File
from data_plane.log.lanes import JobStopped, Lane
from data_plane.log.log_state import LogState
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import verify


class SegmentRewrite(ABC):
    """See the module."""

    lane = Lane.CLEANER

    def __init__(self, log: LogState) -> None:
        self.log = log
        self._stop_sign = log.log_directory.stop_sign
        self._results: list[CompactedSegment] = []
        self._verified: set[Segment] = set()
        self._is_done = False
        self._is_overtaken = False

    def run(self) -> None:
        """Raises LogDirFailure; CorruptSegment when a segment cannot be read through."""
        directory = self.log.log_directory
        directory.check_online()
        try:
            self._rewrite_all()
            self._is_done = True
        except (Retired, JobStopped):
            # Retention was faster, or the broker stops; the next plan looks again.
            self._is_overtaken = True
        except OSError as error:
            if not self.log.is_deleted_meanwhile(error):
                failure = directory.fail(error)
                # Want of descriptors passes: the next plan tries again.
                self._is_overtaken = directory.failure is None
                raise failure from error
            self._is_overtaken = True

    @abstractmethod
    def _rewrite_all(self) -> None:
        """The thread's work: fills `_results`."""

    def _verify(self, segment: Segment, file: File) -> None:
        """Check a segment, once in each job: what is rewritten gets a new checksum, so that damage
        would not be found any more. Also of what this process has written."""
        if segment not in self._verified:
            self.log.report_bad_ranges(segment, verify(segment, file, self._stop_sign.look))
            self._verified.add(segment)

    def _rewrite(self, group: list[Segment], writer: SegmentWriter) -> CompactedSegment:
        try:
            for segment in group:
                with cold_file(segment) as file:
                    for chunk in BatchWalk(file, 0, segment.size, check_crc=False):
                        self._stop_sign.look()
                        writer.add(chunk)
            return writer.close()
        except BaseException:
            writer.discard()
            raise

    def finish(self) -> None:
        """Swap the rewritten segments in; on the loop, also after a failed `run`."""
        log = self.log
        log.compacting = False
        self._close()
        if not self._is_done and not self._is_overtaken:
            # As in Kafka: a log that cannot be compacted is left alone until the next start, so
            # that it does not keep the others from their turn.
            log.is_uncleanable = True
        if log.is_closed or log.log_directory.failure is not None:
            return
        try:
            if self._is_done:
                self._put_in_place()
            else:
                self._discard_from(0)
        except OSError as error:
            raise log.log_directory.fail(error) from error

    def _discard_from(self, number: int) -> None:
        for result in self._results[number:]:
            discard(self.log, result)

    @abstractmethod
    def _close(self) -> None:
        """Give back what the thread has read."""

    @abstractmethod
    def _put_in_place(self) -> None:
        """Swap in what may be, note how far it goes. Raises OSError, LogDirFailure."""


def neighbours(log: LogState, segments: list[Segment], end_offset: int) -> list[list[Segment]]:
    """Those of `segments` below `end_offset`, in groups that fit into one segment together."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        fits = groups and (
            size + segment.size <= log.config.segment_bytes
            and segment.next_offset - groups[-1][0].base_offset <= INT32_MAX
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups
