"""Delayed messages of a topic that are not due yet: `topic.delayed`.

    list       by the time when they are due, over all partitions, in pages
    count      how many, in all or between two times; `histogram` and `calendar` between several
    cancel     those that match: their offsets from each partition's leader, then a command for each

Needs READ on the topic; cancelling needs WRITE. What is shown is what is pending on the leaders
when they are asked, committed or not. A command is judged by the broker, so what is said of each
cancel is true, whatever has been delivered meanwhile; cancelling again changes nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from tidewheel.errors import ConfigurationError
from tidewheel.filters import Filter
from tidewheel.headers import (
    CANCEL_OFFSET_HEADER,
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    duration_ms,
    epoch_ms,
)
from tidewheel.message import Receipt
from tidewheel.transport.port import DelayedPage, PendingMessage, Transport, WantedDelayed

T = TypeVar("T")
Time = datetime | timedelta | int

PAGE: Final = 200
"""Messages that are asked for at once."""
CANCELS_LOOKED_AT: Final = 10_000
"""Of which the offsets are asked for at once."""
CANCELS_MAX: Final = 1_000
"""Commands of a batch."""
PARTITIONS_AT_ONCE: Final = 4
EDGES_MAX: Final = 1_001
_FOR_EVER_MS: Final = 1 << 62
_TIMES: Final = frozenset({DELAY_HEADER, DELIVER_AT_HEADER})


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """Of one message that matched. `reason`: in the broker's words, why it was not cancelled."""

    partition: int
    offset: int
    is_cancelled: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CancelSummary:
    """How many were cancelled, and those that matched and were not, mostly since they were
    delivered meanwhile."""

    cancelled: int
    refused: tuple[CancelOutcome, ...]


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """How many messages are due from `start` on, until the next one's."""

    start: datetime
    count: int


# In the class below `list` is a method.
_Counts = list[int]
_Calendar = list[CalendarEntry]
_Outcomes = list[CancelOutcome]
_Pages = list[DelayedPage]
_Head = tuple[tuple[int, int, int], PendingMessage]
_Heads = list[_Head]


class DelayedMessages:
    """See the module. Times are aware datetimes, epoch milliseconds, or timedeltas from now on.

    Filters are those of subscriptions, over tags. Methods raise TopicNotFound, NotAuthorized,
    InvalidFilter, and Unsupported for brokers that cannot tell.
    """

    def __init__(
        self, topic: str, transport: Transport, cancel: Callable[[Receipt], Awaitable[None]]
    ) -> None:
        self._topic = topic
        self._transport = transport
        self._cancel = cancel

    async def list(
        self,
        *,
        filter: str = "",
        since: Time | None = None,
        until: Time | None = None,
        partition: int | None = None,
        value_bytes_max: int = 0,
    ) -> AsyncIterator[PendingMessage]:
        """Those due at or after `since` and before `until`, the first ones first. What comes or
        goes while it is listed may be there or not. Values are cut to `value_bytes_max`, 0: not."""
        wanted = self._wanted(filter, since, until)
        wanted = replace(wanted, messages_max=PAGE, value_bytes_max=value_bytes_max)
        readers = [self._messages(one, wanted) for one in await self._partitions(partition)]
        heads: _Heads = []
        for number, reader in enumerate(readers):
            await _advance(heads, number, reader)
        while heads:
            (_, number, _), found = heapq.heappop(heads)
            yield found
            await _advance(heads, number, readers[number])

    async def _messages(
        self, partition: int, wanted: WantedDelayed
    ) -> AsyncIterator[PendingMessage]:
        while True:
            page = await self._describe(partition, wanted)
            for found in page.messages:
                yield _without_times(found)
            if page.next is None:
                return
            wanted = replace(wanted, after=page.next)

    async def count(self, *, since: Time | None = None, until: Time | None = None) -> int:
        """How many are due at or after `since` and before `until`; without both, all. Leaders
        count by places in sorted runs, however many there are; one that has just been elected may
        for a moment count some that are delivered already."""
        if since is None and until is None:
            return sum(page.pending_count for page in await self._each(WantedDelayed()))
        first_ms = 0 if since is None else self._ms(since)
        end_ms = _FOR_EVER_MS if until is None else self._ms(until)
        if end_ms <= first_ms:
            return 0
        (count,) = await self._counts((first_ms, end_ms))
        return count

    async def histogram(self, edges: Sequence[Time]) -> _Counts:
        """How many are due between each two of up to 1,001 times, in ascending order."""
        times_ms = tuple(self._ms(edge) for edge in edges)
        if not 2 <= len(times_ms) <= EDGES_MAX or list(times_ms) != sorted(times_ms):
            raise ConfigurationError(f"A histogram has 2 to {EDGES_MAX} edges, in ascending order")
        return await self._counts(times_ms)

    async def calendar(self, step: str | timedelta = "1h", steps: int = 24) -> _Calendar:
        """How many are due in each of the coming steps, e.g. `calendar("1d", 30)`. What is due
        already, and not delivered yet, counts to the first."""
        step_ms = duration_ms(step, what="step")
        if not 1 <= steps < EDGES_MAX or step_ms < 1:
            raise ConfigurationError(f"A calendar has 1 to {EDGES_MAX - 1} steps, of 1 ms or more")
        now_ms = self._transport.clock.now_ms()
        starts_ms = [now_ms + number * step_ms for number in range(steps)]
        counts = await self._counts((0, *starts_ms[1:], now_ms + steps * step_ms))
        return [
            CalendarEntry(_date(start_ms), count)
            for start_ms, count in zip(starts_ms, counts, strict=True)
        ]

    async def next_due(self) -> datetime | None:
        """When the first of all is due; None when nothing is pending."""
        firsts = [page.first_ms for page in await self._each(WantedDelayed())]
        first_ms = min((one for one in firsts if one is not None), default=None)
        return None if first_ms is None else _date(first_ms)

    async def cancel(
        self,
        *,
        filter: str = "",
        since: Time | None = None,
        until: Time | None = None,
        partition: int | None = None,
        everything: bool = False,
    ) -> CancelSummary:
        """Have those that match never delivered; each has been answered when this returns. Without
        a filter and without times it takes `everything=True`. When it raises, some are cancelled
        and others are not: call it again."""
        wanted = self._to_cancel(filter, since, until, everything)
        at_once = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def cancel_in(number: int) -> tuple[int, _Outcomes]:
            cancelled, refused = 0, []
            async with at_once:
                async for outcome in self._cancel_in(number, wanted):
                    if outcome.is_cancelled:
                        cancelled += 1
                    else:
                        refused.append(outcome)
            return cancelled, refused

        found = await _all(cancel_in(one) for one in await self._partitions(partition))
        return CancelSummary(
            sum(count for count, _ in found),
            tuple(one for _, refused in found for one in refused),
        )

    async def cancel_each(
        self,
        *,
        filter: str = "",
        since: Time | None = None,
        until: Time | None = None,
        partition: int | None = None,
        everything: bool = False,
    ) -> AsyncIterator[CancelOutcome]:
        """As `cancel`, with what became of each, partition by partition."""
        wanted = self._to_cancel(filter, since, until, everything)
        for number in await self._partitions(partition):
            async for outcome in self._cancel_in(number, wanted):
                yield outcome

    async def cancel_at(self, partition: int, offset: int) -> None:
        """Have the message never delivered that was stored there, as `Receipt.cancel` does. Raises
        TooLate, UnknownMessage."""
        await self._cancel(Receipt(self._topic, partition, offset, -1))

    async def _cancel_in(
        self, partition: int, wanted: WantedDelayed
    ) -> AsyncIterator[CancelOutcome]:
        while True:
            page = await self._describe(partition, wanted)
            # By their offsets, so that the broker reads each of their batches once.
            offsets = sorted(page.offsets)
            for at in range(0, len(offsets), CANCELS_MAX):
                for outcome in await self._cancel_some(partition, offsets[at : at + CANCELS_MAX]):
                    yield outcome
            if page.next is None:
                return
            wanted = replace(wanted, after=page.next)

    async def _cancel_some(self, partition: int, left: _Counts) -> _Outcomes:
        """Of these offsets; what is refused is left out, and the others are sent again."""
        outcomes: _Outcomes = []
        while left:
            commands = [(CANCEL_OFFSET_HEADER, b"%d" % offset) for offset in left]
            refused = await self._transport.delayed.send_commands(self._topic, partition, commands)
            if not refused:
                return outcomes + [CancelOutcome(partition, offset, True) for offset in left]
            for place, reason in refused.items():
                outcomes.append(CancelOutcome(partition, left[place], False, reason))
            left = [offset for place, offset in enumerate(left) if place not in refused]
        return outcomes

    def _to_cancel(
        self, filter: str, since: Time | None, until: Time | None, everything: bool
    ) -> WantedDelayed:
        """Raises ConfigurationError."""
        is_chosen = bool(filter) or since is not None or until is not None
        if is_chosen == everything:
            raise ConfigurationError(
                f'Say which delayed messages of "{self._topic}" are to be cancelled',
                hint="Give filter=, since= or until=; or everything=True, and none of these",
            )
        wanted = self._wanted(filter, since, until)
        return replace(wanted, to_cancel=True, messages_max=CANCELS_LOOKED_AT)

    def _wanted(self, filter: str, since: Time | None, until: Time | None) -> WantedDelayed:
        """Raises InvalidFilter."""
        if filter:
            Filter(filter)
        return WantedDelayed(
            None if since is None else self._ms(since),
            None if until is None else self._ms(until),
            filter,
        )

    def _ms(self, time: Time) -> int:
        if isinstance(time, timedelta):
            return self._transport.clock.now_ms() + round(time.total_seconds() * 1000)
        return epoch_ms(time, what="the time")

    async def _partitions(self, partition: int | None) -> _Counts:
        if partition is not None:
            return [partition]
        (topic,) = await self._transport.admin.describe_topics([self._topic])
        return [one.partition for one in topic.partitions]

    async def _describe(self, partition: int, wanted: WantedDelayed) -> DelayedPage:
        return await self._transport.delayed.describe(self._topic, partition, wanted)

    async def _each(self, wanted: WantedDelayed) -> _Pages:
        return await _all(self._describe(one, wanted) for one in await self._partitions(None))

    async def _counts(self, edges_ms: tuple[int, ...]) -> _Counts:
        pages = await self._each(WantedDelayed(edges_ms=edges_ms))
        return [sum(counts) for counts in zip(*(page.counts for page in pages), strict=True)]


async def _all(asked: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them return. Raises what the first one raises; none goes on then."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _advance(heads: _Heads, number: int, reader: AsyncIterator[PendingMessage]) -> None:
    """Put the next message of a partition among the heads, no two of which are at one place."""
    async for found in reader:
        heapq.heappush(heads, ((found.deliver_at_ms, number, found.message.offset), found))
        return


def _without_times(found: PendingMessage) -> PendingMessage:
    """What the record says of its time is what was said at the beginning."""
    message = found.message
    message.headers = tuple(header for header in message.headers if header[0] not in _TIMES)
    return found


def _date(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
