"""Reports to the cell where this broker's logs end, when that decides who leads.

A partition whose ISR and ELR are empty is to be led by the longest log of its last known ELR
(data_plane/cell/election.py). Nobody asks for the ends: each broker sees by the image that one is
wanted, and commits what it has, for all such partitions together.

    registered, logs open ─► leader -1, isr -, elr -, last known ELR 1 2    log_ends 2: (5, 130)
    elected, or registered anew                                             withdrawn by that commit

Invariants
- A report is of a log that cannot change: nobody leads the partition by this broker's own image,
  and the commit is refused if its leader epoch is another one by then.
- It is of the incarnation that is registered: what a former process had says nothing.
- What is wanted follows from the image and the logs, so it is asked for again until the image has
  it, and again when a disk fails meanwhile.

Deliberately absent: who leads then, and how long others are waited for (the controller).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.cell.changes import Change, ChangePartition
from data_plane.cell.metadata import NO_LEADER, LogEnd, MetadataImage, PartitionImage
from data_plane.cell.partition_state import is_recovering, next_epochs, with_log_end
from data_plane.log.damage import NOT_DAMAGED
from data_plane.log.errors import LogError, UnknownPartition

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# Partitions in one commit. More would hold up other commits.
REPORTS_PER_COMMIT_MAX = 1000
# How often a report that stands is compared with the disk, and one that failed is tried again.
LOOK_INTERVAL_MS = 1_000

NO_EPOCH = -1
UNREADABLE = -1


@dataclass(frozen=True, slots=True)
class _Wanted:
    topic_id: UUID
    index: int
    leader_epoch: int
    end: LogEnd


class LogEndReporter:
    """A component of a broker in a cell."""

    def __init__(self, services: Services, incarnation_id: str) -> None:
        self._services = services
        self._incarnation_id = incarnation_id
        self._is_writing = False
        self._is_stopped = False
        self._next_ms: int | None = None
        services.image_listeners.append(self._image_changed)

    def start(self, now_ms: int) -> None:
        self.run(now_ms)

    def next_deadline_ms(self) -> int | None:
        return self._next_ms

    def tick(self, now_ms: int) -> None:
        if self._next_ms is not None and now_ms >= self._next_ms:
            self.run(now_ms)

    def stop(self, now_ms: int) -> None:
        """What is in flight is committed or not; the next registration withdraws it."""
        self._is_stopped = True
        self._next_ms = None

    def run(self, now_ms: int) -> None:
        """Look at the image, and report what it lacks."""
        if self._is_stopped:
            return
        wanted = list(self._wanted(self._services.image))
        self._next_ms = now_ms + LOOK_INTERVAL_MS if wanted else None
        missing = [one for one in wanted if self._decide(self._services.image, one) is not None]
        if missing and not self._is_writing:
            self._write(missing[:REPORTS_PER_COMMIT_MAX])

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.topics_by_id is not new.topics_by_id or old.brokers is not new.brokers:
            # At the end of the pass: several commits may be applied in it.
            self._services.wakes.wake(self)

    def _is_registered(self, image: MetadataImage) -> bool:
        known = image.brokers.get(self._services.node_id)
        return known is not None and known.incarnation_id == self._incarnation_id

    def _wanted(self, image: MetadataImage) -> Iterator[_Wanted]:
        """What this broker has to report by `image`, its own: whether it has done so or not."""
        if not self._is_registered(image):
            return
        node_id = self._services.node_id
        for topic in image.topics_by_id.values():
            for index, partition in enumerate(topic.partitions):
                if partition.leader == NO_LEADER and _is_asked(partition, node_id):
                    end = self._log_end(topic.topic_id, index)
                    yield _Wanted(topic.topic_id, index, partition.leader_epoch, end)

    def _log_end(self, topic_id: UUID, index: int) -> LogEnd:
        logs, node_id = self._services.logs, self._services.node_id
        try:
            log = logs.get(topic_id, index)
        except UnknownPartition:
            # Never had a record, or wiped; unless it may lie on a disk that has failed.
            is_hidden = logs.is_lost(topic_id, index)
            return LogEnd(node_id, NO_EPOCH, UNREADABLE if is_hidden else 0)
        if log.log_directory.failure is not None:
            return LogEnd(node_id, NO_EPOCH, UNREADABLE)
        if log.damaged_from == NOT_DAMAGED:
            return LogEnd(node_id, log.latest_epoch, log.log_end_offset)
        try:
            log.segments  # noqa: B018 -- loads the epochs
        except LogError:
            return LogEnd(node_id, NO_EPOCH, UNREADABLE)
        # What lies behind the damage is no reason to be preferred to a log that is whole.
        return LogEnd(node_id, log.epochs.epoch_at(log.damaged_from - 1), log.damaged_from)

    def _write(self, reports: Sequence[_Wanted]) -> None:
        self._is_writing = True
        log = self._services.log

        def decide(image: MetadataImage) -> Sequence[Change]:
            changes = (self._decide(image, one) for one in reports)
            return [change for change in changes if change is not None]

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            if error is not None:
                log.warning("log_ends_not_reported", partitions=len(reports), error=repr(error))
                return
            log.info("log_ends_reported", partitions=len(reports))
            # There may be more of them than one commit takes.
            self._services.wakes.wake(self)

        self._services.metadata.write(decide, done)

    def _decide(self, image: MetadataImage, one: _Wanted) -> ChangePartition | None:
        topic = image.topics_by_id.get(one.topic_id)
        if topic is None or one.index >= len(topic.partitions) or not self._is_registered(image):
            return None
        old = topic.partitions[one.index]
        if old.leader_epoch != one.leader_epoch or not _is_asked(old, one.end.node_id):
            return None
        new = with_log_end(old, one.end)
        if new is old:
            return None
        return ChangePartition(one.topic_id, one.index, next_epochs(old, new))


def _is_asked(partition: PartitionImage, node_id: int) -> bool:
    return node_id in partition.last_known_elr and is_recovering(partition)
