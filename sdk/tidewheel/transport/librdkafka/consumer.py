"""Consuming through librdkafka: one thread per consumer that fetches and calls librdkafka.

The thread hands whole batches to the event loop and runs no code of the application (see
`worker`). librdkafka calls back about rebalances on it: the listener's coroutine then runs on the
loop, and may commit or seek, before the rebalance goes on.

A fetch that is cancelled loses nothing: its job goes on and the next fetch takes its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import KafkaException

from tidewheel.errors import (
    BrokerUnreachable,
    ClientClosed,
    CommitFailed,
    ConsumerFenced,
    NoLeader,
    TidewheelError,
    TopicNotFound,
    from_kafka,
)
from tidewheel.message import Message, TopicPartition
from tidewheel.settings import ConsumerSettings
from tidewheel.transport.librdkafka.attempts import METADATA_ATTEMPT_S, until_answered
from tidewheel.transport.librdkafka.connection import (
    LOOK_UP_PAUSE_S,
    LOOK_UPS_MAX,
    Connection,
    faults,
    logger,
    translated,
)
from tidewheel.transport.librdkafka.worker import Worker
from tidewheel.transport.port import ConsumerPlan, RebalanceListener

T = TypeVar("T")

POLL_SLICE_S = 0.05
"""How long the thread waits for messages in one go: commits and the like wait for its end."""

NO_GROUP_ID = "tidewheel-no-group"
"""librdkafka insists on a group id; a consumer that only assigns never joins or commits to it."""

FETCH_ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Of all partitions of one broker (librdkafka: 50 MB): it has to come within the request time-out,
also where the network is slow."""

_HARMLESS = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_DESTROY_BROKER"})


def consumer_properties(plan: ConsumerPlan) -> dict[str, Any]:
    """librdkafka properties of a consumer."""
    settings: ConsumerSettings = plan.settings
    properties: dict[str, Any] = {
        "group.id": plan.group or NO_GROUP_ID,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": plan.reset,
        "partition.assignment.strategy": settings.assignment,
        "isolation.level": settings.isolation,
        "session.timeout.ms": settings.session_timeout_ms,
        "heartbeat.interval.ms": settings.heartbeat_interval_ms,
        "max.poll.interval.ms": settings.poll_interval_ms_max,
        "fetch.wait.max.ms": settings.fetch_wait_ms,
        "socket.timeout.ms": max(settings.request_timeout_ms, settings.fetch_wait_ms + 1_000),
        "fetch.max.bytes": max(FETCH_ANSWER_BYTES_MAX, settings.fetch_bytes_max),
        "max.partition.fetch.bytes": settings.fetch_bytes_max,
        "queued.max.messages.kbytes": max(1, settings.prefetch_bytes_max // 1024),
    }
    if plan.group is None:
        # Who reads alone may want to know when everything is read, trailing markers included.
        properties["enable.partition.eof"] = True
    if settings.instance_id is not None:
        properties["group.instance.id"] = settings.instance_id
    return properties


class LibrdkafkaConsumer:
    """A `ConsumerTransport` over one librdkafka consumer."""

    def __init__(
        self, connection: Connection, plan: ConsumerPlan, listener: RebalanceListener
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._cooperative = plan.settings.assignment == "cooperative-sticky"
        self._rebalancing = False
        self._pending: asyncio.Future[list[Message]] | None = None
        self._ahead: list[Message] = []
        self._moved_away: set[TopicPartition] = set()
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._ends_seen: dict[TopicPartition, int] = {}
        self._closed = False
        properties = {
            **connection.properties(consumer_properties(plan)),
            **plan.settings.librdkafka,
        }
        with faults("setting up the consumer"):
            self._consumer = ck.Consumer(properties)
            if plan.group is not None:
                self._consumer.subscribe(
                    list(plan.topics),
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_lost,
                )
        self._worker = Worker(self._loop, "tidewheel-consumer")

    async def fetch(self, messages_max: int, timeout_s: float) -> list[Message]:
        """Messages as they come (see the port)."""
        deadline = self._loop.time() + timeout_s
        while True:
            if self._closed:
                raise ClientClosed("The consumer is closed")
            if self._ahead:
                batch, self._ahead = self._ahead, []
                return batch
            remaining_s = deadline - self._loop.time()
            if self._pending is None:
                slice_s = max(0.0, min(POLL_SLICE_S, remaining_s))
                self._pending = self._worker.submit(self._poll_batch, messages_max, slice_s)
            await asyncio.wait({self._pending}, timeout=max(0.0, remaining_s) + POLL_SLICE_S)
            if self._pending is not None and self._pending.done():
                batch = self._take_pending()
                if batch:
                    return batch
            if self._loop.time() >= deadline:
                return []

    def _take_pending(self) -> list[Message]:
        pending, self._pending = self._pending, None
        assert pending is not None, "the caller looked"
        return pending.result()

    def _poll_batch(self, messages_max: int, slice_s: float) -> list[Message]:
        """On the thread: wait for one message, then take what is there already."""
        self._moved_away.clear()
        try:
            first = self._consumer.poll(slice_s)
            if first is None:
                return []
            raw = [first]
            if messages_max > 1:
                raw += self._consumer.consume(messages_max - 1, 0)
        except KafkaException as raised:
            raise translated(raised, "consuming") from raised
        messages = [
            Message(
                m.topic(),  # type: ignore[arg-type]
                m.partition(),  # type: ignore[arg-type]
                m.offset(),  # type: ignore[arg-type]
                m.timestamp()[1],
                m.key(),
                m.value(),
                m.headers() or (),  # type: ignore[arg-type]
            )
            for m in raw
            if m.error() is None or self._raise_if_serious(m)
        ]
        if self._moved_away and messages and messages[0].topic_partition in self._moved_away:
            # A rebalance ran inside consume(): librdkafka drops what it had collected itself,
            # but the message that poll() gave us before is ours to drop.
            del messages[0]
        return messages

    def _raise_if_serious(self, event: ck.Message) -> bool:
        error = event.error()
        assert error is not None, "only called for error events"
        name = error.name()
        if name == "_PARTITION_EOF":
            place = TopicPartition(event.topic() or "", event.partition() or 0)
            self._ends_seen[place] = event.offset() or 0
        elif name == "_MAX_POLL_EXCEEDED":
            logger.warning(
                "The consumer of group %s asked for no messages for %d ms and was dropped from the "
                "group; it joins again. Process faster, or raise poll_interval_ms_max.",
                self._plan.group,
                self._plan.settings.poll_interval_ms_max,
            )
        elif name == "_FATAL" and "group.instance.id" in error.str():
            # librdkafka wraps the reason of a fatal error into its text.
            raise ConsumerFenced(
                f'Another consumer of group "{self._plan.group}" is '
                f'"{self._plan.settings.instance_id}" now',
                kafka_name="FENCED_INSTANCE_ID",
            )
        elif name == "GROUP_AUTHORIZATION_FAILED" and self._plan.group is None:
            # librdkafka looks for the coordinator of NO_GROUP_ID, for which nobody needs a right.
            logger.debug("Reading without a group: %s", error.str())
        elif name not in _HARMLESS and (error.fatal() or not error.retriable()):
            raise from_kafka(error, f"consuming {', '.join(self._plan.topics)}")
        return False

    # Rebalances: called by librdkafka on the fetching thread, inside poll, consume and close.

    def _ask(self, coroutine: Coroutine[Any, Any, T]) -> T | None:
        self._rebalancing = True
        try:
            return self._worker.ask(coroutine)
        finally:
            self._rebalancing = False

    def _on_assign(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        added = [TopicPartition(p.topic, p.partition) for p in partitions]
        starts: Mapping[TopicPartition, int] | None = None
        try:
            starts = self._ask(self._listener.on_assigned(added))
        finally:
            for partition in partitions:
                start = (starts or {}).get(TopicPartition(partition.topic, partition.partition))
                if start is not None:
                    partition.offset = start
            if self._cooperative:
                self._assignment |= frozenset(added)
                consumer.incremental_assign(partitions)
            else:
                self._assignment = frozenset(added)
                consumer.assign(partitions)

    def _on_revoke(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._drop(partitions, self._listener.on_revoked)

    def _on_lost(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._drop(partitions, self._listener.on_lost)

    def _drop(
        self,
        partitions: list[ck.TopicPartition],
        tell: Callable[[list[TopicPartition]], Coroutine[Any, Any, None]],
    ) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in partitions]
        self._moved_away.update(gone)
        try:
            self._ask(tell(gone))
        finally:
            self._assignment -= frozenset(gone)

    # Everything else: short calls on the thread, between two slices of waiting.

    async def _call(self, what: str, call: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise ClientClosed("The consumer is closed")
        with faults(what):
            return await self._worker.submit(call, *args)

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these."""
        partitions = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in positions.items()]
        await self._call("assigning partitions", self._consumer.assign, partitions)
        self._assignment = frozenset(positions)

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return self._assignment

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit and wait."""
        if not offsets:
            return
        texts = metadata or {}
        wanted = [
            ck.TopicPartition(place.topic, place.partition, offset, texts.get(place, ""))
            for place, offset in offsets.items()
        ]
        group = self._plan.group

        def call() -> list[ck.TopicPartition]:
            return self._consumer.commit(offsets=wanted, asynchronous=False)

        try:
            results = await self._call(f'committing offsets of group "{group}"', call)
        except TidewheelError as error:
            raise CommitFailed(error.message, kafka_name=error.kafka_name) from error
        for result in results:
            if result.error is not None:
                what = f'committing {result.topic}[{result.partition}] of group "{group}"'
                failed = from_kafka(result.error, what)
                raise CommitFailed(failed.message, kafka_name=failed.kafka_name)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where there is none."""
        return {
            TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None
            for p in await self._committed(partitions)
        }

    async def committed_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The group's committed offsets with what was said beside them."""
        return {
            TopicPartition(p.topic, p.partition): (p.offset, p.metadata or "")
            for p in await self._committed(partitions)
            if p.offset >= 0
        }

    async def _committed(self, partitions: Iterable[TopicPartition]) -> list[ck.TopicPartition]:
        asked = [ck.TopicPartition(*tp) for tp in partitions]
        what = f'reading committed offsets of group "{self._plan.group}"'
        answer = await self._call(
            what, self._consumer.committed, asked, self._connection.request_timeout_s
        )
        for partition in answer:
            if partition.error is not None:
                raise from_kafka(partition.error, what)
        return answer

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these for now."""
        wanted = [ck.TopicPartition(*tp) for tp in partitions]
        await self._call("pausing partitions", self._consumer.pause, wanted)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        wanted = [ck.TopicPartition(*tp) for tp in partitions]
        await self._call("resuming partitions", self._consumer.resume, wanted)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from that offset; messages on their way from before are dropped."""
        if self._rebalancing:
            # The job on its way waits for us; it drops what it has of this partition.
            self._moved_away.add(partition)
        elif self._pending is not None:
            # What is on its way for the other partitions must not get lost.
            await asyncio.wait({self._pending})
            self._ahead += self._take_pending()
        self._ahead = [m for m in self._ahead if m.topic_partition != partition]
        target = ck.TopicPartition(partition.topic, partition.partition, offset)
        await self._call(f"seeking {partition} to {offset}", self._consumer.seek, target)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Offsets by time (see the port)."""
        what = "looking up offsets by time"

        async def ask(timeout_s: float, _is_unsure: bool) -> list[ck.TopicPartition]:
            asked = [ck.TopicPartition(tp.topic, tp.partition, ms) for tp, ms in times_ms.items()]
            answer = await self._call(what, self._consumer.offsets_for_times, asked, timeout_s)
            for p in answer:
                if p.error is not None:
                    raise from_kafka(p.error, f"looking up an offset of {p.topic}[{p.partition}]")
                if p.offset < 0 and p.offset != ck.OFFSET_END:
                    # librdkafka calls it an answer when a leader that has gone gave none.
                    raise BrokerUnreachable(
                        f"The leader of {p.topic}[{p.partition}] does not answer"
                    )
            return answer

        found: dict[TopicPartition, int] = {}
        for p in await until_answered(ask, self._connection.request_timeout_s):
            partition = TopicPartition(p.topic, p.partition)
            found[partition] = p.offset if p.offset >= 0 else (await self.watermarks(partition))[1]
        return found

    async def positions(self) -> dict[TopicPartition, int]:
        """Next offsets to be handed out."""
        asked = [ck.TopicPartition(*tp) for tp in self._assignment]
        answer = await self._call("reading positions", self._consumer.position, asked)
        found = {TopicPartition(p.topic, p.partition): p.offset for p in answer if p.offset >= 0}
        for partition, end in self._ends_seen.items():
            found[partition] = max(end, found.get(partition, end))
        return found

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """First and next offset."""
        what = f"reading the offsets of {partition}"
        try:
            return await self._call(
                what,
                self._consumer.get_watermark_offsets,
                ck.TopicPartition(*partition),
                self._connection.request_timeout_s,
            )
        except TopicNotFound:
            # librdkafka calls a partition unknown when it has no leader that it could ask.
            if partition not in await self.partitions(partition.topic):
                raise
            raise NoLeader(f"{what} failed: it has no leader") from None

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""

        async def ask(timeout_s: float, _is_unsure: bool) -> Any:
            what = f'looking up topic "{topic}"'
            return await self._call(what, self._consumer.list_topics, topic, timeout_s)

        for attempt in range(LOOK_UPS_MAX):
            if attempt:
                await asyncio.sleep(LOOK_UP_PAUSE_S)
            metadata = await until_answered(
                ask, self._connection.request_timeout_s, first_attempt_s=METADATA_ATTEMPT_S
            )
            found = metadata.topics.get(topic)
            if found is not None and found.error is None:
                return [TopicPartition(topic, number) for number in sorted(found.partitions)]
        raise TopicNotFound(f'Topic "{topic}" does not exist')

    async def close(self) -> None:
        """Leave the group."""
        if self._closed:
            return
        if self._pending is not None:
            await asyncio.wait({self._pending})
        with faults("closing the consumer"):
            await self._worker.submit(self._consumer.close)
        self._closed = True
        self._worker.stop()
