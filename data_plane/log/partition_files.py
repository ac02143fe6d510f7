"""The small files in a partition's folder: their names, the log start and gaps of offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from data_plane.log.checkpoints import encode_value, read_value, write_checkpoint
from data_plane.log.file_system import FileSystem, SyncSite
from data_plane.log.fold import Fold
from data_plane.log.log_state import LogState

# Of the folder itself, before the number.
PARTITION_PREFIX = "Partition-"
PARTITION_FILE = "partition.json"
LEADER_EPOCHS_FILE = "leader-epoch.checkpoint"
LOG_START_FILE = "log-start.checkpoint"
# The same value, written without a sync: newer after kill -9, ignored when power loss tore it.
LOG_START_UNSYNCED_FILE = "log-start-unsynced.checkpoint"
TRUNCATION_FILE = "truncation.checkpoint"
# What is to replace a segment of which others may have the end mapped. See remainder.py.
COPY_SUFFIX = ".copy"
# In that file: the log is another one than the directory's last checkpoint names.
SUCCESSOR = "successor"
# Gaps of offsets that compaction at the leader has left between two segments of a follower.
GAPS_FILE = "offset-gaps.checkpoint"


def read_starts(
    fs: FileSystem, folder: str, names: Sequence[str], *, synced_only: bool = False
) -> tuple[int, int]:
    """(log start, disk start) as last checkpointed, 0 for never; `names` are the folder's. Up to
    the disk start segments are gone, or going: it lies below the log start while a fold holds on to
    some that readers do not see any more."""
    log_start = disk_start = 0
    for name in (LOG_START_FILE,) if synced_only else (LOG_START_FILE, LOG_START_UNSYNCED_FILE):
        if name in names:
            value = read_value(fs, f"{folder}/{name}")
            starts = (value, value) if isinstance(value, int) else tuple(value or (0, 0))
            # Both are only ever moved up, but where the log begins anew.
            log_start, disk_start = max(log_start, starts[0]), max(disk_start, starts[1])
    return log_start, disk_start


def encode_log_start(log_start_offset: int, disk_start_offset: int) -> bytes:
    """The content of both files: one number where nothing is held below the log start."""
    is_one = disk_start_offset >= log_start_offset
    return encode_value(log_start_offset if is_one else [log_start_offset, disk_start_offset])


def forget_unsynced_log_start(fs: FileSystem, folder: str) -> None:
    """The synced file has the same value now."""
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(f"{folder}/{LOG_START_UNSYNCED_FILE}")


def write_log_start(
    log: LogState, log_start_offset: int, disk_start_offset: int | None = None
) -> None:
    """Make a log start durable that lies at or below the recovery point, and a disk start below it
    where segments are held; never moves them back. A newer log start that is durable already says
    nothing of the disk's: that is moved no further than the caller asks for."""
    value = max(log_start_offset, log.durable_log_start)
    disk_start = log_start_offset if disk_start_offset is None else disk_start_offset
    disk_start = min(value, max(disk_start, log.durable_disk_start))
    write_checkpoint(
        log.log_directory.fs,
        f"{log.folder}/{LOG_START_FILE}",
        encode_log_start(value, disk_start),
        SyncSite.LOG_START,
        SyncSite.LOG_START_FOLDER,
    )
    log.durable_log_start, log.durable_disk_start = value, disk_start


def read_gaps(fs: FileSystem, folder: str, names: Sequence[str]) -> list[tuple[int, int]]:
    """(where the log ended before, where it goes on) of each gap that is on record."""
    if GAPS_FILE not in names:
        return []
    value = read_value(fs, f"{folder}/{GAPS_FILE}")
    return [(end, start) for end, start in value] if isinstance(value, list) else []


def write_gaps(fs: FileSystem, folder: str, gaps: Sequence[tuple[int, int]]) -> None:
    """Replace the record; its name lasts through power loss after the folder's next sync."""
    write_checkpoint(fs, f"{folder}/{GAPS_FILE}", encode_value(gaps), SyncSite.GAPS)


def delete_derived(fs: FileSystem, folder: str, folds: Sequence[Fold], site: SyncSite) -> None:
    """Remove what was derived from records that are gone, durably: snapshots, leader epochs and
    gaps. A later start would go on from them."""
    suffixes = (LEADER_EPOCHS_FILE, GAPS_FILE, *(fold.extension for fold in folds))
    names = [name for name in fs.list_directory(folder) if name.endswith(suffixes)]
    for name in names:
        fs.unlink(f"{folder}/{name}")
    if names:
        fs.sync_directory(folder, site)
