"""What one Fetch request may read of a partition: of whose replica, through what, and how far.

- A consumer reads committed records: up to the high watermark, or with read_committed to the last
  stable offset. From version 11 on it may read at a follower, up to that one's high watermark
  (KIP-392); its leader may send it to a follower in its rack. Where a projection is plugged in for
  the partition that it names, it reads through that (projection.py).
- A follower reads up to the log end, at the leader alone, and the log as it is.

Nothing here changes anything: what a follower's fetch says of its own log is taken note of by the
replica (replica/follower_fetch.py).

Deliberately absent: sessions and records (fetch_sessions.py, fetch_reads.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from data_plane.broker.fetch.fetch_response import PartitionResult
from data_plane.broker.fetch.fetch_sessions import FetchPartition
from data_plane.broker.fetch.leader_throttle import LeaderThrottle
from data_plane.broker.fetch.projection import ProjectedPartition
from data_plane.broker.fetch.replica_selector import RACK_AWARE, preferred_read_replica
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.partition_errors import ANY_LEADER_EPOCH
from data_plane.broker.services import Services
from data_plane.cell.tenants import TENANTS_MAX
from data_plane.replica.follower_fetch import FollowerFetch
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView

READ_COMMITTED = 1
# The first version whose consumers may read at followers.
FOLLOWER_READS_VERSION = 11
# Of so many tenants that ask in all four ways.
RIGHTS_KEPT_MAX = 4 * TENANTS_MAX


class FetchRights:
    """Of one request, or of all those of consumers that ask alike.

    - `tenant`: whose topics are named, and may be read. A follower reads everybody's.
    - `follower`: who asks, where it is another broker's replica fetcher.
    - `is_plain`: reading ends at the high watermark.
    - `rack_id`: where the consumer is, "" when that does not matter.
    - `throttle`: what limits a follower that is not in sync; None when nothing does."""

    __slots__ = (
        "_services",
        "follower",
        "is_follower",
        "is_plain",
        "is_read_committed",
        "rack_id",
        "reads_at_followers",
        "tenant",
        "throttle",
    )

    def __init__(
        self,
        services: Services,
        tenant: str,
        *,
        is_read_committed: bool = False,
        reads_at_followers: bool = False,
        rack_id: str = "",
        follower: FollowerFetch | None = None,
        throttle: LeaderThrottle | None = None,
    ) -> None:
        self._services = services
        self.tenant = tenant
        self.is_read_committed = is_read_committed
        self.reads_at_followers = reads_at_followers
        self.rack_id = rack_id
        self.follower = follower
        self.is_follower = follower is not None
        self.is_plain = follower is None and not is_read_committed
        self.throttle = throttle

    # Of whose replica, through what

    def may_read(self, partition: Partition) -> bool:
        """Whether this replica is one to read at."""
        role = partition.role
        return role.leads or (self.reads_at_followers and role.serves_consumers)

    def projected(self, target: FetchPartition) -> ProjectedPartition | None:
        """Through what the records that `target` names are read; None for the log as it is."""
        if self.is_follower:
            return None
        return self._services.projections.find(
            self.tenant, target.topic, target.topic_id, target.index
        )

    def find(
        self, target: FetchPartition, projected: ProjectedPartition | None, uses_topic_ids: bool
    ) -> Partition | None:
        """The replica to read at, or None; `error` then says why."""
        partitions = self._services.partitions
        # An id may be anybody's, or of a topic that is deleted, and followers fetch everybody's.
        tenant = None if self.is_follower else self.tenant
        if projected is not None:
            source = (projected.source_topic_id, projected.source_index, tenant)
            partition = partitions.get(*source)
        elif uses_topic_ids:
            source = (target.topic_id, target.index, tenant)
            partition = partitions.get(*source)
        else:
            partition = partitions.get_by_name(self.tenant, target.topic, target.index)
        if partition is None and self.reads_at_followers:
            if projected is not None or uses_topic_ids:
                partition = partitions.replica(*source)
            else:
                partition = partitions.replica_by_name(self.tenant, target.topic, target.index)
        if partition is None or not self.may_read(partition):
            return None
        return partition if tenant is None or partition.tenant == tenant else None

    def error(
        self, target: FetchPartition, projected: ProjectedPartition | None, uses_topic_ids: bool
    ) -> ErrorCode:
        """Why `find` finds none."""
        services = self._services
        # In Fetch every negative epoch says nothing, as in Kafka.
        leader_epoch = max(ANY_LEADER_EPOCH, target.wanted.current_leader_epoch)
        if uses_topic_ids and self._is_foreign(target):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if projected is not None:
            return services.projections.source_error(
                projected, leader_epoch, is_by_id=uses_topic_ids
            )
        if uses_topic_ids:
            return services.partitions.error(target.topic_id, target.index, leader_epoch)
        return services.partitions.error_by_name(
            self.tenant, target.topic, target.index, leader_epoch
        )

    def _is_foreign(self, target: FetchPartition) -> bool:
        """Whether the topic is another tenant's, or deleted, which is as good as none."""
        topic = self._services.image.topics_by_id.get(UUID(bytes=target.topic_id))
        if topic is None or self.is_follower:
            return False
        return topic.tenant != self.tenant or topic.deletion is not None

    def preferred_replica(self, target: FetchPartition, partition: Partition) -> int:
        """The broker where the consumer should read instead; -1 for none."""
        brokers = self._services.image.brokers
        return preferred_read_replica(partition, self.rack_id, target.wanted.fetch_offset, brokers)

    # How far

    def readable_by_follower(
        self, target: FetchPartition, partition: Partition, now_ms: int
    ) -> int:
        """The offset up to which there may be records for the follower that asks."""
        follower = self.follower
        assert follower is not None, "consumers read what is committed"
        end_offset = partition.log.log_end_offset
        offset = target.wanted.fetch_offset
        throttle = self.throttle
        if (
            throttle is not None
            and offset < end_offset
            and throttle.holds_back(follower.node_id, target, partition, now_ms)
        ):
            return offset
        return end_offset

    def count_sent(self, results: Iterable[PartitionResult], now_ms: int) -> None:
        """These go to the follower that asks, where it is limited."""
        if self.throttle is not None and self.follower is not None:
            self.throttle.count(self.follower.node_id, results, now_ms)


class RightsOfRequests:
    """Gives each request its rights. Those of plain consumers are made once."""

    def __init__(self, services: Services, throttle: LeaderThrottle) -> None:
        self._services = services
        self._throttle = throttle
        self._of_consumers: dict[tuple[str, bool, bool], FetchRights] = {}

    def of(self, context: RequestContext, view: FetchRequestView) -> FetchRights:
        """The rights of one request."""
        services = self._services
        if view.replica_id >= 0:
            registered = services.image.brokers.get(view.replica_id)
            return FetchRights(
                services,
                context.tenant,
                follower=FollowerFetch(
                    view.replica_id,
                    view.replica_epoch,
                    None if registered is None else registered.broker_epoch,
                ),
                throttle=self._throttle if self._throttle.is_limited else None,
            )
        is_read_committed = view.isolation_level == READ_COMMITTED
        if view.rack_id and services.config.get_str("replica.selector.class") == RACK_AWARE:
            return FetchRights(
                services,
                context.names.tenant,
                is_read_committed=is_read_committed,
                reads_at_followers=True,
                rack_id=view.rack_id,
            )
        reads_at_followers = context.api_version >= FOLLOWER_READS_VERSION
        key = (context.names.tenant, is_read_committed, reads_at_followers)
        rights = self._of_consumers.get(key)
        if rights is None:
            if len(self._of_consumers) >= RIGHTS_KEPT_MAX:
                # Of tenants that are gone, most of them.
                self._of_consumers.clear()
            rights = self._of_consumers[key] = FetchRights(
                services,
                context.names.tenant,
                is_read_committed=is_read_committed,
                reads_at_followers=reads_at_followers,
            )
        return rights
