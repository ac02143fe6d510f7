"""Which logs are known to be damaged, and from which offset on: kept where no crash can lose it.

    <data>/damaged-logs.checkpoint      "<topic id>/<partition>" → offset of the first damaged batch

Segments know the bad bytes that this process has found (`Segment.bad_ranges`), and forget them when
it ends. A log that is to be filled again from its leader must not be taken for a sound one by the
next process before that has happened, so the offset is noted here, synced, before anybody acts on
it, and taken out again when the damaged part is gone. To note too much does no harm: a sound log is
filled again.

Deliberately absent: finding damage (recovery.py, scrubber.py, reads.py), and what is done about it
(data_plane/broker/replicas/replica_repair.py).
"""

from __future__ import annotations

from data_plane.log import disk_start
from data_plane.log.batch_walk import BadRange, BatchWalk
from data_plane.log.checkpoints import encode_value, read_value, write_checkpoint
from data_plane.log.file_system import File, FileSystem, SyncSite
from data_plane.log.log_directory import LogDirectory
from data_plane.log.log_state import LogState
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import load_indexes

DAMAGE_FILE = "damaged-logs.checkpoint"
NOT_DAMAGED = -1


def read_damage(fs: FileSystem, path: str) -> dict[str, int]:
    """What the data directory at `path` has noted, by "<topic id>/<partition>"."""
    value = read_value(fs, f"{path}/{DAMAGE_FILE}")
    return dict(value) if isinstance(value, dict) else {}


def note_damage(log: LogState, offset: int) -> None:
    """The log is damaged from `offset` on (NOT_DAMAGED: not any more). Durable on return; raises
    LogDirFailure."""
    if log.damaged_from == offset:
        return
    directory = log.log_directory
    directory.check_online()
    key = damage_key(log)
    if offset == NOT_DAMAGED:
        directory.damage.pop(key, None)
    else:
        directory.damage[key] = offset
    _write(directory)
    log.damaged_from = offset


def forget_deleted(log: LogState) -> None:
    """The log is deleted: another one may take its place. Raises LogDirFailure."""
    if log.log_directory.damage.pop(damage_key(log), None) is not None:
        _write(log.log_directory)


def damage_key(log: LogState) -> str:
    return f"{log.topic_id}/{log.partition}"


def _write(directory: LogDirectory) -> None:
    try:
        write_checkpoint(
            directory.fs,
            f"{directory.path}/{DAMAGE_FILE}",
            encode_value(directory.damage),
            SyncSite.DAMAGE,
            SyncSite.DAMAGE_FOLDER,
        )
    except OSError as error:
        raise directory.fail(error) from error


def first_damaged_offset(log: LogState) -> int | None:
    """Where the first batch begins that this process knows to be damaged: behind the last sound one
    before it, or at the log start. None for a log that is not loaded or sound as far as anybody has
    looked; what lies wholly below the log start does not count, but for what folds hold there.
    Raises LogDirFailure."""
    if not log.is_loaded:
        return None
    start_offset = disk_start.start_for(log, log.log_start_offset)
    for segment in log.segments:
        if segment.bad_ranges and segment.next_offset > start_offset:
            try:
                offset = _first_in(segment, segment.bad_ranges, start_offset)
            except OSError as error:
                raise log.log_directory.fail(error) from error
            if offset is not None:
                return offset
    return None


def _first_in(segment: Segment, bad_ranges: list[BadRange], start_offset: int) -> int | None:
    file = segment.directory.fs.open(segment.path(), write=False)
    try:
        load_indexes(segment, file)
        for index, bad in enumerate(bad_ranges):
            following = bad_ranges[index + 1] if index + 1 < len(bad_ranges) else None
            if following is not None and following.start == bad.end:
                # What stands there may lie about its offset; the next one tells.
                end_offset = segment.next_offset
            else:
                end_offset = segment.next_offset_at(file.read_at, bad.end)
            if end_offset > start_offset:
                sound_from = bad_ranges[index - 1].end if index else 0
                offset = _offset_before(segment, file, bad.start, sound_from)
                return max(offset, start_offset)
    finally:
        file.close()
    return None


def _offset_before(segment: Segment, file: File, position: int, sound_from: int) -> int:
    """The offset after the last batch before `position`; from `sound_from` on all are sound."""
    index = segment.offset_index
    start = 0 if index is None or not position else index.boundary_at_or_below(position - 1)
    start = max(start, sound_from)
    walk = BatchWalk(file, start, position, check_crc=False, next_offset=segment.base_offset)
    for _ in walk:
        pass
    return walk.next_offset
