"""The port through which a consumer is shown a part of a partition's records: projections.

    plain partition       a fetch gets byte ranges of its log
    projected partition   a fetch gets what a `Projection` selects of the log's records

A projected partition is either virtual (a name, an id and an index of its own, over a partition of
another topic) or a partition that hides some of its own records. Offsets, high watermark, log start
and leader epochs are those of the partition behind it, its *source*; there is no second log.

What is plugged in registers a `ProjectionProvider` with `Services.projections`. It is asked when a
fetch first meets a partition, and when ListOffsets or OffsetForLeaderEpoch name one. When what it
says of a partition has changed it calls `ProjectedPartition.end`, or `OpenFetches.look_up_again`
for a partition that was plain, and is asked again.

Invariants
- A projection is immutable: of the same batch it selects the same records each time. An edited
  filter is another object.
- Followers' fetches never go through a projection.
- Control batches are not asked about: they are no records.

Deliberately absent: how much is scanned at a time and where (projected_reads.py), which projections
there are (whatever is plugged in).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from data_plane.broker.request.partition_errors import ANY_LEADER_EPOCH
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import BatchHeader, Buffer, unpacked_records

if TYPE_CHECKING:
    from data_plane.broker.replicas.topic_partitions import TopicPartitions
    from data_plane.log.indexes import AbortedTransaction
    from data_plane.log.log import Log
    from data_plane.replica.partition import Partition

# A byte for each record of a batch, zero where it is not shown; or all of them, or none.
Selection = bytes | bytearray | bool


class SourceBatch:
    """A batch of the source's log. Its records are unpacked once, when they are first asked for."""

    __slots__ = ("_records", "buffer", "header")

    def __init__(self, buffer: Buffer, header: BatchHeader) -> None:
        self.buffer = buffer
        self.header = header
        self._records: tuple[Buffer, int, int] | None = None

    def records(self) -> tuple[Buffer, int, int]:
        """(buffer, start, end) of the plain records. Raises InvalidRecords."""
        if self._records is None:
            self._records = unpacked_records(self.buffer, self.header)
        return self._records

    @property
    def unpacked_bytes(self) -> int:
        """How much was unpacked for this batch."""
        if self._records is None or self._records[0] is self.buffer:
            return 0
        return self._records[2]


class Projection(Protocol):
    """Which records of its source a projected partition shows."""

    def candidates(self, log: Log, offset: int, end: int, *, has_shown: bool) -> tuple[int, int]:
        """(start, stop): nothing is shown of [offset, start); something may be shown of
        [start, stop), which is where to read. With `has_shown` the control batches behind what was
        shown before count as shown. `start` is `end` where there is nothing; (offset, end) where
        nothing is known. From memory: it is asked on the loop, and in threads."""

    def prepare(self, log: Log, offset: int) -> None:
        """Have in memory what there is to know of the log around `offset`. In a worker thread.
        Raises LogError."""

    def counted(
        self, log: Log, offset: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> tuple[int, int, int]:
        """(count, start, stop): so many records of [offset, start) are shown, without those of
        `aborted`; those of [start, stop) have to be read to be counted. (0, offset, end) where
        nothing is known. In a worker thread."""

    def select(self, batch: SourceBatch) -> Selection:
        """What is shown of a batch that holds no control record. May run in any thread."""

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        """Up to where, in [offset, end], everything from `offset` on is shown as it is stored, with
        whole batches: that much is read without being looked at. On the loop, from memory."""


class UnindexedProjection:
    """What a projection answers that knows nothing without reading."""

    def candidates(self, log: Log, offset: int, end: int, *, has_shown: bool) -> tuple[int, int]:
        return offset, end

    def prepare(self, log: Log, offset: int) -> None:
        return

    def counted(
        self, log: Log, offset: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> tuple[int, int, int]:
        return 0, offset, end

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        return offset


def find_candidates(
    projection: Projection, log: Log, offset: int, end: int, *, has_shown: bool
) -> tuple[int, int]:
    """As `Projection.candidates`, with all that there is to know. In a worker thread; raises
    LogError."""
    while offset < end:
        projection.prepare(log, offset)
        start, stop = projection.candidates(log, offset, end, has_shown=has_shown)
        if start == offset:
            return start, min(stop, end)
        # It may lie in what nothing was known of yet.
        offset = start
    return end, end


class ProjectionEndWatcher(Protocol):
    """Somebody who reads through a projection."""

    def reader_changed(self) -> None:
        """What is read has to be looked up again."""


class SentListener(Protocol):
    """Who hears what consumers are sent of a virtual topic."""

    def __call__(
        self, topic_id: UUID, index: int, offset: int, next_offset: int, count: int, now_ms: int
    ) -> None:
        """`count` records in [offset, next_offset) of the partition of this number, as clients
        number them; perhaps more than once. What is read from disk as it is stored is not told."""


class ProjectedPartition:
    """A partition that is read through a projection, and the partition that it shows a part of.
    `on_sent` hears what consumers are sent: offset, next offset, count of records, time."""

    __slots__ = ("on_sent", "projection", "source_index", "source_topic_id", "watchers")

    def __init__(
        self,
        source_topic_id: bytes,
        source_index: int,
        projection: Projection,
        on_sent: Callable[[int, int, int, int], None] | None = None,
    ) -> None:
        self.source_topic_id = source_topic_id
        self.source_index = source_index
        self.projection = projection
        self.on_sent = on_sent
        self.watchers: dict[ProjectionEndWatcher, None] = {}

    def end(self) -> None:
        """This holds no more (the filter is another one, the partition is gone): who reads through
        it asks the providers again, and what was scanned is forgotten."""
        for watcher in self.watchers:
            watcher.reader_changed()


class ProjectionProvider(Protocol):
    """Whatever is plugged in that knows projected partitions."""

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        """The tenant's projected partition of that name or that id (the other one is empty), None
        when it is none of this provider's. The same object until it has ended."""


class Projections:
    """All that are known to this broker, and partitions as consumers name them."""

    def __init__(self, partitions: TopicPartitions) -> None:
        self._partitions = partitions
        self._providers: list[ProjectionProvider] = []

    def register(self, provider: ProjectionProvider) -> None:
        """The first provider that knows a partition is the one that counts."""
        self._providers.append(provider)

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        """The tenant's projected partition, by name or by id; None for a plain one."""
        for provider in self._providers:
            projected = provider.find(tenant, topic, topic_id, index)
            if projected is not None:
                return projected
        return None

    # Partitions of a tenant's topics that a request has named (with the id that the image has for
    # them): of a projected one its source.

    def leading(self, tenant: str, topic: str, topic_id: bytes, index: int) -> Partition | None:
        """As `TopicPartitions.get`."""
        projected = self.find(tenant, topic, b"", index)
        if projected is None:
            return self._partitions.get(topic_id, index)
        return self._partitions.get(projected.source_topic_id, projected.source_index)

    def replica(self, tenant: str, topic: str, index: int) -> Partition | None:
        """As `TopicPartitions.replica_by_name`."""
        projected = self.find(tenant, topic, b"", index)
        if projected is None:
            return self._partitions.replica_by_name(tenant, topic, index)
        return self._partitions.replica(projected.source_topic_id, projected.source_index)

    def error(
        self,
        tenant: str,
        topic: str,
        topic_id: bytes,
        index: int,
        current_leader_epoch: int = ANY_LEADER_EPOCH,
    ) -> ErrorCode:
        """As `TopicPartitions.error_of_named`."""
        projected = self.find(tenant, topic, b"", index)
        if projected is None:
            return self._partitions.error_of_named(topic_id, index, current_leader_epoch)
        return self.source_error(projected, current_leader_epoch, is_by_id=False)

    def source_error(
        self, projected: ProjectedPartition, current_leader_epoch: int, *, is_by_id: bool
    ) -> ErrorCode:
        """Why its source is not read here."""
        find = self._partitions.error if is_by_id else self._partitions.error_of_named
        return find(projected.source_topic_id, projected.source_index, current_leader_epoch)

    def current_leader(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> tuple[int, int] | None:
        """As `TopicPartitions.current_leader`."""
        projected = self.find(tenant, topic, topic_id, index)
        if projected is None:
            return self._partitions.current_leader(tenant, topic, topic_id, index)
        return self._partitions.current_leader(
            tenant, "", projected.source_topic_id, projected.source_index
        )
