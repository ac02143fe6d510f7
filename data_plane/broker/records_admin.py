"""DeleteRecords, versions 0 to 2: move the log start of partitions up.

-1 means the high watermark. Records of internal topics are the broker's own and stay. With one
replica the new log start is everybody's at once, so nothing waits.
"""

from __future__ import annotations

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.cell.metadata import INTERNAL_TOPICS
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_records_request import DeleteRecordsRequest
from data_plane.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
NO_LOW_WATERMARK = -1


def handle_delete_records(
    services: Services, context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> DeleteRecordsResponse:
    # A partition named twice is one partition: the last offset counts, as in Kafka.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete(services, name, index, offset) for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted.items()
        ]
    )


def _delete(services: Services, name: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
    if name in INTERNAL_TOPICS:
        result.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return result
    partition = services.partitions.get_by_name(name, index)
    if partition is None:
        result.error_code = int(services.partitions.error_by_name(name, index))
        return result
    before = partition.log.log_start_offset
    try:
        result.low_watermark = partition.log.delete_records(offset)
    except LogError as error:
        result.error_code = int(error.error_code)
        return result
    if partition.log.log_start_offset != before:
        partition.log_start_changed()
    return result


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DELETE_RECORDS, MIN_VERSION, MAX_VERSION, handle_delete_records)
