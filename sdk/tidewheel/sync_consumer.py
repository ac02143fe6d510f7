"""The blocking form of `tidewheel.consumer.Consumer`; see sync.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

from tidewheel.consumer import Consumer as AsyncConsumer
from tidewheel.errors import (
    DeserializationFailed,
)
from tidewheel.headers import Duration
from tidewheel.message import Message, TopicPartition
from tidewheel.serialization import Deserializer
from tidewheel.sync_admin import Call

FETCH_MAX: Final = 2_000
WAIT_S: Final = 1.0


class Consumer:
    """Reads topics: iterate it, or take `batches()`. A message counts as processed when the next
    one is asked for; see `tidewheel.Consumer` for what is committed when."""

    def __init__(
        self,
        inner: AsyncConsumer,
        call: Call,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> None:
        self._inner = inner
        self._call = call
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._buffer: deque[Message] = deque()
        self._in_hand: list[Message] = []
        self._processed: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        self._call(self._inner.open())
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next message; waits for it. Raises DeserializationFailed (go on to skip)."""
        self._finish()
        while not self._buffer:
            self._take(FETCH_MAX, WAIT_S)
        message = self._buffer.popleft()
        self._in_hand = [message]
        return self._prepared(message)

    def batches(
        self, messages_max: int = 1000, wait_s: float | None = None
    ) -> Iterator[list[Message]]:
        """Lists of 1 to `messages_max` messages; [] when `wait_s` is given and nothing came."""
        while True:
            self._finish()
            while not self._buffer:
                self._take(messages_max, WAIT_S if wait_s is None else wait_s)
                if wait_s is not None:
                    break
            self._in_hand = [
                self._buffer.popleft() for _ in range(min(messages_max, len(self._buffer)))
            ]
            yield [self._prepared(message) for message in self._in_hand]

    def _finish(self) -> None:
        for message in self._in_hand:
            self._processed[message.topic_partition] = message.offset + 1
        self._in_hand = []

    def _take(self, messages_max: int, wait_s: float) -> None:
        processed, self._processed = self._processed, {}
        self._buffer.extend(self._call(self._inner.take(messages_max, wait_s, processed)))

    def _prepared(self, message: Message) -> Message:
        if self._key_deserializer is None and self._value_deserializer is None:
            return message
        try:
            key, value = message.key, message.value
            if self._key_deserializer is not None:
                key = self._key_deserializer(key)
            if self._value_deserializer is not None:
                value = self._value_deserializer(value)
        except Exception as broken:
            raise DeserializationFailed(
                f"Reading {message!r} raised {broken!r}", consumed=message
            ) from broken
        return Message(
            message.topic,
            message.partition,
            message.offset,
            message.timestamp_ms,
            key,
            value,
            message.headers,
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this consumer reads now."""
        return self._inner.assignment

    def commit(self, position: Message | Mapping[TopicPartition, int] | None = None) -> None:
        """Commit and wait: a message's place, next offsets, or all handed out so far."""
        if position is None:
            offsets = dict(self._processed)
            for message in self._in_hand:
                offsets[message.topic_partition] = message.offset + 1
            self._call(self._inner.commit(self._inner.held_back(offsets)))
        else:
            self._call(self._inner.commit(position))

    def nack(
        self,
        messages: Message | Sequence[Message],
        *,
        delay: Duration | None = None,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        """These have failed and come back later. See `tidewheel.Consumer.nack`."""
        self._call(self._inner.nack(messages, delay=delay, reason=reason, error=error))

    def dead_letter(
        self,
        messages: Message | Sequence[Message],
        reason: str = "",
        *,
        error: BaseException | None = None,
    ) -> None:
        """These go to the dead-letter topic at once. See `tidewheel.Consumer.dead_letter`."""
        self._call(self._inner.dead_letter(messages, reason, error=error))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in an assigned partition."""
        self._moved(self._inner.seek(partition, offset))

    def seek_to_time(self, when: datetime | timedelta | int) -> None:
        """Go on from a time in all assigned partitions."""
        self._moved(self._inner.seek_to_time(when))

    def seek_to_beginning(self) -> None:
        """Go on from the first message kept, in all assigned partitions."""
        self._moved(self._inner.seek_to_beginning())

    def seek_to_end(self) -> None:
        """Go on from what is sent from now on, in all assigned partitions."""
        self._moved(self._inner.seek_to_end())

    def _moved(self, seeking: Coroutine[Any, Any, None]) -> None:
        # What was fetched ahead goes back first, so that partitions that stay lose nothing.
        ahead: dict[TopicPartition, int] = {}
        for message in self._buffer:
            ahead.setdefault(message.topic_partition, message.offset)
        self._buffer.clear()
        self._in_hand = []
        for partition, offset in ahead.items():
            self._call(self._inner.seek(partition, offset))
        self._call(seeking)

    def close(self) -> None:
        """Commit what is processed (commit="after"), leave the group."""
        if self._processed and self._inner.assignment:
            processed, self._processed = self._processed, {}
            self._call(self._inner.take(0, 0.0, processed))
        self._buffer.clear()
        self._call(self._inner.close())
