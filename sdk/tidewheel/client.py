"""The client: one address, from which topics, consumers and the admin come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tidewheel.access import access_from_env, parse_access
from tidewheel.admin import Admin
from tidewheel.commands import Commands
from tidewheel.consumer import Consumer
from tidewheel.consumer_options import Commit, ConsumerOptions, RebalanceCallback, Start
from tidewheel.delayed import DelayedMessages
from tidewheel.errors import ClientClosed, ConfigurationError, NotAuthorized
from tidewheel.interceptors import ConsumerInterceptor, ProducerInterceptor
from tidewheel.leaderless import Reasons, raise_if_stalled
from tidewheel.message import Receipt
from tidewheel.nacks import Nacker
from tidewheel.partitioner import Partitioner
from tidewheel.producer import Topic
from tidewheel.retry_policy import RetryPolicy
from tidewheel.sender import Sender
from tidewheel.serialization import Deserializer, Serializer
from tidewheel.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from tidewheel.subscriptions import HEADERS_PROPERTY, wanted_by
from tidewheel.transport.librdkafka import LibrdkafkaTransport
from tidewheel.transport.librdkafka.connection import logger
from tidewheel.transport.port import Clock, Transport

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 30.0
"""How long closing waits for outstanding messages."""
LEAVE_TIMEOUT_S: Final = 5.0
"""How long closing waits at least for consumers to commit and to leave their groups."""
CLOSING_STEPS_MAX: Final = 10
"""More than closing a consumer has."""


class Client:
    """A connection to one Tidewheel cell, or to any Kafka brokers.

    Args:
        bootstrap: `host:port,host:port` or `tidewheel://user:password@host:port,…?ca=…` (see
            `tidewheel.access`); None takes TIDEWHEEL_URL, else a profile, else 127.0.0.1:9092.
        settings: client id, time-outs.
        producer: how `Topic`s of this client send.
        consumer: defaults of `subscribe`.
        producer_interceptors, consumer_interceptors: run in this order.
        transport: what carries the messages; tests pass a memory broker's.

    Use it as `async with Client(...) as client`. Opening waits for a first broker and raises
    BrokerUnreachable; closing flushes what was sent and closes the consumers.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        settings: ClientSettings | None = None,
        producer: ProducerSettings | None = None,
        consumer: ConsumerSettings | None = None,
        producer_interceptors: Sequence[ProducerInterceptor] = (),
        consumer_interceptors: Sequence[ConsumerInterceptor] = (),
        transport: Transport | None = None,
    ) -> None:
        access = access_from_env() if bootstrap is None else parse_access(bootstrap)
        # Without user and password.
        self.bootstrap = access.bootstrap
        self.settings = settings or ClientSettings()
        self._producer_settings = producer or ProducerSettings()
        self._consumer_settings = consumer or ConsumerSettings()
        self._producer_interceptors = tuple(producer_interceptors)
        self._consumer_interceptors = tuple(consumer_interceptors)
        self._transport = transport or LibrdkafkaTransport(access, self.settings)
        self._sender: Sender | None = None
        # Where the client's messages wait for fewer replicas than nacks do, a sender for these.
        self._nack_sender: asyncio.Task[Sender] | None = None
        self._commands: Commands | None = None
        self._consumers: set[Consumer] = set()
        self._state = "new"

    @classmethod
    def from_env(cls, **settings: Any) -> Self:
        """A client for TIDEWHEEL_URL or a profile; keyword arguments as for the constructor."""
        return cls(None, **settings)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception nobody should wait half a minute for messages nobody can take.
        await self.close(CLOSE_TIMEOUT_S if exception_type is None else 1.0)

    async def open(self) -> None:
        """Find a first broker. Raises BrokerUnreachable."""
        if self._state == "closed":
            raise ClientClosed("The client was closed")
        if self._state == "new":
            await self._transport.open()
            self._state = "open"
            self._commands = Commands(self._transport.delayed, self._reads_headers)
            self._sender = await self._make_sender(self._producer_settings)

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close consumers, flush, let go. Raises DeliveryTimedOut when messages are left over."""
        if self._state != "open":
            self._state = "closed"
            return
        self._state = "closed"
        try:
            await self._close_consumers(max(timeout_s, LEAVE_TIMEOUT_S))
        finally:
            try:
                if self._sender is not None:
                    await self._sender.close(timeout_s)
                if self._nack_sender is not None:
                    await (await self._nack_sender).close(timeout_s)
            finally:
                await self._transport.close()

    async def _close_consumers(self, timeout_s: float) -> None:
        """Close all of them at once, and give up on those that take longer: a broker that is gone
        must not keep its clients. Raises what the first of the others failed with."""
        closing = {asyncio.ensure_future(one.close()): one for one in self._consumers}
        if not closing:
            return
        done, late = await asyncio.wait(closing, timeout=timeout_s)
        for task in late:
            logger.warning(
                "a consumer (group %s) could not be closed within %.1f s; its group goes on "
                "without it after the session time-out",
                closing[task].options.group,
                timeout_s,
            )
            # Each step of closing is tried even if the one before was given up.
            for _ in range(CLOSING_STEPS_MAX):
                task.cancel()
                await asyncio.wait({task}, timeout=0)
        for task in done:
            task.result()

    @property
    def is_open(self) -> bool:
        """Between `open` and `close`."""
        return self._state == "open"

    @property
    def clock(self) -> Clock:
        """The time as this client sees it."""
        return self._transport.clock

    @property
    def admin(self) -> Admin:
        """Topics, configurations, groups, lag."""
        self._require_open()
        return Admin(self._transport)

    def topic(
        self,
        name: str,
        *,
        partitioner: Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
    ) -> Topic:
        """A handle to send to one topic; nothing is looked up yet."""
        chosen = partitioner if partitioner is not None else self._producer_settings.partitioner
        if not callable(chosen) and chosen not in ("hash", "random"):
            raise ConfigurationError(
                f"partitioner={chosen!r}", hint='Use "hash", "random" or a function'
            )
        return Topic(
            self._ready_sender,
            self._opened_sender,
            name,
            chosen,
            key_serializer,
            value_serializer,
            self._delayed_in,
        )

    def _delayed_in(self, topic: str) -> DelayedMessages:
        self._require_open()
        assert self._commands is not None, "the client is open"
        return DelayedMessages(topic, self._transport, self._commands.cancel)

    async def raise_if_stalled(self, topic: str, sending: Coroutine[Any, Any, T]) -> T:
        """For programs with somebody who waits: what `sending`, e.g. a `send_many`, returns, unless
        nothing is acknowledged because partitions of the topic are on disks that are full or have
        failed. Raises BatchSendFailed then, long before the delivery timeout, and this client sends
        no more."""
        return await raise_if_stalled(self._opened_sender(), self.admin, topic, sending)

    async def send(self, topic: str, value: Any = None, **record: Any) -> Receipt:
        """Short for `client.topic(topic).send(value, …)`."""
        return await self.topic(topic).send(value, **record)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed."""
        await self._opened_sender().flush(timeout_s)

    async def partition_count(self, topic: str) -> int:
        """The number of partitions, remembered for a minute. Raises TopicNotFound."""
        return await self._opened_sender().partition_count(topic)

    def subscribe(
        self,
        *topics: str,
        group: str | None = None,
        filter: str | None = None,
        subscription: str | None = None,
        retry: RetryPolicy | None = None,
        start: Start = "earliest",
        commit: Commit = "after",
        settings: ConsumerSettings | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> Consumer:
        """A consumer of these topics: iterate it.

        Args:
            topics: names; one that starts with "^" is a regular expression (needs a group).
            group: its members share the partitions and remember offsets; without a group all
                partitions are read and nothing is committed.
            filter: only messages whose tags match, for example "checkout or refund"; brokers do
                the filtering. One topic, created with tidewheel.headers=true. A subscription is
                made, or used if it is there: a topic over that topic, which is what messages and
                offsets are of. All its readers read by one filter. A member that asks for another
                one than it has gets SubscriptionConflict, and the others go on; the filter is
                changed for all of them by `admin.edit_subscription`.
            subscription: its name; "TOPIC.GROUP" if not given.
            retry: when and how often messages come back that are nacked (`Consumer.nack`), for
                example `Exponential("5s", cap="2h", attempts=16)`. Goes with a subscription, too,
                which is made with this policy; without filter= it has all messages. A subscription
                that is there keeps its own (`admin.set_retry_policy`).
            start: where to begin without a committed offset: "earliest", "latest", an aware
                datetime, a timedelta back from now, or (without a group) an offset. In a
                partition that keeps no such offset: the nearest that it has.
            commit: "after" processing (at-least-once), "before" (at-most-once), or "manual".
            settings: instead of the client's.
            on_assigned, on_revoked, on_lost: called (and awaited) on the loop with the
                partitions; in on_revoked offsets can still be committed, in on_lost not.
        """
        self._require_open()
        wanted = None
        if filter is not None or retry is not None:
            wanted = wanted_by(topics, group, filter or "", subscription)
            topics = (wanted.name,)
        elif subscription is not None:
            raise ConfigurationError(
                "subscription= names what filter= makes",
                hint="Give filter= or retry=, or subscribe to it by its name, as to any topic",
            )
        options = ConsumerOptions(
            topics,
            group,
            start,
            commit,
            settings or self._consumer_settings,
            key_deserializer,
            value_deserializer,
            self._consumer_interceptors,
            on_assigned,
            on_revoked,
            on_lost,
            wanted,
            retry,
        )
        nacker = self._make_nacker(options.settings)
        consumer = Consumer(self._transport, options, nacker, self._consumers.discard)
        self._consumers.add(consumer)
        return consumer

    def _require_open(self) -> None:
        if self._state != "open":
            raise ClientClosed(
                "The client is not open" if self._state == "new" else "The client is closed"
            )

    async def _make_sender(self, settings: ProducerSettings) -> Sender:
        sender = Sender(settings, self._producer_interceptors, _log_broken_interceptor)
        sender.transport = await self._transport.producer(settings, sender.on_due)
        sender.why = Reasons(Admin(self._transport)).of
        assert self._commands is not None, "the client is open"
        sender.cancel = self._commands.cancel
        return sender

    async def _reads_headers(self, topic: str) -> bool:
        """Whether records with a delay are delayed there. Who may send need not be allowed to read
        properties, and is believed."""
        try:
            entries = await Admin(self._transport).configs(topic)
        except NotAuthorized:
            return True
        return any(e.name == HEADERS_PROPERTY and e.value == "true" for e in entries)

    async def _ready_sender(self) -> Sender:
        return self._opened_sender()

    def _make_nacker(self, settings: ConsumerSettings) -> Nacker:
        who = settings.instance_id or self.settings.client_id
        return Nacker(self._ready_nack_sender, lambda: self._transport.admin, who)

    async def _ready_nack_sender(self) -> Sender:
        """A nack that gets lost would be a message that gets lost."""
        sender = self._opened_sender()
        if self._producer_settings.acks == "all":
            return sender
        if self._nack_sender is None:
            settings = replace(self._producer_settings, acks="all", idempotent=None)
            self._nack_sender = asyncio.create_task(self._make_sender(settings))
        return await asyncio.shield(self._nack_sender)

    def _opened_sender(self) -> Sender:
        self._require_open()
        assert self._sender is not None, "an open client has a sender"
        return self._sender


def _log_broken_interceptor(broken: BaseException) -> None:
    logger.error("A producer interceptor's on_acknowledgement raised", exc_info=broken)
