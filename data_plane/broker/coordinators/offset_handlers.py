"""Requests that change committed offsets: OffsetCommit and OffsetDelete.

The group coordinator knows neither topics nor protocol versions. Here topic ids become names and
back, and topics and partitions that do not exist are answered. Offsets are read in offset_fetch.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from data_plane.broker.coordinators.groups import Reply, client_of, service_of
from data_plane.broker.request.api import RequestContext
from data_plane.broker.services import Services
from data_plane.cell.metadata import TopicImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from data_plane.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from data_plane.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

Part = TypeVar("Part", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)

VERSION_WITH_TOPIC_IDS: Final = 10


def handle_offset_commit(
    services: Services, context: RequestContext, request: OffsetCommitRequest, now_ms: int
) -> Any:
    """Topics and partitions that do not exist are answered here; the rest is committed. A request
    without any that exist does not reach the coordinator, so that it hears of no group error."""
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if context.api_version >= VERSION_WITH_TOPIC_IDS:
            image = context.topics.by_id(topic.topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID if image is None else error
        else:
            image = context.topics.by_name(topic.name)
        partition_count = _partition_count(services, image)
        name = topic.name if image is None else image.name
        topic_id = topic.topic_id if image is None else image.topic_id
        known, unknown = _split(topic.partitions, partition_count)
        if unknown or not topic.partitions:
            answers = [
                OffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=error
                )
                for each in unknown
            ]
            refused.append(
                OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=answers)
            )
        if known:
            accepted.append(
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=known)
            )
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    service = service_of(services)
    reply = Reply(lambda response: _merge_commit(refused, response))
    service.carry_out(
        service.coordinator.commit_offsets(
            context.tenant_id, request, client_of(context), reply, now_ms
        ),
        now_ms,
    )
    return reply.result()


def _partition_count(services: Services, topic: TopicImage | None) -> int:
    return 0 if topic is None else len(services.shown_topics.of(services.image, topic).partitions)


def _split(partitions: list[Part], partition_count: int) -> tuple[list[Part], list[Part]]:
    """The partitions that exist, and those that do not."""
    known: list[Part] = []
    unknown: list[Part] = []
    for each in partitions:
        (known if 0 <= each.partition_index < partition_count else unknown).append(each)
    return known, unknown


def _merge_commit(
    refused: list[OffsetCommitResponseTopic], response: OffsetCommitResponse
) -> OffsetCommitResponse:
    by_name = {topic.name: topic for topic in refused}
    merged = list(refused)
    for topic in response.topics:
        present = by_name.get(topic.name)
        if present is None:
            merged.append(topic)
        else:
            present.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=merged)


def handle_offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest, now_ms: int
) -> Any:
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        image = context.topics.by_name(topic.name)
        partition_count = _partition_count(services, image)
        known, unknown = _split(topic.partitions, partition_count)
        if unknown:
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=each.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for each in unknown
                    ],
                )
            )
        if known:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=known))
    request.topics = accepted
    service = service_of(services)
    reply = Reply(lambda response: _merge_delete(refused, response))
    service.carry_out(
        service.coordinator.delete_offsets(context.tenant_id, request, reply, now_ms), now_ms
    )
    return reply.result()


def _merge_delete(
    refused: list[OffsetDeleteResponseTopic], response: OffsetDeleteResponse
) -> OffsetDeleteResponse:
    if response.error_code != 0:
        return response
    by_name = {topic.name: topic for topic in refused}
    merged = list(refused)
    for topic in response.topics:
        present = by_name.get(topic.name)
        if present is None:
            merged.append(topic)
        else:
            present.partitions.extend(topic.partitions)
    return OffsetDeleteResponse(topics=merged)
