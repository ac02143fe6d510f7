"""DescribeProducers, version 0: who has been writing to a partition, and with which sequence.

Any replica answers for itself, followers too (KIP-664: `kafka-transactions.sh describe-producers
--broker-id`): what they remember of producers is what they will go by when they lead.
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.cell.metadata import TopicImage
from data_plane.cell.virtual_topics import source_name
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_producers_request import DescribeProducersRequest
from data_plane.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 0


def handle_describe_producers(
    services: Services, context: RequestContext, request: DescribeProducersRequest, now_ms: int
) -> DescribeProducersResponse:
    """Each partition once, however often it is named: it may have many producers."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            _describe_topic(services, context, name, indexes) for name, indexes in wanted.items()
        ]
    )


def _describe_topic(
    services: Services, context: RequestContext, name: str, indexes: Iterable[int]
) -> TopicResponse:
    reason = invalid_name_reason(name)
    topic = context.topics.by_name(name)
    return TopicResponse(
        name=name, partitions=[_describe(services, topic, index, reason) for index in indexes]
    )


def _describe(
    services: Services, topic: TopicImage | None, index: int, reason: str | None
) -> PartitionResponse:
    response = PartitionResponse(partition_index=index)
    if reason is not None:
        response.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        response.error_message = reason
        return response
    if topic is None:
        # Kafka explains an unknown topic, not an unknown partition of a known one.
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.error_code, response.error_message = int(unknown), unknown.message
        return response
    if topic.is_virtual:
        response.error_code = int(ErrorCode.INVALID_REQUEST)
        response.error_message = f"Its producers are those of topic '{source_name(topic)}'."
        return response
    partition = services.partitions.replica(topic.topic_id, index)
    if partition is None:
        response.error_code = int(services.partitions.error_of_named(topic.topic_id, index))
        return response
    try:
        entries = partition.log.producer_states().producers.values()
    except LogError as error:
        response.error_code = int(error.error_code)
        response.error_message = str(error)
        return response
    response.active_producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in entries
    ]
    return response


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_PRODUCERS, MIN_VERSION, MAX_VERSION, handle_describe_producers)
