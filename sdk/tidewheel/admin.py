"""Topics, configurations, groups and lag.

`Admin` adds to the transport's requests what is computed from several of them: lag in messages
and seconds, and offset resets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tidewheel.errors import (
    BrokerNotFound,
    GroupNotEmpty,
    GroupNotFound,
    InvalidRequest,
    RetriesUnsupported,
    TopicExists,
    TopicNotFound,
)
from tidewheel.filters import Filter
from tidewheel.headers import epoch_ms
from tidewheel.message import TopicPartition
from tidewheel.retry_policy import (
    BACKOFF_PROPERTY,
    POLICY_PROPERTIES,
    RetryPolicy,
    policy_of,
)
from tidewheel.subscriptions import FILTER_PROPERTY, SOURCE_PROPERTY, Subscription
from tidewheel.transport.port import (
    ClusterInfo,
    ConfigEntry,
    GroupInfo,
    TopicInfo,
    Transport,
)

LAG_READ_TIMEOUT_S: Final = 3.0
"""How long `lag` tries to read the records whose age is the lag in seconds."""

DRAIN_PROPERTY: Final = "broker.drain"
"""The dynamic broker property by which a broker is drained."""

OffsetTarget = Literal["earliest", "latest"] | datetime | timedelta | int


@dataclass(frozen=True, slots=True)
class RetryPause:
    """Retries of a subscription's partition pause since a time (epoch ms), as `nacked` of `passed`
    messages were nacked within seconds. First deliveries go on."""

    partition: TopicPartition
    since_ms: int
    nacked: int
    passed: int

    def __str__(self) -> str:
        return f"{self.nacked} of {self.passed} messages passed within 10 s were nacked"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition.

    `committed` is None when the group never committed there; it then has everything before it.
    `messages` are those of its subscription in a partition of one, and else offsets. `seconds` is
    the age of the oldest message not yet processed, 0 when there is none, and None when that
    message could not be read in time.
    """

    partition: TopicPartition
    committed: int | None
    end: int
    messages: int
    seconds: float | None
    member: str | None


class Admin:
    """Administrative requests of a client (`client.admin`)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._requests = transport.admin

    async def cluster(self) -> ClusterInfo:
        """Cluster id and brokers."""
        return await self._requests.cluster()

    async def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name; the brokers' own ones only if asked for."""
        return [t for t in await self._requests.topics() if internal or not t.internal]

    async def describe_topic(self, name: str) -> TopicInfo:
        """Partitions, leaders, replicas. Raises TopicNotFound."""
        (found,) = await self._requests.describe_topics([name])
        return found

    async def topic_exists(self, name: str) -> bool:
        """Whether there is such a topic."""
        try:
            await self.describe_topic(name)
        except TopicNotFound:
            return False
        return True

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | bool] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic; -1 takes the broker's default.

        `configs` are Kafka's topic properties, e.g. {"retention.ms": 86_400_000}. Raises
        TopicExists and InvalidRequest; with `exist_ok` a topic that exists stays as it is.
        """
        texts = {key: config_text(value) for key, value in (configs or {}).items()}
        try:
            await self._requests.create_topic(name, partitions, replication_factor, texts)
        except TopicExists:
            if not exist_ok:
                raise

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its messages. Raises TopicNotFound."""
        await self._requests.delete_topic(name)

    async def create_partitions(self, name: str, total_count: int) -> None:
        """Grow a topic to `total_count` partitions; keys may land elsewhere from then on."""
        await self._requests.create_partitions(name, total_count)

    async def configs(self, name: str) -> list[ConfigEntry]:
        """All properties of a topic."""
        return await self._requests.configs(name)

    async def alter_configs(
        self, name: str, changes: Mapping[str, str | int | bool | None]
    ) -> None:
        """Set properties of a topic; None takes one back to its default."""
        texts = {
            key: None if value is None else config_text(value) for key, value in changes.items()
        }
        await self._requests.alter_configs(name, texts)

    async def broker_configs(self, broker_id: int) -> list[ConfigEntry]:
        """All properties of a running broker, by name."""
        return await self._requests.broker_configs(broker_id)

    async def set_draining(self, broker_id: int, is_draining: bool = True) -> None:
        """Have the cell move all replicas off a broker, or stop doing so.

        A draining broker gets no new replicas. It returns at once; `topics(internal=True)` shows
        how far it is. Raises BrokerNotFound.
        """
        known = {broker.broker_id for broker in (await self.cluster()).brokers}
        if broker_id not in known:
            listed = ", ".join(map(str, sorted(known)))
            raise BrokerNotFound(f"There is no running broker {broker_id}, only {listed}")
        value = "true" if is_draining else None
        await self._requests.alter_broker_configs(broker_id, {DRAIN_PROPERTY: value})

    async def create_subscription(
        self, name: str, source: str, filter: str = "", *, retry: RetryPolicy | None = None
    ) -> Subscription:
        """Make a topic that shows the messages of `source` whose tags match; "" shows all.

        `source` was created with tidewheel.headers=true. What is nacked comes back by `retry`;
        without one, by the brokers' defaults. Raises TopicExists, InvalidFilter, and
        InvalidRequest with the broker's words.
        """
        Filter(filter)
        configs = {SOURCE_PROPERTY: source, FILTER_PROPERTY: filter}
        if retry is not None:
            configs |= retry.configs()
        await self._requests.create_topic(name, -1, -1, configs)
        return Subscription(name, source, filter)

    async def subscription(self, name: str) -> Subscription:
        """What a subscription reads. Raises TopicNotFound, InvalidRequest for any other topic."""
        values = await self._subscription_configs(name)
        return Subscription(name, values[SOURCE_PROPERTY], values.get(FILTER_PROPERTY, ""))

    async def retry_policy(self, name: str) -> RetryPolicy:
        """When and how often nacked messages of a subscription come back. Raises TopicNotFound,
        InvalidRequest for any other topic, RetriesUnsupported."""
        values = await self._subscription_configs(name)
        if BACKOFF_PROPERTY not in values:
            raise RetriesUnsupported(f'The brokers have no retries for "{name}"')
        return policy_of({key: values[key] for key in POLICY_PROPERTIES if key in values})

    async def retry_pauses(self, name: str) -> list[RetryPause]:
        """Of which partitions of a subscription retries pause, as its handlers fail at nearly
        everything. Raises TopicNotFound, InvalidRequest for any other topic."""
        await self._subscription_configs(name)
        described = await self.describe_topic(name)
        own = [
            TopicPartition(name, one.partition) for one in described.partitions if one.partition % 2
        ]
        found = await self._requests.retry_pauses(own)
        return [RetryPause(place, *found[place]) for place in own if place in found]

    async def set_retry_policy(self, name: str, policy: RetryPolicy) -> None:
        """Another one, for what is nacked from now on. Raises as `retry_policy`."""
        await self.retry_policy(name)
        wanted = policy.configs()
        await self._requests.alter_configs(
            name, {key: wanted.get(key) for key in POLICY_PROPERTIES}
        )

    async def _subscription_configs(self, name: str) -> dict[str, str]:
        try:
            entries = await self._requests.configs(name)
        except TopicNotFound as error:
            raise TopicNotFound(
                f'The subscription "{name}" does not exist',
                hint="List them with `tidewheel subscriptions list`",
            ) from error
        values = {entry.name: entry.value or "" for entry in entries}
        if not values.get(SOURCE_PROPERTY):
            raise InvalidRequest(f'The topic "{name}" is no subscription', hint="Choose another")
        return values

    async def edit_subscription(self, name: str, filter: str) -> Subscription:
        """Another filter, for all who read it, from their next fetch on; offsets stay."""
        Filter(filter)
        known = await self.subscription(name)
        await self._requests.alter_configs(name, {FILTER_PROPERTY: filter})
        return Subscription(name, known.source, filter)

    async def offsets(
        self, topics: str | Iterable[str], at: OffsetTarget = "latest"
    ) -> dict[TopicPartition, int]:
        """Offsets of all partitions of a topic, or of several.

        "earliest" is the first offset kept, "latest" the next one to be written; a time gives
        the first at or after it.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        return await self._requests.offsets(await self._partitions(*names), self._spec(at))

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Forget all messages below the given offsets; returns the new first offsets."""
        return await self._requests.delete_records(before)

    async def groups(self) -> list[str]:
        """Names of all consumer groups."""
        return await self._requests.groups()

    async def describe_group(self, group: str) -> GroupInfo:
        """State, members and who reads what. Raises GroupNotFound."""
        return await self._requests.describe_group(group)

    async def delete_group(self, group: str) -> None:
        """Delete a group and its offsets. Raises GroupNotEmpty, GroupNotFound."""
        await self._requests.delete_group(group)

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group."""
        return await self._requests.group_offsets(group)

    async def lag(
        self, group: str, topics: Iterable[str] = (), *, seconds: bool = True
    ) -> list[PartitionLag]:
        """How far a group is behind, by partition.

        Covers the topics the group committed to or reads now, and `topics`. `seconds=False`
        saves reading one record per late partition. Raises GroupNotFound.
        """
        described = await self._requests.describe_group(group)
        committed = await self._requests.group_offsets(group)
        members = {
            partition: member.client_id or member.member_id
            for member in described.members
            for partition in member.partitions
        }
        names = {*topics, *(p.topic for p in committed), *(p.topic for p in members)}
        partitions = await self._partitions(*await self._existing(names))
        ends = await self._requests.offsets(partitions, "latest")
        begins = await self._requests.offsets(partitions, "earliest")
        next_offsets = {p: max(committed.get(p, 0), begins[p]) for p in partitions}
        late = {p: o for p, o in next_offsets.items() if o < ends[p]}
        messages = {p: ends[p] - o for p, o in late.items()}
        timestamps = {}
        # Of a subscription the broker knows what it shows of all this.
        for p, (count, first_ms) in (await self._requests.shown_counts(late)).items():
            messages[p], timestamps[p] = count, first_ms
        if seconds:
            unread = {p: o for p, o in late.items() if p not in timestamps}
            timestamps |= await self._requests.record_timestamps(unread, LAG_READ_TIMEOUT_S)
        now_ms = self._transport.clock.now_ms()
        return [
            PartitionLag(
                p,
                committed.get(p),
                ends[p],
                messages.get(p, 0),
                _age_s(timestamps.get(p), now_ms) if messages.get(p) else 0.0,
                members.get(p),
            )
            for p in partitions
        ]

    async def reset_offsets(
        self, group: str, topic: str, to: OffsetTarget
    ) -> dict[TopicPartition, int]:
        """Move a group in one topic; it must have no running members (GroupNotEmpty).

        `to` is "earliest", "latest", an aware datetime, a timedelta back from now, or an offset
        (held within what each partition has). Returns the new offsets.
        """
        try:
            described = await self._requests.describe_group(group)
        except GroupNotFound:
            described = None
        if described is not None and described.members:
            raise GroupNotEmpty(f'Group "{group}" has {len(described.members)} running members')
        partitions = await self._partitions(topic)
        if isinstance(to, int):
            begins = await self._requests.offsets(partitions, "earliest")
            ends = await self._requests.offsets(partitions, "latest")
            targets = {p: min(max(to, begins[p]), ends[p]) for p in partitions}
        else:
            targets = await self._requests.offsets(partitions, self._spec(to))
        await self._requests.alter_group_offsets(group, targets)
        return targets

    async def _existing(self, names: set[str]) -> list[str]:
        """Those that are there. A list of all topics leaves subscriptions out."""
        listed = {topic.name for topic in await self._requests.topics()}
        existing = names & listed
        for name in names - listed:
            if await self.topic_exists(name):
                existing.add(name)
        return sorted(existing)

    async def _partitions(self, *names: str) -> list[TopicPartition]:
        found = await self._requests.describe_topics(names)
        return [
            TopicPartition(topic.name, p.partition) for topic in found for p in topic.partitions
        ]

    def _spec(self, at: OffsetTarget) -> str | int:
        if isinstance(at, timedelta):
            return self._transport.clock.now_ms() - round(at / timedelta(milliseconds=1))
        if isinstance(at, datetime):
            return epoch_ms(at, what="The time")
        if isinstance(at, int):
            raise InvalidRequest("An offset is not a time", hint="Give a datetime or timedelta")
        return at


def config_text(value: str | int | bool) -> str:
    """A property value as brokers read it: booleans are `true` and `false`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _age_s(timestamp_ms: int | None, now_ms: int) -> float | None:
    return (
        None if timestamp_ms is None or timestamp_ms < 0 else max(0, now_ms - timestamp_ms) / 1000
    )
