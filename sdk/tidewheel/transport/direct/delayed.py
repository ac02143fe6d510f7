"""Delayed messages at the brokers: a `DelayedTransport` over direct connections."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tidewheel.errors import Unsupported
from tidewheel.message import Message
from tidewheel.transport.direct import codec
from tidewheel.transport.direct.brokers import DirectBrokers, raise_for
from tidewheel.transport.direct.codec import Reader
from tidewheel.transport.direct.connection import DirectConnection
from tidewheel.transport.port import Clock, DelayedPage, PendingMessage, WantedDelayed

_NOTHING: Final = -1
_ANY_SIZE: Final = 0

# Of the time that an answer may take, what the broker may wait for replicas.
_BROKER_SHARE: Final = 0.8


class DirectDelayed:
    """See the module."""

    def __init__(self, brokers: DirectBrokers, clock: Clock) -> None:
        self._brokers = brokers
        self._clock = clock

    async def send_commands(
        self, topic: str, partition: int, commands: Sequence[tuple[str, bytes]]
    ) -> dict[int, str]:
        """As the port says. librdkafka would not pass on which were refused, and why."""
        what = f'sending to "{topic}"'
        batch = codec.record_batch([(command,) for command in commands], self._clock.now_ms())

        async def ask(connection: DirectConnection, timeout_s: float) -> dict[int, str]:
            timeout_ms = max(1, round(timeout_s * 1000 * _BROKER_SHARE))
            body = codec.produce_request(topic, partition, batch, timeout_ms)
            answer = codec.read_produced(await connection.request(codec.PRODUCE, body))
            if not answer.record_errors:
                raise_for(answer.error_code, answer.error_message, what)
            return answer.record_errors

        return await self._brokers.at_leader(topic, partition, what, ask)

    async def describe(self, topic: str, partition: int, wanted: WantedDelayed) -> DelayedPage:
        """As the port says."""
        what = f'asking what is delayed in "{topic}"'
        body = describe_request(topic, partition, wanted)

        async def ask(connection: DirectConnection, _timeout_s: float) -> DelayedPage:
            if not connection.knows(codec.DESCRIBE_DELAYED):
                raise Unsupported("The broker cannot tell what is delayed: it is too old, or Kafka")
            answer = await connection.request(codec.DESCRIBE_DELAYED, body)
            answer.number("i")  # The time for which the broker takes nothing else.
            raise_for(answer.number("h"), answer.text() or "", what)
            return read_page(answer, topic, partition)

        return await self._brokers.at_leader(topic, partition, what, ask)


def describe_request(topic: str, partition: int, wanted: WantedDelayed) -> bytes:
    """Its body."""
    after = (_NOTHING, _NOTHING) if wanted.after is None else wanted.after
    numbers = (wanted.messages_max, _ANY_SIZE, wanted.value_bytes_max)
    edges = wanted.edges_ms
    return b"".join(
        (
            codec.compact(topic),
            struct.pack(">i", partition),
            struct.pack(">qq", _or_nothing(wanted.since_ms), _or_nothing(wanted.until_ms)),
            codec.compact(wanted.filter),
            struct.pack(">qq?iii", *after, wanted.to_cancel, *numbers),
            codec.uvarint(len(edges) + 1),
            struct.pack(f">{len(edges)}q", *(max(0, edge) for edge in edges)),
            b"\0",
        )
    )


def read_page(answer: Reader, topic: str, partition: int) -> DelayedPage:
    """What follows the error. Raises BrokerError."""

    def header() -> tuple[str, bytes | None]:
        name, value = answer.text() or "", answer.data()
        answer.skip_tags()
        return name, value

    def message() -> PendingMessage:
        deliver_at_ms, offset, timestamp_ms = (answer.number("q") for _ in range(3))
        answer.number("i")  # How large the value is.
        is_cut = bool(answer.number("?"))
        key, value = answer.data(), answer.data()
        headers = tuple(answer.each(header))
        answer.skip_tags()
        found = Message(topic, partition, offset, timestamp_ms, key, value, headers)
        return PendingMessage(deliver_at_ms, found, is_cut)

    pending_count, uncertain_count, first_ms = (answer.number("q") for _ in range(3))
    counts, messages, offsets = answer.int64s(), answer.each(message), answer.int64s()
    position = answer.number("q"), answer.number("q")
    return DelayedPage(
        pending_count,
        uncertain_count,
        None if first_ms == _NOTHING else first_ms,
        counts,
        messages,
        offsets,
        None if position[1] == _NOTHING else position,
    )


def _or_nothing(time_ms: int | None) -> int:
    """As brokers understand it: nothing is due before 1970."""
    return _NOTHING if time_ms is None else max(0, time_ms)
