"""The values that go in and come out: records to send, receipts, messages, partitions.

Invariants
- A `Message` is never changed once it is handed out, except that deserializers and interceptors
  run before that.
- Offsets count records of one partition from 0; times are epoch milliseconds (UTC) in fields
  that end in `_ms`, and `datetime` values are always timezone-aware.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tidewheel.errors import ConfigurationError

HeaderValue = bytes | str | None
Headers = Iterable[tuple[str, HeaderValue]]

TAG_HEADER = "tw-tag"
ID_HEADER = "tw-id"
ATTEMPT_HEADER = "tw-attempt"
SOURCE_HEADER = "tw-source"
PRODUCED_AT_HEADER = "tw-produced-at"

# What brokers write. Of clients these headers are plain data, in which anything may be.
_SOURCE: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,10})/([0-9]{1,19})")
_TIME_MS: Final = re.compile(rb"[0-9]{1,14}")
_ATTEMPT: Final = re.compile(rb"[0-9]{1,10}")


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Source(NamedTuple):
    """Where a message stood before it was delivered."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The broker's acknowledgement of one message.

    `offset` is -1 with acks=0, where the broker answers nothing. `timestamp_ms` is the record's
    timestamp as stored, in epoch milliseconds, or -1 when the broker did not say.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    _cancel: Callable[[Receipt], Awaitable[None]] | None = field(
        default=None, repr=False, compare=False
    )

    async def cancel(self) -> None:
        """Have a delayed message never delivered; again and again, if need be. Raises TooLate when
        it was delivered before, UnknownMessage when the broker knows none there, NotAuthorized,
        ConfigurationError for a message that was not delayed, and what is retriable when it is not
        known whether it was cancelled."""
        if self._cancel is None or self.offset < 0:
            raise ConfigurationError(
                f"The message at {self.topic}[{self.partition}]@{self.offset} is not one that can "
                "be cancelled",
                hint="Send it with delay= or deliver_at=, and not with acks=0",
            )
        await self._cancel(self)


@dataclass(slots=True)
class ProducerRecord:
    """One message to send. Interceptors may change it in place or return another.

    Args:
        value: the payload; bytes, str (as UTF-8) or None (a tombstone) without a serializer.
        key: messages of equal keys keep their order; same types as value.
        headers: pairs of name and bytes, str or None.
        tags: `name` or `name:value`, at most 64 of at most 128 bytes.
        delay: `"30m"`, `"1500ms"`, seconds as a number, or a timedelta. See `Topic.send`.
        deliver_at: an aware datetime, or epoch milliseconds.
        id: the message's identity for deduplication, at most 64 bytes.
        partition: a fixed partition; otherwise the partitioner chooses.
        timestamp_ms: the record's timestamp, otherwise now.
    """

    value: Any = None
    key: Any = None
    headers: Headers = ()
    tags: Sequence[str] = ()
    delay: str | float | timedelta | None = None
    deliver_at: datetime | int | None = None
    id: str | bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether it says when it is to be delivered."""
        return self.delay is not None or self.deliver_at is not None


class Message:
    """A consumed record. `key` and `value` are bytes or None, or what the deserializers made."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"Message({self.topic}[{self.partition}]@{self.offset}, key={self.key!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Message.__slots__)

    __hash__ = None  # type: ignore[assignment]

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the message stands."""
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self) -> datetime:
        """The record's timestamp, in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags the producer gave."""
        return tuple(
            value.decode("utf-8", "replace")
            for name, value in self.headers
            if name == TAG_HEADER and value is not None
        )

    @property
    def source(self) -> Source | None:
        """Of a delayed message: where it was stored when it was sent."""
        text = (self.header(SOURCE_HEADER) or b"").decode("utf-8", "replace")
        match = _SOURCE.fullmatch(text)
        return None if match is None else Source(match[1], int(match[2]), int(match[3]))

    @property
    def produced_at(self) -> datetime | None:
        """Of a delayed message: the timestamp that it was sent with, in UTC. `timestamp` is when
        it was delivered."""
        epoch_ms = time_ms_of(self, PRODUCED_AT_HEADER)
        return None if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC)

    @property
    def id(self) -> bytes | None:
        """The message id the producer gave, if any."""
        return self.header(ID_HEADER)

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, 1 for the first one. Of a dead letter: how many
        there were. Brokers count, by its nacks: what was delivered again without one, after a crash
        or when partitions moved, is the same attempt."""
        value = self.header(ATTEMPT_HEADER)
        return int(value) if value is not None and _ATTEMPT.fullmatch(value) else 1

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name, or None."""
        for header_name, value in reversed(self.headers):
            if header_name == name:
                return value
        return None


def time_ms_of(message: Message, header: str) -> int | None:
    """Epoch milliseconds, as a broker has written them; None where nothing of the kind is said."""
    value = message.header(header)
    return int(value) if value is not None and _TIME_MS.fullmatch(value) else None
