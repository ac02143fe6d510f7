"""What a leader gives to followers that are not in sync, in bytes per second: Kafka's
`leader.replication.throttled.rate`, for the replicas that topics name in
`leader.replication.throttled.replicas`.

    follower in the ISR, or about to join it     everything, always: producers wait for it
    not in it, its partition is not named        everything
    not in it, named (`*`, or partition:leader)  nothing while the bucket is empty; its fetch is
                                                 held, and looked at again when it has refilled

One bucket (replica/throttle.py) serves all partitions of this broker. A fetch that gets nothing is
an acknowledgement all the same, and learns of high watermarks.

Deliberately absent: the limit where the bytes arrive, which needs no list (replication.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.broker.fetch.fetch_response import PartitionResult
from data_plane.broker.fetch.fetch_sessions import FetchPartition
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage
from data_plane.replica.partition import Partition
from data_plane.replica.throttle import Throttle

RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"
ALL_REPLICAS = "*"
# Parsed lists of topics: they can be as long as a topic has partitions.
LISTS_KEPT_MAX = 100


class LeaderThrottle:
    """One per broker. `held_count` counts fetches that were made to wait, by partition."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._throttle = Throttle(services.config.get_int(RATE), 0)
        self._held: dict[FetchPartition, None] = {}
        self._timer: Timer | None = None
        # By the property's text.
        self._named: dict[str, frozenset[str]] = {}
        self.held_count = 0
        services.image_listeners.append(self._image_changed)

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to ask here."""
        return self._throttle.is_limited

    def holds_back(
        self, node_id: int, target: FetchPartition, partition: Partition, now_ms: int
    ) -> bool:
        """Whether this follower gets none of the partition's records now. Then `target` is dirty
        again as soon as that may be otherwise."""
        if not self._is_throttled(node_id, partition):
            return False
        wait_ms = self._throttle.wait_ms(now_ms)
        if not wait_ms:
            return False
        self.held_count += 1
        self._held[target] = None
        if self._timer is None:
            self._timer = self._services.timers.schedule(now_ms + wait_ms, self._refilled)
        return True

    def count(self, node_id: int, results: Iterable[PartitionResult], now_ms: int) -> None:
        """These are on their way to that follower."""
        size_bytes = sum(
            result.size
            for result in results
            if result.size
            and result.target.partition is not None
            and self._is_throttled(node_id, result.target.partition)
        )
        if size_bytes:
            self._throttle.take(size_bytes, now_ms)

    def _is_throttled(self, node_id: int, partition: Partition) -> bool:
        leadership = partition.leadership
        if leadership is None or leadership.counts(node_id, partition.log.log_end_offset):
            return False
        topic = self._services.image.topics_by_id.get(partition.log.topic_id)
        text = None if topic is None else topic.configs.get(REPLICAS)
        if not text:
            return False
        named = self._named.get(text)
        if named is None:
            if len(self._named) >= LISTS_KEPT_MAX:
                self._named.clear()
            named = self._named[text] = frozenset(item.strip() for item in text.split(","))
        return ALL_REPLICAS in named or f"{partition.index}:{self._services.node_id}" in named

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.configs is not new.configs:
            self._throttle.set_rate(self._services.config.get_int(RATE), now_ms)
        if self._held:
            # The rate, the list, or who is in sync may be another one now.
            self._release()

    def _refilled(self, now_ms: int) -> None:
        self._timer = None
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, {}
        for target in held:
            if target.partition is not None:
                target.partition_changed()
