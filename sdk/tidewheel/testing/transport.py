"""The memory broker's `Transport`: producers, consumers and the admin over `MemoryBroker`."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidewheel.errors import (
    ClientClosed,
    ConsumerFenced,
    InvalidRequest,
    MessageTooLarge,
    TopicNotFound,
    Unsupported,
)
from tidewheel.message import HeaderValue, Message, TopicPartition
from tidewheel.partitioner import hash_partition
from tidewheel.settings import ProducerSettings
from tidewheel.testing.clock import VirtualClock
from tidewheel.testing.delayed_requests import MemoryDelayed
from tidewheel.testing.memory import MemoryBroker, MemoryGroup, MemoryMember
from tidewheel.testing.reports import MemoryFault, MemoryReport
from tidewheel.testing.topics import MemorySubscription, count_shown, first_at, listed_configs
from tidewheel.transport.port import (
    BrokerInfo,
    ClusterInfo,
    ConfigEntry,
    ConsumerPlan,
    Fault,
    GroupInfo,
    MemberInfo,
    OnReport,
    PartitionInfo,
    RebalanceListener,
    TopicInfo,
)


class MemoryProducer:
    """Stores records at once and reports them soon after."""

    def __init__(
        self, broker: MemoryBroker, settings: ProducerSettings, on_due: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._reports: deque[tuple[OnReport, Fault | None, MemoryReport]] = deque()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_report: OnReport,
        timestamp_ms: int,
        headers: list[tuple[str, HeaderValue]] | None,
    ) -> None:
        """Store one record (see the port)."""
        size = len(value or b"") + len(key or b"")
        if size > self._settings.message_bytes_max:
            raise MessageTooLarge(f'A message of {size} bytes to "{topic}"')
        encoded = tuple((n, v.encode() if isinstance(v, str) else v) for n, v in headers or ())
        message = Message(topic, partition, -1, timestamp_ms, key, value, encoded)
        fault = self._store(message)
        if not self._reports:
            self._loop.call_soon(self._report)
        self._reports.append((on_report, fault, MemoryReport(message)))

    def _store(self, message: Message) -> Fault | None:
        broker = self._broker
        if broker.send_faults:
            return MemoryFault(broker.send_faults.pop(0))
        if message.topic not in broker.topics and broker.auto_create_topics:
            broker.create_topic(message.topic)
        try:
            count = broker.topic(message.topic).partitions_count
            if message.partition < 0:
                by_key = message.key is not None and self._settings.partitioner != "random"
                message.partition = (
                    hash_partition(message.key, count) if by_key else random.randrange(count)
                )
            elif message.partition >= count:
                return MemoryFault("_UNKNOWN_PARTITION")
            broker.append(message)
        except TopicNotFound:
            return MemoryFault("_UNKNOWN_TOPIC")
        except InvalidRequest as refusal:
            return MemoryFault("INVALID_RECORD", refusal.message)
        return None

    def _report(self) -> None:
        while self._reports:
            on_report, fault, message = self._reports.popleft()
            on_report(fault, message)
        self._on_due()

    async def partition_count(self, topic: str) -> int:
        """Raises TopicNotFound."""
        if topic not in self._broker.topics and self._broker.auto_create_topics:
            self._broker.create_topic(topic)
        return self._broker.topic(topic).partitions_count

    async def close(self) -> None:
        """Run what waits."""
        self._report()


class MemoryConsumer:
    """Reads assigned partitions in turn; takes part in its group while it fetches."""

    def __init__(
        self,
        broker: MemoryBroker,
        plan: ConsumerPlan,
        listener: RebalanceListener,
        client_id: str,
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._listener = listener
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._closed = False
        topics = tuple(t for t in plan.topics if not t.startswith("^"))
        if len(topics) < len(plan.topics):
            raise InvalidRequest("The memory broker has no pattern subscriptions")
        self._member = MemoryMember("", client_id, plan.settings.instance_id, topics)
        if plan.group is not None:
            broker.join(plan.group, self._member)

    async def fetch(self, messages_max: int, timeout_s: float) -> list[Message]:
        """Messages as they come (see the port)."""
        deadline_ms = self._broker.clock.now_ms() + round(timeout_s * 1000)
        await asyncio.sleep(0)
        while True:
            if self._closed:
                raise ClientClosed("The consumer is closed")
            await self._rebalance()
            batch = self._take(messages_max)
            left_ms = deadline_ms - self._broker.clock.now_ms()
            if batch or left_ms <= 0:
                return batch
            await self._broker.changed(left_ms / 1000)

    def _take(self, messages_max: int) -> list[Message]:
        batch: list[Message] = []
        for partition in sorted(self._positions):
            if partition in self._paused or partition.topic not in self._broker.topics:
                continue
            topic = self._broker.topic(partition.topic)
            start = topic.start_offset(partition.partition)
            end = topic.end_offset(partition.partition)
            position = self._positions[partition]
            if not start <= position <= end:
                position = start if self._plan.reset == "earliest" else end
            found, next_position = topic.read(
                partition.partition, position, messages_max - len(batch)
            )
            batch.extend(found)
            self._positions[partition] = next_position
        return batch

    async def _rebalance(self) -> None:
        group, member, broker = self._plan.group, self._member, self._broker
        if group is None:
            return
        if member.dropped:
            if member.instance_id is not None:
                raise ConsumerFenced(f'Another consumer is "{member.instance_id}" now')
            lost = sorted(member.owned)
            member.owned.clear()
            self._forget(lost)
            if lost:
                await self._listener.on_lost(lost)
            broker.join(group, member)
        gone = sorted(member.owned - broker.target(group, member))
        if gone:
            await self._listener.on_revoked(gone)
            member.owned.difference_update(gone)
            self._forget(gone)
            broker.wake()
        wanted = broker.target(group, member) - member.owned
        added = sorted(wanted - broker.owned_by_others(group, member))
        if added:
            member.owned.update(added)
            starts = await self._listener.on_assigned(added)
            committed = broker.groups[group].committed
            for partition in added:
                start = starts.get(partition, committed.get(partition))
                self._positions[partition] = self._reset(partition) if start is None else start

    def _reset(self, partition: TopicPartition) -> int:
        topic = self._broker.partition(partition)
        if self._plan.reset == "earliest":
            return topic.start_offset(partition.partition)
        return topic.end_offset(partition.partition)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._paused.discard(partition)

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these."""
        self._positions = dict(positions)

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset(self._positions)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Store the group's offsets."""
        if offsets:
            assert self._plan.group is not None, "the consumer checks"
            self._broker.commit(self._plan.group, self._member, offsets, metadata)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets."""
        known = self._broker.committed(self._plan.group or "")
        return {partition: known.get(partition) for partition in partitions}

    async def committed_metadata(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The same with the texts beside them."""
        known = self._broker.committed(self._plan.group or "")
        group = self._broker.groups.get(self._plan.group or "")
        texts = {} if group is None else group.metadata
        return {p: (known[p], texts.get(p, "")) for p in partitions if p in known}

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these."""
        self._paused.update(partitions)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._paused.difference_update(partitions)
        self._broker.wake()

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from there."""
        if partition not in self._positions:
            raise InvalidRequest(f"{partition} is not assigned to this consumer")
        self._positions[partition] = offset
        self._broker.wake()

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """First offsets at or after the times."""
        broker = self._broker
        return {p: first_at(broker.partition(p), p, time_ms) for p, time_ms in times_ms.items()}

    async def positions(self) -> dict[TopicPartition, int]:
        """Next offsets to be handed out."""
        return dict(self._positions)

    async def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """First and next offset."""
        topic = self._broker.partition(partition)
        return topic.start_offset(partition.partition), topic.end_offset(partition.partition)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Raises TopicNotFound."""
        count = self._broker.topic(topic).partitions_count
        return [TopicPartition(topic, number) for number in range(count)]

    async def close(self) -> None:
        """Leave the group."""
        if self._closed:
            return
        self._closed = True
        if self._plan.group is not None:
            owned = sorted(self._member.owned)
            if owned:
                tell = self._listener
                await (tell.on_lost(owned) if self._member.dropped else tell.on_revoked(owned))
            self._broker.leave(self._plan.group, self._member)


class MemoryAdmin:
    """Administrative requests on a memory broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def cluster(self) -> ClusterInfo:
        """One broker."""
        return ClusterInfo("memory", 0, (BrokerInfo(0, "memory", 1),))

    async def topics(self) -> list[TopicInfo]:
        """All topics; like real brokers it leaves subscriptions out."""
        listed = [
            name
            for name, topic in sorted(self._broker.topics.items())
            if not isinstance(topic, MemorySubscription)
        ]
        return await self.describe_topics(listed)

    async def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Raises TopicNotFound."""
        counts = [(name, self._broker.topic(name).partitions_count) for name in names]
        return [
            TopicInfo(name, tuple(PartitionInfo(i, 0, (0,), (0,)) for i in range(count)))
            for name, count in counts
        ]

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Create one."""
        self._broker.create_topic(name, partitions=abs(partitions), configs=configs)

    async def delete_topic(self, name: str) -> None:
        """Delete one."""
        self._broker.delete_topic(name)

    async def create_partitions(self, name: str, total_count: int) -> None:
        """Grow one."""
        topic = self._broker.log_of(self._broker.topic(name))
        added = total_count - len(topic.logs)
        if added <= 0:
            raise InvalidRequest(f'"{name}" has {len(topic.logs)} partitions already')
        topic.logs.extend([] for _ in range(added))
        topic.start_offsets.extend([0] * added)
        self._broker.wake()

    async def configs(self, name: str) -> list[ConfigEntry]:
        """What was set, and what else the broker goes by."""
        topic, source = self._broker.topic(name), "DYNAMIC_TOPIC_CONFIG"
        return [
            ConfigEntry(key, value, key not in topic.configs, source, False, False)
            for key, value in sorted(listed_configs(topic).items())
        ]

    async def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set or take away."""
        self._broker.alter_configs(name, changes)

    async def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        """The only broker has no properties."""
        return []

    async def alter_broker_configs(self, broker_id: int, changes: Mapping[str, str | None]) -> None:
        """The only broker has no properties."""
        raise Unsupported(f"Broker {broker_id} is in memory: it has no properties to change")

    async def groups(self) -> list[str]:
        """All names."""
        return sorted(self._broker.groups)

    async def describe_group(self, group: str) -> GroupInfo:
        """Raises GroupNotFound."""
        members = self._broker.group(group).members
        return GroupInfo(
            group,
            "Stable" if members else "Empty",
            "cooperative-sticky" if members else "",
            0,
            tuple(
                MemberInfo(
                    m.member_id, m.client_id, "memory", m.instance_id, tuple(sorted(m.owned))
                )
                for m in members
            ),
        )

    async def delete_group(self, group: str) -> None:
        """Raises GroupNotEmpty."""
        self._broker.delete_group(group)

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Committed offsets."""
        return self._broker.committed(group)

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets."""
        found = self._broker.groups.setdefault(group, MemoryGroup())
        found.committed.update(offsets)
        found.metadata.update(dict.fromkeys(offsets, ""))

    async def offsets(
        self, partitions: Iterable[TopicPartition], at: str | int
    ) -> dict[TopicPartition, int]:
        """By name or time."""
        found = {}
        for p in partitions:
            topic = self._broker.partition(p)
            if isinstance(at, int):
                found[p] = first_at(topic, p, at)
            elif at == "earliest":
                found[p] = topic.start_offset(p.partition)
            else:
                found[p] = topic.end_offset(p.partition)
        return found

    async def shown_counts(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """How much subscriptions show."""
        return count_shown((self._broker.partition(p), p, o) for p, o in positions.items())

    async def retry_pauses(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        """In memory they never pause."""
        return {}

    async def record_timestamps(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Timestamps of stored records."""
        found = {}
        for partition, offset in positions.items():
            topic = self._broker.partition(partition)
            position = max(offset, topic.start_offset(partition.partition))
            messages, _ = topic.read(partition.partition, position, 1)
            if messages:
                found[partition] = messages[0].timestamp_ms
        return found

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Forget records."""
        for partition, offset in before.items():
            topic = self._broker.log_of(self._broker.partition(partition))
            start = topic.start_offset(partition.partition)
            if offset > topic.end_offset(partition.partition):
                raise InvalidRequest(f"{offset} is beyond the end of {partition}")
            if offset > start:
                del topic.logs[partition.partition][: offset - start]
                topic.start_offsets[partition.partition] = offset
        return await self.offsets(before, "earliest")


class MemoryTransport:
    """A `Transport` to a memory broker."""

    def __init__(self, broker: MemoryBroker, client_id: str = "memory-client") -> None:
        self._broker = broker
        self._client_id = client_id

    @property
    def clock(self) -> VirtualClock:
        """The broker's clock."""
        return self._broker.clock

    @property
    def admin(self) -> MemoryAdmin:
        """Administrative requests."""
        return MemoryAdmin(self._broker)

    @property
    def delayed(self) -> MemoryDelayed:
        """Delayed messages."""
        return MemoryDelayed(self._broker)

    async def open(self) -> None:
        """There at once."""

    async def producer(
        self, settings: ProducerSettings, on_due: Callable[[], None]
    ) -> MemoryProducer:
        """A producer."""
        return MemoryProducer(self._broker, settings, on_due)

    async def consumer(self, plan: ConsumerPlan, listener: RebalanceListener) -> MemoryConsumer:
        """A consumer."""
        return MemoryConsumer(self._broker, plan, listener, self._client_id)

    async def close(self) -> None:
        """Nothing to let go."""
