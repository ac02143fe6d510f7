"""A follower's log as its leader's answers change it. Functions over a log, without a role."""

from __future__ import annotations

from data_plane.log.cut_job import CutJob
from data_plane.log.damage import first_damaged_offset
from data_plane.log.errors import AppendError, DamagedLog
from data_plane.log.log import Log
from data_plane.replica import truncation
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import scan_batches


def append_from_leader(
    log: Log,
    buf: bytes | bytearray | memoryview,
    start: int,
    end: int,
    leader_epoch: int,
    now_ms: int,
    wall_ms: int,
    leader_high_watermark: int = 0,
) -> None:
    """Store the batches that the leader of `leader_epoch` sent for a fetch from the log end; what
    lies below its high watermark it may have compacted.

    Raises AppendError and LogDirFailure."""
    try:
        log.append_as_follower(
            buf,
            start,
            end,
            leader_epoch=leader_epoch,
            leader_high_watermark=leader_high_watermark,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
    except AppendError as error:
        is_empty = log.copy_start_offset == log.log_end_offset
        if error.error_code is not ErrorCode.OFFSET_OUT_OF_RANGE or not is_empty:
            raise
        headers, _, _ = scan_batches(buf, start, end)
        first = headers[0]
        if not first.base_offset < log.log_end_offset < first.next_offset:
            raise
        # The leader's log begins within this batch (DeleteRecords), and so would this one. The
        # batch is stored whole; the log start follows the leader's afterwards.
        log.truncate_fully_and_start_at(first.base_offset)
        log.append_as_follower(
            buf,
            start,
            end,
            leader_epoch=leader_epoch,
            leader_high_watermark=leader_high_watermark,
            now_ms=now_ms,
            wall_ms=wall_ms,
        )


def forget_cleaned_beyond(log: Log, before_offset: int, leader_high_watermark: int) -> bool:
    """Begin anew where an answer has brought this log, which ended at `before_offset`, all that its
    leader knows to be committed, and it still ends below where it was cleaned. Whether it did.

    The newer records for which others are missing are lost, with the power of all that had them.
    As long as the log ended below the leader's high watermark nobody counted on it; with its next
    fetch it may get into the ISR, and then it is too late. Raises LogDirFailure."""
    end_offset = log.log_end_offset
    if before_offset < leader_high_watermark <= end_offset < log.cleaned_end:
        log.truncate_fully_and_start_at(log.anew_start_offset)
        return True
    return False


def truncate_for_divergence(
    log: Log, epoch: int, end_offset: int, *, is_in_isr: bool = False
) -> CutJob | None:
    """Drop what cannot be the leader's, whose largest epoch up to this log's last one is `epoch`,
    and ends at `end_offset`; where that takes long it is not done, and the job that does it comes
    back.

    A log that is to be cut where it has been cleaned, which an unclean election or lost disks make
    necessary, begins anew: records are missing for newer ones that go now. Not so in the ISR and
    at or above the high watermark: who was elected cleanly lacks nothing that was committed, so the
    newer ones were lost before, and others count on what this log has.

    Never a damaged batch below that, which may hold committed records: who counts on this replica
    has to be told first, and that is the repair's. Raises DamagedLog then, and LogDirFailure."""
    offset = truncation.truncation_offset(log, (epoch, end_offset))
    is_counted_on = is_in_isr and offset >= log.high_watermark
    begins_anew = offset < log.cleaned_end and not is_counted_on
    takes_long = not begins_anew and log.needs_long_cut(offset)
    if not takes_long and not begins_anew:
        log.check_before_truncation(offset)
    damaged_from = first_damaged_offset(log)
    if damaged_from is not None and damaged_from < offset:
        raise DamagedLog(log.folder, offset, damaged_from)
    if begins_anew:
        log.truncate_fully_and_start_at(min(offset, log.anew_start_offset))
    elif takes_long:
        return log.cut_job(offset)
    else:
        log.truncate_to(offset)
    return None


def follow_log_start(log: Log, leader_log_start_offset: int) -> bool:
    """Let the log begin where the leader's does, as far as it is committed here. Whether it moved.

    Raises LogDirFailure."""
    offset = min(leader_log_start_offset, log.high_watermark)
    if offset <= log.log_start_offset:
        return False
    log.delete_records(offset)
    return True


def repair_offset(log: Log, damaged_from: int) -> int:
    """Where the log ends once what lies at `damaged_from` and above is cut.

    A compacted log begins anew: a tombstone that the leader's compaction has dropped since would be
    missed by a log that keeps what lay before it. Raises LogDirFailure."""
    if not log.is_loaded:
        # Before that nobody knows up to where it was cleaned.
        log.load()
    is_cleaned = log.config.compact or damaged_from < log.cleaned_end
    begins_anew = is_cleaned or damaged_from <= log.log_start_offset
    return log.anew_start_offset if begins_anew else damaged_from


def cut_damaged(log: Log, damaged_from: int) -> CutJob | None:
    """Drop what lies at `damaged_from` and above; where that takes long it is not done, and the job
    that does it comes back. Raises LogDirFailure."""
    offset = repair_offset(log, damaged_from)
    if offset != damaged_from or offset <= log.log_start_offset:
        log.truncate_fully_and_start_at(offset)
    elif log.needs_long_cut(offset):
        return log.cut_job(offset)
    else:
        log.truncate_to(offset)
    return None
