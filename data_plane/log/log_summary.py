"""What a data directory's checkpoint keeps of each log, enough to open it without its files."""

from __future__ import annotations

from typing import Any, NamedTuple


class LogSummary(NamedTuple):
    """Offsets, sizes in bytes, and of the active segment its base, size and first append.

    `is_synced`: nothing was left to flush or to remove when this was taken, so a log that still has
    this active segment in this size needs no recovery. `has_tail_files`: a clean close left index
    files and snapshots that reach the log end. `first_segment_timestamp` is the largest of the
    oldest segment, for retention; -1 where that was not known.
    `fold_entries_count` is that of the fold that has most; `superseded_from` is explained in
    held_records.py; `due_ms` is when a fold has something to do next, -1 for never."""

    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int
    size_bytes: int
    active_base_offset: int
    active_size: int
    first_append_ms: int
    latest_epoch: int
    cleaner_offset: int
    is_synced: bool
    has_tail_files: bool
    first_segment_timestamp: int
    fold_entries_count: int = 0
    superseded_from: int = -1
    due_ms: int = -1

    def fields_to_store(self) -> tuple[Any, ...]:
        """Without the last ones that say nothing, so that versions without them can read it."""
        count = len(self)
        while count > FIELDS_ALWAYS_STORED and self[count - 1] == self._field_defaults.get(
            self._fields[count - 1]
        ):
            count -= 1
        return tuple(self[:count])


FIELDS_ALWAYS_STORED = LogSummary._fields.index("fold_entries_count") + 1
