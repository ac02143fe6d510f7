"""ListOffsets, versions 1 to 11: offsets by time, and the ends of the log.

    -1  latest: the high watermark, or the last stable offset for read_committed
    -2  earliest: the log start
    -3  the record with the largest timestamp (KIP-734, version 7)
    -4  earliest local: what is on this broker's disk; the log start without an archive (8)
    -5  latest tiered: none without an archive (9)
    -6  earliest pending upload: none without an archive (11, KIP-1023)
    ≥0  the first record whose timestamp is at least this

An answer of offset -1 without an error means that there is no such record.
"""

from __future__ import annotations

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from data_plane.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION = 1
MAX_VERSION = 11

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The first version that knows each special timestamp; others are unsupported below it.
FIRST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
CONSUMER_REPLICA_ID = -1


def handle_list_offsets(
    services: Services, context: RequestContext, request: ListOffsetsRequest, now_ms: int
) -> ListOffsetsResponse:
    """Answer each partition by itself; a partition named twice is an INVALID_REQUEST."""
    is_refused = request.replica_id >= 0 and not context.connection.is_inter_broker
    topics = []
    for topic in request.topics:
        named: set[int] = set()
        twice: set[int] = set()
        for wanted in topic.partitions:
            (twice if wanted.partition_index in named else named).add(wanted.partition_index)
        partitions = []
        for wanted in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            partitions.append(answer)
            if is_refused:
                answer.error_code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            elif wanted.partition_index in twice:
                answer.error_code = int(ErrorCode.INVALID_REQUEST)
            elif wanted.timestamp < EARLIEST_PENDING_UPLOAD or context.api_version < (
                FIRST_VERSION.get(wanted.timestamp, MIN_VERSION)
            ):
                answer.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
            else:
                _look_up(services, topic.name, wanted, request.isolation_level, answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    services: Services,
    topic: str,
    wanted: ListOffsetsPartition,
    isolation_level: int,
    answer: ListOffsetsPartitionResponse,
) -> None:
    partition = services.partitions.get_by_name(topic, wanted.partition_index)
    if partition is None:
        error = services.partitions.error_by_name(topic, wanted.partition_index)
        answer.error_code = int(error)
        return
    error = check_leader_epoch(partition, wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        answer.error_code = int(error)
        return
    limit = partition.high_watermark
    if isolation_level == READ_COMMITTED:
        limit = partition.last_stable_offset
    try:
        found = _find(partition, wanted.timestamp, limit)
    except LogError as failure:
        services.log.error(
            "list_offsets_failed",
            topic=topic,
            partition=wanted.partition_index,
            error=str(failure),
        )
        answer.error_code = int(failure.error_code)
        return
    if found is not None:
        answer.offset, answer.timestamp, answer.leader_epoch = found


def _find(partition: Partition, timestamp: int, limit: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch), or None when there is no such record."""
    log = partition.log
    if timestamp == LATEST:
        return limit, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_for_offset(log.log_start_offset)
        return log.log_start_offset, -1, epoch
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return -1, -1, -1
    if timestamp == MAX_TIMESTAMP:
        return log.max_timestamp_offset(max_offset=limit)
    return log.offset_for_timestamp(timestamp, max_offset=limit)


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Whether the client's idea of the leader epoch is this leader's; -1 says nothing (KIP-320)."""
    if current_leader_epoch < 0 or current_leader_epoch == partition.leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def register(table: HandlerTable) -> None:
    table.register(ApiKey.LIST_OFFSETS, MIN_VERSION, MAX_VERSION, handle_list_offsets)
