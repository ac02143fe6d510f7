"""What a log's next flush has to make durable, and a flush that has begun."""

from __future__ import annotations

from enum import Flag, auto
from typing import Protocol

from data_plane.log.file_system import SyncSite


class Dirty(Flag):
    """What a log's next flush has to make durable beside segment data."""

    NOTHING = 0
    # Names in the partition's folder.
    FOLDER = auto()
    # partition.json and the names of the partition's and the topic's folder.
    PARENTS = auto()
    EPOCHS = auto()
    LOG_START = auto()


class RunningFlush(Protocol):
    """A flush that has begun and is not finished."""

    target_offset: int
    files: list[tuple[str, SyncSite]]
    flags: Dirty
