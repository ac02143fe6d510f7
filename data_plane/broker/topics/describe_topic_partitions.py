"""DescribeTopicPartitions, version 0: topics and partitions in pages (KIP-966).

Topics come in the order of their names; the cursor names the first partition of the next page.
A page holds at most what the request and `max.request.partition.size.limit` allow, and at least
one partition, so that every client gets on.
"""

from __future__ import annotations

from data_plane.broker.cell.cell_view import NOBODY, View, leader_shown, offline_replicas, view_of
from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.authorized_operations import NOT_ASKED, topic_operations_of
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.cell.acls import AclOperation
from data_plane.cell.metadata import PartitionImage, TopicImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
)
from data_plane.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 0


def handle_describe_topic_partitions(
    services: Services,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    now_ms: int,
) -> DescribeTopicPartitionsResponse:
    topics = context.cell_topics
    asked = {topic.name for topic in request.topics}
    names = sorted(
        asked or (name for name, topic in context.topics.by_names().items() if not topic.is_virtual)
    )
    refused: list[str] = []
    if not context.names.rights.is_open:
        may_describe = [name for name in names if context.may_to_topic(AclOperation.DESCRIBE, name)]
        refused = sorted(asked.difference(may_describe))
        names = may_describe
    first_partition = 0
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
            return _invalid_cursor(request)
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    limit = services.config.get_int("max.request.partition.size.limit")
    budget = max(1, min(limit, request.response_partition_limit))
    view = view_of(services)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        topic = topics.by_name(name)
        if topic is None:
            response.topics.append(_unknown(context, name, topics.is_internal(name)))
            continue
        topic = services.shown_topics.of(services.image, topic)
        if budget == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first_partition)
            break
        end = min(len(topic.partitions), first_partition + budget)
        response.topics.append(_page(context, name, topic, first_partition, end, view))
        budget -= max(0, end - first_partition)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        first_partition = 0
    # Whether there are such topics is not looked at.
    response.topics += [
        DescribeTopicPartitionsResponseTopic(
            error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            name=name,
            topic_authorized_operations=NOT_ASKED,
        )
        for name in refused
    ]
    return response


def _invalid_cursor(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=int(ErrorCode.INVALID_REQUEST),
                name=topic.name,
                topic_authorized_operations=NOT_ASKED,
            )
            for topic in request.topics
        ]
    )


def _unknown(
    context: RequestContext, name: str, is_internal: bool
) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if invalid_name_reason(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code),
        name=name,
        is_internal=is_internal,
        topic_authorized_operations=topic_operations_of(context, name),
    )


def _page(
    context: RequestContext, name: str, topic: TopicImage, first: int, end: int, view: View
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            _partition(index, topic.partitions[index], view.live_for(topic.topic_id, index))
            for index in range(first, end)
        ],
        topic_authorized_operations=topic_operations_of(context, name),
    )


def _partition(
    index: int, partition: PartitionImage, live: frozenset[int]
) -> DescribeTopicPartitionsResponsePartition:
    last_known = partition.last_known_leader
    last_known_elr = partition.last_known_elr
    if not last_known_elr and last_known != NOBODY:
        # Which is all that Apache Kafka has in this field.
        last_known_elr = (last_known,)
    return DescribeTopicPartitionsResponsePartition(
        # As in Apache Kafka: unlike in Metadata, the leader that is not there is no error.
        error_code=int(ErrorCode.NONE),
        partition_index=index,
        leader_id=leader_shown(partition, live),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(last_known_elr),
        offline_replicas=offline_replicas(partition, live),
    )


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        MIN_VERSION,
        MAX_VERSION,
        handle_describe_topic_partitions,
    )
