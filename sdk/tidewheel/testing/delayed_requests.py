"""Delayed messages of a broker in memory, as clients ask for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from tidewheel.filters import Filter
from tidewheel.message import Message, TopicPartition
from tidewheel.testing.memory import MemoryBroker
from tidewheel.testing.topics import MemoryTopic
from tidewheel.transport.port import DelayedPage, PendingMessage, WantedDelayed


class MemoryDelayed:
    """A `DelayedTransport` to a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def send_commands(
        self, topic: str, partition: int, commands: Sequence[tuple[str, bytes]]
    ) -> dict[int, str]:
        """All of them, or none."""
        now_ms = self._broker.clock.now_ms()
        delayed = self._log(topic, partition).delayed[partition]
        records = [Message(topic, partition, -1, now_ms, None, None, (one,)) for one in commands]
        reasons = [delayed.refusal_of(record, now_ms) for record in records]
        refused = {place: reason for place, reason in enumerate(reasons) if reason is not None}
        if not refused:
            for record in records:
                self._broker.append(record)
        return refused

    async def describe(self, topic: str, partition: int, wanted: WantedDelayed) -> DelayedPage:
        """As the port says."""
        pending = self._log(topic, partition).delayed[partition].pending()
        times_ms = [due_ms for due_ms, _ in pending]
        filter = Filter(wanted.filter) if wanted.filter else None
        found = [
            PendingMessage(due_ms, message)
            for due_ms, message in pending
            if (wanted.since_ms is None or wanted.since_ms <= due_ms)
            and (wanted.until_ms is None or due_ms < wanted.until_ms)
            and (wanted.after is None or wanted.after < (due_ms, message.offset))
            and (filter is None or filter.matches(message.tags))
        ]
        page = found[: wanted.messages_max]
        last = None
        if page and len(found) > len(page):
            last = page[-1].deliver_at_ms, page[-1].message.offset
        return DelayedPage(
            pending_count=len(pending),
            uncertain_count=0,
            first_ms=times_ms[0] if times_ms else None,
            counts=[
                bisect_left(times_ms, end) - bisect_left(times_ms, first)
                for first, end in pairwise(wanted.edges_ms)
            ],
            messages=[]
            if wanted.to_cancel
            else [_cut(one, wanted.value_bytes_max) for one in page],
            offsets=[one.message.offset for one in page] if wanted.to_cancel else [],
            next=last,
        )

    def _log(self, topic: str, partition: int) -> MemoryTopic:
        """Raises TopicNotFound, InvalidRequest."""
        return self._broker.log_of(self._broker.partition(TopicPartition(topic, partition)))


def _cut(one: PendingMessage, value_bytes_max: int) -> PendingMessage:
    found = one.message
    is_cut = 0 < value_bytes_max < len(found.value or b"")
    value = found.value[:value_bytes_max] if is_cut else found.value
    place = found.topic, found.partition, found.offset, found.timestamp_ms
    return PendingMessage(
        one.deliver_at_ms, Message(*place, found.key, value, found.headers), is_cut
    )
