"""The `Messages` of one judgement: a fold as it was, its runs on the disk, and the log.

    due of an offset   near, recent? ─► known
                       its original's time ─► does a run have (time, offset)? ─► that
                       times that it has moved to, by its name ─► does a run have one of these?
    of many offsets    all originals, batch by batch ─► (time, offset), sorted ─► each run once

In a worker thread. What cannot be read now refuses the batch with an error that clients try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from data_plane.log.errors import AppendError, LogDeleted, LogDirFailure, LogError, OffsetOutOfRange
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.records import Record
from features.delayed.commands import ID_HEADER
from features.delayed.names import DUE_MAX_MS, FOUND_MAX, NameSearch, offset_name
from features.delayed.originals import Originals
from features.delayed.run_search import RunSearch
from features.delayed.runs import Entry
from features.delayed.snapshot import FoldState
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms

# Of one id that are pending no more: one is enough, and others may have the same mark.
OVER_FOUND_MAX: Final = 16


class StoredMessages:
    """To be closed. `end_offset`: where the log ended when the fold was so. With `offsets`, which
    ascend, nothing is asked about others."""

    def __init__(
        self,
        log: Log,
        state: FoldState,
        end_offset: int,
        offsets: Sequence[int] | None = None,
    ) -> None:
        fs = log.log_directory.fs
        self._state = state
        self._end_offset = end_offset
        self._originals = Originals(log, end_offset, offsets)
        # Of those that were looked up together, and are in runs at their first time.
        self._in_runs: dict[int, int] = {}
        pending = state.pending
        horizon_ms = None if pending.horizon is None else pending.horizon[0]
        self._first_due_ms = min(pending.near.values(), default=horizon_ms)
        self._searches: list[RunSearch] = []
        self._names: NameSearch | None = None
        try:
            for one in state.pending.runs:
                self._searches.append(RunSearch(fs, log.folder, one.run))
            self._names = NameSearch(fs, log.folder, state.names)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for search in self._searches:
            search.close()
        if self._names is not None:
            self._names.close()

    def look_up(self, offsets: Iterable[int]) -> None:
        """Look these up together, which is faster than one by one. Raises AppendError, OSError."""
        pending = self._state.pending
        entries: list[Entry] = []
        for offset in offsets:
            in_memory = offset in pending.near or offset in pending.recent
            if in_memory or offset in pending.done or not self._may_be_in_runs(offset):
                continue
            record = self._message(offset)
            if record is not None:
                entries.append((_first_due_ms(record), offset))
        left = {entry: pending.stale.get(entry, 0) for entry in sorted(entries)}
        for (run, start), search in zip(pending.runs, self._searches, strict=True):
            within = [
                (due_ms, offset)
                for due_ms, offset in left
                if run.key_min <= due_ms <= run.key_max
                and run.offset_min <= offset <= run.offset_max
            ]
            for entry, count in search.counts_of(within, start):
                left[entry] -= count
                if left[entry] < 0:
                    due_ms, offset = entry
                    self._in_runs[offset] = due_ms
                    del left[entry]

    # The port

    def due_ms(self, offset: int) -> int | None:
        pending = self._state.pending
        found = pending.near.get(offset, pending.recent.get(offset))
        if found is None:
            found = self._in_runs.get(offset)
        if found is not None:
            return found
        if offset in pending.done or not self._may_be_in_runs(offset):
            return None
        record = self._message(offset)
        if record is None:
            return None
        first_ms = _first_due_ms(record)
        if self._is_in_runs((first_ms, offset)):
            return first_ms
        assert self._names is not None
        for due_ms, at in self._names.find(offset_name(offset)):
            if at == offset and self._is_in_runs((due_ms, offset)):
                return due_ms
        return None

    def was_message(self, offset: int) -> bool:
        return self._message(offset) is not None

    def message_id(self, offset: int) -> bytes:
        record = self._message(offset)
        return b"" if record is None else dict(record.headers).get(ID_HEADER) or b""

    def with_id(self, message_id: bytes) -> Sequence[int]:
        if self._first_due_ms is None:
            return ()
        return self._with_id(message_id, self._first_due_ms, FOUND_MAX)

    def had_id(self, message_id: bytes) -> bool:
        return bool(self._with_id(message_id, 0, OVER_FOUND_MAX))

    def was_said(self, outcome: int) -> bool:
        return outcome in self._state.outcomes

    # Looking

    def _with_id(self, message_id: bytes, from_ms: int, found_max: int) -> list[int]:
        assert self._names is not None
        found = self._names.find(message_id, from_ms, found_max)
        offsets = sorted({offset for _, offset in found})
        return [offset for offset in offsets if self.message_id(offset) == message_id]

    def _may_be_in_runs(self, offset: int) -> bool:
        return any(
            one.run.offset_min <= offset <= one.run.offset_max for one in self._state.pending.runs
        )

    def _is_in_runs(self, entry: Entry) -> bool:
        """Whether it stands in runs more often than it is stale."""
        pending = self._state.pending
        due_ms, offset = entry
        count = -pending.stale.get(entry, 0)
        for (run, start), search in zip(pending.runs, self._searches, strict=True):
            is_within = run.offset_min <= offset <= run.offset_max
            if is_within and run.key_min <= due_ms <= run.key_max:
                count += search.count_of(entry, start)
                if count > 0:
                    return True
        return False

    def _message(self, offset: int) -> Record | None:
        """Raises AppendError."""
        if offset >= self._end_offset:
            return None
        try:
            return self._originals.find_message(offset)
        except OffsetOutOfRange:
            return None
        except (LogDirFailure, LogDeleted) as error:
            # Whoever leads then has it.
            raise AppendError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
        except (LogError, InvalidRecords) as error:
            raise AppendError(
                ErrorCode.CORRUPT_MESSAGE, f"the message at {offset} cannot be read now: {error}"
            ) from error


def _first_due_ms(record: Record) -> int:
    """As the fold takes it."""
    return min(deliver_at_ms(dict(record.headers)[DELIVER_AT_HEADER]), DUE_MAX_MS)
