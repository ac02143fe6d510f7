"""How long the longest log of a last known ELR has been waited for (election.py).

As soon as enough members have reported, one may be elected; but whoever is alive will report within
moments, and may have a longer log still. So the election waits for those until REPORT_WAIT_MS have
passed in which the partition did not change: each report begins that time anew.

    replicas 1 2 3, min.insync.replicas=2, all lost power

       0  1 reports                    one is not enough, however long it takes
    9000  2 reports                    enough; 3 is dead: 1 or 2 is elected at once
          or 3 is just starting        its report is waited for, until 11000 at the latest

By the clock of the controller that waits; the next one begins anew.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from uuid import UUID

from data_plane.cell.metadata import NO_LEADER, MetadataImage
from data_plane.cell.partition_state import is_recovering

# A broker reports with its next pass and a commit. One that is seen alive and takes longer has a
# disk or a network that is not to be waited for.
REPORT_WAIT_MS = 2_000

# One state of a partition: topic, index, partition epoch.
PartitionState = tuple[UUID, int, int]


class RecoveryWaits:
    """One per controller."""

    def __init__(self) -> None:
        self._since_ms: dict[PartitionState, int] = {}
        self._image: MetadataImage | None = None

    def restart(self) -> None:
        """Know nothing any more."""
        self._since_ms.clear()
        self._image = None

    def overdue(self, image: MetadataImage, now_ms: int) -> AbstractSet[PartitionState]:
        """The states of partitions for which nobody is to be waited for any longer."""
        if image is not self._image:
            self._image = image
            before = self._since_ms
            self._since_ms = {state: before.get(state, now_ms) for state in _recovering(image)}
        return frozenset(
            state
            for state, since_ms in self._since_ms.items()
            if now_ms - since_ms >= REPORT_WAIT_MS
        )


def _recovering(image: MetadataImage) -> list[PartitionState]:
    return [
        (topic.topic_id, index, partition.partition_epoch)
        for topic in image.topics_by_id.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == NO_LEADER and is_recovering(partition)
    ]
