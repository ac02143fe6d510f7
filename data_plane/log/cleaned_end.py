"""Up to where a log has been cleaned, by its own compaction or by that of who it was copied from.

    LogState.cleaned_end    a record that is missing below it is missing for a newer one of its key
                            that lies below it, too

A log that is cut below loses the newer one and does not get the older one back, so it has to begin
anew; one that is cut at or above is what it would be had nothing been cleaned. A replica's high
watermark cannot tell the two apart: after a crash it is the last checkpoint's, and what is cleaned
lies below the one that was known then. So it is on record in the log's folder, durably, before
anything is swapped in or appended that is cleaned. It outlives a change of the topic's
cleanup.policy.

A leader has cleaned up to its high watermark at most, so that is what a follower notes that gets
batches with gaps. As long as its log ends below, a cut anywhere has it begin anew, so it notes
the next one only when it gets there: a copy of a large log takes a few notes, not one a fetch.

Invariants
- `cleaned_end` is no higher than a high watermark that a leader has told: what is cut because it
  was never committed lies above, unless power loss has taken what lay below from all replicas; who
  follows looks out for that (data_plane/replica/following.py). A replica that others count on never
  begins anew for it.

Where nothing is on record (a log of a version that did not note it, or a topic that was not
compacted at first) a compacted log counts as cleaned up to the high watermark it was opened with,
as far as it still goes: power loss may have taken what lay below that.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.log.checkpoints import encode_value, read_value, write_checkpoint, write_unsynced
from data_plane.log.file_system import SyncSite
from data_plane.log.log_state import LogState
from data_plane.wire.records import BatchHeader

CLEANED_END_FILE = "cleaned-end.checkpoint"


def read_cleaned_end(log: LogState, names: Sequence[str], log_end_offset: int) -> int:
    """What is on record of a log that has been found to end at `log_end_offset`; `names` are the
    folder's. Raises OSError."""
    recorded = _recorded(log) if CLEANED_END_FILE in names else None
    if recorded is not None:
        return recorded
    return min(log.high_watermark, log_end_offset) if log.config.compact else 0


def note_nothing_cleaned(log: LogState) -> None:
    """The log is empty, durably: a later start need not suspect it. What is on record of its
    former self is overwritten with a sync, and whatever the topic's policy is: the log that grows
    here would begin anew for it. Raises OSError."""
    log.cleaned_end = 0
    fs, nothing = log.log_directory.fs, encode_value(0)
    if _recorded(log):
        site, folder_site = SyncSite.CLEANED_END, SyncSite.CLEANED_END_FOLDER
        write_checkpoint(fs, _path(log), nothing, site, folder_site)
    elif log.config.compact:
        # Should it not last, the log is only suspected.
        write_unsynced(fs, _path(log), nothing)


def note_cleaned_end(log: LogState, offset: int) -> None:
    """What comes into the log next is cleaned up to `offset`; durable on return. Raises
    LogDirFailure."""
    if offset > log.cleaned_end:
        with log.log_directory.guarding():
            write_checkpoint(
                log.log_directory.fs,
                _path(log),
                encode_value(offset),
                SyncSite.CLEANED_END,
                SyncSite.CLEANED_END_FOLDER,
            )
        log.cleaned_end = offset


def note_fetched(log: LogState, headers: Sequence[BatchHeader], leader_high_watermark: int) -> None:
    """`headers` are to be appended, of a leader with this high watermark: they begin below it, or
    the log ends below what was cleaned. Raises LogDirFailure."""
    end_offset, cleaned_end = log.log_end_offset, log.cleaned_end
    if end_offset < cleaned_end:
        if headers[-1].next_offset > cleaned_end:
            # Since it was noted the leader may have cleaned on, in what has been fetched already.
            note_cleaned_end(log, leader_high_watermark)
    elif _are_cleaned(headers, end_offset):
        note_cleaned_end(log, leader_high_watermark)


def _are_cleaned(headers: Sequence[BatchHeader], end_offset: int) -> bool:
    """Whether something is missing: batches, records, or the value of one, which leaves a
    tombstone with a horizon."""
    for header in headers:
        if (
            header.base_offset != end_offset
            or header.record_count != header.next_offset - header.base_offset
            or header.delete_horizon_ms is not None
        ):
            return True
        end_offset = header.next_offset
    return False


def _recorded(log: LogState) -> int | None:
    value = read_value(log.log_directory.fs, _path(log))
    return value if isinstance(value, int) else None


def _path(log: LogState) -> str:
    return f"{log.folder}/{CLEANED_END_FILE}"
