"""Delayed messages of a topic, for programs without an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidewheel.delayed import CalendarEntry, CancelOutcome, CancelSummary, Time
from tidewheel.delayed import DelayedMessages as AsyncDelayedMessages
from tidewheel.sync_admin import Call
from tidewheel.transport.port import PendingMessage

T = TypeVar("T")

_Counts = list[int]
_Calendar = list[CalendarEntry]


class DelayedMessages:
    """As `tidewheel.DelayedMessages`, in blocking form; arguments are the same."""

    def __init__(self, inner: AsyncDelayedMessages, call: Call) -> None:
        self._inner = inner
        self._call = call

    def list(self, **wanted: Any) -> Iterator[PendingMessage]:
        """By the time when they are due."""
        return self._each(self._inner.list(**wanted))

    def count(self, *, since: Time | None = None, until: Time | None = None) -> int:
        """How many are due between two times, or in all."""
        count: int = self._call(self._inner.count(since=since, until=until))
        return count

    def histogram(self, edges: Sequence[Time]) -> _Counts:
        """How many are due between each two times."""
        counts: _Counts = self._call(self._inner.histogram(edges))
        return counts

    def calendar(self, step: str | timedelta = "1h", steps: int = 24) -> _Calendar:
        """How many are due in each of the coming steps."""
        entries: _Calendar = self._call(self._inner.calendar(step, steps))
        return entries

    def next_due(self) -> datetime | None:
        """When the first of all is due."""
        due: datetime | None = self._call(self._inner.next_due())
        return due

    def cancel(self, **wanted: Any) -> CancelSummary:
        """Have those that match never delivered."""
        summary: CancelSummary = self._call(self._inner.cancel(**wanted))
        return summary

    def cancel_each(self, **wanted: Any) -> Iterator[CancelOutcome]:
        """As `cancel`, with what became of each."""
        return self._each(self._inner.cancel_each(**wanted))

    def cancel_at(self, partition: int, offset: int) -> None:
        """Have the message never delivered that was stored there."""
        self._call(self._inner.cancel_at(partition, offset))

    def _each(self, found: AsyncIterator[T]) -> Iterator[T]:
        async def some() -> Any:
            items = []
            async for item in found:
                items.append(item)
                if len(items) == 100:
                    break
            return items

        while items := self._call(some()):
            yield from items
