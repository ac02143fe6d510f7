"""Reads: batches hot or cold, and what a log knows about its offsets, epochs and transactions."""

from __future__ import annotations

from contextlib import suppress

from data_plane.log import reads
from data_plane.log.cold_files import read_as_it_is
from data_plane.log.errors import CorruptSegment, LogDeleted, LogNotLoaded, OffsetOutOfRange
from data_plane.log.indexes import AbortedTransaction
from data_plane.log.log_state import LogState
from data_plane.log.producer_state import ProducerStates
from data_plane.log.reads import ReadResult
from data_plane.log.segment import Segment, WouldBlock

NOTHING: list[AbortedTransaction] = []


def read(
    log: LogState,
    offset: int,
    max_bytes: int,
    *,
    max_offset: int,
    at_least_one_batch: bool,
    of_disk: bool = False,
) -> ReadResult:
    """Whole batches from the one that holds `offset` on, all below `max_offset`.

    At most `max_bytes`, except that with `at_least_one_batch` a larger first batch is
    returned. With `of_disk` also what readers do not see because it lies below the log start.
    Raises OffsetOutOfRange, CorruptSegment, LogDirFailure.
    """
    segments = log.segments_if_loaded
    if segments is None:
        segments = log.segments
    if log.log_directory.failure is not None:
        log.log_directory.check_online()
    if offset < log.log_start_offset or offset > log.log_end_offset:
        _check_range(log, offset, log.disk_start_offset if of_disk else log.log_start_offset)
    if offset >= max_offset:
        return ReadResult([], 0, False, offset)
    tail = log.last_append
    if (
        tail is not None
        and tail[0] == offset
        # A truncation since would have moved the log end.
        and tail[1] == log.log_end_offset <= max_offset
        and len(tail[2]) <= max_bytes
        # Compaction may have rewritten it once its segment is sealed.
        and segments[-1].base_offset <= offset
        and not segments[-1].bad_ranges
    ):
        return ReadResult([tail[2]], len(tail[2]), False, tail[1])
    try:
        index = reads.segments_from(segments, offset)
        while index < len(segments):
            segment = segments[index]
            if segment.base_offset >= max_offset:
                break
            result = reads.read_segment(
                segment,
                segment.fetch_hot,
                offset,
                max_bytes,
                max_offset,
                at_least_one_batch,
                is_hot=True,
            )
            if result is not None:
                return result
            index += 1
    except WouldBlock:
        return ReadResult([], 0, True, offset)
    except OSError as error:
        raise log.log_directory.fail(error) from error
    return ReadResult([], 0, False, min(max_offset, log.log_end_offset))


def _check_range(log: LogState, offset: int, start: int) -> None:
    if offset < start or offset > log.log_end_offset:
        raise OffsetOutOfRange(offset, start, log.log_end_offset)


def is_sealed_at(log: LogState, offset: int) -> bool:
    """Whether `offset` lies before the segment that is appended to."""
    return offset < log.segments[-1].base_offset


def read_cold(
    log: LogState,
    offset: int,
    max_bytes: int,
    *,
    max_offset: int,
    at_least_one_batch: bool,
    of_disk: bool = False,
) -> ReadResult:
    """As `read`, from the disk, checking what this process has not checked yet. For a worker
    thread; never cold. Raises LogNotLoaded (loading is the loop's) and LogDeleted as well."""
    # What has gone from the disk meanwhile is found below.
    _check_range(log, offset, 0 if of_disk else log.log_start_offset)
    return read_as_it_is(
        log,
        lambda segments: _read_cold(
            log, segments, offset, max_bytes, max_offset, at_least_one_batch
        ),
    )


def read_held(log: LogState, offset: int, *, max_offset: int) -> ReadResult:
    """The batch that holds `offset`, as `read_cold`, also below the log start: what a fold holds on
    to is there."""
    return read_as_it_is(
        log, lambda segments: _read_cold(log, segments, offset, 1, max_offset, True)
    )


def _read_cold(
    log: LogState,
    segments: list[Segment],
    offset: int,
    max_bytes: int,
    max_offset: int,
    at_least_one_batch: bool,
) -> ReadResult:
    if offset < segments[0].base_offset:
        # Retention came in between: what is left is not what was asked for.
        raise OffsetOutOfRange(offset, segments[0].base_offset, log.log_end_offset)
    for segment in segments[reads.segments_from(segments, offset) :]:
        if segment.base_offset >= max_offset:
            break
        try:
            result, found = reads.read_segment_cold(
                segment, offset, max_bytes, max_offset, at_least_one_batch
            )
        except CorruptSegment as error:
            log.report_bad_ranges(segment, error.found)
            raise
        log.report_bad_ranges(segment, found)
        if result is not None:
            return result
    return ReadResult([], 0, False, min(max_offset, log.log_end_offset))


def doubt(log: LogState, offset: int) -> None:
    """Somebody got a batch at `offset` that fails its checksum: the segment is checked at the
    next read, although this process may have written it itself."""
    segments = log.loaded_segments
    segment = segments[reads.segments_from(segments, offset)]
    segment.unverified_end = segment.size


def find_damage(log: LogState, offset: int) -> None:
    """Somebody got a batch at `offset` that fails its checksum: have the place found and reported,
    as no reader would in what this process has written. In a worker thread; raises LogDirFailure.
    Whether the batch has gone meanwhile, and what is wrong with it, hears who reads it next."""
    with suppress(CorruptSegment, LogDeleted, LogNotLoaded, OffsetOutOfRange):
        doubt(log, offset)
        end_offset = log.log_end_offset
        read_cold(log, offset, 0, max_offset=end_offset, at_least_one_batch=True, of_disk=True)


def epoch_for_offset(log: LogState, offset: int) -> int:
    """The leader epoch of the batch at `offset`, -1 when unknown."""
    log.segments  # noqa: B018 -- loads the epochs
    return log.epochs.epoch_at(offset)


def end_offset_for_epoch(log: LogState, leader_epoch: int) -> tuple[int, int]:
    """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when none can be told."""
    log.segments  # noqa: B018 -- loads the epochs
    return log.epochs.end_offset_for(leader_epoch, log.log_end_offset)


# Transactions


def aborted_transactions(log: LogState, start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions with records in [start, end), by first offset."""
    found: list[AbortedTransaction] = []
    segments = log.segments_if_loaded
    if segments is None:
        segments = log.segments
    if segments[-1].base_offset > start:
        segments = segments[reads.segments_from(segments, start) :]
    else:
        # Most reads are of the newest.
        segments = segments[-1:]
    for segment in segments:
        for entry in segment.aborted_transactions() or NOTHING:
            if entry.last_offset >= start and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return _by_first_offset(found)
    return _by_first_offset(found) if found else found


def _by_first_offset(transactions: list[AbortedTransaction]) -> list[AbortedTransaction]:
    return sorted(transactions, key=lambda one: one.first_offset)


def producer_states(log: LogState) -> ProducerStates:
    """The producers, for DescribeProducers."""
    return log.producers
