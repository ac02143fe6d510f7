"""Requests about consumer groups: FindCoordinator to DeleteGroups.

The group coordinator knows neither brokers nor protocol versions: here coordinators are found, and
answers are put into the form that their version has. Requests about offsets are in
offset_handlers and offset_fetch; `register` serves all of them.

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
from typing import Any, Final

from data_plane.broker.cell.cell_view import own_image, reached_by
from data_plane.broker.coordinators.groups import GroupService, Reply, client_of, service_of
from data_plane.broker.coordinators.offset_fetch import OFFSET_FETCH_SLICES, handle_offset_fetch
from data_plane.broker.coordinators.offset_handlers import (
    handle_offset_commit,
    handle_offset_delete,
)
from data_plane.broker.request.api import Deferred, HandlerTable, LongAnswer, RequestContext
from data_plane.broker.request.authorized_operations import GROUP_OPERATIONS
from data_plane.broker.request.large_requests import slices_of
from data_plane.broker.services import Services
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
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
from data_plane.wire.messages.sync_group_request import SyncGroupRequest
from data_plane.wire.registry import ApiKey

GROUP_KEY_TYPE: Final = 0
TRANSACTION_KEY_TYPE: Final = 1
SHARE_KEY_TYPE: Final = 2

FIND_COORDINATOR_VERSION_WITH_KEYS: Final = 4
JOIN_VERSION_WITH_NULL_PROTOCOL: Final = 7
LEAVE_VERSION_WITH_MEMBERS: Final = 3
DESCRIBE_VERSION_WITH_OPERATIONS: Final = 3


def register(table: HandlerTable) -> None:
    """Serve everything above."""
    coordinators = slices_of("coordinator_keys", "coordinators")
    for api_key, min_version, max_version, handler, slices in (
        (ApiKey.FIND_COORDINATOR, 0, 6, handle_find_coordinator, coordinators),
        (ApiKey.JOIN_GROUP, 0, 9, handle_join_group, None),
        (ApiKey.SYNC_GROUP, 0, 5, handle_sync_group, None),
        (ApiKey.HEARTBEAT, 0, 4, handle_heartbeat, None),
        (ApiKey.LEAVE_GROUP, 0, 5, handle_leave_group, None),
        (ApiKey.OFFSET_COMMIT, 2, 10, handle_offset_commit, None),
        (ApiKey.OFFSET_FETCH, 1, 10, handle_offset_fetch, OFFSET_FETCH_SLICES),
        (ApiKey.OFFSET_DELETE, 0, 0, handle_offset_delete, None),
        (ApiKey.DESCRIBE_GROUPS, 0, 6, handle_describe_groups, slices_of("groups", "groups")),
        (ApiKey.LIST_GROUPS, 0, 5, handle_list_groups, None),
        (ApiKey.DELETE_GROUPS, 0, 2, handle_delete_groups, slices_of("groups_names", "results")),
    ):
        table.register(api_key, min_version, max_version, handler, slices=slices)


# ---- FindCoordinator


def handle_find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, now_ms: int
) -> Any:
    """Where a group's coordinator is. The internal topic is made when it is first asked for; the
    answer waits for that, so that the first consumer need not ask again."""
    topic = service_of(services).topic
    if request.key_type != GROUP_KEY_TYPE or topic.partition_count() is not None:
        return _find_all(services, context, request)
    reply = Reply()
    topic.create(lambda: reply.answer(_find_all(services, context, request)))
    return reply.result()


def _find_all(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.api_version >= FIND_COORDINATOR_VERSION_WITH_KEYS:
        found = [
            _find(services, context, request.key_type, key) for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(services, context, request.key_type, request.key)
    error = ErrorCode(one.error_code)
    return FindCoordinatorResponse(
        error_code=error,
        error_message="NONE" if error is ErrorCode.NONE else error.message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(services: Services, context: RequestContext, key_type: int, key: str) -> Coordinator:
    service = service_of(services)
    nowhere = Coordinator(key=key, node_id=-1, port=-1)
    if key_type == TRANSACTION_KEY_TYPE:
        # Clients give up on this code at once and show it; a retriable one would have them ask
        # until they time out.
        nowhere.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif key_type != GROUP_KEY_TYPE:
        nowhere.error_code = ErrorCode.INVALID_REQUEST
    else:
        partition_count = service.topic.partition_count()
        if partition_count is not None:
            partition = partition_for_group(context.tenant_id, key, partition_count)
            leader = _leader(services, service, partition)
            if leader is not None:
                leader = reached_by(services, leader, context.listener)
            if leader is not None:
                return Coordinator(
                    key=key, node_id=leader.node_id, host=leader.host, port=leader.port
                )
        nowhere.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return nowhere


def _leader(services: Services, service: GroupService, partition: int) -> BrokerImage | None:
    """The live broker that leads a partition of the offsets topic, None while there is none."""
    if partition in service.topic.led_partitions():
        return own_image(services)
    topic = services.image.topic(DEFAULT_TENANT, GROUP_METADATA_TOPIC_NAME)
    if topic is None or partition >= len(topic.partitions):
        return None
    broker = services.image.brokers.get(topic.partitions[partition].leader)
    return None if broker is None or broker.is_fenced else broker


# ---- membership


def handle_join_group(
    services: Services, context: RequestContext, request: JoinGroupRequest, now_ms: int
) -> Any:
    service = service_of(services)
    has_null = context.api_version >= JOIN_VERSION_WITH_NULL_PROTOCOL
    reply = Reply(_join_with_null if has_null else None)
    service.carry_out(
        service.coordinator.join_group(
            context.tenant_id, request, client_of(context), reply, now_ms
        ),
        now_ms,
    )
    return reply.result()


def _join_with_null(response: JoinGroupResponse) -> JoinGroupResponse:
    """No protocol is null from version 7 on, and an empty name before."""
    response.protocol_name = response.protocol_name or None
    return response


def handle_sync_group(
    services: Services, context: RequestContext, request: SyncGroupRequest, now_ms: int
) -> Any:
    service = service_of(services)
    reply = Reply()
    service.carry_out(
        service.coordinator.sync_group(
            context.tenant_id, request, client_of(context), reply, now_ms
        ),
        now_ms,
    )
    return reply.result()


def handle_heartbeat(
    services: Services, context: RequestContext, request: HeartbeatRequest, now_ms: int
) -> Any:
    service = service_of(services)
    reply = Reply()
    service.carry_out(
        service.coordinator.heartbeat(context.tenant_id, request, reply, now_ms), now_ms
    )
    return reply.result()


def handle_leave_group(
    services: Services, context: RequestContext, request: LeaveGroupRequest, now_ms: int
) -> Any:
    service = service_of(services)
    reply = Reply()
    if context.api_version < LEAVE_VERSION_WITH_MEMBERS:
        request.members = [MemberIdentity(member_id=request.member_id)]
        reply = Reply(_leave_of_one)
    service.carry_out(
        service.coordinator.leave_group(context.tenant_id, request, reply, now_ms), now_ms
    )
    return reply.result()


def _leave_of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Before version 3 the one member's error is the request's."""
    error_code = response.error_code
    if error_code == 0 and response.members:
        error_code = response.members[0].error_code
    return LeaveGroupResponse(error_code=error_code)


# ---- administration


def handle_describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest, now_ms: int
) -> DescribeGroupsResponse:
    response = service_of(services).coordinator.describe_groups(
        context.tenant_id, request.groups, context.api_version
    )
    if (
        request.include_authorized_operations
        and context.api_version >= DESCRIBE_VERSION_WITH_OPERATIONS
    ):
        for group in response.groups:
            if group.error_code == 0:
                group.authorized_operations = GROUP_OPERATIONS
    for group in response.groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            group.error_message = f"Group {group.group_id} not found."
    return response


def handle_list_groups(
    services: Services, context: RequestContext, request: ListGroupsRequest, now_ms: int
) -> Any:
    """Of very many groups the answer is encoded in a thread, and until then the connection handles
    nothing else."""
    service = service_of(services)

    found = Reply()
    service.carry_out(
        service.coordinator.list_groups(context.tenant_id, request, found, now_ms), now_ms
    )
    response = found.result()
    if not isinstance(response, Deferred):
        return response
    held = context.connection.hold()
    answer: Deferred[LongAnswer] = Deferred()
    response.when_complete(lambda listed: answer.complete(LongAnswer(lambda: listed, held)))
    return answer


def handle_delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest, now_ms: int
) -> Any:
    service = service_of(services)
    reply = Reply()
    group_ids: Iterable[str] = request.groups_names
    service.carry_out(
        service.coordinator.delete_groups(context.tenant_id, group_ids, reply, now_ms), now_ms
    )
    return reply.result()
