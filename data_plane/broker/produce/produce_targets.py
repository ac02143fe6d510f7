"""Where the records of a Produce request go, and what is said to those whose records go nowhere."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from data_plane.broker.produce.produce_checks import Refusal
from data_plane.broker.produce.produce_response import TOPIC_IDS_VERSION, PartitionAnswer
from data_plane.broker.produce.produce_rights import is_virtual
from data_plane.broker.produce.takers import TakenPartition
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.partition_errors import UNKNOWN_PARTITION_CODES
from data_plane.broker.services import Services
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import ProducePartition


class ProduceTargets:
    """Of one request. `needs_all`: it asks for acks=all."""

    __slots__ = ("_context", "_needs_all", "_services", "_tenant")

    def __init__(self, services: Services, context: RequestContext, *, needs_all: bool) -> None:
        self._services = services
        self._context = context
        self._tenant = context.names.tenant
        self._needs_all = needs_all

    def find(
        self, topic_id: bytes, piece: ProducePartition, answer: PartitionAnswer
    ) -> Partition | None:
        """The plain partition to append to, or None when the answer says why not."""
        partitions = self._services.partitions
        index = piece.partition_index
        partition = partitions.get(topic_id, index, self._tenant)
        # An id may be anybody's, or of a topic that is deleted.
        is_ours = partition is not None and partition.tenant == self._tenant
        if partition is None or partition.leader_error is not ErrorCode.NONE or not is_ours:
            if not is_virtual(self._context, topic_id, index, answer):
                answer.fail(self.why_not_here(topic_id, index))
            return None
        if partition.topic in partitions.internal_topics and partition.tenant == DEFAULT_TENANT:
            answer.fail(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot append to internal topic {partition.topic}",
            )
            return None
        return self._fit(partition, piece, answer)

    def find_taken(
        self, taken: TakenPartition, piece: ProducePartition, answer: PartitionAnswer
    ) -> Partition | None:
        """The same, of a taken one."""
        if taken.refusal:
            answer.fail(ErrorCode.INVALID_RECORD, taken.refusal)
            return None
        topic_id = taken.topic.id_bytes
        partition = self._services.partitions.get(topic_id, taken.own_index)
        if partition is None or partition.leader_error is not ErrorCode.NONE:
            answer.fail(self.why_not_here(topic_id, taken.own_index))
            return None
        return self._fit(partition, piece, answer)

    def _fit(
        self, partition: Partition, piece: ProducePartition, answer: PartitionAnswer
    ) -> Partition | None:
        """It, if something is to be appended that can be as safe as is asked for."""
        if piece.records_start < 0 or piece.records_start == piece.records_end:
            answer.fail(
                ErrorCode.INVALID_RECORD,
                "Produce requests must have at least one record batch per partition",
            )
            return None
        if self._needs_all and partition.leadership is not None and partition.is_under_min_isr:
            answer.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            answer.log_start_offset = partition.log.log_start_offset
            return None
        return partition

    def why_not_here(self, topic_id: bytes, index: int) -> ErrorCode:
        """Why this broker has no such partition to append to."""
        partitions = self._services.partitions
        if self._context.api_version < TOPIC_IDS_VERSION:
            return partitions.error_of_named(topic_id, index)
        is_known = self._context.topics.by_id(UUID(bytes=topic_id)) is not None
        if not (is_known or self._context.connection.is_inter_broker):
            return ErrorCode.UNKNOWN_TOPIC_ID
        return partitions.error(topic_id, index)

    def refuse(self, refusal: Refusal, partition: Partition, answer: PartitionAnswer) -> None:
        self._services.counters.refused_batches += 1
        answer.fail(refusal.error_code, refusal.message, refusal.named)
        if refusal.tells_log_start:
            answer.log_start_offset = partition.log.log_start_offset

    def refuse_acks(self, topic_id: bytes, index: int, answer: PartitionAnswer) -> None:
        """Of acks that there are not. Who names an unknown partition hears of that, as in Kafka."""
        error = self.why_not_here(topic_id, index)
        answer.fail(error if error in UNKNOWN_PARTITION_CODES else ErrorCode.INVALID_REQUIRED_ACKS)

    def awaits_load(self, topic_id: bytes, index: int, on_ended: Callable[[], None]) -> bool:
        """Whether a thread is loading the log; `on_ended` is called when that has ended."""
        context = self._context
        is_known = context.topics.by_id(UUID(bytes=topic_id)) is not None
        return (is_known or context.connection.is_inter_broker) and (
            self._services.partitions.when_loaded(topic_id, index, on_ended)
        )


def count_stored(
    services: Services, partition: Partition, record_count: int, size_bytes: int
) -> None:
    """A batch was appended, or was a duplicate."""
    counters = services.counters
    counters.produced_batches += 1
    counters.produced_records += record_count
    counters.produced_bytes += size_bytes
    use = partition.use
    use.batches_in += 1
    use.records_in += record_count
    use.bytes_in += size_bytes
