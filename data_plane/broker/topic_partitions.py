"""The partitions that this broker leads: found by name or by id, opened when first asked for.

The metadata image says which partitions exist; the log manager has their logs. A `Partition` joins
the two and is made at the first request for it, so that a broker with 10,000 partitions starts as
fast as one with ten. A log that the image names and the disk does not have is created then too:
that is the moment after CreateTopics, or a crash between the metadata commit and the first use.

Invariants
- What lookups return agrees with the image last applied: a deleted topic is gone, a topic made
  anew under an old name has another id and other partitions.
- Topic ids are 16 raw bytes here, as they stand in Produce and Fetch requests.

Deliberately absent: deciding who leads (the image says so), and the metadata of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.errors import LogDirFailure, LogError, UnknownPartition
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
    from data_plane.log.log import Log
    from data_plane.log.manager import LogManager

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
ZERO_ID = bytes(16)


class TopicPartitions:
    """Lookup of leading replicas. `get` and `get_by_name` are on the path of every request."""

    internal_topics = INTERNAL_TOPICS

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        logs: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        request_sync: Callable[[Partition], None],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._log_config = log_config
        self._request_sync = request_sync
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._by_name: dict[tuple[str, int], Partition] = {}
        # Told about partitions whose disk fails when they are opened, for the log and metrics.
        self.on_open_failed: Callable[[str, int, LogError], None] | None = None

    def __len__(self) -> int:
        """Partitions in use since the start."""
        return len(self._by_id)

    def opened(self) -> Iterable[Partition]:
        """The partitions in use since the start, in no order."""
        return self._by_id.values()

    def get(self, topic_id: bytes | UUID, index: int) -> Partition | None:
        """The partition this broker leads, or None; `error` then says why."""
        if isinstance(topic_id, UUID):
            topic_id = topic_id.bytes
        partition = self._by_id.get((topic_id, index))
        if partition is None and topic_id != ZERO_ID:
            topic = self._image.topics_by_id.get(UUID(bytes=topic_id))
            if topic is not None:
                partition = self._open(topic, index)
        return partition

    def get_by_name(self, topic: str, index: int) -> Partition | None:
        """As `get`, for requests that name topics."""
        partition = self._by_name.get((topic, index))
        if partition is None:
            topic_image = self._image.topics_by_name.get(topic)
            if topic_image is not None:
                partition = self._open(topic_image, index)
        return partition

    def error(self, topic_id: bytes | UUID, index: int) -> ErrorCode:
        """Why `get` finds no leading replica."""
        if isinstance(topic_id, UUID):
            topic_id = topic_id.bytes
        topic = self._image.topics_by_id.get(UUID(bytes=topic_id))
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return self._error(topic, index)

    def error_by_name(self, topic: str, index: int) -> ErrorCode:
        """Why `get_by_name` finds no leading replica."""
        topic_image = self._image.topics_by_name.get(topic)
        if topic_image is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._error(topic_image, index)

    def current_leader(self, topic: str, topic_id: bytes, index: int) -> tuple[int, int] | None:
        """(leader id, leader epoch) according to the image."""
        if topic:
            topic_image = self._image.topics_by_name.get(topic)
        else:
            topic_image = self._image.topics_by_id.get(UUID(bytes=topic_id))
        if topic_image is None or not 0 <= index < len(topic_image.partitions):
            return None
        partition = topic_image.partitions[index]
        return partition.leader, partition.leader_epoch

    def apply_image(self, image: MetadataImage, now_ms: int) -> None:
        """Follow the image: resign and delete what is gone, configure what changed."""
        old = self._image
        self._image = image
        if old.topics_by_id is not image.topics_by_id:
            # By name: with thousands of topics, hashing ids would take most of a commit's time.
            for name, topic in old.topics_by_name.items():
                new = image.topics_by_name.get(name)
                if new is topic:
                    continue
                if new is None or new.topic_id != topic.topic_id:
                    self._delete_topic(topic, now_ms)
                else:
                    self._update_topic(topic, new)
        if old.configs != image.configs:
            self.configure_logs()

    def configure_logs(self) -> None:
        """Give every log its topic's settings, also those that nobody has asked for yet:
        retention works on them, too. Logs compare by value, and most settings do not change."""
        for topic in self._image.topics_by_id.values():
            self._configure(topic)

    def delete_strays(self, now_ms: int) -> list[tuple[UUID, int]]:
        """Delete logs of topics that the image does not have: the crash came between the
        metadata commit of their deletion and the deletion itself. Returns what was deleted."""
        strays = [
            (topic_id, index)
            for topic_id, index in list(self._logs.partition_ids())
            if not self._is_hosted(topic_id, index)
        ]
        for topic_id, index in strays:
            self._logs.delete(topic_id, index, now_ms)
        return strays

    def _is_hosted(self, topic_id: UUID, index: int) -> bool:
        topic = self._image.topics_by_id.get(topic_id)
        return (
            topic is not None
            and index < len(topic.partitions)
            and self._node_id in topic.partitions[index].replicas
        )

    def _open(self, topic: TopicImage, index: int) -> Partition | None:
        if not 0 <= index < len(topic.partitions):
            return None
        image = topic.partitions[index]
        if image.leader != self._node_id:
            return None
        try:
            log = self._open_log(topic, index)
            partition = Partition(topic.name, index, log, image.leader_epoch, self._request_sync)
        except LogError as error:
            if self.on_open_failed is not None:
                self.on_open_failed(topic.name, index, error)
            return None
        self._by_id[(topic.topic_id.bytes, index)] = partition
        self._by_name[(topic.name, index)] = partition
        return partition

    def _open_log(self, topic: TopicImage, index: int) -> Log:
        try:
            return self._logs.get(topic.topic_id, index)
        except UnknownPartition:
            config = self._log_config(topic.configs)
            return self._logs.create(topic.topic_id, topic.name, index, config)

    def _error(self, topic: TopicImage, index: int) -> ErrorCode:
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        image: PartitionImage = topic.partitions[index]
        if image.leader != self._node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _delete_topic(self, topic: TopicImage, now_ms: int) -> None:
        for index, image in enumerate(topic.partitions):
            partition = self._by_id.pop((topic.topic_id.bytes, index), None)
            if partition is not None:
                by_name = self._by_name.get((topic.name, index))
                if by_name is partition:
                    del self._by_name[(topic.name, index)]
                partition.resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if self._node_id in image.replicas:
                try:
                    self._logs.delete(topic.topic_id, index, now_ms)
                except (UnknownPartition, LogDirFailure):
                    # Never used, or on a disk that is gone; a start with the disk back finds a
                    # stray log and deletes it.
                    continue

    def _update_topic(self, old: TopicImage, new: TopicImage) -> None:
        for index, image in enumerate(new.partitions):
            partition = self._by_id.get((new.topic_id.bytes, index))
            if partition is None:
                continue
            if image.leader != self._node_id:
                del self._by_id[(new.topic_id.bytes, index)]
                self._by_name.pop((new.name, index), None)
                partition.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                partition.set_leader_epoch(image.leader_epoch)
        if old.configs != new.configs:
            self._configure(new)

    def _configure(self, topic: TopicImage) -> None:
        config = self._log_config(topic.configs)
        for index in range(len(topic.partitions)):
            try:
                log = self._logs.get(topic.topic_id, index)
            except UnknownPartition:
                continue
            if log.config != config:
                log.update_config(config)
