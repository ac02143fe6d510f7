"""What is pending of a partition, by the time when it is due: pages, and counts.

    page    near and recent, sorted; each run from a place found by halves ─► merged, in order
            ─► those whose originals match ─► until the page is full
    count   by places in sorted runs, whatever is between

In worker threads, by the fold as it was when somebody looked.

Invariants
- Pages that follow each other have each message once that was pending all the time at one time.
- At most `looked_max` entries are looked at for a page.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice, pairwise
from typing import Final

from data_plane.broker.pending_messages import (
    Counted,
    Page,
    PendingMessage,
    PendingView,
    Position,
    Wanted,
)
from data_plane.log.errors import LogDeleted, LogDirFailure, LogError
from data_plane.log.log import Log
from data_plane.replica.partition import Partition
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import Record
from features.delayed.fold import DelayedMessages
from features.delayed.originals import Originals, size_of
from features.delayed.pending_entries import Passed
from features.delayed.run_search import RunSearch
from features.delayed.runs import Entry
from features.delayed.snapshot import FoldState
from features.filtering.language import InvalidFilter, parse_filter
from features.filtering.matching import Matcher
from features.filtering.tags import TAG_HEADER, join_tags

_ALL_TIME_MS: Final = 2**63


class Listing:
    """The `PendingMessages` of a broker."""

    def filter_problem(self, text: str) -> str | None:
        try:
            parse_filter(text)
        except InvalidFilter as error:
            return str(error)
        return None

    def look(self, partition: Partition) -> PendingView:
        for fold in partition.log.folds:
            if isinstance(fold, DelayedMessages):
                return _View(partition.log, fold)
        return _Nothing()


class _Nothing:
    """Of a topic that has no delayed messages."""

    def page(self, wanted: Wanted, messages_max: int, bytes_max: int, looked_max: int) -> Page:
        return Page([], None)

    def positions(self, wanted: Wanted, looked_max: int) -> Page:
        return Page([], None)

    def count(self, edges_ms: Sequence[int]) -> Counted:
        return Counted(0, [0] * max(0, len(edges_ms) - 1), 0, None)

    def close(self) -> None:
        return


class _View:
    """See the module."""

    def __init__(self, log: Log, fold: DelayedMessages) -> None:
        self._log = log
        self._fold = fold
        self._fs = log.log_directory.fs
        self._end_offset = log.log_end_offset
        self._state: FoldState = fold.state()
        self._count = len(fold)
        self._first_ms = fold.pending.first_due_ms

    def close(self) -> None:
        self._fold.release(self._state)

    def page(self, wanted: Wanted, messages_max: int, bytes_max: int, looked_max: int) -> Page:
        matcher = Matcher(parse_filter(wanted.filter)) if wanted.filter else None
        originals = Originals(self._log, self._end_offset)
        found: list[PendingMessage] = []
        bytes_left = bytes_max
        last: Position | None = None
        with ExitStack() as stack:
            for looked, (due_ms, offset) in enumerate(self._entries(wanted, stack)):
                if looked >= looked_max or len(found) >= messages_max:
                    return Page(found, last)
                record = _read(originals, offset)
                if matcher is None or (record is not None and _passes(matcher, record)):
                    bytes_left -= 0 if record is None else size_of(record)
                    if bytes_left < 0 and found:
                        return Page(found, last)
                    found.append(PendingMessage(Position(due_ms, offset), record))
                last = Position(due_ms, offset)
        return Page(found, None)

    def positions(self, wanted: Wanted, looked_max: int) -> Page:
        with ExitStack() as stack:
            entries = list(islice(self._entries(wanted, stack), looked_max + 1))
        last = None
        if len(entries) > looked_max:
            entries.pop()
            last = Position(*entries[-1])
        if wanted.filter:
            passing = self._passing(wanted.filter, sorted(offset for _, offset in entries))
            entries = [entry for entry in entries if entry[1] in passing]
        return Page([PendingMessage(Position(*entry), None) for entry in entries], last)

    def _passing(self, filter: str, offsets: list[int]) -> set[int]:
        """Those of `offsets`, which ascend, that match: so each batch is read once."""
        matcher = Matcher(parse_filter(filter))
        originals = Originals(self._log, self._end_offset, offsets)
        found = set()
        for offset in offsets:
            record = _read(originals, offset)
            if record is not None and _passes(matcher, record):
                found.add(offset)
        return found

    def _entries(self, wanted: Wanted, stack: ExitStack) -> Iterator[Entry]:
        """In their order; files are open until `stack` is closed."""
        first: Entry = (max(0, wanted.from_ms or 0), 0)
        if wanted.after is not None:
            first = max(first, (wanted.after.deliver_at_ms, wanted.after.offset + 1))
        pending = self._state.pending
        passed = Passed(pending.done, pending.stale)
        parts: list[Iterator[Entry]] = []
        for part in (pending.near, pending.recent):
            entries = sorted((due_ms, offset) for offset, due_ms in part.items())
            parts.append(iter(entries[bisect_left(entries, first) :]))
        for run, start in pending.runs:
            search = stack.enter_context(closing(RunSearch(self._fs, self._log.folder, run)))
            there = search.entries(max(start, search.place_of(first)))
            parts.append(entry for entry in there if not passed.passes(entry))
        until_ms = _ALL_TIME_MS if wanted.until_ms is None else wanted.until_ms
        for entry in heapq.merge(*parts):
            if entry[0] >= until_ms:
                return
            yield entry

    def count(self, edges_ms: Sequence[int]) -> Counted:
        pending = self._state.pending
        edges = [max(0, edge_ms) for edge_ms in edges_ms]
        in_memory = sorted([*pending.near.values(), *pending.recent.values()])
        before = [bisect_left(in_memory, edge) for edge in edges]
        for run, start in pending.runs:
            # Nothing is before the first edges, and all before the last ones.
            first, last = bisect_right(edges, run.key_min), bisect_right(edges, run.key_max)
            with closing(RunSearch(self._fs, self._log.folder, run)) as search:
                place = 0
                for number in range(first, last):
                    place = search.place_of((edges[number], 0), place)
                    before[number] += max(0, place - start)
            for number in range(last, len(edges)):
                before[number] += run.size - start
        stale = sorted(due_ms for (due_ms, _), count in pending.stale.items() for _ in range(count))
        before = [
            count - bisect_left(stale, edge) for count, edge in zip(before, edges, strict=True)
        ]
        counts = [after - count for count, after in pairwise(before)]
        return Counted(self._count, counts, len(pending.done), self._first_ms)


def _read(originals: Originals, offset: int) -> Record | None:
    """None for one that cannot be read now. Raises what says that the log is gone."""
    try:
        return originals.find_message(offset)
    except (LogDirFailure, LogDeleted):
        raise
    except (LogError, InvalidRecords):
        return None


def _passes(matcher: Matcher, record: Record) -> bool:
    tags = [value or b"" for key, value in record.headers if key == TAG_HEADER]
    return matcher.passes(join_tags(tags))
