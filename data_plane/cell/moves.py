"""Replicas that the controller moves by its own decision, a bounded number at a time.

A move is a reassignment like those that administrators ask for; only that of these no broker
receives more than `moves_per_broker_max` at a time, whoever started them. The bytes are throttled
where they are copied, by the followers (follower.replication.throttled.rate).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from data_plane.cell.metadata import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from data_plane.cell.partitions_draft import PartitionsDraft, Place
from data_plane.cell.placement import Placer
from data_plane.cell.reassignment import start, target_of


class Mover:
    """Starts moves within a draft, and keeps count of what they lead to."""

    def __init__(
        self,
        draft: PartitionsDraft,
        image: MetadataImage,
        brokers: Sequence[BrokerImage],
        moves_per_broker_max: int,
        finish: Callable[[Place, PartitionImage], PartitionImage],
    ) -> None:
        """`finish` completes a reassignment if there is nothing to be waited for."""
        self.draft = draft
        self.placer = Placer(brokers, image)
        self.moves_max = moves_per_broker_max
        self._finish = finish
        self._receiving: Counter[int] = Counter()
        for _, partition in draft.items():
            self._receiving.update(partition.adding_replicas)

    def busy(self) -> set[int]:
        """Brokers that receive as much as they may."""
        return {node_id for node_id, count in self._receiving.items() if count >= self.moves_max}

    def move(self, place: Place, target: Sequence[int]) -> None:
        """Start the partition on its way to `target`, or change the way it is on; and with it what
        follows it (source_followers.py)."""
        followers = self.draft.followers_of(place)
        weight = 1 + len(followers)
        self.placer.count(target_of(self.draft.get(place)), -weight)
        self.placer.count(target, weight)
        self._start(place, target)
        for follower in followers:
            # Without a leader there is nothing to copy from.
            if self.draft.get(follower).leader != NO_LEADER:
                self._start(follower, target)

    def _start(self, place: Place, target: Sequence[int]) -> None:
        old = self.draft.get(place)
        new = self._finish(place, start(old, target))
        self._receiving.subtract(old.adding_replicas)
        self._receiving.update(new.adding_replicas)
        self.draft.put(place, new)
