"""Where a log begins on the disk, beside where it begins for readers.

    segments   0..9   10..19   20..29   30..39
                      │ needed_from 12  │
                      ▼                 ▼
               disk start 10     log start 30: readers see nothing below

A segment that a fold holds on to, and those behind it, stay on the disk while the log start moves
on (retention.py). They are part of the log for all but readers: folds are made again from them.
"""

from __future__ import annotations

from data_plane.log.log_state import LogState


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
