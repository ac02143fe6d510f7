"""What a consumer could not nack, and therefore must not commit past.

    nack of 6:100 fails      6 is committed up to 100, however far the reading goes
    nack of 6:100 succeeds   that again is over
    6 moves away             it is forgotten: whoever reads 6 next gets 100 again

So an application that swallows the error of a nack and reads on loses nothing by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidewheel.errors import NackFailed
from tidewheel.message import Message, TopicPartition
from tidewheel.nacks import Nack, Nacker


class HeldBack:
    """The nacks of one consumer, and the offsets of those that have failed."""

    def __init__(self, nacker: Nacker) -> None:
        self._nacker = nacker
        self._held: dict[TopicPartition, set[int]] = {}

    async def nack(self, nacks: Sequence[Nack]) -> None:
        """Raises as `Nacker.send`."""
        messages = [nack.message for nack in nacks]
        # Until they have come to the brokers, whatever ends the waiting.
        self._hold(messages)
        try:
            await self._nacker.send(nacks)
        except NackFailed as failed:
            lost = {(one.topic_partition, one.offset) for one in failed.consumed}
            self._release(m for m in messages if (m.topic_partition, m.offset) not in lost)
            raise
        self._release(messages)

    def committable(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """These next offsets, none of them beyond what is held."""
        return {
            place: min(offset, *held) if (held := self._held.get(place)) else offset
            for place, offset in offsets.items()
        }

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """They are read by others, or from elsewhere."""
        for place in places:
            self._held.pop(place, None)

    def _hold(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._held.setdefault(message.topic_partition, set()).add(message.offset)

    def _release(self, messages: Iterable[Message]) -> None:
        for message in messages:
            held = self._held.get(message.topic_partition, set())
            held.discard(message.offset)
            if not held:
                self._held.pop(message.topic_partition, None)
