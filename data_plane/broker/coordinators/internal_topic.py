"""An internal topic as its coordinator sees it: create it, append to it, read it whole.

`InternalTopic` is the port; `BrokerInternalTopic` is the real one, over this broker's partitions
and metadata. The topic is made when it is first asked for, with the partition count, the replicas
and the segment size that the configuration says. More replicas come with more brokers
(data_plane/cell/growth.py).

What is appended may belong to a producer's transaction, as offsets that are committed with one do.
Its end is a marker, which this appends, too. The log refuses producer epochs that are over
(INVALID_PRODUCER_EPOCH), and hides what is open or aborted from who reads committed records; a
coordinator reads everything, and the markers with it.

Deliberately absent: when a partition is loaded and what follows (coordinator_log.py), and what the
records mean.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from data_plane.broker.services import Services
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.log.errors import CorruptSegment, LogError
from data_plane.log.log import Log
from data_plane.wire.compression import Compression
from data_plane.wire.control_batches import (
    EndTransactionMarker,
    build_end_transaction_marker,
    read_end_transaction_marker,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    is_crc_valid,
    iter_batch_headers,
)

# Kafka's offsets.load.buffer.size: what one step of loading holds in memory besides the state.
LOAD_BYTES_MAX: Final = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class InternalTopicSettings:
    """Which topic it is, and the properties that say how it is made and written."""

    name: str
    partitions_property: str
    replication_factor_property: str
    segment_bytes_property: str
    # Of a broker's compression codec by number; "" for none.
    codec_property: str
    # How long to ask whether this broker still leads.
    timeout_property: str


class Producer(NamedTuple):
    """Within whose transaction something is appended."""

    producer_id: int
    producer_epoch: int


class LoggedBatch(NamedTuple):
    """A batch as a coordinator reads it: records, within a transaction if there is a producer, or
    the marker that ends one."""

    records: Sequence[Record] = ()
    producer: Producer | None = None
    marker: EndTransactionMarker | None = None


PartitionReader = Callable[[], Iterator[LoggedBatch]]


def records_of(batches: Iterable[LoggedBatch]) -> Iterator[Record]:
    """All records, for who knows of no transactions."""
    for batch in batches:
        yield from batch.records


class InternalTopic(Protocol):
    """What a coordinator needs of the broker around it."""

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
        producer: Producer | None = None,
    ) -> None:
        """Append one batch. `on_done` is called once, perhaps before this returns, when the batch
        is as durable as acks=all makes it, in order for each partition, or has been refused."""

    def append_marker(
        self,
        partition: int,
        epoch: int,
        marker: EndTransactionMarker,
        producer: Producer,
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """As `append`: the end of the producer's transaction in this partition."""

    def when_committed(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        """`on_done` is called once, perhaps before this returns: with NONE when everything that the
        partition holds now is committed, with an error when it is not led here (any more)."""

    def confirm_leading(
        self, partition: int, epoch: int, now_ms: int, on_done: Callable[[bool], None]
    ) -> None:
        """`on_done` is called once, perhaps before this returns: with True when it is certain that
        this broker led `partition` in `epoch` after the call."""

    def reader(self, partition: int) -> PartitionReader | None:
        """A function that reads the whole partition, to be called in another thread; None when
        there is nothing to read. Raises LogError, now or while reading."""


class BrokerInternalTopic:
    """The real topic."""

    def __init__(self, services: Services, settings: InternalTopicSettings) -> None:
        self._services = services
        self.settings = settings
        self._name = settings.name
        self._is_creating = False
        # Who waits for the topic to be made: no more than there are requests under way.
        self._waiting: list[Callable[[], None]] = []

    def topic_id(self) -> uuid.UUID | None:
        topic = self._services.image.topic(DEFAULT_TENANT, self._name)
        return None if topic is None else topic.topic_id

    def partition_count(self) -> int | None:
        topic = self._services.image.topic(DEFAULT_TENANT, self._name)
        return None if topic is None else len(topic.partitions)

    def led_partitions(self) -> Mapping[int, int]:
        topic = self._services.image.topic(DEFAULT_TENANT, self._name)
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
        if image.topic(DEFAULT_TENANT, self._name) is not None:
            return ()
        services, settings = self._services, self.settings
        count = services.config.get_int(settings.partitions_property)
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(services.config.get_int(settings.segment_bytes_property)),
        }
        new = NewPartitions(services, image)
        topic_id = uuid.UUID(int=services.random.getrandbits(128), version=4)
        factor = new.default_factor(settings.replication_factor_property)
        assignments = new.place(count, factor)
        return (
            CreateTopic(
                tenant=DEFAULT_TENANT,
                name=self._name,
                topic_id=topic_id,
                assignments=assignments,
                configs=tuple(configs.items()),
            ),
            *new.initial_states(topic_id, 0, assignments),
        )

    def _created(self, error: BaseException | None) -> None:
        self._is_creating = False
        if error is not None:
            self._services.log.error(
                "internal_topic_not_created", topic=self._name, error=repr(error)
            )
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
        producer: Producer | None = None,
    ) -> None:
        codec = Compression.NONE
        if self.settings.codec_property:
            codec = Compression(self._services.config.get_int(self.settings.codec_property))
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

        def batch() -> bytearray:
            return build_batch(
                records,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=producer is not None,
            )

        self._append(partition, epoch, batch, now_ms, on_done)

    def append_marker(
        self,
        partition: int,
        epoch: int,
        marker: EndTransactionMarker,
        producer: Producer,
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        def batch() -> bytearray:
            return build_end_transaction_marker(
                marker,
                timestamp=self._services.wall_clock.wall_ms(now_ms),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
            )

        self._append(partition, epoch, batch, now_ms, on_done)

    def _append(
        self,
        partition: int,
        epoch: int,
        make_batch: Callable[[], bytearray],
        now_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        services = self._services
        replica = services.partitions.get_by_name(DEFAULT_TENANT, self._name, partition)
        if replica is None or replica.leader_epoch != epoch:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if replica.leader_error is not ErrorCode.NONE:
            # Its disk has failed, and no image has said so yet.
            on_done(replica.leader_error)
            return
        if replica.is_under_min_isr:
            on_done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        batch = make_batch()
        try:
            result = replica.append_as_leader(
                batch, 0, len(batch), now_ms=now_ms, origin="coordinator"
            )
        except LogError as error:
            services.log.error(
                "internal_topic_append_failed",
                topic=self._name,
                partition=partition,
                error=str(error),
            )
            on_done(error.error_code)
            return
        replica.when_committed(result.last_offset, on_done)

    def when_committed(self, partition: int, on_done: Callable[[ErrorCode], None]) -> None:
        partitions = self._services.partitions
        replica = partitions.get_by_name(DEFAULT_TENANT, self._name, partition)
        if replica is None:
            again = partial(self.when_committed, partition, on_done)
            topic_id = self.topic_id()
            if topic_id is None or not partitions.when_loaded(topic_id.bytes, partition, again):
                on_done(partitions.error_by_name(DEFAULT_TENANT, self._name, partition))
            return
        replica.when_committed(replica.log.log_end_offset - 1, on_done)

    def confirm_leading(
        self, partition: int, epoch: int, now_ms: int, on_done: Callable[[bool], None]
    ) -> None:
        services = self._services
        replica = services.partitions.get_by_name(DEFAULT_TENANT, self._name, partition)
        index = services.read_index
        if replica is None or replica.leader_epoch != epoch:
            on_done(False)
        elif index is None:
            on_done(True)
        else:
            timeout_ms = services.config.get_int(self.settings.timeout_property)
            index.confirm(replica, now_ms + timeout_ms, on_done)

    def reader(self, partition: int) -> PartitionReader | None:
        replica = self._services.partitions.get_by_name(DEFAULT_TENANT, self._name, partition)
        if replica is None:
            raise LogError(f"{self._name}-{partition} is not led here")
        log = replica.log
        end_offset = log.log_end_offset
        if log.log_start_offset == end_offset:
            return None
        if not log.is_loaded:
            # Logs are loaded lazily and on the loop only; a cold read of one that is not loaded
            # would find nothing.
            log.load()
        return lambda: read_log(log, log.log_start_offset, end_offset)


def read_log(log: Log, start_offset: int, end_offset: int) -> Iterator[LoggedBatch]:
    """The batches of `log` in [start_offset, end_offset) that say something to a coordinator:
    records, and ends of transactions. For worker threads.

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
                    log.find_damage(header.base_offset)
                    raise CorruptSegment(log.folder, header.position, "a checksum is wrong")
                producer = None
                if header.is_transactional:
                    producer = Producer(header.producer_id, header.producer_epoch)
                records = decode_batch(buffer, header.position)
                if not header.is_control:
                    yield LoggedBatch(records, producer)
                elif records and (marker := read_end_transaction_marker(records[0])) is not None:
                    yield LoggedBatch((), producer, marker)
        offset = result.next_offset
