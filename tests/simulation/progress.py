"""What leaders believe of their followers, and whether it is so.

- What a leader of the present epoch counts for a follower, that follower's disk has: the life of it
  that is registered, as far as its log goes now (or it has lost it since, and is excused).
- What an earlier life has fetched is not taken note of once the leader knows of a later one.

A leader that counts too much commits what is not there. Looked at when a count has changed, so that
a bug shows with its first step and not only when somebody is elected by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_plane.replica.followers import Follower
    from data_plane.replica.partition import Partition
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

# Leader epoch, broker epoch, log end offset.
Count = tuple[int, int, int]


class ProgressWatch:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._seen: dict[tuple[Partition, int], Count] = {}

    def look(self, node: Node) -> None:
        """After a pass of that broker."""
        services = node.services
        assert services is not None
        for partition in services.partitions.leading():
            leadership = partition.leadership
            if leadership is None:
                continue
            epoch = leadership.leader_epoch
            for node_id, follower in leadership.followers.items():
                count = (epoch, follower.broker_epoch, follower.log_end_offset)
                key = (partition, node_id)
                before = self._seen.get(key)
                if before != count:
                    self._seen[key] = count
                    self._changed(node, partition, follower, before)

    def _changed(
        self, node: Node, partition: Partition, follower: Follower, before: Count | None
    ) -> None:
        if follower.log_end_offset < 0:
            return
        services = node.services
        assert services is not None
        registered = services.image.brokers.get(follower.node_id)
        is_new = before is None or before[1] != follower.broker_epoch
        if is_new and registered is not None and follower.broker_epoch < registered.broker_epoch:
            self._world.violate(
                f"{node.name} counts b{follower.node_id} in {partition.topic}-{partition.index} by "
                f"a fetch of broker epoch {follower.broker_epoch}, and knows of "
                f"{registered.broker_epoch}"
            )
        self._check_disk(node, partition, follower)

    def _check_disk(self, node: Node, partition: Partition, follower: Follower) -> None:
        image = self._cell.store.image
        key = (partition.log.topic_id, partition.index)
        topic = image.topics_by_id.get(key[0])
        broker = image.brokers.get(follower.node_id)
        other = self._cell.nodes[follower.node_id]
        if (
            topic is None
            or topic.partitions[key[1]].leader_epoch != partition.leader_epoch
            or broker is None
            or broker.broker_epoch != follower.broker_epoch
            or not other.is_up
        ):
            return
        view = self._cell.history.disks.get(other.name, {}).get(key)
        log = None if view is None else view.log
        history = self._cell.history.partition(key)
        if log is None or other.name in history.dropped or history.is_lossy:
            return
        if log.log_end_offset < follower.log_end_offset:
            self._world.violate(
                f"{node.name} counts {other.name} in {history} up to {follower.log_end_offset}, "
                f"whose log ends at {log.log_end_offset}"
            )
