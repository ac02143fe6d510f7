"""Requests about committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

The group coordinator knows neither topics nor protocol versions. Here the client's names become
those inside and back (namespaces.py), topic ids become names and back, topics and partitions that
do not exist are answered, and answers are put into the form that their version has: several groups
in one OffsetFetch from version 8 on, topic ids from 10 on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar
from uuid import UUID

from data_plane.broker.api import RequestContext
from data_plane.broker.groups import GroupService, Reply, client_of, service_of
from data_plane.broker.services import Services
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
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Part = TypeVar("Part", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)

OFFSET_FETCH_VERSION_WITH_GROUPS: Final = 8
OFFSET_FETCH_VERSION_WITH_ERROR: Final = 2
VERSION_WITH_TOPIC_IDS: Final = 10


def handle_offset_commit(
    services: Services, context: RequestContext, request: OffsetCommitRequest, now_ms: int
) -> Any:
    """Topics and partitions that do not exist are answered here; the rest is committed. A request
    without any that exist does not reach the coordinator, so that it hears of no group error."""
    if not context.names.is_identity:
        context.inward(request)
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if context.api_version >= VERSION_WITH_TOPIC_IDS:
            image = context.topics.by_id(topic.topic_id)
            error = ErrorCode.UNKNOWN_TOPIC_ID if image is None else error
        else:
            image = services.image.topics_by_name.get(topic.name)
        partition_count = 0 if image is None else len(image.partitions)
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
        return context.outward(OffsetCommitResponse(topics=refused))
    request.topics = accepted
    service = service_of(services)
    reply = Reply(lambda response: context.outward(_merge_commit(refused, response)))
    service.carry_out(
        service.coordinator.commit_offsets(request, client_of(context), reply, now_ms), now_ms
    )
    return reply.result()


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


# A group, and the member and its epoch on whose behalf its offsets are asked for.
Asking = tuple[str, str | None, int]


def handle_offset_fetch(
    services: Services, context: RequestContext, request: OffsetFetchRequest, now_ms: int
) -> Any:
    """Offsets are returned only while it is certain that no other broker coordinates the group: a
    consumer that starts from an old offset, or from none, would repeat or skip records."""
    context.inward(request)
    service = service_of(services)
    version = context.api_version
    groups = request.groups
    if version < OFFSET_FETCH_VERSION_WITH_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    groups = without_repetitions(groups)
    reply = Reply(context.outward)

    def confirmed(refused: frozenset[str]) -> None:
        answers = [
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NOT_COORDINATOR)
            if group.group_id in refused
            else _fetch_group(services, context, service, group, request.require_stable)
            for group in groups
        ]
        if version < OFFSET_FETCH_VERSION_WITH_GROUPS:
            reply.answer(_fetch_of_one(groups[0], answers[0], version))
        else:
            reply.answer(OffsetFetchResponse(groups=answers))

    service.confirm([group.group_id for group in groups], now_ms, confirmed)
    return reply.result()


def without_repetitions(
    groups: Iterable[OffsetFetchRequestGroup],
) -> list[OffsetFetchRequestGroup]:
    """`groups` without what a group has been asked for before: an answer may be a thousand times as
    long as the question."""
    answered_whole: set[Asking] = set()
    answered: dict[tuple[Asking, str, UUID], set[int]] = {}
    kept: list[OffsetFetchRequestGroup] = []
    for group in groups:
        asking = (group.group_id, group.member_id, group.member_epoch)
        if group.topics is None:
            if asking in answered_whole:
                continue
            answered_whole.add(asking)
        elif group.topics:
            topics = []
            for topic in group.topics:
                key = (asking, topic.name, topic.topic_id)
                known = answered.setdefault(key, set())
                wanted = dict.fromkeys(topic.partition_indexes)
                topic.partition_indexes = [index for index in wanted if index not in known]
                known.update(topic.partition_indexes)
                if topic.partition_indexes or not wanted:
                    topics.append(topic)
            if not topics:
                continue
            group.topics = topics
        kept.append(group)
    return kept


def _fetch_group(
    services: Services,
    context: RequestContext,
    service: GroupService,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    image = services.image
    if context.api_version < VERSION_WITH_TOPIC_IDS:
        for named in group.topics or ():
            if named.name in image.topics_by_name:
                named.topic_id = image.topics_by_name[named.name].topic_id
        return service.coordinator.fetch_offsets(group, require_stable=require_stable)
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        known: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            topic_image = context.topics.by_id(topic.topic_id)
            if topic_image is None:
                unknown.append(_unknown_topic_id(topic))
            else:
                topic.name = topic_image.name
                known.append(topic)
        group.topics = known
    answer = service.coordinator.fetch_offsets(group, require_stable=require_stable)
    if answer.error_code == 0:
        if group.topics is None:
            # Offsets of topics that are gone have no id to be shown under.
            answer.topics = [each for each in answer.topics if each.name in image.topics_by_name]
            for each in answer.topics:
                each.topic_id = image.topics_by_name[each.name].topic_id
        answer.topics.extend(unknown)
    return answer


def _unknown_topic_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ],
    )


def _fetch_of_one(
    request: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    """The form before version 8; in version 1 a group's error stands at each partition."""
    if answer.error_code != 0 and version < OFFSET_FETCH_VERSION_WITH_ERROR:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=-1,
                            error_code=answer.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
        )
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


def handle_offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest, now_ms: int
) -> Any:
    context.inward(request)
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        image = services.image.topics_by_name.get(topic.name)
        partition_count = 0 if image is None else len(image.partitions)
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
    reply = Reply(lambda response: context.outward(_merge_delete(refused, response)))
    service.carry_out(service.coordinator.delete_offsets(request, reply, now_ms), now_ms)
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
