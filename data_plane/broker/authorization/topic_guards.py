"""Guards of requests about topics. A topic that is refused is answered by the name that was asked
for; whether there is one is not looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.guards import Answered
from data_plane.cell.acls import AclOperation
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_partitions_response import CreatePartitionsTopicResult
from data_plane.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.delete_topics_response import DeletableTopicResult
from data_plane.wire.messages.describe_delayed_response import DescribeDelayedResponse
from data_plane.wire.messages.describe_producers_response import PartitionResponse, TopicResponse
from data_plane.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from data_plane.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderTopicResult,
)

FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELETE_BY_ID_VERSION: Final = 6
ZERO_ID: Final = UUID(int=0)

Verdict = Callable[[Any], Any] | None


def split(items: Sequence[Any], is_allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Those that are allowed, and those that are not, each in their order."""
    allowed: list[Any] = []
    refused: list[Any] = []
    for item in items:
        (allowed if is_allowed(item) else refused).append(item)
    return allowed, refused


def _each_topic(
    context: RequestContext,
    request: Any,
    operation: int,
    answered: str,
    refuse: Callable[[Any], Any],
    name_of: Callable[[Any], str] = lambda topic: str(topic.name),
) -> Verdict:
    """Of a request with a list `topics`, and a response with a list `answered`."""
    request.topics, refused = split(
        request.topics, lambda topic: context.may_to_topic(operation, name_of(topic))
    )
    if not refused:
        return None

    def complete(response: Any) -> Any:
        getattr(response, answered).extend(map(refuse, refused))
        return response

    return complete


def list_offsets(context: RequestContext, request: Any) -> Verdict:
    def refuse(topic: Any) -> ListOffsetsTopicResponse:
        partitions = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index, error_code=int(FAILED)
            )
            for each in topic.partitions
        ]
        return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)

    return _each_topic(context, request, AclOperation.DESCRIBE, "topics", refuse)


def offset_for_leader_epoch(context: RequestContext, request: Any) -> Verdict:
    if context.may_to_cluster(AclOperation.CLUSTER_ACTION):
        return None

    def refuse(topic: Any) -> OffsetForLeaderTopicResult:
        partitions = [
            EpochEndOffset(partition=each.partition, error_code=int(FAILED))
            for each in topic.partitions
        ]
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    return _each_topic(
        context, request, AclOperation.DESCRIBE, "topics", refuse, lambda topic: str(topic.topic)
    )


def delete_records(context: RequestContext, request: Any) -> Verdict:
    def refuse(topic: Any) -> DeleteRecordsTopicResult:
        partitions = [
            DeleteRecordsPartitionResult(
                partition_index=each.partition_index, low_watermark=-1, error_code=int(FAILED)
            )
            for each in topic.partitions
        ]
        return DeleteRecordsTopicResult(name=topic.name, partitions=partitions)

    return _each_topic(context, request, AclOperation.DELETE, "topics", refuse)


def describe_producers(context: RequestContext, request: Any) -> Verdict:
    def refuse(topic: Any) -> TopicResponse:
        partitions = [
            PartitionResponse(
                partition_index=index, error_code=int(FAILED), error_message=FAILED.message
            )
            for index in topic.partition_indexes
        ]
        return TopicResponse(name=topic.name, partitions=partitions)

    return _each_topic(context, request, AclOperation.READ, "topics", refuse)


def describe_delayed(context: RequestContext, request: Any) -> Any:
    """What is to be cancelled needs the right to cancel, as the commands that follow do."""
    operation = AclOperation.WRITE if request.is_to_cancel else AclOperation.READ
    if context.may_to_topic(operation, request.topic):
        return None
    return Answered(DescribeDelayedResponse(error_code=int(FAILED), error_message=FAILED.message))


def create_partitions(context: RequestContext, request: Any) -> Verdict:
    def refuse(topic: Any) -> CreatePartitionsTopicResult:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=int(FAILED), error_message=None
        )

    return _each_topic(context, request, AclOperation.ALTER, "results", refuse)


def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> Verdict:
    """Who names a topic by its id hears its name only if he may describe it."""
    by_id = context.api_version >= DELETE_BY_ID_VERSION
    refused: list[DeletableTopicResult] = []

    def is_allowed(state: DeleteTopicState) -> bool:
        name = state.name
        if name is None:
            topic = context.topics.by_id(state.topic_id)
            if topic is None:
                return True
            name = topic.name
        if context.may_to_topic(AclOperation.DELETE, name):
            return True
        shown = state.name
        if shown is None and context.may_to_topic(AclOperation.DESCRIBE, name):
            shown = name
        refused.append(
            DeletableTopicResult(
                name=shown,
                topic_id=state.topic_id,
                error_code=int(FAILED),
                error_message=FAILED.message,
            )
        )
        return False

    if by_id:
        request.topics, _ = split(request.topics, is_allowed)
    else:
        request.topic_names, _ = split(
            request.topic_names, lambda name: is_allowed(DeleteTopicState(name=name))
        )
    if not refused:
        return None

    def complete(response: Any) -> Any:
        response.responses.extend(refused)
        return response

    return complete
