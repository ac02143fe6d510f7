"""Who is a member: joining, heartbeats, leaving, and sessions that end.

Kinds of members
- A dynamic member first joins with an empty id. From JoinGroup version 4 on it is only given an id
  (MEMBER_ID_REQUIRED, KIP-394) and is pending until it joins again with it.
- A static member (KIP-345) has a `group_instance_id`; see `static_members` for how it comes back.

Invariants
- A member's session timer runs from its JoinGroup on; only `is_excused_from_heartbeat` saves a
  member whose timer has fired.
- A group exists once anything was answered that presumes it; a refused join creates none.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from data_plane.groups.appends import Reply, response_error_of_append
from data_plane.groups.config import MEMBER_ID_PREFIX_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT_MS
from data_plane.groups.effects import ClientContext, ReplyToken
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import (
    MEMBER_OVERHEAD_BYTES,
    Member,
    Protocols,
    bytes_of_protocols,
)
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.record_formats import GroupRecord
from data_plane.groups.shard import Shard
from data_plane.groups.static_members import StaticMembers, reason_of
from data_plane.groups.totals import GROUP_METADATA_BYTES
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.join_group_request import JoinGroupRequest
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from data_plane.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse

JOIN_VERSION_WITH_REQUIRED_MEMBER_ID: Final = 4


class Membership:
    """Joins, heartbeats and leaves, for the groups of one shard."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance
        self._static = StaticMembers(shard, rebalance)

    # ---- join

    def join(
        self, request: JoinGroupRequest, client: ClientContext, token: ReplyToken, now_ms: int
    ) -> None:
        """Answered when the join phase ends, or at once with an error."""
        protocols = protocols_of(request)
        group = self._shard.groups.get(request.group_id)
        error, member_id = self._join_error(group, request, protocols)
        if error is ErrorCode.NONE and not self._is_admitted(group, request, protocols, now_ms):
            error, member_id = ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        if error is not ErrorCode.NONE:
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and group is not None:
                self._turn_away(group, request.member_id, now_ms)
            self._refuse_join(token, error, member_id)
            return
        is_new_group = group is None
        if group is None:
            group = self._shard.new_group(request.group_id, now_ms)
        if request.member_id == "":
            self._join_new(group, request, protocols, client, token, now_ms)
        elif request.member_id in group.pending_join_timers:
            self._add(group, request, protocols, client, request.member_id, token, now_ms)
        else:
            self._join_again(group, request, protocols, token, now_ms)
        if is_new_group:
            # Kafka writes a group down as soon as it exists, so that a restarted coordinator knows
            # it; without that, nothing would be written before the first generation.
            self._shard.appends.append(
                self._shard.group_records(group.group_id, group_record_of_new(group), now_ms),
                now_ms,
                on_outcome=partial(self._end_creation, group),
            )

    def _join_error(
        self,
        group: ClassicGroup | None,
        request: JoinGroupRequest,
        protocols: Protocols,
    ) -> tuple[ErrorCode, str]:
        """The error that refuses a join, if any, and the member id to answer it with."""
        member_id = request.member_id
        if group is None:
            if member_id != "":
                return ErrorCode.UNKNOWN_MEMBER_ID, member_id
            if not request.protocol_type or not protocols:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""
            return ErrorCode.NONE, ""
        if not self._has_room(group, member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id
        if not group.supports_protocols(request.protocol_type, [name for name, _ in protocols]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id
        if member_id == "":
            return ErrorCode.NONE, ""
        if member_id in group.pending_join_timers:
            if request.group_instance_id is not None:
                # A pending id was given to a dynamic member; Kafka treats this as a bug.
                return ErrorCode.UNKNOWN_SERVER_ERROR, ""
            return ErrorCode.NONE, ""
        error = group.validate_member(member_id, request.group_instance_id)
        if error is ErrorCode.NONE and group.is_empty:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        return error, member_id

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While a group prepares a rebalance, those who have joined count, so that when
        group.max.size was lowered the last to rejoin are turned away; otherwise all members."""
        size_max = self._shard.config.group_max_size
        pending_max = self._shard.config.pending_members_max
        if member_id == "" and len(group.pending_join_timers) >= pending_max:
            return False
        member = group.members.get(member_id)
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                is_parked = member is not None and member.join_token is not None
                return is_parked or group.awaiting_join_count < size_max
            case _:
                return member is not None or len(group.members) < size_max

    def _is_admitted(
        self,
        group: ClassicGroup | None,
        request: JoinGroupRequest,
        protocols: Protocols,
        now_ms: int,
    ) -> bool:
        """Whether there is room for it. Asked last: what is refused here counts as refused by a
        limit, and clients do not come again."""
        if group is None and self._shard.is_one_too_many(request.group_id, now_ms):
            return False
        return self._has_memory(group, request, protocols, now_ms)

    def _has_memory(
        self,
        group: ClassicGroup | None,
        request: JoinGroupRequest,
        protocols: Protocols,
        now_ms: int,
    ) -> bool:
        """Whether all members of the broker would stay within their bytes, and with somebody new
        those of the tenant. Who brings no more than before may always come back; and who brings
        more, as he owns more by now or was loaded with one of his protocols, is not new."""
        present = None
        growth_bytes = bytes_of_protocols(protocols)
        if group is not None:
            member_id = group.static_members.get(request.group_instance_id or "")
            present = group.members.get(member_id or request.member_id)
            # The id that it was given counts already.
            growth_bytes -= group.pending_bytes(request.member_id)
        if present is None:
            growth_bytes += MEMBER_OVERHEAD_BYTES
        else:
            growth_bytes -= bytes_of_protocols(present.protocols)
        if not self._rebalance.has_memory(request.group_id, growth_bytes, now_ms):
            return False
        return present is not None or not self._shard.refuses(
            GROUP_METADATA_BYTES, growth_bytes, request.group_id, now_ms
        )

    def _turn_away(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove_member(group, member)
        elif not group.take_pending_member(member_id):
            return
        self._rebalance.complete_join_if_all_joined(group, now_ms)

    def _refuse_join(self, token: ReplyToken, error: ErrorCode, member_id: str) -> None:
        self._shard.respond(token, JoinGroupResponse(member_id=member_id, error_code=error))

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        client: ClientContext,
        token: ReplyToken,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id
        member_id = self._new_member_id(client.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            existing_id = group.static_members.get(instance_id)
            if existing_id is None:
                self._add(group, request, protocols, client, member_id, token, now_ms)
            else:
                old = group.members[existing_id]
                new = self._new_member(group, request, protocols, client, member_id)
                version = client.api_version
                self._static.replace(group, old, new, request.reason, version, token, now_ms)
        elif client.api_version < JOIN_VERSION_WITH_REQUIRED_MEMBER_ID:
            self._add(group, request, protocols, client, member_id, token, now_ms)
        else:
            self._shard.schedule(
                group.add_pending_member(member_id),
                now_ms + request.session_timeout_ms,
                partial(self._expire_pending, group, member_id),
            )
            self._shard.respond(
                token,
                JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED),
            )

    def _new_member_id(self, prefix: str) -> str:
        if len(prefix) * 4 > MEMBER_ID_PREFIX_BYTES_MAX:
            encoded = prefix.encode()[:MEMBER_ID_PREFIX_BYTES_MAX]
            prefix = encoded.decode(errors="ignore")
        return f"{prefix}-{self._shard.new_uuid()}"

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        client: ClientContext,
        member_id: str,
        token: ReplyToken,
        now_ms: int,
    ) -> None:
        member = self._new_member(group, request, protocols, client, member_id)
        member.is_new = True
        member.join_token = token
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is GroupState.EMPTY
        ):
            group.new_member_added = True
        group.add_member(member)
        self._rebalance.end_session_at(group, member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(
            group, f"new member {member_id}; {reason_of(request.reason)}", now_ms
        )

    def _new_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        client: ClientContext,
        member_id: str,
    ) -> Member:
        return Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
        )

    def _join_again(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        token: ReplyToken,
        now_ms: int,
    ) -> None:
        member = group.members[request.member_id]
        is_unchanged = member.protocols == protocols
        is_leader = group.is_leader(member.member_id)
        if is_unchanged and (
            group.state is GroupState.COMPLETING_REBALANCE
            or (group.state is GroupState.STABLE and not is_leader)
        ):
            # It may have missed the answer to its last join. A Stable group's leader, though, joins
            # again to ask for a rebalance: the topics it assigns may have changed.
            self._shard.respond(token, self._rebalance.join_response(group, member))
            return
        reason = f"{member.member_id} joins again; {reason_of(request.reason)}"
        self._update_and_park(group, member, request, protocols, token)
        self._rebalance.prepare_or_complete(group, reason, now_ms)

    def _update_and_park(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinGroupRequest,
        protocols: Protocols,
        token: ReplyToken,
    ) -> None:
        group.update_member(
            member,
            protocols,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
        )
        self._shard.respond(
            group.park_join(member, token),
            JoinGroupResponse(
                member_id=member.member_id, error_code=ErrorCode.REBALANCE_IN_PROGRESS
            ),
        )

    def _end_creation(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        """A new group could not be written down: forget it, and answer those who wait in it."""
        if error is ErrorCode.NONE or group.state is GroupState.DEAD:
            return
        self._shard.counters.append_failures += 1
        self._shard.tell(group.group_id, "append_failed", error.name)
        if group.generation_id > 0:
            return  # It has had a generation since, which is written on its own.
        for member in group.members.values():
            self._rebalance.answer_parked(group, member, response_error_of_append(error))
        self._shard.drop_group(group, now_ms)

    # ---- heartbeat

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        group = self._shard.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.validate_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.renew_session(group, group.members[request.member_id], now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # ---- leave

    def leave(self, request: LeaveGroupRequest, token: ReplyToken, now_ms: int) -> None:
        """Remove members; each is answered for itself. The group reacts once, at the end; when it
        is empty then, the answer waits until that is written."""
        group = self._shard.groups.get(request.group_id)
        if group is not None and group.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._shard.respond(token, LeaveGroupResponse(error_code=error))
            return
        answers: list[MemberResponse] = []
        for identity in request.members:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                error = self._leave_one(group, identity)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        response = LeaveGroupResponse(members=answers)
        newest_id = self._shard.appends.newest_id
        if group is not None and any(answer.error_code == 0 for answer in answers):
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance.prepare(group, "members left", now_ms)
            else:
                self._rebalance.complete_join_if_all_joined(group, now_ms)
        if self._shard.appends.newest_id == newest_id:
            self._shard.respond(token, response)
        else:
            self._shard.appends.reply_with_newest(
                Reply(token, response, lambda error: LeaveGroupResponse(error_code=error))
            )

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == "":
            # An administrator removes a static member by its instance id alone.
            static_id = None if instance_id is None else group.static_members.get(instance_id)
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif group.take_pending_member(member_id):
            return ErrorCode.NONE
        else:
            error = group.validate_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._shard.tell(
            group.group_id, "member_left", f"{member_id}; {reason_of(identity.reason)}"
        )
        self._rebalance.remove_member(group, group.members[member_id])
        return ErrorCode.NONE

    # ---- ids that nobody uses

    def _expire_pending(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        if (
            group.take_pending_member(member_id)
            and group.state is GroupState.PREPARING_REBALANCE
            and group.has_all_members_joined
        ):
            self._rebalance.complete_join(group, now_ms)

    # ---- loading

    def restore(self, group_id: str, record: GroupRecord, now_ms: int) -> None:
        """Bring a group back as the log has it; its members' sessions begin anew."""
        group = self._shard.new_group(group_id, None)
        members = []
        for each in record.members:
            member = Member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.session_timeout_ms,
                protocol_type=record.protocol_type,
                protocols=((record.protocol_name or "", each.subscription),),
                assignment=each.assignment,
            )
            members.append(member)
            self._rebalance.resume_session(group, member, now_ms)
        group.restore(record, members)

    def shrink(self, group_id: str, now_ms: int) -> None:
        """A group has been loaded with more members than are allowed by now: of those who join
        again, the last are turned away."""
        group = self._shard.groups.get(group_id)
        size_max = self._shard.config.group_max_size
        if group is not None and group.state is GroupState.STABLE and len(group.members) > size_max:
            self._rebalance.prepare(group, f"more than {size_max} members were loaded", now_ms)


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """The protocols of a join in the member's order; of a repeated name the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(protocols.items())


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """JoinGroup version 0 has one time-out for both purposes; it decodes as -1 here."""
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return max(request.rebalance_timeout_ms, 0)


def group_record_of_new(group: ClassicGroup) -> GroupRecord:
    """A group that has had no generation yet."""
    return GroupRecord("", 0, None, None, group.current_state_timestamp_ms, ())
