"""Requests about consumer groups and committed offsets: FindCoordinator to OffsetDelete.

The group coordinator knows neither topics nor protocol versions. Here topic ids become names and
back, topics that do not exist are answered, several groups of one request are asked for one by
one, and answers are put into the form that their version has.

    API              versions   notes
    FindCoordinator  0-6        one key below 4; transactions and share groups are refused
    JoinGroup        0-9        SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5
    OffsetCommit     2-10       topic ids from 10 on
    OffsetFetch      1-10       several groups from 8 on, topic ids from 10 on
    DescribeGroups   0-6        ListGroups 0-5, DeleteGroups 0-2, OffsetDelete 0

Not served: TxnOffsetCommit, ConsumerGroupHeartbeat and what belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.groups import GroupService, Reply
from data_plane.broker.services import Services
from data_plane.groups.effects import ClientContext
from data_plane.groups.partitioning import partition_for_group
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.describe_groups_response import DescribeGroupsResponse
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.join_group_request import JoinGroupRequest
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from data_plane.wire.messages.leave_group_response import LeaveGroupResponse
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.list_groups_response import ListGroupsResponse
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
from data_plane.wire.messages.sync_group_request import SyncGroupRequest
from data_plane.wire.registry import ApiKey

Part = TypeVar("Part", OffsetCommitRequestPartition, OffsetDeleteRequestPartition)

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1
SHARE_KEY_TYPE: Final = 2

FIND_COORDINATOR_VERSION_WITH_KEYS: Final = 4
JOIN_VERSION_WITH_NULL_PROTOCOL: Final = 7
LEAVE_VERSION_WITH_MEMBERS: Final = 3
OFFSET_FETCH_VERSION_WITH_GROUPS: Final = 8
OFFSET_FETCH_VERSION_WITH_ERROR: Final = 2
VERSION_WITH_TOPIC_IDS: Final = 10
DESCRIBE_VERSION_WITH_OPERATIONS: Final = 3

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all that exist for a group.
GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def register(table: HandlerTable) -> None:
    """Serve everything above."""
    for api_key, min_version, max_version, handler in (
        (ApiKey.FIND_COORDINATOR, 0, 6, handle_find_coordinator),
        (ApiKey.JOIN_GROUP, 0, 9, handle_join_group),
        (ApiKey.SYNC_GROUP, 0, 5, handle_sync_group),
        (ApiKey.HEARTBEAT, 0, 4, handle_heartbeat),
        (ApiKey.LEAVE_GROUP, 0, 5, handle_leave_group),
        (ApiKey.OFFSET_COMMIT, 2, 10, handle_offset_commit),
        (ApiKey.OFFSET_FETCH, 1, 10, handle_offset_fetch),
        (ApiKey.OFFSET_DELETE, 0, 0, handle_offset_delete),
        (ApiKey.DESCRIBE_GROUPS, 0, 6, handle_describe_groups),
        (ApiKey.LIST_GROUPS, 0, 5, handle_list_groups),
        (ApiKey.DELETE_GROUPS, 0, 2, handle_delete_groups),
    ):
        table.register(api_key, min_version, max_version, handler)


def _groups(services: Services) -> GroupService:
    service = services.groups
    assert isinstance(service, GroupService)
    return service


def _client(context: RequestContext) -> ClientContext:
    return ClientContext(
        client_id=context.client_id or "",
        # Java's InetAddress.toString, which tools take apart.
        client_host=f"/{context.connection.host}",
        api_version=context.api_version,
    )


# ---- FindCoordinator


def handle_find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, now_ms: int
) -> FindCoordinatorResponse:
    """Where a group's coordinator is. The internal topic is made when it is first asked for."""
    version = context.api_version
    if version >= FIND_COORDINATOR_VERSION_WITH_KEYS:
        found = [
            _find(services, version, request.key_type, key) for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(services, version, request.key_type, request.key)
    error = ErrorCode(one.error_code)
    return FindCoordinatorResponse(
        error_code=error,
        error_message="NONE" if error is ErrorCode.NONE else error.message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(services: Services, version: int, key_type: int, key: str) -> Coordinator:
    service = _groups(services)
    nowhere = Coordinator(key=key, node_id=-1, port=-1)
    if key_type == TRANSACTION_KEY_TYPE:
        # Clients give up on this code at once and show it; a retriable one would have them ask
        # until they time out.
        nowhere.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif key_type != GROUP_KEY_TYPE:
        nowhere.error_code = ErrorCode.INVALID_REQUEST
    else:
        partition_count = service.topic.partition_count()
        if partition_count is None:
            service.topic.create()
            # The topic may be there by now: a store in memory answers within the call.
            partition_count = service.topic.partition_count()
        if partition_count is not None:
            partition = partition_for_group(key, partition_count)
            if partition in service.topic.led_partitions():
                return Coordinator(
                    key=key,
                    node_id=services.node_id,
                    host=services.advertised_host,
                    port=services.advertised_port,
                )
        nowhere.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return nowhere


# ---- membership


def handle_join_group(
    services: Services, context: RequestContext, request: JoinGroupRequest, now_ms: int
) -> Any:
    service = _groups(services)
    has_null = context.api_version >= JOIN_VERSION_WITH_NULL_PROTOCOL
    reply = Reply(_join_with_null if has_null else None)
    service.carry_out(
        service.coordinator.join_group(request, _client(context), reply, now_ms), now_ms
    )
    return reply.result()


def _join_with_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """No protocol is null from version 7 on, and an empty name before."""
    response.protocol_name = response.protocol_name or None
    return response


def handle_sync_group(
    services: Services, context: RequestContext, request: SyncGroupRequest, now_ms: int
) -> Any:
    service = _groups(services)
    reply = Reply()
    service.carry_out(
        service.coordinator.sync_group(request, _client(context), reply, now_ms), now_ms
    )
    return reply.result()


def handle_heartbeat(
    services: Services, context: RequestContext, request: HeartbeatRequest, now_ms: int
) -> Any:
    service = _groups(services)
    reply = Reply()
    service.carry_out(service.coordinator.heartbeat(request, reply, now_ms), now_ms)
    return reply.result()


def handle_leave_group(
    services: Services, context: RequestContext, request: LeaveGroupRequest, now_ms: int
) -> Any:
    service = _groups(services)
    reply = Reply()
    if context.api_version < LEAVE_VERSION_WITH_MEMBERS:
        request.members = [MemberIdentity(member_id=request.member_id)]
        reply = Reply(_leave_of_one)
    service.carry_out(service.coordinator.leave_group(request, reply, now_ms), now_ms)
    return reply.result()


def _leave_of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Before version 3 the one member's error is the request's."""
    error_code = response.error_code
    if error_code == 0 and response.members:
        error_code = response.members[0].error_code
    return LeaveGroupResponse(error_code=error_code)


# ---- offsets


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
            image = services.image.topics_by_id.get(topic.topic_id)
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
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    service = _groups(services)
    reply = Reply(lambda response: _merge_commit(refused, response))
    service.carry_out(
        service.coordinator.commit_offsets(request, _client(context), reply, now_ms), now_ms
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


def handle_offset_fetch(
    services: Services, context: RequestContext, request: OffsetFetchRequest, now_ms: int
) -> OffsetFetchResponse:
    service = _groups(services)
    version = context.api_version
    if version < OFFSET_FETCH_VERSION_WITH_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        answer = _fetch_group(services, service, group, request.require_stable, version)
        return _fetch_of_one(group, answer, version)
    return OffsetFetchResponse(
        groups=[
            _fetch_group(services, service, group, request.require_stable, version)
            for group in request.groups
        ]
    )


def _fetch_group(
    services: Services,
    service: GroupService,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    version: int,
) -> OffsetFetchResponseGroup:
    image = services.image
    if version < VERSION_WITH_TOPIC_IDS:
        for named in group.topics or ():
            if named.name in image.topics_by_name:
                named.topic_id = image.topics_by_name[named.name].topic_id
        return service.coordinator.fetch_offsets(group, require_stable=require_stable)
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        known: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            topic_image = image.topics_by_id.get(topic.topic_id)
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
    service = _groups(services)
    reply = Reply(lambda response: _merge_delete(refused, response))
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


# ---- administration


def handle_describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest, now_ms: int
) -> DescribeGroupsResponse:
    response = _groups(services).coordinator.describe_groups(request.groups, context.api_version)
    if (
        request.include_authorized_operations
        and context.api_version >= DESCRIBE_VERSION_WITH_OPERATIONS
    ):
        for group in response.groups:
            if group.error_code == 0:
                group.authorized_operations = GROUP_OPERATIONS
    return response


def handle_list_groups(
    services: Services, context: RequestContext, request: ListGroupsRequest, now_ms: int
) -> ListGroupsResponse:
    return _groups(services).coordinator.list_groups(request)


def handle_delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest, now_ms: int
) -> Any:
    service = _groups(services)
    reply = Reply()
    group_ids: Iterable[str] = request.groups_names
    service.carry_out(service.coordinator.delete_groups(group_ids, reply, now_ms), now_ms)
    return reply.result()
