"""Appends: checking, assigning offsets, one write, and what follows from it; and rolling.

The order within an append is the promise: nothing in memory changes before the write has succeeded,
and everything changes after it, in one go: first the folds, which may raise, then what cannot.
Offsets are written into the caller's buffer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from data_plane.log import held_records, loading, validation
from data_plane.log.cleaned_end import note_fetched
from data_plane.log.config import INT32_MAX, LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import AppendError
from data_plane.log.file_system import File, SyncSite
from data_plane.log.fold import Fold, StoredBatch, sees
from data_plane.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import write_gaps
from data_plane.log.producer_state import PendingSequence
from data_plane.log.segment import Segment
from data_plane.log.unflushed import Dirty
from data_plane.log.vouched_date import UNKNOWN_MS
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import check_batches, scan_batches
from data_plane.wire.records import BatchHeader, iter_batch_headers

CLIENT = "client"
COORDINATOR = "coordinator"
# What a feature makes of records that were taken long ago, and has to be stored, whatever bounds
# there are for clients now.
FEATURE = "feature"
# What a client has sent, with its sequences, as a feature has made another batch of it: what bounds
# there are for clients has been looked at before.
TAKEN = "taken"
# Whose size is bounded, and whose sequences are checked.
BOUNDED = (CLIENT, COORDINATOR)
SEQUENCED = (CLIENT, TAKEN)
# What a log keeps of its last append for those who wait for it; 20 MB for 10,000 partitions.
TAIL_BYTES_MAX = 2048
# Of a segment: a fold needs a second or two for so many, and after a kill it has to begin where the
# last segment does.
FOLDED_RECORDS_MAX = 1_000_000

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class AppendResult(NamedTuple):
    """What an append did. `log_append_time_ms` is -1 with CreateTime; a duplicate stored nothing
    and has the offsets of the stored original."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    log_start_offset: int


def append_as_leader(
    log: LogState,
    buf: bytearray | memoryview,
    start: int,
    end: int,
    *,
    leader_epoch: int,
    now_ms: int,
    wall_ms: int | None = None,
    batches: list[BatchHeader] | None = None,
    origin: str = CLIENT,
    prepared_for: LogConfig | None = None,
) -> AppendResult:
    """Store `buf[start:end]`, whole v2 batches; offsets and epoch are written into `buf`.

    `batches` are the kernel's headers when the caller has had them checked. `origin` is
    "client"; "taken" for what a feature has made of it, of which the sequences are checked and no
    more; or "coordinator" or "feature" for the broker's own batches, whose sequences and clocks are
    not checked, of a feature's not even the size. `wall_ms` is the date, which timestamps are
    held against; without it `now_ms` is. `prepared_for` is the configuration with which the caller
    has had `validation.prepare` done. One write a call. Raises AppendError, LogDirFailure.
    """
    if log.segments_if_loaded is None:
        log.load()
    if log.log_directory.failure is not None:
        log.log_directory.check_online()
    if wall_ms is None:
        wall_ms = now_ms
    config = log.config
    is_client = origin == CLIENT
    if batches is None:
        batches = _headers_of(log, buf, start, end, is_client=is_client)
    if is_client and log.needs_preparation:
        original = buf
        buf, batches = _prepared(log, buf, batches, wall_ms, prepared_for)
        if buf is not original:
            start, end = 0, len(buf)
    first_offset = next_offset = log.log_end_offset
    log_start = log.log_start_offset
    timestamp_max = wall_ms + log.timestamp_after_max_ms
    producers = log.producers_if_loaded
    assert producers is not None
    is_single = len(batches) == 1
    pending: dict[int, PendingSequence] | None = None
    stored: list[BatchHeader] = []
    for header in batches:
        if header.batch_length + 12 > config.max_message_bytes and origin in BOUNDED:
            validation.check_size(header, config)
        if header.max_timestamp > timestamp_max and is_client:
            raise validation.timestamp_error(buf, header, wall_ms, config)
        if header.producer_id >= 0 and not (is_single and producers.is_next(header)):
            if pending is None:
                pending = {}
            duplicate = producers.check(header, pending, is_client=origin in SEQUENCED)
            if duplicate is not None:
                first, last = duplicate.first_offset, duplicate.last_offset
                return AppendResult(first, last, duplicate.timestamp, True, log_start)
        position = header.position
        _INT64.pack_into(buf, position, next_offset)
        _INT32.pack_into(buf, position + 12, leader_epoch)
        stored.append(
            BatchHeader(position, next_offset, header.batch_length, leader_epoch, *header[4:])
        )
        next_offset += header.last_offset_delta + 1
    _store(log, buf, start, end, stored, next_offset, now_ms, wall_ms)
    if leader_epoch > log.epochs.latest_epoch:
        log.epochs.assign(leader_epoch, first_offset)
        log.dirty |= Dirty.EPOCHS
    append_time = wall_ms if config.message_timestamp_type == LOG_APPEND_TIME else -1
    return AppendResult(first_offset, next_offset - 1, append_time, False, log_start)


def find_duplicate(log: LogState, header: BatchHeader) -> AppendResult | None:
    """What was answered to the client's batch that one with this header repeats; None for the
    producer's next one. Raises AppendError for what an append would refuse by its sequence."""
    producers = log.producers
    if header.producer_id < 0 or producers.is_next(header):
        return None
    found = producers.check(header, {}, is_client=True)
    if found is None:
        return None
    log_start = log.log_start_offset
    return AppendResult(found.first_offset, found.last_offset, found.timestamp, True, log_start)


def _prepared(
    log: LogState,
    buf: bytearray | memoryview,
    batches: list[BatchHeader],
    wall_ms: int,
    prepared_for: LogConfig | None,
) -> tuple[bytearray | memoryview, list[BatchHeader]]:
    """The batches as the configuration wants them stored; in another buffer where they become
    others. What the caller has had done for this configuration is not done again."""
    config = log.config
    if prepared_for != config:
        name = f"{log.topic}-{log.partition}"
        buf, batches = validation.prepare(buf, batches, config, wall_ms, name)
    return buf, validation.stamp(buf, batches, config, wall_ms)


def _headers_of(
    log: LogState, buf: bytearray | memoryview, start: int, end: int, *, is_client: bool
) -> list[BatchHeader]:
    """The headers of what nobody has checked yet; the broker's own batches are taken as they
    are, control batches included."""
    try:
        if not is_client:
            return list(iter_batch_headers(buf, start, end))
        size_max = log.config.max_message_bytes
        return check_batches(buf, start, end, batch_bytes_max=size_max, one_batch=False)
    except InvalidRecords as error:
        raise AppendError(error.error_code, str(error)) from error


def append_as_follower(
    log: LogState,
    buf: bytes | bytearray | memoryview,
    start: int,
    end: int,
    *,
    now_ms: int,
    wall_ms: int | None = None,
    leader_epoch: int = INT32_MAX,
    leader_high_watermark: int = 0,
) -> AppendResult:
    """Store batches of the leader as they are, gaps included. Those below `leader_high_watermark`
    may have been compacted.

    A batch that is cut off at the end is left out, and so is everything from a batch on whose
    epoch is above `leader_epoch`: the leader that was asked cannot have it. Raises AppendError:
    CORRUPT_MESSAGE, and OFFSET_OUT_OF_RANGE for a batch below the log end. Raises
    LogDirFailure.
    """
    if log.segments_if_loaded is None:
        log.load()
    if log.log_directory.failure is not None:
        log.log_directory.check_online()
    headers, stop, problem = scan_batches(buf, start, end)
    if problem and problem != "incomplete":
        raise AppendError(ErrorCode.CORRUPT_MESSAGE, f"batch at byte {stop - start}: {problem}")
    while headers and headers[-1].partition_leader_epoch > leader_epoch:
        stop = headers.pop().position
    if not headers:
        end_offset = log.log_end_offset
        return AppendResult(end_offset, end_offset - 1, -1, False, log.log_start_offset)
    if headers[0].base_offset < log.log_end_offset:
        raise AppendError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {headers[0].base_offset} lies below the log end {log.log_end_offset}",
        )
    if wall_ms is None:
        wall_ms = now_ms
    is_behind = headers[0].base_offset < leader_high_watermark
    if is_behind or log.log_end_offset < log.cleaned_end:
        note_fetched(log, headers, leader_high_watermark)
    for run in _without_far_gaps(headers, log.log_end_offset):
        last = run[-1]
        _store(log, buf, run[0].position, last.end_position, run, last.next_offset, now_ms, wall_ms)
        if last.partition_leader_epoch > log.epochs.latest_epoch:
            for header in run:
                log.epochs.assign(header.partition_leader_epoch, header.base_offset)
            log.dirty |= Dirty.EPOCHS
    return AppendResult(
        headers[0].base_offset, log.log_end_offset - 1, -1, False, log.log_start_offset
    )


def _store(
    log: LogState,
    buf: bytes | bytearray | memoryview,
    start: int,
    end: int,
    headers: list[BatchHeader],
    next_offset: int,
    now_ms: int,
    wall_ms: int,
) -> None:
    """Write once, then let indexes, folds and ends follow."""
    config, size = log.config, end - start
    assert log.segments_if_loaded is not None
    segment = log.segments_if_loaded[-1]
    if (
        segment.size + size > config.segment_bytes
        or next_offset - 1 - segment.base_offset > INT32_MAX
        or (segment.size and _is_roll_due(log, segment, wall_ms))
    ):
        segment = _make_room(log, segment, size, headers[0].base_offset, next_offset)
    position = segment.size
    try:
        file = segment.file or segment.open_file()
    except OSError as error:
        raise log.log_directory.fail(error) from error
    data = memoryview(buf)[start:end]
    try:
        if position + size > segment.reserved_end:
            segment.reserve(position, size)
        file.write_at(position, data)
        tail = bytes(data) if size <= TAIL_BYTES_MAX else None
    except OSError as error:
        is_cut = _cut_failed_append(log, segment, file)
        is_midway = not is_cut or segment.base_offset > log.log_end_offset
        raise log.log_directory.fail(error, is_midway=is_midway) from error
    finally:
        data.release()
    segment.recently_used = True
    folds, producers = log.folds_if_loaded, log.producers_if_loaded
    assert folds is not None
    assert producers is not None
    offset_ms = log.log_directory.vouched_date.offset_ms
    appended_ms = UNKNOWN_MS if offset_ms is None else now_ms + offset_ms
    try:
        for header in headers:
            if header.producer_id >= 0:
                producers.apply_batch(header, buf, header.position)
                producers.note_write(header.producer_id, appended_ms)
        if log.fold_flags:
            for header in headers:
                if header.attributes & log.fold_flags or log.fold_flags < 0:
                    _apply(folds, StoredBatch(header, buf))
    except BaseException:
        _take_back(log, segment, file)
        raise
    if not position:
        segment.first_append_ms = wall_ms
    segment.last_append_ms = appended_ms
    segment.size = position + size
    log.size_bytes += size
    interval_bytes = config.index_interval_bytes
    for header in headers:
        segment.add_batch(header, position + header.position - start, interval_bytes)
    if producers.aborted:
        segment.aborted_transactions().extend(producers.take_aborted())
    log.last_append = None if tail is None else (log.log_end_offset, next_offset, tail)
    log.log_end_offset = next_offset
    if log.unflushed_since_ms < 0:
        log.unflushed_since_ms = now_ms


def _apply(folds: list[Fold], batch: StoredBatch) -> None:
    """To those beside the producer state that see it."""
    for fold in folds[1:]:
        if sees(fold, batch.header):
            fold.apply(batch)


def _cut_failed_append(log: LogState, segment: Segment, file: File) -> bool:
    """Take off what a failed write left behind. Whether that is so; else recovery cuts the
    tail at the next start."""
    try:
        if file.size() > segment.size:
            file.truncate(segment.size)
            log.log_directory.fs.sync_data(file, SyncSite.FAILED_APPEND_CUT)
    except OSError:
        return False
    return True


def _take_back(log: LogState, segment: Segment, file: File) -> None:
    """A fold has raised for what was just written: neither the file nor any fold is to have it.
    Where that cannot be had, the directory goes offline. Raises LogDirFailure."""
    if not _cut_failed_append(log, segment, file):
        raise log.log_directory.take_offline("what a fold refuses could not be cut off")
    try:
        log.set_folds(loading.folds_of(log))
    except OSError as error:
        raise log.log_directory.fail(error, is_midway=True) from error
    except Exception as error:
        raise log.log_directory.take_offline(f"a fold cannot be made again: {error}") from error


# Rolling


def _is_roll_due(log: LogState, segment: Segment, wall_ms: int) -> bool:
    if wall_ms - segment.first_append_ms >= log.roll_ms:
        return True
    if segment.folded_count >= FOLDED_RECORDS_MAX:
        return True
    limit_bytes = log.config.segment_index_bytes
    assert segment.offset_index is not None
    assert segment.time_index is not None
    return (len(segment.offset_index.offsets) + 1) * OFFSET_ENTRY_BYTES > limit_bytes or (
        len(segment.time_index.offsets) + 1
    ) * TIME_ENTRY_BYTES > limit_bytes


def _make_room(
    log: LogState, segment: Segment, size: int, first_offset: int, next_offset: int
) -> Segment:
    if size > log.config.segment_bytes:
        raise AppendError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {size} bytes in append to partition "
            f"{log.topic}-{log.partition} which exceeds the maximum configured segment size "
            f"of {log.config.segment_bytes}.",
        )
    end = log.log_end_offset
    if next_offset - 1 - end > INT32_MAX:
        if first_offset == end:
            raise AppendError(
                ErrorCode.CORRUPT_MESSAGE,
                f"offset {next_offset - 1} is too far from the log end {end}",
            )
        return _roll_behind_gap(log, first_offset)
    return roll(log) if segment.size or segment.base_offset != end else segment


def _roll_behind_gap(log: LogState, base_offset: int) -> Segment:
    """Begin a segment at the next batch, too far from the log end for a segment that begins
    there. It is put on record, or a start would take the gap for a file that was lost. Raises
    LogDirFailure."""
    gaps = [(end, start) for end, start in log.gaps if start > log.disk_start_offset]
    gaps.append((log.log_end_offset, base_offset))
    try:
        write_gaps(log.log_directory.fs, log.folder, gaps)
    except OSError as error:
        raise log.log_directory.fail(error) from error
    log.gaps = gaps
    with log.log_directory.changing():
        log.active.next_offset = base_offset
        return _roll_at(log, base_offset)


def roll(log: LogState) -> Segment:
    """Seal the active segment and begin a new one at the log end. Raises LogDirFailure."""
    try:
        return _roll_at(log, log.log_end_offset)
    except OSError as error:
        raise log.log_directory.fail(error) from error


def _roll_at(log: LogState, base_offset: int) -> Segment:
    segments = log.segments
    segments[-1].give_back_reserved()
    loading.seal(log, segments[-1])
    try:
        segment = loading.create_segment(log, base_offset)
    except OSError:
        # For want of descriptors the log goes on with the one it has.
        segments[-1].sealed = False
        raise
    log.set_segments([*segments, segment])
    if log.config.compact:
        held_records.freeze(log)
    return segment


def maybe_roll(log: LogState, wall_ms: int) -> bool:
    """Roll when the active segment is old enough, so that retention and compaction see it."""
    if log.segments_if_loaded is None or log.log_directory.failure is not None:
        return False
    segment = log.segments_if_loaded[-1]
    if not segment.size or not _is_roll_due(log, segment, wall_ms):
        return False
    roll(log)
    return True


def awaits_checkpoint_of_folded(log: LogState) -> bool:
    """Whether a sealed segment has so many records for folds that its directory's checkpoint is not
    to wait: a recovery looks at them until that says that they are synced."""
    segments = log.segments
    if len(segments) < 2 or segments[-2].folded_count < FOLDED_RECORDS_MAX:
        return False
    return log.checkpointed_recovery_point < segments[-2].next_offset <= log.recovery_point


def _without_far_gaps(headers: list[BatchHeader], log_end: int) -> list[list[BatchHeader]]:
    """The batches in pieces that one segment can hold each. Compaction at the leader may leave two
    neighbours further apart than that."""
    if headers[-1].last_offset - log_end <= INT32_MAX:
        return [headers]
    runs: list[list[BatchHeader]] = [[]]
    start = end = log_end
    for header in headers:
        if header.last_offset - start > INT32_MAX:
            is_far = header.last_offset - end > INT32_MAX
            start = header.base_offset if is_far else end
            if runs[-1]:
                runs.append([])
        runs[-1].append(header)
        end = header.next_offset
    return runs
