"""A disk that fails in a cell: this broker gives up what it has there, and others lead it.

    directory offline ─► nothing of it is fetched any more
                      ─► commit: out of the ISR and ELR of its partitions, leader of none of them
                         the controller elects somebody else; the rest of the broker goes on

It is the broker itself that knows and says so; to the controller it is as alive as before. When the
process starts again, with the disk back or another one, it has no clean-shutdown mark there, so it
registers as one that may have lost something, and its replicas are filled from their leaders.

Invariants
- A replica that this broker does not know is lost, too, where a disk could not be read at the
  start: it may be there, and an empty log in its place would pass for one that has everything.
- A partition that nobody else could lead has no leader until the disk is back: its clients see by
  their metadata that it cannot be used, and nothing of what is on the disk is given up. The replica
  stays in the last known ELR, and leads again once a process can read the log (election.py).
- What is committed follows from the image and from which directories are offline, so it is asked
  for again until the image has it, and given up silently when it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from data_plane.cell.changes import Change, ChangePartition
from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage
from data_plane.cell.partition_state import next_epochs, with_isr, with_leader

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.cell.metadata import TopicImage

LOOK_INTERVAL_MS = 500
# Partitions in one commit. More would hold up other commits.
PARTITIONS_PER_COMMIT_MAX = 1000


def without_disk(
    partition: PartitionImage, node_id: int, min_insync_replicas: int
) -> PartitionImage:
    """The partition after this replica's disk has failed; the same object when nothing is to be
    done. Epochs are left alone."""
    if node_id not in partition.isr and node_id not in partition.elr:
        return partition
    isr = tuple(other for other in partition.isr if other != node_id)
    new = with_isr(partition, isr, min_insync_replicas, lost=(node_id,))
    return with_leader(new, NO_LEADER) if new.leader == node_id else new


class FailedDirectories:
    """A component of a broker in a cell."""

    def __init__(
        self,
        services: Services,
        min_insync_replicas: Callable[[TopicImage], int],
        on_failed: Callable[[], None],
    ) -> None:
        """`on_failed` is called when one more directory has failed: what is on it is not to be
        fetched any more."""
        self._services = services
        self._min_insync_replicas = min_insync_replicas
        self._on_failed = on_failed
        self._failed_count = 0
        self._next_ms = 0
        self._is_writing = False
        # The image and the number of failed directories at the last look, when all was in order.
        self._settled: tuple[MetadataImage, int] | None = None

    def start(self, now_ms: int) -> None:
        self._next_ms = now_ms

    def next_deadline_ms(self) -> int:
        return self._next_ms

    def tick(self, now_ms: int) -> None:
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_INTERVAL_MS
        failed_count = len(self._services.logs.offline_directories())
        if failed_count != self._failed_count:
            self._failed_count = failed_count
            self._on_failed()
        if not failed_count or self._is_writing:
            return
        image, settled = self._services.image, self._settled
        if settled is not None and settled[0] is image and settled[1] == failed_count:
            return
        if self.decide(image):
            self._write()
        else:
            self._settled = (image, failed_count)

    def stop(self, now_ms: int) -> None:
        """What is in flight is committed or not; the next registration says it anyway."""

    def decide(self, image: MetadataImage) -> Sequence[Change]:
        """What gives up the replicas on failed disks."""
        node_id, is_lost = self._services.node_id, self._services.logs.is_lost
        changes: list[Change] = []
        for topic in image.topics_in_order():
            for index, old in enumerate(topic.partitions):
                if node_id not in old.replicas or not is_lost(topic.topic_id, index):
                    continue
                new = without_disk(old, node_id, self._min_insync_replicas(topic))
                if new is not old:
                    changes.append(ChangePartition(topic.topic_id, index, next_epochs(old, new)))
                    if len(changes) == PARTITIONS_PER_COMMIT_MAX:
                        return changes
        return changes

    def _write(self) -> None:
        self._is_writing = True
        log = self._services.log

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            if error is not None:
                log.error("failed_replicas_not_given_up", error=repr(error))
            else:
                log.warning("failed_replicas_given_up")

        self._services.metadata.write(self.decide, done)
