"""A damaged copy in a cell: it stands back, drops what is damaged, and is filled by its leader.

    damage found ─► noted on disk ─► not fetched any more ─► commit: out of ISR and ELR, leads
    (recovery, scrubber,                                     nothing, in a new leader epoch
     first read)                                               │
    in the ISR again ◄─ fetches on ◄─ off the list ◄─ log cut before the first damaged batch,
                                                      once the leader has shown what it has there

A copy with a bad batch is no copy of what was committed, so it must not be counted as one while it
is repaired; and what is cut off with the bad batch is sound, and lost here until it has come again.
So the log is cut only under a leader, in a state of the cell in which nobody can count on it:

- The list (data_plane/log/damage.py) is synced first: a process that begins in the middle goes on
  here, and fetches nothing before.
- The commit raises the leader epoch, also where the leader stays. A leader that has not heard of it
  may still take this replica for one that has everything, by a fetch that was under way. It can
  have that committed only in its own epoch, and what it proposes in the new one follows from
  fetches made under it, which there are only once the log is cut.

A leader goes on when nobody else is in the ISR: what is sound is served, around the damage, until
another replica has joined. On its own a broker has none of this.

Invariants
- The log of a replica is cut only when the image says that another broker leads, that this one is
  in neither ISR nor ELR, and that the leader epoch is newer than all under which it was fetched;
  and when that leader has answered in that epoch with a sound batch for the damaged one.
- What is committed follows from the image and the list, and is asked for until the image has it.

Deliberately absent: finding damage, cutting logs (data_plane/log); joining the ISR
(isr_changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.broker.replicas.leader_probe import is_served, probe
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, ChangePartition
from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage
from data_plane.cell.partition_state import next_epochs, without_damaged
from data_plane.log.damage import NOT_DAMAGED, first_damaged_offset, note_damage
from data_plane.log.errors import LogError
from data_plane.replica import following
from data_plane.replica.fetch_session import API_KEY, API_VERSION, FetchState

if TYPE_CHECKING:
    from data_plane.broker.request.metrics import BrokerCollector
    from data_plane.cell.metadata import TopicImage
    from data_plane.log.log import Log

LOOK_INTERVAL_MS = 500
# Partitions in one commit. More would hold up other commits.
PARTITIONS_PER_COMMIT_MAX = 1000
NEVER = -1

Key = tuple[UUID, int]


@dataclass(slots=True)
class _Damaged:
    """`fetched_epoch`: the newest leader epoch in which this process may have fetched the log with
    the damage in it, or led."""

    log: Log
    fetched_epoch: int
    # The leader epoch in which the leader has shown what it has, and where; whether it is asked.
    served: tuple[int, int] | None = None
    is_asking: bool = False
    # Why it cannot be repaired; told once.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Filled:
    """A log that was cut and is being filled: from where on, since when, and its size then."""

    log: Log
    offset: int
    since_ms: int
    size_bytes: int


class ReplicaRepair:
    """A component of a broker in a cell."""

    def __init__(
        self,
        services: Services,
        min_insync_replicas: Callable[[TopicImage], int],
        on_damage_changed: Callable[[UUID, int], None],
    ) -> None:
        """`on_damage_changed(topic_id, index)` is called when a log has got on the list or off:
        while it is there it must not be fetched."""
        self._services = services
        self._min_insync_replicas = min_insync_replicas
        self._on_damage_changed = on_damage_changed
        self._damaged: dict[Key, _Damaged] = {}
        self._filled: dict[Key, _Filled] = {}
        self._corrupt_batches_seen = 0
        self._next_ms = 0
        self._is_writing = False
        self._is_running = False
        self.started_count = 0
        self.finished_count = 0
        self.refetched_bytes = 0
        services.image_listeners.append(self._image_changed)

    # The component.

    def start(self, now_ms: int) -> None:
        self._is_running = True
        self._next_ms = now_ms
        for log in self._services.logs.logs():
            if log.damaged_from != NOT_DAMAGED:
                self._damaged[(log.topic_id, log.partition)] = _Damaged(log, NEVER)
        self._find_damage(is_fetched=False)

    def next_deadline_ms(self) -> int:
        return self._next_ms

    def tick(self, now_ms: int) -> None:
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_INTERVAL_MS
        self._find_damage(is_fetched=True)
        self.run(now_ms)

    def stop(self, now_ms: int) -> None:
        """What is on the list is gone on with at the next start."""
        self._is_running = False
        self._services.wakes.forget(self)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if self._is_running and (self._damaged or self._filled):
            self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Do what the image allows, and ask for what it lacks."""
        image = self._services.image
        for key, one in list(self._filled.items()):
            self._look_at_filled(key, one, image, now_ms)
        is_waiting = False
        for key, damaged in list(self._damaged.items()):
            state = self._state(image, key)
            if state is None or damaged.log.is_closed:
                del self._damaged[key]
            elif self._is_outlived(damaged.log):
                del self._damaged[key]
                self._on_damage_changed(*key)
            elif not self._may_cut(state, damaged):
                is_waiting = True
            elif damaged.served == (state.leader_epoch, _cut_offset(damaged.log)):
                self._cut(key, damaged, now_ms)
            elif not damaged.is_asking:
                self._ask(key, damaged, state)
        if is_waiting and not self._is_writing and self.decide(image):
            self._write()

    def _state(self, image: MetadataImage, key: Key) -> PartitionImage | None:
        """The partition, if this broker is a replica of it."""
        topic = image.topics_by_id.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        state = topic.partitions[key[1]]
        return state if self._services.node_id in state.replicas else None

    # Damage.

    def _find_damage(self, *, is_fetched: bool) -> None:
        """Put on the list what has been found since the last look."""
        logs = self._services.logs
        count = sum(directory.corrupt_batches for directory in logs.directories)
        if count == self._corrupt_batches_seen:
            return
        self._corrupt_batches_seen = count
        for log in logs.logs():
            if log.is_loaded and any(segment.bad_ranges for segment in log.segments):
                try:
                    self._note(log, is_fetched=is_fetched)
                except LogError as error:
                    # Its directory is offline now, and what is on it given up.
                    self._report("damage_not_noted", log, error=str(error))

    def _note(self, log: Log, *, is_fetched: bool) -> None:
        offset = first_damaged_offset(log)
        key = (log.topic_id, log.partition)
        if offset is None or self._state(self._services.image, key) is None:
            return
        if log.damaged_from != NOT_DAMAGED and log.damaged_from <= offset:
            return
        note_damage(log, offset)
        self._report("replica_damaged", log, offset=offset)
        if key not in self._damaged:
            replica = self._services.partitions.replica(*key) if is_fetched else None
            self._damaged[key] = _Damaged(log, NEVER if replica is None else replica.leader_epoch)
            self._filled.pop(key, None)
            self._on_damage_changed(*key)

    def _is_outlived(self, log: Log) -> bool:
        """Whether the log has gone on without what was damaged: the log start has passed it."""
        if log.damaged_from >= log.log_start_offset or not log.is_loaded:
            return False
        try:
            if first_damaged_offset(log) is not None:
                return False
            note_damage(log, NOT_DAMAGED)
        except LogError:
            return False
        return True

    def _report(self, event: str, log: Log, **fields: object) -> None:
        self._services.log.warning(event, topic=log.topic, partition=log.partition, **fields)

    # Standing back.

    def decide(self, image: MetadataImage) -> Sequence[Change]:
        """What takes the damaged replicas out of ISR and ELR, and makes their fetches void."""
        node_id = self._services.node_id
        live = {
            broker.node_id
            for broker in image.brokers.values()
            if not broker.is_fenced and not broker.in_controlled_shutdown
        }
        changes: list[Change] = []
        for (topic_id, index), damaged in sorted(self._damaged.items()):
            old = self._state(image, (topic_id, index))
            if old is None or damaged.log.log_directory.failure is not None:
                continue
            min_insync_replicas = self._min_insync_replicas(image.topics_by_id[topic_id])
            new = without_damaged(old, node_id, live, min_insync_replicas)
            is_led = old.leader not in (node_id, NO_LEADER)
            is_fetched = is_led and old.leader_epoch <= damaged.fetched_epoch
            if new is old and (not is_fetched or node_id in (*old.isr, *old.elr)):
                continue
            new = next_epochs(old, new, is_fencing=is_fetched)
            changes.append(ChangePartition(topic_id, index, new))
            if len(changes) == PARTITIONS_PER_COMMIT_MAX:
                break
        return changes

    def _write(self) -> None:
        self._is_writing = True
        services = self._services

        def done(error: BaseException | None) -> None:
            self._is_writing = False
            if error is not None:
                # The next look asks again.
                services.log.error("damaged_replicas_not_given_up", error=repr(error))

        services.metadata.write(self.decide, done)

    # Repair.

    def _may_cut(self, state: PartitionImage, damaged: _Damaged) -> bool:
        node_id = self._services.node_id
        return (
            state.leader not in (node_id, NO_LEADER)
            and node_id not in (*state.isr, *state.elr)
            and state.leader_epoch > damaged.fetched_epoch
            and damaged.log.log_directory.failure is None
        )

    def _ask(self, key: Key, damaged: _Damaged, state: PartitionImage) -> None:
        """Have the leader show what it has where this log is to be cut."""
        services = self._services
        log = damaged.log
        start = log.log_start_offset
        offset = _cut_offset(log)
        try:
            last_epoch = log.epoch_for_offset(offset - 1) if offset > start else NEVER
        except LogError as error:
            self._failed(damaged, error)
            return
        registered = services.image.brokers.get(services.node_id)
        if registered is None:
            return
        epoch = state.leader_epoch
        replica = (services.node_id, registered.broker_epoch)
        body = probe(replica, (key[0].bytes, key[1]), FetchState(offset, last_epoch, epoch, start))
        damaged.is_asking = True

        def answered(answer: memoryview | None, now_ms: int) -> None:
            damaged.is_asking = False
            # Without an answer the next look asks again.
            if answer is not None and is_served(answer, offset):
                damaged.served = (epoch, offset)
                if self._is_running:
                    services.wakes.wake(self)

        services.peers.send(state.leader, API_KEY, API_VERSION, [body], answered)

    def _failed(self, damaged: _Damaged, error: LogError) -> None:
        if damaged.problem != str(error):
            damaged.problem = str(error)
            self._report("replica_repair_failed", damaged.log, error=str(error))

    def _cut(self, key: Key, damaged: _Damaged, now_ms: int) -> None:
        log = damaged.log
        replica = self._services.partitions.replica(*key)
        if replica is None:
            return
        try:
            if not replica.drop_damaged(log.damaged_from):
                # A thread is at it. The next look asks again.
                return
            remaining = first_damaged_offset(log)
            # Found as the log was cut: the noted place was of an earlier process. The leader has
            # shown nothing of what lies between: the next look asks for that.
            note_damage(log, NOT_DAMAGED if remaining is None else remaining)
        except LogError as error:
            self._failed(damaged, error)
            return
        if remaining is not None:
            return
        del self._damaged[key]
        self.started_count += 1
        self._filled[key] = _Filled(log, log.log_end_offset, now_ms, log.size_bytes)
        self._report(
            "replica_repair_started", log, offset=log.log_end_offset, leader=replica.leader_id
        )
        self._on_damage_changed(*key)

    def _look_at_filled(self, key: Key, one: _Filled, image: MetadataImage, now_ms: int) -> None:
        state = self._state(image, key)
        if state is None or one.log.is_closed:
            del self._filled[key]
        elif self._services.node_id in state.isr:
            del self._filled[key]
            refetched_bytes = max(0, one.log.size_bytes - one.size_bytes)
            self.finished_count += 1
            self.refetched_bytes += refetched_bytes
            self._services.log.info(
                "replica_repair_finished",
                topic=one.log.topic,
                partition=one.log.partition,
                offset=one.offset,
                end_offset=one.log.log_end_offset,
                refetched_bytes=refetched_bytes,
                took_ms=now_ms - one.since_ms,
            )

    # Metrics.

    def add_metrics(self, collector: BrokerCollector) -> None:
        collector.add_gauge(
            "tidewheel_damaged_replicas",
            "Copies that are known to be damaged and not cut yet.",
            lambda: len(self._damaged),
        )
        collector.add_total(
            "tidewheel_replica_repairs_started",
            "Damaged copies that were cut, to be filled by their leaders.",
            lambda: self.started_count,
        )
        collector.add_total(
            "tidewheel_replica_repairs_finished",
            "Of these, in sync again.",
            lambda: self.finished_count,
        )
        collector.add_total(
            "tidewheel_replica_repair_refetched_bytes",
            "Bytes fetched again for them.",
            lambda: self.refetched_bytes,
        )


def _cut_offset(log: Log) -> int:
    """From where on the leader fills it."""
    try:
        return following.repair_offset(log, log.damaged_from)
    except LogError:
        # The cut itself says why.
        return log.damaged_from
