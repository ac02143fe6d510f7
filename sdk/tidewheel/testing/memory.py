"""A broker in memory: topics, partitions, records, groups, committed offsets.

It keeps what the Kafka protocol promises to clients: offsets without gaps, order per partition,
one reader per partition and group, cooperative rebalancing, fenced commits of members that were
dropped; subscriptions, by the tags of records (topics.py), with retries and dead letters
(retries.py); and delayed messages and commands about them, by its clock (delayed.py). It has no
network, no retention, no compaction, no transactions, and acts on no other `tw-` headers: they are
stored and delivered.

Group rebalances happen as in a real client: each member gives up and takes over partitions while
it fetches, and a partition moves only after its old reader has let it go.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidewheel.client import Client
from tidewheel.errors import (
    CommitFailed,
    ConfigurationError,
    GroupNotEmpty,
    GroupNotFound,
    InvalidRequest,
    TopicExists,
    TopicNotFound,
)
from tidewheel.filters import Filter, InvalidFilter
from tidewheel.message import Message, TopicPartition
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX, policy_of
from tidewheel.subscriptions import FILTER_PROPERTY, HEADERS_PROPERTY, SOURCE_PROPERTY
from tidewheel.testing.clock import VirtualClock
from tidewheel.testing.redrives import Letters, MemoryRedrives, Moved
from tidewheel.testing.topics import AnyTopic, MemorySubscription, MemoryTopic

PARTITIONS_DEFAULT: Final = 1


@dataclass(slots=True, eq=False)
class MemoryMember:
    """One member of a group: what it reads, and whether it was dropped."""

    member_id: str
    client_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    owned: set[TopicPartition] = field(default_factory=set)
    dropped: bool = False


@dataclass(slots=True)
class MemoryGroup:
    """A group: members in the order they joined, and committed offsets."""

    members: list[MemoryMember] = field(default_factory=list)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: dict[TopicPartition, str] = field(default_factory=dict)


class MemoryBroker:
    """All state of the broker, with the methods tests call. One event loop only.

    Args:
        clock: the time for record timestamps and waits; a new VirtualClock by default.
        auto_create_topics: whether sending to an unknown topic creates it with one partition.
    """

    def __init__(
        self, clock: VirtualClock | None = None, *, auto_create_topics: bool = False
    ) -> None:
        self.clock = clock or VirtualClock()
        self.auto_create_topics = auto_create_topics
        self.topics: dict[str, AnyTopic] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.send_faults: list[str] = []
        # For the jitter of retries: the same in each run of a test.
        self._chance = random.Random(0)
        self._waiters: set[asyncio.Future[None]] = set()
        self._members_made = 0
        self._redrives = MemoryRedrives(self)

    def client(self, **arguments: Any) -> Client:
        """A client of this broker; arguments as for `tidewheel.Client`."""
        from tidewheel.testing.transport import MemoryTransport

        return Client("memory:1", transport=MemoryTransport(self), **arguments)

    # What tests arrange and look at.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """With a source and a filter among its properties it is a subscription, whose partitions
        are the source's matter. Raises TopicExists, InvalidRequest."""
        if name in self.topics:
            raise TopicExists(f'Topic "{name}" already exists')
        if not name or len(name) > 249 or not all(c.isalnum() or c in "._-" for c in name):
            raise InvalidRequest(f"The topic name {name!r} is not allowed")
        if partitions < 1:
            raise InvalidRequest(f"A topic cannot have {partitions} partitions")
        properties = dict(configs or {})
        if SOURCE_PROPERTY in properties:
            self.topics[name] = self._subscription(name, properties)
        else:
            logs: list[list[Message]] = [[] for _ in range(partitions)]
            self.topics[name] = MemoryTopic(name, logs, [0] * partitions, properties)
        self.wake()

    def _subscription(self, name: str, configs: dict[str, str]) -> MemorySubscription:
        source = self.topics.get(configs[SOURCE_PROPERTY])
        if not isinstance(source, MemoryTopic):
            raise InvalidRequest(f"{SOURCE_PROPERTY}: there is no topic {configs[SOURCE_PROPERTY]}")
        if source.configs.get(HEADERS_PROPERTY, "").lower() != "true":
            raise InvalidRequest(
                f"{SOURCE_PROPERTY}: topic {source.name} has no tags: it was created without "
                f"{HEADERS_PROPERTY}=true"
            )
        wanted = self._understood(configs.get(FILTER_PROPERTY, ""))
        self._check_policy(configs)
        return MemorySubscription(
            name, source, configs, wanted, self.clock.now_ms, self._send_dead_letter
        )

    @staticmethod
    def _check_policy(configs: Mapping[str, str]) -> None:
        try:
            policy_of(configs)
        except ConfigurationError as error:
            raise InvalidRequest(error.message) from error

    def _send_dead_letter(self, subscription: MemorySubscription, dead: Message) -> None:
        name = subscription.policy.dead_letters or subscription.name + DEAD_LETTERS_SUFFIX
        if name not in self.topics:
            count = subscription.source.partitions_count
            self.create_topic(name, partitions=count, configs={HEADERS_PROPERTY: "true"})
        dead.topic, dead.partition = name, dead.partition % self.topics[name].partitions_count
        self.append(dead)

    @staticmethod
    def _understood(text: str) -> Filter:
        try:
            return Filter(text)
        except InvalidFilter as error:
            raise InvalidRequest(error.message) from error

    def alter_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set properties, or with None take them away. Raises TopicNotFound, InvalidRequest."""
        topic = self.topic(name)
        if {SOURCE_PROPERTY, HEADERS_PROPERTY} & changes.keys():
            raise InvalidRequest(f"{SOURCE_PROPERTY} and {HEADERS_PROPERTY} never change")
        if FILTER_PROPERTY in changes:
            if not isinstance(topic, MemorySubscription):
                raise InvalidRequest(f'"{name}" is no subscription: it has no filter')
            topic.filter = self._understood(changes[FILTER_PROPERTY] or "")
        changed = {**topic.configs, **changes}
        configs = {key: value for key, value in changed.items() if value is not None}
        if isinstance(topic, MemorySubscription):
            self._check_policy(configs)
        topic.configs = configs
        self.wake()

    def delete_topic(self, name: str) -> None:
        """Raises TopicNotFound, InvalidRequest for one that subscriptions read."""
        topic = self.topic(name)
        readers = [
            other.name
            for other in self.topics.values()
            if isinstance(other, MemorySubscription) and other.source is topic
        ]
        if readers:
            raise InvalidRequest(f'Topic "{name}" is read by {", ".join(readers)}: delete these')
        del self.topics[name]
        self.wake()

    def messages(self, topic: str) -> list[Message]:
        """All records of a topic, or what a subscription shows, by partition and offset."""
        found = self.topic(topic)
        return [
            message
            for number in range(found.partitions_count)
            for message in found.read(number, found.start_offset(number), sys.maxsize)[0]
        ]

    def redrive(self, name: str, letters: Letters, *, to: str = "") -> Moved:
        """Put dead letters of a subscription, or of a dead-letter topic, back into the subscription
        that each came from, or into the topic `to`. Raises TopicNotFound, InvalidRequest."""
        return self._redrives.redrive(name, letters, to)

    def purge(self, name: str, letters: Letters) -> Moved:
        """Have dead letters never be redriven. Raises TopicNotFound, InvalidRequest."""
        return self._redrives.purge(name, letters)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """A group's committed offsets."""
        found = self.groups.get(group)
        return dict(found.committed) if found is not None else {}

    def fail_sends(self, kafka_name: str, count: int = 1) -> None:
        """Let the next sends fail with a Kafka error, e.g. "_MSG_TIMED_OUT"."""
        self.send_faults.extend([kafka_name] * count)

    def drop_members(self, group: str) -> None:
        """Expire all sessions of a group: its members lose their partitions and join again."""
        for member in self.group(group).members:
            member.dropped = True
        self.group(group).members.clear()
        self.wake()

    # What transports call.

    def topic(self, name: str) -> AnyTopic:
        """Raises TopicNotFound."""
        found = self.topics.get(name)
        if found is None:
            raise TopicNotFound(f'Topic "{name}" does not exist')
        return found

    def partition(self, partition: TopicPartition) -> AnyTopic:
        """The topic of an existing partition. Raises TopicNotFound."""
        found = self.topic(partition.topic)
        if not 0 <= partition.partition < found.partitions_count:
            raise TopicNotFound(f"{partition} does not exist")
        return found

    def log_of(self, topic: AnyTopic) -> MemoryTopic:
        """One that has records of its own. Raises InvalidRequest for a subscription."""
        if isinstance(topic, MemorySubscription):
            raise InvalidRequest(
                f'Topic "{topic.name}" is a subscription: that is the matter of "'
                f'{topic.source.name}"'
            )
        return topic

    def append(self, record: Message) -> Message:
        """Store a record at the end of its partition; returns it with offset and timestamp. Raises
        TopicNotFound, InvalidRequest for what subscriptions do not take or brokers refuse."""
        found = self.partition(record.topic_partition)
        if isinstance(found, MemorySubscription) and record.partition % 2:
            found.nack(record, self._chance.random())
            self.wake()
            return record
        topic = self.log_of(found)
        record.offset = topic.end_offset(record.partition)
        if record.timestamp_ms <= 0:
            record.timestamp_ms = self.clock.now_ms()
        reads_headers = topic.configs.get(HEADERS_PROPERTY, "").lower() == "true"
        if reads_headers and record.headers:
            try:
                is_hidden = topic.delayed[record.partition].take(record, self.clock.now_ms())
            except InvalidRequest:
                record.offset = -1
                raise
            if is_hidden:
                self._deliver_later(topic, record.partition)
        topic.logs[record.partition].append(record)
        self.wake()
        return record

    def _deliver_later(self, topic: MemoryTopic, partition: int) -> None:
        due_ms = topic.delayed[partition].next_due_ms
        if due_ms is not None:
            self.clock.call_at(due_ms, lambda: self._deliver(topic, partition))

    def _deliver(self, topic: MemoryTopic, partition: int) -> None:
        """What is due by now; the rest later. A topic that was deleted delivers nothing."""
        if self.topics.get(topic.name) is not topic:
            return
        for message in topic.delayed[partition].take_due(self.clock.now_ms()):
            message.offset = topic.end_offset(partition)
            topic.logs[partition].append(message)
        self._deliver_later(topic, partition)
        self.wake()

    def group(self, name: str) -> MemoryGroup:
        """Raises GroupNotFound."""
        found = self.groups.get(name)
        if found is None:
            raise GroupNotFound(f'Group "{name}" does not exist')
        return found

    def join(self, group: str, member: MemoryMember) -> None:
        """Add a member; one with the same instance id is replaced and inherits its place."""
        members = self.groups.setdefault(group, MemoryGroup()).members
        if not member.member_id:
            self._members_made += 1
            member.member_id = f"{member.client_id}-{self._members_made}"
        member.dropped = False
        for index, other in enumerate(members):
            if member.instance_id is not None and other.instance_id == member.instance_id:
                other.dropped = True
                members[index] = member
                break
        else:
            members.append(member)
        self.wake()

    def leave(self, group: str, member: MemoryMember) -> None:
        """Take a member out. A static member keeps its place, as for a restart."""
        members = self.groups[group].members
        if member in members and member.instance_id is None:
            members.remove(member)
        member.owned.clear()
        self.wake()

    def target(self, group: str, member: MemoryMember) -> set[TopicPartition]:
        """The partitions the member shall read: as even as possible, moving the fewest.

        Members keep what they own up to their fair share; what is left goes to who has least.
        """
        members = self.groups[group].members
        partitions = sorted(
            TopicPartition(name, number)
            for name in {t for m in members for t in m.topics if t in self.topics}
            for number in range(self.topics[name].partitions_count)
        )
        shares: dict[int, set[TopicPartition]] = {id(m): set() for m in members}
        ceiling = -(-len(partitions) // max(1, len(members)))
        free = []
        for partition in partitions:
            owner = next((m for m in members if partition in m.owned), None)
            if owner is not None and len(shares[id(owner)]) < ceiling:
                shares[id(owner)].add(partition)
            else:
                free.append(partition)
        for partition in free:
            takers = [m for m in members if partition.topic in m.topics]
            if takers:
                shares[id(min(takers, key=lambda m: len(shares[id(m)])))].add(partition)
        return shares.get(id(member), set())

    def owned_by_others(self, group: str, member: MemoryMember) -> set[TopicPartition]:
        """Partitions that other members have not let go yet."""
        return {p for m in self.groups[group].members if m is not member for p in m.owned}

    def commit(
        self,
        group: str,
        member: MemoryMember,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Raises CommitFailed for a dropped member or partitions that it does not read."""
        if member.dropped:
            raise CommitFailed(f'The member is no longer in group "{group}"')
        strangers = [str(p) for p in offsets if p not in member.owned]
        if strangers:
            raise CommitFailed(f"{', '.join(strangers)} moved to another member")
        self.groups[group].committed.update(offsets)
        self.groups[group].metadata.update({p: (metadata or {}).get(p, "") for p in offsets})

    def delete_group(self, name: str) -> None:
        """Raises GroupNotFound, GroupNotEmpty."""
        if self.group(name).members:
            raise GroupNotEmpty(f'Group "{name}" has running members')
        del self.groups[name]

    def wake(self) -> None:
        """Something changed: let waiting fetches look again."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self, timeout_s: float) -> None:
        """Wait for a change, or until a message is due that was nacked, at most that much of the
        clock's time."""
        due = [t.next_due_ms for t in self.topics.values() if isinstance(t, MemorySubscription)]
        for due_ms in due:
            if due_ms is not None:
                timeout_s = min(timeout_s, max(0, due_ms - self.clock.now_ms()) / 1000)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        timer = asyncio.ensure_future(self.clock.sleep(timeout_s))
        try:
            await asyncio.wait({waiter, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            self._waiters.discard(waiter)
