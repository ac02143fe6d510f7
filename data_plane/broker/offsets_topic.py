"""`__consumer_offsets` as the group service sees it: create it, append to it, read it whole.

`OffsetsTopic` is the port; `BrokerOffsetsTopic` is the real one, over this broker's partitions and
metadata. The topic is made when it is first asked for, compacted, with the partition count and the
segment size that the configuration says.

Deliberately absent: what the records mean (data_plane.groups does).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from data_plane.broker.placement import NewPartitions
from data_plane.broker.read_index import PART as READ_INDEX_PART
from data_plane.broker.read_index import ReadIndex
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
from data_plane.log.errors import CorruptSegment, LogError
from data_plane.log.log import Log
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    is_crc_valid,
    iter_batch_headers,
)

# Kafka's offsets.load.buffer.size: what one step of loading holds in memory besides the state.
LOAD_BYTES_MAX: Final = 5 * 1024 * 1024


class OffsetsTopic(Protocol):
    """What the group service needs of the broker around it."""

    def topic_id(self) -> uuid.UUID | None:
        """Which topic it is, should it be deleted and made anew; None while there is none."""

    def partition_count(self) -> int | None:
        """How many partitions the topic has; None while there is no such topic."""

    def led_partitions(self) -> Mapping[int, int]:
        """The partitions that this broker leads, with their leader epochs."""

    def create(self, on_done: Callable[[], None] | None = None) -> None:
        """Have the topic made, if it is not there. `on_done` is called once, perhaps before this
        returns, when the image has changed, or it is clear that it will not."""

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[NewRecord],
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Append one batch. `on_done` is called once, perhaps before this returns, when the batch
        is as durable as acks=all makes it, in order for each partition, or has been refused."""

    def when_committed(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        """`on_done` is called once, perhaps before this returns: with NONE when everything that the
        partition holds now is committed, with an error when it is not led here (any more)."""

    def confirm_leading(
        self, partition: int, epoch: int, now_ms: int, on_done: Callable[[bool], None]
    ) -> None:
        """`on_done` is called once, perhaps before this returns: with True when it is certain that
        this broker led `partition` in `epoch` after the call."""

    def reader(self, partition: int) -> Callable[[], Iterator[Record]] | None:
        """A function that reads the whole partition, to be called in another thread; None when
        there is nothing to read. Raises LogError, now or while reading."""


class BrokerOffsetsTopic:
    """The real topic."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_creating = False
        # Who waits for the topic to be made: no more than there are requests under way.
        self._waiting: list[Callable[[], None]] = []

    def topic_id(self) -> uuid.UUID | None:
        topic = self._services.image.topics_by_name.get(GROUP_METADATA_TOPIC_NAME)
        return None if topic is None else topic.topic_id

    def partition_count(self) -> int | None:
        topic = self._services.image.topics_by_name.get(GROUP_METADATA_TOPIC_NAME)
        return None if topic is None else len(topic.partitions)

    def led_partitions(self) -> Mapping[int, int]:
        topic = self._services.image.topics_by_name.get(GROUP_METADATA_TOPIC_NAME)
        if topic is None:
            return {}
        return {
            index: partition.leader_epoch
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self._services.node_id
        }

    def create(self, on_done: Callable[[], None] | None = None) -> None:
        if on_done is not None:
            self._waiting.append(on_done)
        if not self._is_creating:
            self._is_creating = True
            self._services.metadata.write(self._decide, self._created)

    def _decide(self, image: MetadataImage) -> Sequence[Change]:
        if GROUP_METADATA_TOPIC_NAME in image.topics_by_name:
            return ()
        services = self._services
        count = services.config.get_int("offsets.topic.num.partitions")
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(services.config.get_int("offsets.topic.segment.bytes")),
        }
        new = NewPartitions(services, image)
        topic_id = uuid.UUID(int=services.random.getrandbits(128), version=4)
        factor = new.default_factor("offsets.topic.replication.factor")
        assignments = new.place(count, factor)
        return (
            CreateTopic(
                name=GROUP_METADATA_TOPIC_NAME,
                topic_id=topic_id,
                assignments=assignments,
                configs=tuple(configs.items()),
            ),
            *new.initial_states(topic_id, 0, assignments),
        )

    def _created(self, error: BaseException | None) -> None:
        self._is_creating = False
        if error is not None:
            self._services.log.error("offsets_topic_not_created", error=repr(error))
        waiting, self._waiting = self._waiting, []
        for on_done in waiting:
            on_done()

    def append(
        self,
        partition: int,
        epoch: int,
        records: Sequence[NewRecord],
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        services = self._services
        replica = services.partitions.get_by_name(GROUP_METADATA_TOPIC_NAME, partition)
        if replica is None or replica.leader_epoch != epoch:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if replica.is_under_min_isr:
            on_done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        codec = Compression(services.config.get_int("offsets.topic.compression.codec"))
        batch = build_batch(records, compression=codec)
        try:
            result = replica.append_as_leader(
                batch, 0, len(batch), now_ms=now_ms, origin="coordinator"
            )
        except LogError as error:
            services.log.error("offsets_topic_append_failed", partition=partition, error=str(error))
            on_done(error.error_code)
            return
        replica.when_committed(result.last_offset, on_done)

    def when_committed(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        partitions = self._services.partitions
        replica = partitions.get_by_name(GROUP_METADATA_TOPIC_NAME, partition)
        if replica is None:
            again = partial(self.when_committed, partition, on_done)
            if not partitions.when_loaded(GROUP_METADATA_TOPIC_NAME, b"", partition, again):
                on_done(partitions.error_by_name(GROUP_METADATA_TOPIC_NAME, partition))
            return
        replica.when_committed(replica.log.log_end_offset - 1, on_done)

    def confirm_leading(
        self, partition: int, epoch: int, now_ms: int, on_done: Callable[[bool], None]
    ) -> None:
        services = self._services
        replica = services.partitions.get_by_name(GROUP_METADATA_TOPIC_NAME, partition)
        index: ReadIndex | None = services.parts.get(READ_INDEX_PART)
        if replica is None or replica.leader_epoch != epoch:
            on_done(False)
        elif index is None:
            on_done(True)
        else:
            timeout_ms = services.config.get_int("offsets.commit.timeout.ms")
            index.confirm(replica, now_ms + timeout_ms, on_done)

    def reader(self, partition: int) -> Callable[[], Iterator[Record]] | None:
        replica = self._services.partitions.get_by_name(GROUP_METADATA_TOPIC_NAME, partition)
        if replica is None:
            raise LogError(f"{GROUP_METADATA_TOPIC_NAME}-{partition} is not led here")
        log = replica.log
        end_offset = log.log_end_offset
        if log.log_start_offset == end_offset:
            return None
        if not log.is_loaded:
            # Logs are loaded lazily and on the loop only; a cold read of one that is not loaded
            # would find nothing.
            log.load()
        return lambda: read_log(log, log.log_start_offset, end_offset)


def read_log(log: Log, start_offset: int, end_offset: int) -> Iterator[Record]:
    """The data records of `log` in [start_offset, end_offset). For worker threads.

    Raises CorruptSegment: half of what a coordinator knew is worse than nothing. Segments that this
    process has written are not checked when they are read first, so all batches are, here."""
    offset = start_offset
    while offset < end_offset:
        result = log.read_cold(
            offset, LOAD_BYTES_MAX, max_offset=end_offset, at_least_one_batch=True
        )
        if not result.buffers or result.next_offset <= offset:
            return  # Compaction left nothing up to the end.
        for buffer in result.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                if not is_crc_valid(buffer, header):
                    log.doubt(header.base_offset)
                    # It finds the place, and has it reported.
                    log.read_cold(offset, 0, max_offset=end_offset, at_least_one_batch=True)
                    raise CorruptSegment(log.folder, header.position, "a checksum is wrong")
                if not header.is_control:
                    yield from decode_batch(buffer, header.position)
        offset = result.next_offset
