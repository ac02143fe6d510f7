"""Groups as DescribeGroups and ListGroups show them. Reads only."""

from __future__ import annotations

from typing import Final

from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import Member
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.list_groups_response import ListedGroup

# From this version on an unknown group is an error; before, it is a group that is Dead.
DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6

CLASSIC_GROUP_TYPE: Final = "classic"


def describe_group(group_id: str, group: ClassicGroup | None, api_version: int) -> DescribedGroup:
    """One group with its members; subscriptions are shown while the group is Stable only."""
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        return described
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[_describe_member(group, each, is_stable) for each in group.members.values()],
    )


def _describe_member(
    group: ClassicGroup, member: Member, with_metadata: bool
) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if with_metadata else b"",
        member_assignment=member.assignment,
    )


class GroupFilter:
    """Which groups a ListGroups asks for. Case does not matter; no filter lets all pass."""

    def __init__(self, request: ListGroupsRequest) -> None:
        self._states = {state.strip().lower() for state in request.states_filter or ()}
        types = {each.strip().lower() for each in request.types_filter or ()}
        self._is_of_type = not types or CLASSIC_GROUP_TYPE in types

    def passes(self, group: ClassicGroup) -> bool:
        return self._is_of_type and (not self._states or group.state.value.lower() in self._states)


def list_group(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_GROUP_TYPE,
    )
