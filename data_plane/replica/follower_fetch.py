"""A follower's fetch, as the leader takes note of it.

The offset that a follower fetches from is where its log ends, and so an acknowledgement of all
below. It counts once a request has named the partition, the follower's log does not diverge from
the leader's (KIP-595), and the fetch comes from the incarnation of its broker that is registered
(KIP-903). From then on the follower may hold the high watermark back, be counted in sync, and be
proposed for the ISR (leadership.py).
"""

from __future__ import annotations

from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode


class FollowerFetch:
    """Who fetches: a node, and the incarnation of its broker."""

    __slots__ = ("_broker_epoch", "_is_stale", "node_id")

    def __init__(self, node_id: int, broker_epoch: int, registered_epoch: int | None) -> None:
        """`registered_epoch` is the incarnation that the image knows, None without one."""
        self.node_id = node_id
        self._broker_epoch = broker_epoch
        self._is_stale = registered_epoch is not None and registered_epoch > broker_epoch

    def report(
        self,
        partition: Partition,
        fetch_offset: int,
        log_start_offset: int,
        current_leader_epoch: int,
        now_ms: int,
    ) -> ErrorCode:
        """Take note of where the follower's log ends, which goes with the leader's. Or the error
        that the fetch is answered with."""
        if self._is_stale:
            # Kafka's words for a fetch of an incarnation that is no more.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if partition.follower_fetched(
            self.node_id, self._broker_epoch, fetch_offset, log_start_offset, now_ms
        ):
            return ErrorCode.NONE
        # With a leader epoch this broker's image may be the older one, without nobody can say.
        if current_leader_epoch >= 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
