"""What one Fetch request may read of a partition: how far, of whose replica, and what it reports.

- A consumer reads committed records: up to the high watermark, or with read_committed to the last
  stable offset. From version 11 on it may read at a follower, up to that one's high watermark
  (KIP-392); its leader may send it to a follower in its rack.
- A follower reads up to the log end, at the leader alone. Its fetch offset is the end of its log
  and so an acknowledgement; it is taken note of once a request has named the partition, and only
  when the follower's log has not diverged from the leader's (KIP-595) and the fetch comes from the
  incarnation that is registered (KIP-903).

Deliberately absent: sessions, parking, records (fetch_poll.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from data_plane.broker.api import RequestContext
from data_plane.broker.fetch_response import PartitionResult
from data_plane.broker.fetch_sessions import FetchPartition
from data_plane.broker.leader_throttle import LeaderThrottle
from data_plane.broker.namespaces import Topics
from data_plane.broker.partition_errors import ANY_LEADER_EPOCH
from data_plane.broker.replica_selector import RACK_AWARE, preferred_read_replica
from data_plane.broker.services import Services
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView

READ_COMMITTED = 1
# The first version whose consumers may read at followers.
FOLLOWER_READS_VERSION = 11


class FetchRights:
    """Of one request, or of all those of consumers that ask alike.

    - `is_follower`: it comes from another broker's replica fetcher.
    - `rack_id`: where the consumer is, "" when that does not matter.
    - `throttle`: what limits a follower that is not in sync; None when nothing does."""

    __slots__ = (
        "_broker_epoch",
        "_is_stale",
        "_node_id",
        "_services",
        "_topics",
        "is_follower",
        "is_read_committed",
        "rack_id",
        "reads_at_followers",
        "throttle",
    )

    def __init__(
        self,
        services: Services,
        *,
        is_read_committed: bool = False,
        reads_at_followers: bool = False,
        rack_id: str = "",
        follower: tuple[int, int] | None = None,
        throttle: LeaderThrottle | None = None,
        topics: Topics | None = None,
    ) -> None:
        """`follower` is its node id and broker epoch; `topics` are those that may be read, None for
        all."""
        self._topics = topics
        self._services = services
        self.is_read_committed = is_read_committed
        self.reads_at_followers = reads_at_followers
        self.rack_id = rack_id
        self.is_follower = follower is not None
        self.throttle = throttle
        self._node_id, self._broker_epoch = follower or (-1, -1)
        registered = services.image.brokers.get(self._node_id)
        self._is_stale = registered is not None and registered.broker_epoch > self._broker_epoch

    def may_read(self, partition: Partition) -> bool:
        """Whether this replica is one to read at."""
        return partition.resigned is ErrorCode.NONE or (
            self.reads_at_followers and partition.is_follower
        )

    def find(self, target: FetchPartition, uses_topic_ids: bool) -> Partition | None:
        """The replica to read at, or None; `error` then says why."""
        partitions = self._services.partitions
        if uses_topic_ids and self._is_foreign(target):
            return None
        if uses_topic_ids:
            partition = partitions.get(target.topic_id, target.index)
        else:
            partition = partitions.get_by_name(target.topic, target.index)
        if partition is None and self.reads_at_followers:
            if uses_topic_ids:
                partition = partitions.replica(target.topic_id, target.index)
            else:
                partition = partitions.replica_by_name(target.topic, target.index)
        return partition if partition is not None and self.may_read(partition) else None

    def error(self, target: FetchPartition, uses_topic_ids: bool) -> ErrorCode:
        """Why `find` finds none."""
        partitions = self._services.partitions
        # In Fetch every negative epoch says nothing, as in Kafka.
        leader_epoch = max(ANY_LEADER_EPOCH, target.wanted.current_leader_epoch)
        if uses_topic_ids and self._is_foreign(target):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if uses_topic_ids:
            return partitions.error(target.topic_id, target.index, leader_epoch)
        return partitions.error_by_name(target.topic, target.index, leader_epoch)

    def _is_foreign(self, target: FetchPartition) -> bool:
        """Whether the topic is of another namespace, which is as good as none."""
        topics = self._topics
        return topics is not None and topics.by_id(UUID(bytes=target.topic_id)) is None

    def preferred_replica(self, target: FetchPartition, partition: Partition) -> int:
        """The broker where the consumer should read instead; -1 for none."""
        brokers = self._services.image.brokers
        return preferred_read_replica(partition, self.rack_id, target.wanted.fetch_offset, brokers)

    def is_held_back(self, target: FetchPartition, partition: Partition, now_ms: int) -> bool:
        """Whether the follower that asks gets no records of this partition now."""
        throttle = self.throttle
        return throttle is not None and throttle.holds_back(
            self._node_id, target, partition, now_ms
        )

    def count_sent(self, results: Iterable[PartitionResult], now_ms: int) -> None:
        """These go to the follower that asks."""
        if self.throttle is not None:
            self.throttle.count(self._node_id, results, now_ms)

    def report(self, target: FetchPartition, partition: Partition, now_ms: int) -> ErrorCode:
        """A follower has named `target`, and its log goes with the leader's: take note of it."""
        wanted = target.wanted
        if self._is_stale:
            # Kafka's words for a fetch of an incarnation that is no more.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_replica = partition.follower_fetched(
            self._node_id,
            self._broker_epoch,
            wanted.fetch_offset,
            wanted.log_start_offset,
            now_ms,
        )
        if is_replica:
            target.is_reporting = False
            return ErrorCode.NONE
        # With a leader epoch this broker's image may be the older one, without nobody can say.
        if wanted.current_leader_epoch >= 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


class RightsOfRequests:
    """Gives each request its rights. Those of plain consumers are made once."""

    def __init__(self, services: Services, throttle: LeaderThrottle) -> None:
        self._services = services
        self._throttle = throttle
        self._of_consumers = {
            (is_read_committed, reads_at_followers): FetchRights(
                services,
                is_read_committed=bool(is_read_committed),
                reads_at_followers=reads_at_followers,
            )
            for is_read_committed in (0, READ_COMMITTED)
            for reads_at_followers in (False, True)
        }

    def of(self, context: RequestContext, view: FetchRequestView) -> FetchRights:
        """The rights of one request."""
        services = self._services
        if view.replica_id >= 0:
            return FetchRights(
                services,
                follower=(view.replica_id, view.replica_epoch),
                throttle=self._throttle if self._throttle.is_limited else None,
            )
        topics = None if context.names.is_identity else context.topics
        is_read_committed = view.isolation_level == READ_COMMITTED
        if view.rack_id and services.config.get_str("replica.selector.class") == RACK_AWARE:
            return FetchRights(
                services,
                is_read_committed=is_read_committed,
                reads_at_followers=True,
                rack_id=view.rack_id,
                topics=topics,
            )
        reads_at_followers = context.api_version >= FOLLOWER_READS_VERSION
        if topics is not None:
            return FetchRights(
                services,
                is_read_committed=is_read_committed,
                reads_at_followers=reads_at_followers,
                topics=topics,
            )
        return self._of_consumers[(is_read_committed, reads_at_followers)]
