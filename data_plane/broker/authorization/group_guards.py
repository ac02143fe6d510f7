"""Guards of requests about groups, and about what they have committed.

Lists of all groups, or of all offsets of a group, are not cut before their handler but after it, by
what may be described; that may be done in a thread, and goes by the rights of the moment at which
the request came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from data_plane.broker.authorization.topic_guards import FAILED as TOPIC_FAILED
from data_plane.broker.authorization.topic_guards import Verdict, split
from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.guards import Answered
from data_plane.cell.acls import AclOperation, AclResourceType
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_response import DeletableGroupResult
from data_plane.wire.messages.describe_groups_response import DescribedGroup
from data_plane.wire.messages.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)
from data_plane.wire.messages.heartbeat_response import HeartbeatResponse
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.leave_group_response import LeaveGroupResponse
from data_plane.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from data_plane.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from data_plane.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from data_plane.wire.messages.sync_group_response import SyncGroupResponse

FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
GROUP_KEY_TYPE: Final = 0
KEYS_VERSION: Final = 4
NULL_PROTOCOL_VERSION: Final = 7
COMMIT_BY_ID_VERSION: Final = 10
FETCH_ERROR_VERSION: Final = 2
FETCH_GROUPS_VERSION: Final = 8
FETCH_BY_ID_VERSION: Final = 10


def _may_describe(context: RequestContext, resource_type: int) -> Callable[[str], bool]:
    """For any thread, by the rights of now."""
    policy = context.names.rights.policy
    principal, host = context.principal, context.client_host

    def may(name: str) -> bool:
        allowed = policy.operations(principal, host, resource_type, name)
        return allowed >> AclOperation.DESCRIBE & 1 != 0

    return may


def find_coordinator(context: RequestContext, request: Any) -> Any:
    """Of groups. Nobody coordinates what has another type, whoever asks."""
    if request.key_type != GROUP_KEY_TYPE:
        return None

    def is_allowed(group_id: str) -> bool:
        return context.may_to_group(AclOperation.DESCRIBE, group_id)

    if context.api_version < KEYS_VERSION:
        if is_allowed(request.key):
            return None
        return Answered(
            FindCoordinatorResponse(
                error_code=int(FAILED), error_message=FAILED.message, node_id=-1, port=-1
            )
        )
    request.coordinator_keys, refused = split(request.coordinator_keys, is_allowed)
    answers = [Coordinator(key=key, node_id=-1, port=-1, error_code=int(FAILED)) for key in refused]
    if not request.coordinator_keys and answers:
        # Nothing is made for who may not use it.
        return Answered(FindCoordinatorResponse(coordinators=answers))
    return _adding(answers, "coordinators")


def _adding(answers: list[Any], field_name: str) -> Verdict:
    if not answers:
        return None

    def complete(response: Any) -> Any:
        getattr(response, field_name).extend(answers)
        return response

    return complete


def _member(refused: Callable[[RequestContext], Any]) -> Callable[[RequestContext, Any], Any]:
    """A request of a member: all or nothing."""

    def guard(context: RequestContext, request: Any) -> Any:
        if context.may_to_group(AclOperation.READ, request.group_id):
            return None
        return Answered(refused(context))

    return guard


join_group = _member(
    lambda context: JoinGroupResponse(
        error_code=int(FAILED),
        protocol_name=None if context.api_version >= NULL_PROTOCOL_VERSION else "",
    )
)
sync_group = _member(lambda context: SyncGroupResponse(error_code=int(FAILED)))
heartbeat = _member(lambda context: HeartbeatResponse(error_code=int(FAILED)))
leave_group = _member(lambda context: LeaveGroupResponse(error_code=int(FAILED)))


def describe_groups(context: RequestContext, request: Any) -> Verdict:
    request.groups, refused = split(
        request.groups, lambda group_id: context.may_to_group(AclOperation.DESCRIBE, group_id)
    )
    allowed = {
        group_id: context.operations_allowed(AclResourceType.GROUP, group_id)
        for group_id in request.groups
    }
    asked = request.include_authorized_operations

    def complete(response: Any) -> Any:
        for group in response.groups:
            if asked and group.error_code == 0:
                group.authorized_operations &= allowed[group.group_id]
        response.groups.extend(
            DescribedGroup(group_id=group_id, error_code=int(FAILED)) for group_id in refused
        )
        return response

    return complete


def list_groups(context: RequestContext, request: Any) -> Verdict:
    if context.may_to_cluster(AclOperation.DESCRIBE):
        return None
    may = _may_describe(context, AclResourceType.GROUP)

    def complete(response: Any) -> Any:
        response.groups = [group for group in response.groups if may(group.group_id)]
        return response

    return complete


def delete_groups(context: RequestContext, request: Any) -> Verdict:
    request.groups_names, refused = split(
        request.groups_names, lambda group_id: context.may_to_group(AclOperation.DELETE, group_id)
    )
    answers = [
        DeletableGroupResult(group_id=group_id, error_code=int(FAILED)) for group_id in refused
    ]
    return _adding(answers, "results")


def _named(context: RequestContext, topic: Any, *, by_id: bool) -> str | None:
    """What a topic of a request is called; None for an id that none has."""
    if not by_id:
        return str(topic.name)
    known = context.topics.by_id(topic.topic_id)
    return None if known is None else known.name


def _split_topics(
    context: RequestContext, topics: Any, operation: int, *, by_id: bool
) -> tuple[list[Any], list[Any]]:
    def is_allowed(topic: Any) -> bool:
        name = _named(context, topic, by_id=by_id)
        return name is None or context.may_to_topic(operation, name)

    return split(topics, is_allowed)


def offset_commit(context: RequestContext, request: Any) -> Any:
    def refuse(topic: Any, error: ErrorCode) -> OffsetCommitResponseTopic:
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=int(error)
            )
            for each in topic.partitions
        ]
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        )

    if not context.may_to_group(AclOperation.READ, request.group_id):
        return Answered(
            OffsetCommitResponse(topics=[refuse(topic, FAILED) for topic in request.topics])
        )
    by_id = context.api_version >= COMMIT_BY_ID_VERSION
    request.topics, refused = _split_topics(context, request.topics, AclOperation.READ, by_id=by_id)
    return _adding([refuse(topic, TOPIC_FAILED) for topic in refused], "topics")


def offset_delete(context: RequestContext, request: Any) -> Any:
    if not context.may_to_group(AclOperation.DELETE, request.group_id):
        return Answered(OffsetDeleteResponse(error_code=int(FAILED)))
    request.topics, refused = _split_topics(context, request.topics, AclOperation.READ, by_id=False)
    answers = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index, error_code=int(TOPIC_FAILED)
                )
                for each in topic.partitions
            ],
        )
        for topic in refused
    ]
    if not answers:
        return None

    def complete(response: Any) -> Any:
        if response.error_code == 0:
            response.topics.extend(answers)
        return response

    return complete


def offset_fetch(context: RequestContext, request: Any) -> Any:
    if context.api_version >= FETCH_GROUPS_VERSION:
        return _fetch_of_groups(context, request)
    may_describe = context.may_to_group(AclOperation.DESCRIBE, request.group_id)
    error = ErrorCode.NONE if may_describe else FAILED
    if request.topics is None:
        if not may_describe:
            return Answered(OffsetFetchResponse(error_code=int(error)))
        return _only_described(context)
    refused = request.topics
    if may_describe:
        request.topics, refused = _split_topics(
            context, request.topics, AclOperation.DESCRIBE, by_id=False
        )
    has_error = context.api_version >= FETCH_ERROR_VERSION
    answers = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1,
                    error_code=int(TOPIC_FAILED if may_describe else FAILED),
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in (refused if may_describe or not has_error else ())
    ]
    if not may_describe:
        return Answered(OffsetFetchResponse(error_code=int(error), topics=answers))
    return _adding(answers, "topics")


def _only_described(context: RequestContext) -> Callable[[Any], Any]:
    may = _may_describe(context, AclResourceType.TOPIC)

    def complete(response: Any) -> Any:
        response.topics = [topic for topic in response.topics if may(topic.name)]
        return response

    return complete


def _fetch_of_groups(context: RequestContext, request: Any) -> Any:
    by_id = context.api_version >= FETCH_BY_ID_VERSION
    request.groups, refused_groups = split(
        request.groups,
        lambda group: context.may_to_group(AclOperation.DESCRIBE, group.group_id),
    )
    failures = [
        OffsetFetchResponseGroup(group_id=group.group_id, error_code=int(FAILED))
        for group in refused_groups
    ]
    if not request.groups and failures:
        return Answered(OffsetFetchResponse(groups=failures))
    refused: dict[str, list[OffsetFetchResponseTopics]] = {}
    whole: set[str] = set()
    for group in request.groups:
        if group.topics is None:
            whole.add(group.group_id)
            continue
        group.topics, topics = _split_topics(
            context, group.topics, AclOperation.DESCRIBE, by_id=by_id
        )
        refused.setdefault(group.group_id, []).extend(map(_refused_offsets, topics))
    may = _may_describe(context, AclResourceType.TOPIC)
    names = {}
    if by_id and whole:
        names = {topic.topic_id: topic.name for topic in context.topics.all()}

    def complete(response: Any) -> Any:
        for group in response.groups:
            if group.error_code != 0:
                continue
            if group.group_id in whole:
                group.topics = [
                    topic
                    for topic in group.topics
                    if may(names.get(topic.topic_id, "") if by_id else topic.name)
                ]
            group.topics.extend(refused.pop(group.group_id, ()))
        response.groups.extend(failures)
        return response

    return complete


def _refused_offsets(topic: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=int(TOPIC_FAILED)
            )
            for index in topic.partition_indexes
        ],
    )
