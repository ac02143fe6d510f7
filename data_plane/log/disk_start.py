"""Where a log begins on the disk, beside where it begins for readers.

    segments   0..9   10..19   20..29   30..39
                      │ needed_from 12  │
                      ▼                 ▼
               disk start 10     log start 30: readers see nothing below

A segment that a fold holds on to, and those behind it, stay on the disk while the log start moves
on (retention.py). They are part of the log for all but readers: folds are made again from them, and
a replica that has nothing begins with them.

Invariant
- Every replica begins on its disk at or below what the folds need by what is committed: at 0, where
  its leader's held segments begin, or, when it begins anew by itself, where it did before. So one
  that has all up to the high watermark has all that is held, too.
"""

from __future__ import annotations

from data_plane.log.checkpoints import write_unsynced
from data_plane.log.log_state import LogState
from data_plane.log.partition_files import LOG_START_UNSYNCED_FILE, encode_log_start


def start_for(log: LogState, log_start_offset: int) -> int:
    """Where the disk has to begin when readers are to begin at `log_start_offset`: there, or with
    an earlier segment that a fold holds on to. Loads the log."""
    needed_from = log.needed_from
    if needed_from is None or needed_from >= log_start_offset:
        return log_start_offset
    for segment in log.segments:
        if segment.next_offset > needed_from:
            return min(segment.base_offset, log_start_offset)
    return log_start_offset


def anew_start(log: LogState) -> int:
    """Where the log may begin anew when nobody says where: from there on a leader gives it all that
    a fold holds. It may not go by what its folds need, which have perhaps passed over damage. Loads
    the log."""
    return log.disk_start_offset if log.needs.folds else log.log_start_offset


def note_log_start(log: LogState, offset: int) -> int:
    """The log is to begin at `offset` also after kill -9; the next flush makes it so after power
    loss. Before it does so here: what a failing disk does not take, nobody is to be told. Returns
    where the disk begins then."""
    start = start_for(log, offset)
    path = f"{log.folder}/{LOG_START_UNSYNCED_FILE}"
    write_unsynced(log.log_directory.fs, path, encode_log_start(offset, start))
    return start
