"""Requests to whoever leads a partition: a connection to each broker that is asked, kept open.

As librdkafka does, a request is put again where somebody else leads meanwhile, or where nothing
answers, until the request time-out. What is asked here may be asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError

from tidewheel.errors import ClientClosed, NoLeader, RequestTimedOut, TidewheelError, from_kafka
from tidewheel.transport.direct.connection import DirectConnection, connect
from tidewheel.transport.librdkafka.attempts import until_answered

T = TypeVar("T")

_CORRUPT_MESSAGE: Final = 2
_NOT_LEADER: Final = 6


class Leader(NamedTuple):
    """Of a partition, and where it is."""

    broker_id: int
    host: str
    port: int


class Fault:
    """An error code of a broker, with the words that it has for it."""

    def __init__(self, error_code: int, words: str) -> None:
        known: Any = KafkaError(error_code)
        self._name = str(known.name())
        self._words = words or str(known.str())
        # What cannot be read now may be readable a moment later, or on another broker.
        self._retriable = error_code in (_CORRUPT_MESSAGE, _NOT_LEADER)

    def name(self) -> str:
        """Kafka's name for the error."""
        return "NOT_READABLE" if self._name == "INVALID_MSG" else self._name

    def str(self) -> str:
        """What happened."""
        return self._words

    def retriable(self) -> bool:
        """Whether it may pass by itself."""
        return self._retriable


def raise_for(error_code: int, words: str, what: str) -> None:
    """Raise the typed error, unless there is none."""
    if error_code:
        raise from_kafka(Fault(error_code, words), what)


class DirectBrokers:
    """See the module. `leaders_of` looks up a topic's leaders by partition; it raises
    TopicNotFound. `properties` are librdkafka's."""

    def __init__(
        self,
        properties: Callable[[], Mapping[str, Any]],
        leaders_of: Callable[[str], Awaitable[Mapping[int, Leader]]],
        timeout_s: float,
    ) -> None:
        self._properties = properties
        self._leaders_of = leaders_of
        self._timeout_s = timeout_s
        self._leaders: dict[str, Mapping[int, Leader]] = {}
        self._connections: dict[Leader, asyncio.Task[DirectConnection]] = {}
        self._closed = False

    async def at_leader(
        self,
        topic: str,
        partition: int,
        what: str,
        ask: Callable[[DirectConnection, float], Awaitable[T]],
    ) -> T:
        """The answer of one attempt. `ask` gets a connection and how long it may take, in seconds.
        Raises what it raises, and RequestTimedOut, BrokerUnreachable, NoLeader, TopicNotFound."""

        async def attempt(timeout_s: float, _is_unsure: bool) -> T:
            try:
                async with asyncio.timeout(timeout_s):
                    connection = await self._to_leader(topic, partition)
                    return await ask(connection, timeout_s)
            except TimeoutError as error:
                self._leaders.pop(topic, None)
                raise RequestTimedOut(
                    f"{what} failed: no answer within {timeout_s:.0f} s"
                ) from error
            except TidewheelError:
                self._leaders.pop(topic, None)
                raise

        return await until_answered(attempt, self._timeout_s)

    async def _to_leader(self, topic: str, partition: int) -> DirectConnection:
        leaders = self._leaders.get(topic)
        if leaders is None:
            leaders = self._leaders[topic] = await self._leaders_of(topic)
        leader = leaders.get(partition)
        if leader is None:
            raise NoLeader(f"Nobody leads {topic}[{partition}]")
        return await self._connection(leader)

    async def _connection(self, leader: Leader) -> DirectConnection:
        if self._closed:
            raise ClientClosed("The client is closed")
        opening = self._connections.get(leader)
        if opening is None or (opening.done() and not _is_usable(opening)):
            making = connect(leader.host, leader.port, self._properties())
            opening = self._connections[leader] = asyncio.create_task(making)
        # Others may wait for it, too.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Let go of all connections."""
        self._closed = True
        openings, self._connections = list(self._connections.values()), {}
        for opening in openings:
            opening.cancel()
        for outcome in await asyncio.gather(*openings, return_exceptions=True):
            if isinstance(outcome, DirectConnection):
                await outcome.close()


def _is_usable(opening: asyncio.Task[DirectConnection]) -> bool:
    if opening.cancelled() or opening.exception() is not None:
        return False
    return opening.result().is_usable
