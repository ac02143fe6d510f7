"""Delayed messages of a broker in memory, as clients ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.message import Message, TopicPartition
from tidewheel.testing.memory import MemoryBroker
from tidewheel.testing.topics import MemoryTopic


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

    def _log(self, topic: str, partition: int) -> MemoryTopic:
        """Raises TopicNotFound, InvalidRequest."""
        return self._broker.log_of(self._broker.partition(TopicPartition(topic, partition)))
