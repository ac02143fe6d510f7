"""Which replica a consumer should read from (KIP-392).

With `replica.selector.class` set to Kafka's rack-aware selector, the leader sends a consumer that
names its rack to an in-sync follower in that rack: one that has what the consumer wants to read. A
consumer in the leader's own rack, or in a rack without such a follower, stays with the leader.

Deliberately absent: other selectors; a class of somebody else's cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

from data_plane.cell.metadata import BrokerImage
from data_plane.replica.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_PREFERRED_REPLICA = -1


def preferred_read_replica(
    partition: Partition, rack_id: str, fetch_offset: int, brokers: Mapping[int, BrokerImage]
) -> int:
    """The broker that a consumer in `rack_id` should fetch from; -1 for this leader."""
    leadership = partition.leadership
    own = brokers.get(partition.node_id)
    if leadership is None or not rack_id or (own is not None and own.rack == rack_id):
        return NO_PREFERRED_REPLICA
    best_offset, best_id = -1, NO_PREFERRED_REPLICA
    for follower in leadership.in_sync_followers():
        broker = brokers.get(follower.node_id)
        if (
            broker is not None
            and broker.rack == rack_id
            and not broker.is_fenced
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            and follower.log_end_offset > best_offset
        ):
            best_offset, best_id = follower.log_end_offset, follower.node_id
    return best_id
