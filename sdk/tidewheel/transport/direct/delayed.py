"""Delayed messages at the brokers: a `DelayedTransport` over direct connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidewheel.transport.direct import codec
from tidewheel.transport.direct.brokers import DirectBrokers, raise_for
from tidewheel.transport.direct.connection import DirectConnection
from tidewheel.transport.port import Clock

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
