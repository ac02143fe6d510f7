"""Fetch sessions (KIP-227): what a consumer reads, remembered between its requests.

A consumer names its partitions once; later requests name only what changed, and answers carry only
partitions with something to say. Kafka walks all partitions of a session at every request. Here a
session keeps the set of its *dirty* partitions, the only ones worth looking at:

    clean   nothing to read beyond fetch_offset, and the last answer told all there is to tell
    dirty   anything else: just named, high watermark moved, records were sent or left behind, error

A session watches its partitions for as long as it lives, so a poll over 1,000 quiet partitions
costs nothing per partition, neither when it is parked nor when it is woken. Clients without
sessions get the same from the set that is kept with their connection, except that all partitions
are named in each request and answer.

Invariants
- A partition that is not in `dirty` has no readable record at its fetch offset.
- Sessions are numbered from 1 at random, epochs from 1 to 2^31-1 and round to 1 again.
- The cache holds at most max.incremental.fetch.session.cache.slots sessions. When it is full a new
  session takes the slot of one unused for two minutes, or else of the smallest one older than that
  and smaller than itself, as in Kafka; or else one of a tenant that has more sessions than its own
  would have; or else it gets no session.
- A session is its tenant's and its principal's; nobody else finds it.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from data_plane.broker.fetch.projected_reads import Scan
from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.broker.request.authorizer import Policy
from data_plane.broker.request.budget import Budget, Share, TooManyNamespaces
from data_plane.broker.request.namespaces import DEFAULT_NAMESPACE
from data_plane.broker.request.principal import ANONYMOUS, Principal
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import (
    FetchPartitionResult,
    FetchPartitionView,
    FetchTopicView,
    ForgottenTopicView,
)

# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
EVICTION_AGE_MS = 120_000
EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = 2**31 - 1
NO_SESSION_ID = 0

# What a fetch says before version 18 (KIP-1166).
HIGH_WATERMARK_NOT_SAID = 2**63 - 1

# A topic's name and id, one of which is empty.
TopicKey = tuple[str, bytes]


def next_epoch(epoch: int) -> int:
    """The epoch that follows: 1 after 0, 1 again after 2^31-1, and -1 for ever after -1."""
    if epoch < 0:
        return EPOCH_FINAL
    return 1 if epoch == EPOCH_MAX else epoch + 1


NOTHING_SAID = FetchPartitionResult(-1, 0, -1)


class ParkedPoll(Protocol):
    """A poll that waits for its partitions to change."""

    def wake(self) -> None:
        """Something has changed: look once more at the end of the pass."""

    def finish_early(self) -> None:
        """Answer with what there is."""


class FetchPartition:
    """One partition of a poll or session: what the client asked, and what it was told last."""

    __slots__ = (
        "generation",
        "index",
        "is_outdated",
        "is_reporting",
        "owner",
        "partition",
        "projected",
        "quiet_fields",
        "quiet_state",
        "scan",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
        "wanted",
    )

    def __init__(
        self, owner: FetchSet, topic: str, topic_id: bytes, wanted: FetchPartitionView
    ) -> None:
        self.owner = owner
        self.topic = topic
        self.topic_id = topic_id
        self.index = wanted.partition
        self.wanted = wanted
        self.generation = 0
        # A follower has named it, and its leader has not taken note of that yet.
        self.is_reporting = False
        self.partition: Partition | None = None
        # Through what it is read, and how far it is scanned, where that is not as it is.
        self.projected: ProjectedPartition | None = None
        self.scan: Scan | None = None
        # What is read has to be looked up again.
        self.is_outdated = False
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        # Its part of an answer without records, and what this part is true for.
        self.quiet_state: tuple[int, int, int, bool] | None = None
        self.quiet_fields = NOTHING_SAID

    def partition_changed(self) -> None:
        """Called by the partition that this watches."""
        owner = self.owner
        owner.dirty[self] = None
        if owner.parked is not None:
            owner.parked.wake()

    def reader_changed(self) -> None:
        """As `partition_changed`, and what is read is another thing."""
        self.is_outdated = True
        self.partition_changed()

    def high_watermark_changed(self) -> None:
        """As `partition_changed`, for a follower's fetch: to be told with the next answer, and
        nothing to answer for."""
        self.owner.dirty[self] = None

    def report_again(self) -> None:
        """A follower's request names what has changed; the rest stands where it stood, which its
        leader has to be told once more."""
        self.owner.unreported[self] = None

    def watch(self, partition: Partition) -> None:
        self.partition = partition
        if self.projected is not None:
            self.projected.watchers[self] = None
        if self.owner.is_follower:
            partition.log_end_watchers[self] = None
        else:
            partition.watchers[self] = None

    def unwatch(self) -> None:
        if self.partition is not None:
            if self.owner.is_follower:
                self.partition.log_end_watchers.pop(self, None)
            else:
                self.partition.watchers.pop(self, None)
            self.partition = None
        if self.projected is not None:
            self.projected.watchers.pop(self, None)
            self.projected = self.scan = None


class FetchSet:
    """The partitions of one session, or of the polls of a connection that uses no sessions.

    Clients like librdkafka name all their partitions in every poll. The set of a connection's last
    poll is kept, so that only partitions whose fields differ are looked at the next time."""

    __slots__ = (
        "counted",
        "created_ms",
        "dirty",
        "epoch",
        "generation",
        "has_changed",
        "is_being_read",
        "is_follower",
        "is_kept",
        "isolation_level",
        "kept_share",
        "last_used_ms",
        "on_connection_closed",
        "parked",
        "partitions_count",
        "policy",
        "principal",
        "session_id",
        "share",
        "tenant",
        "topics",
        "unreported",
        "uses_topic_ids",
    )

    def __init__(
        self, tenant: str, uses_topic_ids: bool, now_ms: int, *, is_follower: bool = False
    ) -> None:
        # Whose topics are named in it.
        self.tenant = tenant
        self.session_id = NO_SESSION_ID
        # Of a session: its namespace's share of all, and who goes on with it.
        self.share: Share | None = None
        self.principal: Principal | None = None
        self.is_follower = is_follower
        self.epoch = EPOCH_FINAL
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.topics: dict[TopicKey, dict[int, FetchPartition]] = {}
        self.partitions_count = 0
        # There are others than when it was looked at whether it may be kept.
        self.has_changed = True
        # For how much it counts among all that is remembered, and in whose share.
        self.counted = 0
        self.kept_share: Share | None = None
        self.dirty: dict[FetchPartition, None] = {}
        # What its partitions were held against last, where not everybody may do everything.
        self.policy: Policy | None = None
        self.parked: ParkedPoll | None = None
        self.generation = 0
        self.isolation_level = -1
        # Whether it outlives its poll: a session's, or a connection's last one.
        self.is_kept = False
        # What a connection's set has had itself called for when that ends.
        self.on_connection_closed: Callable[[], None] | None = None
        # Its poll is to be answered, and waits for records from the disk.
        self.is_being_read = False
        # Of a follower: where it stands is to be reported with its next request, named or not.
        self.unreported: dict[FetchPartition, None] = {}

    def partitions(self) -> Iterator[FetchPartition]:
        """All of them, topic by topic."""
        for group in self.topics.values():
            yield from group.values()

    def name(self, topic: FetchTopicView) -> int:
        """Take over what a request says of a topic's partitions. New and changed ones are dirty
        then; those whose fields are what they were are left alone. How many there are that this
        generation had not named yet."""
        if not topic.partitions:
            return 0
        key = (topic.name, topic.topic_id)
        group = self.topics.get(key)
        if group is None:
            group = self.topics[key] = {}
        generation = self.generation
        named_count = 0
        dirty = self.dirty
        for wanted in topic.partitions:
            target = group.get(wanted.partition)
            if target is None:
                target = FetchPartition(self, *key, wanted)
                group[wanted.partition] = target
                self.partitions_count += 1
                self.has_changed = True
                dirty[target] = None
            elif target.wanted != wanted:
                target.wanted = wanted
                dirty[target] = None
            if target.generation != generation:
                target.generation = generation
                named_count += 1
        return named_count

    def name_all(self, topics: Sequence[FetchTopicView]) -> None:
        """As `name`, for a request that names everything: what it does not name is forgotten."""
        self.generation += 1
        named_count = 0
        for topic in topics:
            named_count += self.name(topic)
        if named_count != self.partitions_count:
            self.forget_unnamed(list(self.partitions()))

    def name_changes(self, topics: Sequence[FetchTopicView]) -> None:
        """As `name`, for a request that names what has changed."""
        for topic in topics:
            self.name(topic)

    def forget_all(self, forgotten: Sequence[ForgottenTopicView]) -> None:
        for gone in forgotten:
            for index in gone.partitions:
                self.forget(gone.name, gone.topic_id, index)

    def forget_unnamed(self, targets: Sequence[FetchPartition]) -> None:
        """Forget those that this generation has not named."""
        for target in targets:
            if target.generation != self.generation:
                self.forget(target.topic, target.topic_id, target.index)

    def report(self, topics: Sequence[FetchTopicView]) -> None:
        """A follower has named `topics`: where it fetches from, there its logs end. What it does
        not name in its session has not changed since it did."""
        for target in self.unreported:
            target.is_reporting = True
            self.dirty[target] = None
        self.unreported.clear()
        for topic in topics:
            if not topic.partitions:
                continue
            group = self.topics[(topic.name, topic.topic_id)]
            for wanted in topic.partitions:
                target = group[wanted.partition]
                target.is_reporting = True
                self.dirty[target] = None
                # It says what it has been told; an answer that it could not take was in vain.
                if wanted.high_watermark != HIGH_WATERMARK_NOT_SAID:
                    target.sent_high_watermark = wanted.high_watermark
                target.sent_log_start_offset = wanted.log_start_offset

    def forget(self, topic: str, topic_id: bytes, index: int) -> None:
        key = (topic, topic_id)
        group = self.topics.get(key)
        target = None if group is None else group.pop(index, None)
        if group is None or target is None:
            return
        if not group:
            del self.topics[key]
        self.partitions_count -= 1
        self.has_changed = True
        self.dirty.pop(target, None)
        self.unreported.pop(target, None)
        target.unwatch()

    def use_isolation_level(self, isolation_level: int) -> None:
        """Another one than before. Where reading ends depends on it, so everything is dirty."""
        self.isolation_level = isolation_level
        for target in self.partitions():
            self.dirty[target] = None

    def close(self) -> None:
        """Stop watching. The set must not be used afterwards."""
        self.let_go(self.partitions_count)

    def let_go(self, count_max: int) -> int:
        """As `close`, of so many partitions; how many it has been."""
        self.parked = None
        topics = self.topics
        room = count_max
        while topics and room > 0:
            key, group = topics.popitem()
            while group and room > 0:
                _, target = group.popitem()
                target.unwatch()
                # The last that knows a partition frees it: that, too, takes time.
                self.dirty.pop(target, None)
                self.unreported.pop(target, None)
                room -= 1
            if group:
                topics[key] = group
        gone_count = count_max - room
        self.partitions_count -= gone_count
        if self.kept_share is not None:
            given_back = min(gone_count, self.counted) if self.partitions_count else self.counted
            self.counted -= given_back
            self.kept_share.give_back(given_back)
        return gone_count


class FetchSessionCache:
    """All sessions of the broker, least recently used first."""

    def __init__(
        self,
        slots_max: int,
        source: random.Random,
        close: Callable[[FetchSet], None] = FetchSet.close,
    ) -> None:
        """`close` is what becomes of a session that is over."""
        self.slots = Budget(slots_max)
        self._random = source
        self._close = close
        self._sessions: OrderedDict[int, FetchSet] = OrderedDict()
        self.evictions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        now_ms: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        principal: Principal = ANONYMOUS,
        is_follower: bool = False,
    ) -> FetchSet | ErrorCode:
        """The session that an incremental request goes on with, advanced to its next epoch."""
        session = self._of(namespace, principal, session_id)
        if session is None or session.is_follower != is_follower:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def _of(self, namespace: str, principal: Principal, session_id: int) -> FetchSet | None:
        session = self._sessions.get(session_id)
        if session is None or session.share is None or session.share.namespace != namespace:
            return None
        return session if session.principal == principal else None

    def keep(
        self,
        fetch_set: FetchSet,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
        principal: Principal = ANONYMOUS,
    ) -> bool:
        """Make a full poll a session, when there is or can be made a slot for it. A namespace that
        has as many slots as it may have makes room among its own sessions."""
        try:
            share = self.slots.of(namespace)
        except TooManyNamespaces:
            return False
        if share.left() <= 0 and not self._evict(fetch_set, now_ms, share):
            return False
        share.add(1)
        fetch_set.share, fetch_set.principal = share, principal
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._random.randint(1, 2**31 - 1)
        fetch_set.session_id = session_id
        fetch_set.epoch = next_epoch(EPOCH_INITIAL)
        fetch_set.is_kept = True
        self._sessions[session_id] = fetch_set
        return True

    def end(self, session_id: int, namespace: str, principal: Principal = ANONYMOUS) -> None:
        """As `remove`, because a client says so."""
        if self._of(namespace, principal, session_id) is not None:
            self.remove(session_id)

    def remove(self, session_id: int) -> None:
        """End a session. Its parked poll has nothing to wait for any more; a later request of the
        same connection would wait for its answer."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            if session.share is not None:
                session.share.give_back(1)
                session.share = None
            if session.parked is not None:
                session.parked.finish_early()
            session.is_kept = False
            self._close(session)

    def _evict(self, newcomer: FetchSet, now_ms: int, share: Share) -> bool:
        if self.slots.max == 0:
            return False
        is_own_affair = share.is_full
        sessions = [
            session
            for session in self._sessions.values()
            if (newcomer.is_follower or not session.is_follower)
            and (session.share is share or not is_own_affair)
        ]
        if sessions and now_ms - sessions[0].last_used_ms > EVICTION_AGE_MS:
            victim = sessions[0]
        else:
            evictable = [
                session
                for session in sessions
                if now_ms - session.created_ms > EVICTION_AGE_MS
                and (
                    session.partitions_count < newcomer.partitions_count
                    or (newcomer.is_follower and not session.is_follower)
                )
            ]
            if evictable:
                victim = min(evictable, key=lambda session: session.partitions_count)
            else:
                surplus = _of_whoever_has_more(sessions, share)
                if surplus is None:
                    return False
                victim = surplus
        self.evictions_count += 1
        self.remove(victim.session_id)
        return True


def _of_whoever_has_more(sessions: Sequence[FetchSet], share: Share) -> FetchSet | None:
    """The least recently used one, of `sessions` in that order, of the namespace that has most of
    them; None where it has no more than the newcomer's would have then."""
    shares = [session.share for session in sessions if session.share is not None]
    greediest = max(shares, key=lambda one: one.used, default=share)
    if greediest.used <= share.used + 1:
        return None
    return next(session for session in sessions if session.share is greediest)
