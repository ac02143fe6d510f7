"""The `Transport` over librdkafka: finds a first broker, makes producers, consumers, the admin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidewheel.access import Access
from tidewheel.errors import BrokerUnreachable, ClientClosed, plain
from tidewheel.settings import ClientSettings, ProducerSettings
from tidewheel.transport.direct.brokers import DirectBrokers, Leader
from tidewheel.transport.direct.delayed import DirectDelayed
from tidewheel.transport.librdkafka.admin import LibrdkafkaAdmin
from tidewheel.transport.librdkafka.connection import Connection, translated
from tidewheel.transport.librdkafka.consumer import LibrdkafkaConsumer
from tidewheel.transport.librdkafka.producer import LibrdkafkaProducer
from tidewheel.transport.librdkafka.reachable import why_unreachable
from tidewheel.transport.port import ConsumerPlan, RebalanceListener

_FIRST_ANSWER_SLICE_S = 1.0


class SystemClock:
    """Real time."""

    def now_ms(self) -> int:
        """Epoch milliseconds by the machine's clock."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """asyncio.sleep."""
        await asyncio.sleep(seconds)


class LibrdkafkaTransport:
    """A `Transport` to the brokers that `access` names."""

    def __init__(self, access: Access, settings: ClientSettings) -> None:
        self._connection = Connection(access, settings)
        self._clock = SystemClock()
        self._admin: LibrdkafkaAdmin | None = None
        self._direct = DirectBrokers(
            self._connection.properties, self._leaders_of, self._connection.request_timeout_s
        )

    @property
    def clock(self) -> SystemClock:
        """The machine's clock."""
        return self._clock

    @property
    def admin(self) -> LibrdkafkaAdmin:
        """Administrative requests; there once the transport is open."""
        if self._admin is None:
            raise ClientClosed("The client is not open")
        return self._admin

    @property
    def delayed(self) -> DirectDelayed:
        """Delayed messages; there once the transport is open."""
        return DirectDelayed(self._direct, self._clock)

    async def _leaders_of(self, topic: str) -> dict[int, Leader]:
        return {
            partition: Leader(*leader)
            for partition, leader in (await self.admin.leaders(topic)).items()
        }

    async def open(self) -> None:
        """Wait for a first broker's answer, at most the connect time-out; not at all when every
        address refuses connections, or has a name that nobody knows."""
        connection, timeout_s = (
            self._connection,
            self._connection.settings.connect_timeout_ms / 1000,
        )
        if "bootstrap.servers" not in connection.settings.librdkafka:
            why = await why_unreachable(connection.bootstrap, timeout_s)
            if why is not None:
                raise BrokerUnreachable(f"No broker answers at {connection.bootstrap} ({why})")
        client = AdminClient(self._connection.properties())
        await asyncio.to_thread(self._wait_for_broker, client)
        self._admin = LibrdkafkaAdmin(self._connection, client)

    def _wait_for_broker(self, client: AdminClient) -> None:
        timeout_s = self._connection.settings.connect_timeout_ms / 1000
        deadline = time.monotonic() + timeout_s
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                client.list_topics(timeout=max(0.05, min(_FIRST_ANSWER_SLICE_S, remaining_s)))
            except KafkaException as raised:
                error = translated(raised, "connecting")
                if not error.retriable:
                    raise error from raised
                client.poll(0)  # Brings the network error that says why.
                self._connection.raise_if_refused()
                if time.monotonic() >= deadline:
                    reason = plain(self._connection.last_network_error) or "no answer"
                    raise BrokerUnreachable(
                        f"No broker answered at {self._connection.bootstrap} within "
                        f"{timeout_s:g} s ({reason})",
                        kafka_name=error.kafka_name,
                    ) from raised
            else:
                return

    async def producer(
        self, settings: ProducerSettings, on_due: Callable[[], None]
    ) -> LibrdkafkaProducer:
        """A producer of its own connections."""
        return LibrdkafkaProducer(self._connection, settings, on_due)

    async def consumer(self, plan: ConsumerPlan, listener: RebalanceListener) -> LibrdkafkaConsumer:
        """A consumer of its own connections."""
        return LibrdkafkaConsumer(self._connection, plan, listener)

    async def close(self) -> None:
        """Let go of what is not closed by its owner, as producers and consumers are."""
        self._admin = None
        await self._direct.close()
