"""The replicas that this broker has: found by name or by id, opened when first asked for.

The metadata image says which partitions exist and which of them this broker leads or follows; the
log manager has their logs. A `Partition` joins the two and is made at the first request for it, so
that a broker with 10,000 partitions starts as fast as one with ten. A log that the image names and
the disk does not have is created then too: that is the moment after CreateTopics, or a crash
between the metadata commit and the first use. Not while a disk could not be read at the start:
what is unknown may be on it. Then only what an image gives to this broker anew is made, and at
once, so that the next start knows it.

Invariants
- What lookups return agrees with the image last applied: a deleted topic is gone, a topic made
  anew under an old name has another id and other partitions, `get` finds leading replicas only.
- A log is deleted when the image says that its topic is gone or that this broker is no replica of
  it any more, and for no other reason (at a start: stray_logs.py).
- What takes long, and nobody waits for, may be left by `apply_step` to `do_work_left`: taking away
  logs of partitions that are closed already, settings of logs, and looking who may join an ISR.
- Topic ids are 16 raw bytes here, as they stand in Produce and Fetch requests.

Deliberately absent: deciding who leads (the image says so), fetching what is followed
(replication.py), ISR commits (isr_changes.py), and the metadata of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.broker.config.replication_settings import (
    ReplicaConfig,
    log_settings,
    min_insync_replicas,
    replication_settings,
)
from data_plane.broker.replicas.followed_partition import Followed
from data_plane.broker.replicas.leading import Leading, shown_topic, tenant_shown
from data_plane.broker.replicas.log_cuts import cut_log
from data_plane.broker.replicas.log_loads import LogLoads
from data_plane.broker.request.few_at_once import FewAtOnce
from data_plane.broker.request.partition_errors import ANY_LEADER_EPOCH, check_leader_epoch
from data_plane.broker.request.wall_clock import WallClock
from data_plane.cell.metadata import INTERNAL_TOPICS, NO_LEADER
from data_plane.cell.partition_state import may_join_isr
from data_plane.cell.topics_draft import changed_topics
from data_plane.log.errors import LogDirFailure, LogError, UnknownPartition
from data_plane.replica.partition import Partition
from data_plane.replica.topic_use import TopicUses
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.broker.request.api import Executor
    from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
    from data_plane.log.cut_job import CutJob
    from data_plane.log.log import Log
    from data_plane.log.manager import LogManager

ZERO_ID = bytes(16)
# Partitions that `apply_image` does at a time; it ends when all are done.
WORK_AT_ONCE = 1_000

# The local replicas whose role, leader or leader epoch changed, as (topic id, index); those that
# came and went too. With the time.
OnRolesChanged = Callable[[list[tuple[UUID, int]], int], None]


class TopicPartitions:
    """Lookup of replicas. `get` and `get_by_name` are on the path of every request."""

    internal_topics = INTERNAL_TOPICS

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        logs: LogManager,
        config: ReplicaConfig,
        request_sync: Callable[[Partition], None],
        wall_clock: WallClock | None = None,
        executor: Executor | None = None,
    ) -> None:
        """`executor` loads and cuts logs where that takes long; without one it is done at once."""
        self._node_id = node_id
        # Each append asks.
        self.wall_ms = (WallClock() if wall_clock is None else wall_clock).wall_ms
        self._image = image
        self._logs = logs
        self._request_sync = request_sync
        self._config = config
        self._replicas: dict[tuple[bytes, int], Partition] = {}
        self.leading_ones = Leading()
        self._leading_by_id = self.leading_ones.by_id
        self._leading_by_name = self.leading_ones.by_name
        self._listeners: list[OnRolesChanged] = []
        # Told about each partition whose use begins, in the role that it has.
        self.opened_listeners: list[Callable[[Partition], None]] = []
        # What clients use of topics that have, or had, replicas here.
        self.uses = TopicUses()
        # Told about partitions whose disk fails when they are opened, for the log and metrics.
        self.on_open_failed: Callable[[str, int, LogError], None] | None = None
        # Whether logs of partitions that an image brings are made at once.
        self._makes_new = False
        slow_work = self._slow_work = None if executor is None else FewAtOnce(executor)
        self._loads = None if slow_work is None else LogLoads(slow_work, self._load_ended)
        # Logs of closed partitions; topics, and up to where they are configured; leaders to review.
        self._undeleted: dict[tuple[UUID, int], None] = {}
        self._unconfigured: dict[UUID, int] = {}
        self._unreviewed: dict[Partition, None] = {}
        self._now_ms = 0
        # The image is from this broker's disk: the store may have gone on. Until the first new one.
        self.is_image_old = False
        # Told when a led partition has somebody to take into its ISR.
        self.on_isr_may_grow: Callable[[Partition], None] | None = None

    def __len__(self) -> int:
        """Partitions in use since the start."""
        return len(self._replicas)

    def is_open(self, key: tuple[bytes, int]) -> bool:
        """Whether the replica, by topic id and index, is in use since the start."""
        return key in self._replicas

    def opened(self) -> Iterable[Partition]:
        """The partitions in use since the start, led or followed, in no order."""
        return self._replicas.values()

    def leading(self) -> Iterable[Partition]:
        """The partitions in use that this broker leads, in no order."""
        return self._leading_by_id.values()

    def followed(self) -> Iterator[Followed]:
        """The partitions that this broker is to fetch, by the image; none of them is opened."""
        node_id = self._node_id
        for topic in self._image.topics_by_id.values():
            for index, image in enumerate(topic.partitions):
                if node_id in image.replicas and image.leader not in (node_id, NO_LEADER):
                    yield Followed(topic, index, image)

    def on_roles_changed(self, listener: OnRolesChanged) -> None:
        """Call `listener` at the end of each `apply_image` that changed roles."""
        self._listeners.append(listener)

    # Lookups

    def get(
        self, topic_id: bytes | UUID, index: int, tenant: str | None = None
    ) -> Partition | None:
        """The partition this broker leads, or None; `error` then says why. No log is opened of a
        topic that is not `tenant`'s, but one that is open is found: compare the partition's."""
        partition = self._leading_by_id.get((topic_id, index))  # type: ignore[arg-type]
        if partition is None:
            partition = self.replica(topic_id, index, tenant)
            if partition is not None and partition.leader_id != self._node_id:
                return None
        return partition

    def get_by_name(self, tenant: str, topic: str, index: int) -> Partition | None:
        """As `get`, for requests that name topics."""
        partition = self._leading_by_name.get((tenant, topic, index))
        if partition is None:
            partition = self.replica_by_name(tenant, topic, index)
            if partition is not None and partition.leader_id != self._node_id:
                return None
        return partition

    def replica(
        self, topic_id: bytes | UUID, index: int, tenant: str | None = None
    ) -> Partition | None:
        """The local replica in any role; None without one, or when its disk failed. See `get`."""
        if isinstance(topic_id, UUID):
            topic_id = topic_id.bytes
        partition = self._replicas.get((topic_id, index))
        if partition is None and topic_id != ZERO_ID:
            topic = self._image.topics_by_id.get(UUID(bytes=topic_id))
            if topic is not None and tenant in (None, tenant_shown(topic)):
                partition = self._open(topic, index)
        return partition

    def replica_by_name(self, tenant: str, topic: str, index: int) -> Partition | None:
        """As `replica`, for requests that name topics."""
        topic_image = shown_topic(self._image, tenant, topic)
        if topic_image is None:
            return None
        partition = self._replicas.get((topic_image.id_bytes, index))
        return self._open(topic_image, index) if partition is None else partition

    def error(
        self, topic_id: bytes | UUID, index: int, current_leader_epoch: int = ANY_LEADER_EPOCH
    ) -> ErrorCode:
        """Why `get` finds no leading replica for somebody who takes this for the leader epoch."""
        if isinstance(topic_id, UUID):
            topic_id = topic_id.bytes
        topic = self._image.topics_by_id.get(UUID(bytes=topic_id))
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._error(topic, index, current_leader_epoch)

    def error_of_named(
        self, topic_id: bytes | UUID, index: int, current_leader_epoch: int = ANY_LEADER_EPOCH
    ) -> ErrorCode:
        """As `error`, for a request that has named its topic: to it no id is unknown."""
        error = self.error(topic_id, index, current_leader_epoch)
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error

    def error_by_name(
        self, tenant: str, topic: str, index: int, current_leader_epoch: int = ANY_LEADER_EPOCH
    ) -> ErrorCode:
        """As `error`, for `get_by_name`."""
        topic_image = shown_topic(self._image, tenant, topic)
        if topic_image is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._error(topic_image, index, current_leader_epoch)

    def current_leader(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> tuple[int, int] | None:
        """(leader id, leader epoch) according to the image, by name or by id; the other one is
        empty."""
        if topic:
            topic_image = shown_topic(self._image, tenant, topic)
        else:
            topic_image = self._image.topics_by_id.get(UUID(bytes=topic_id))
        if topic_image is None or not 0 <= index < len(topic_image.partitions):
            return None
        partition = topic_image.partitions[index]
        return partition.leader, partition.leader_epoch

    # What the image changes

    def apply_image(self, image: MetadataImage, now_ms: int) -> None:
        """Follow the image: take roles, delete what is gone, configure what changed."""
        self.apply_step(image, now_ms)
        while self.has_work_left:
            self.do_work_left(WORK_AT_ONCE, now_ms)

    def apply_step(self, image: MetadataImage, now_ms: int) -> None:
        """As `apply_image`, but for what `do_work_left` is to do."""
        old = self._image
        self._image = image
        # What an image has had since before this process may have had records.
        self._makes_new = self._logs.has_unread_directories and not self.is_image_old
        self._now_ms = now_ms
        self.is_image_old = False
        changed: list[tuple[UUID, int]] = []
        if old.topics_by_id is not image.topics_by_id:
            for topic, new in changed_topics(old, image):
                if new is None or new.topic_id != topic.topic_id:
                    self._delete_topic(topic, changed)
                else:
                    self._update_topic(topic, new, now_ms, changed)
            for topic, before in changed_topics(image, old):
                if before is None or before.topic_id != topic.topic_id:
                    self._note_hosted(topic, changed)
        if not old.configures_alike(image, self._node_id):
            self._unconfigured = dict.fromkeys(image.topics_by_id, 0)
        if old.brokers is not image.brokers:
            # Who is not fenced any more, or fenced now, matters where somebody is out of the ISR.
            # What is committed then is told to those who wait, and they may open others.
            for partition in self._leading_by_id.values():
                if partition.leadership is not None and partition.leadership.has_outsiders:
                    self._unreviewed[partition] = None
        if changed:
            for listener in self._listeners:
                listener(changed, now_ms)

    @property
    def has_work_left(self) -> bool:
        """Whether a step has left something to do."""
        return bool(self._undeleted or self._unconfigured or self._unreviewed)

    def do_work_left(self, partitions_max: int, now_ms: int) -> None:
        """Do it for so many partitions."""
        for _ in range(partitions_max):
            if self._undeleted:
                self._delete_log(next(iter(self._undeleted)), now_ms)
            elif self._unreviewed:
                partition = next(iter(self._unreviewed))
                del self._unreviewed[partition]
                if partition.leadership is not None and partition.leadership.has_outsiders:
                    partition.review(now_ms)
            elif self._unconfigured:
                self._configure_next(now_ms)
            else:
                return

    def _configure_next(self, now_ms: int) -> None:
        topic_id, index = next(iter(self._unconfigured.items()))
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            del self._unconfigured[topic_id]
        else:
            # In its place: the order of topics stays.
            self._unconfigured[topic_id] = index + 1
            self._configure(topic, index, now_ms)

    def configure_logs(self, now_ms: int | None = None) -> None:
        """Give every log its topic's settings, also those that nobody has asked for yet:
        retention works on them, too. Logs compare by value, and most settings do not change."""
        for topic in self._image.topics_by_id.values():
            for index in range(len(topic.partitions)):
                self._configure(topic, index, now_ms)

    def _note_hosted(self, topic: TopicImage, changed: list[tuple[UUID, int]]) -> None:
        for index, image in enumerate(topic.partitions):
            if self._node_id in image.replicas:
                changed.append((topic.topic_id, index))
                self._note_older_log(topic, index)
                if self._makes_new:
                    self._open(topic, index, is_new=True)

    def _note_older_log(self, topic: TopicImage, index: int) -> None:
        """A log that is there before this process knows of its partition has had the default
        settings so far: the image on disk was older than the log."""
        with suppress(UnknownPartition):
            self._logs.get(topic.topic_id, index)
            self._unconfigured[topic.topic_id] = 0

    def _delete_topic(self, topic: TopicImage, changed: list[tuple[UUID, int]]) -> None:
        for index, image in enumerate(topic.partitions):
            if self._node_id in image.replicas:
                changed.append((topic.topic_id, index))
                self._remove(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.uses.topic_deleted(topic.id_bytes)

    def _update_topic(
        self, old: TopicImage, new: TopicImage, now_ms: int, changed: list[tuple[UUID, int]]
    ) -> None:
        node_id, topic_id = self._node_id, new.id_bytes
        for index, image in enumerate(new.partitions):
            before = old.partitions[index] if index < len(old.partitions) else None
            if before is image:
                continue
            was_hosted = before is not None and node_id in before.replicas
            if node_id not in image.replicas:
                if was_hosted:
                    changed.append((new.topic_id, index))
                    self._remove(new, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            partition = self._replicas.get((topic_id, index))
            if partition is not None:
                self._give_role(partition, new, image, now_ms)
            if not was_hosted:
                self._note_older_log(new, index)
                if self._makes_new:
                    self._open(new, index, is_new=True)
            if (
                before is None
                or not was_hosted
                or image.leader_epoch != before.leader_epoch
                or (node_id in image.adding_replicas) != (node_id in before.adding_replicas)
            ):
                changed.append((new.topic_id, index))
            if before is not None and image.state != before.state:
                self._unconfigured[new.topic_id] = 0
        if (old.deletion, old.pause) != (new.deletion, new.pause):
            self._unconfigured[new.topic_id] = 0
            if (old.deletion is None) is not (new.deletion is None):
                self.leading_ones.show_or_hide(new, self._replicas)
        if old.configs != new.configs:
            self._unconfigured[new.topic_id] = 0

    def _remove(self, topic: TopicImage, index: int, error: ErrorCode) -> None:
        key = (topic.id_bytes, index)
        partition = self._replicas.pop(key, None)
        if partition is not None:
            self.leading_ones.forget(partition, topic.id_bytes)
            partition.close(error)
        self._undeleted[(topic.topic_id, index)] = None

    def _delete_log(self, key: tuple[UUID, int], now_ms: int) -> None:
        del self._undeleted[key]
        try:
            self._logs.delete(*key, now_ms)
        except (UnknownPartition, LogDirFailure):
            # Never used, or on a disk that is gone; a start with the disk back finds a stray log
            # and deletes it.
            return

    def _give_role(
        self, partition: Partition, topic: TopicImage, image: PartitionImage, now_ms: int | None
    ) -> None:
        partition.follow_image(image, replication_settings(self._config, topic, image), now_ms)
        if partition.leader_id == self._node_id:
            self.leading_ones.put(partition, topic)
        else:
            self.leading_ones.forget(partition, topic.id_bytes)

    def _open(self, topic: TopicImage, index: int, *, is_new: bool = False) -> Partition | None:
        if not 0 <= index < len(topic.partitions):
            return None
        image = topic.partitions[index]
        if self._node_id not in image.replicas:
            return None
        if (topic.topic_id, index) in self._undeleted:
            # What there was is of another life: it has been a replica, and none, and is one again.
            self._delete_log((topic.topic_id, index), self._now_ms)
        try:
            log = self._open_log(topic, index, is_new)
            key = (topic.id_bytes, index)
            if self._loads is not None and self._loads.must_wait(key, log):
                return None
            use = self.uses.of(topic.tenant, topic.name, topic.id_bytes)
            tenant = tenant_shown(topic)
            partition = Partition(tenant, topic.name, index, log, self._node_id, self, use)
            self._give_role(partition, topic, image, None)
        except LogError as error:
            if self.on_open_failed is not None:
                self.on_open_failed(topic.name, index, error)
            return None
        self._replicas[key] = partition
        for listener in self.opened_listeners:
            listener(partition)
        return partition

    def when_loaded(self, topic_id: bytes, index: int, callback: Callable[[], None]) -> bool:
        """Whether a thread is loading the log of this partition. `callback` is called when it has
        ended then, whatever has come of it: look the partition up again."""
        return self._loads is not None and self._loads.when_ended((topic_id, index), callback)

    def open_later(self, topic_id: UUID, index: int, on_ended: Callable[[], None]) -> None:
        """Open a partition that has a log, which a thread loads before, however little that takes;
        `on_ended` is called then, whatever has come of it. Raises UnknownPartition."""

        def open_now() -> None:
            self.replica(topic_id, index)
            on_ended()

        log = self._logs.get(topic_id, index)
        if log.is_loaded or self._loads is None:
            open_now()
        else:
            self._loads.load((topic_id.bytes, index), log)
            self._loads.when_ended((topic_id.bytes, index), open_now)

    def _load_ended(self, key: tuple[bytes, int]) -> None:
        for listener in self._listeners:
            listener([(UUID(bytes=key[0]), key[1])], self._now_ms)

    def _open_log(self, topic: TopicImage, index: int, is_new: bool) -> Log:
        try:
            return self._logs.get(topic.topic_id, index)
        except UnknownPartition:
            config = log_settings(self._config, topic, index)
            return self._logs.create(topic.topic_id, topic.name, index, config, is_new=is_new)

    def _error(self, topic: TopicImage, index: int, current_leader_epoch: int) -> ErrorCode:
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        image: PartitionImage = topic.partitions[index]
        if self._node_id in image.replicas:
            # As Kafka: a replica looks at the epoch first, and only then at who leads.
            error = check_leader_epoch(image.leader_epoch, current_leader_epoch)
            if error is not ErrorCode.NONE:
                return error
        # Of one that is loading clients ask again soon.
        is_loading = self._loads is not None and (topic.id_bytes, index) in self._loads
        if image.leader != self._node_id or is_loading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR

    # Settings

    def min_insync_replicas(self, topic: TopicImage) -> int:
        """The topic's min.insync.replicas, whatever replicas it has."""
        return min_insync_replicas(self._config, topic)

    def _configure(self, topic: TopicImage, index: int, now_ms: int | None) -> None:
        partition = self._leading_by_id.get((topic.id_bytes, index))
        if partition is not None:
            image = topic.partitions[index]
            partition.follow_image(image, replication_settings(self._config, topic, image), now_ms)
        try:
            log = self._logs.get(topic.topic_id, index)
        except UnknownPartition:
            return
        config = log_settings(self._config, topic, index)
        if log.config != config:
            log.update_config(config)

    # The host of its partitions

    @property
    def replica_lag_time_max_ms(self) -> int:
        return self._config.get_int("replica.lag.time.max.ms")

    def request_sync(self, partition: Partition) -> None:
        self._request_sync(partition)

    def request_cut(self, partition: Partition, job: CutJob) -> None:
        cut_log(partition, job, self._slow_work)

    def may_join_isr(self, node_id: int, broker_epoch: int) -> bool:
        return may_join_isr(self._image, node_id, broker_epoch)

    def isr_may_grow(self, partition: Partition) -> None:
        if self.on_isr_may_grow is not None:
            self.on_isr_may_grow(partition)
