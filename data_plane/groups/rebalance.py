"""How a group gets from one generation to the next: the join phase and the sync phase.

Join phase. Something changed (`prepare`): members learn of it from their heartbeats and join
again; their requests are parked. When all have joined, or the longest rebalance time-out has
passed, a new generation begins (`complete_join`) and everybody is answered; the leader gets the
members' metadata.
A group's first rebalance waits `group.initial.rebalance.delay.ms` for more members, and again that
long after each newcomer, within the rebalance time-out.

Sync phase. Members ask for their assignment; their requests are parked. The leader's request brings
the assignments: they are written to the log, and when that is done everybody is answered and
the group is Stable. Who has not asked within the rebalance time-out is removed.

Invariants
- A parked request is answered when its member leaves, is replaced or removed, or its phase ends.
- A generation's assignments are written at most once; a leader that asks twice is parked twice.
- Members are never answered with an assignment that is not in the log.
- Assignments beyond `members_max_bytes` are refused, and everybody who waits for one is told.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from data_plane.groups.appends import response_error_of_append
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import Member
from data_plane.groups.shard import Bound, Shard
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from data_plane.wire.messages.sync_group_request import SyncGroupRequest
from data_plane.wire.messages.sync_group_response import SyncGroupResponse

# When nobody joined in time, the wait starts again; a time-out of 0 must not spin the loop.
JOIN_RETRY_MS_MIN: Final = 100

# From this version on a SyncGroup must name the protocol type and name.
_SYNC_VERSION_WITH_PROTOCOL: Final = 5


class Rebalance:
    """The two phases, for the groups of one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    # ---- join phase

    def prepare_or_complete(self, group: ClassicGroup, reason: str, now_ms: int) -> None:
        """React to a change of the members: begin a join phase, or see whether it can end."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_join_if_all_joined(group, now_ms)
        else:
            self.prepare(group, reason, now_ms)

    def prepare(self, group: ClassicGroup, reason: str, now_ms: int) -> None:
        """Begin a join phase."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.pending_sync_members.clear()
        group.sync_timer.cancel()
        is_initial = group.is_empty
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        self._shard.counters.rebalances_started += 1
        self._shard.tell(
            group.group_id,
            "preparing_rebalance",
            f"generation {group.generation_id}, {len(group.members)} members: {reason}",
        )
        if is_initial:
            delay_ms = self._shard.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_initial(group, delay_ms, remaining_ms, now_ms)
        elif group.has_all_members_joined:
            self.complete_join(group, now_ms)
        else:
            self._schedule_join_end(group, group.rebalance_timeout_ms, now_ms)

    def complete_join_if_all_joined(self, group: ClassicGroup, now_ms: int) -> None:
        """End the join phase early, except a group's first: that one waits for its delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self.complete_join(group, now_ms)

    def complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """End the join phase with those who have joined, and the static members who have not."""
        group.join_timer.cancel()
        for member in list(group.members.values()):
            if member.join_token is None and not member.is_static:
                self._shard.tell(group.group_id, "member_removed", f"{member.member_id}: no rejoin")
                self.remove_member(group, member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none of them is here: wait until they return or
            # their sessions end.
            retry_ms = max(group.rebalance_timeout_ms, JOIN_RETRY_MS_MIN)
            self._schedule_join_end(group, retry_ms, now_ms)
            return
        group.new_member_added = False
        group.init_next_generation(now_ms)
        if group.is_empty:
            self._persist_empty(group, now_ms)
            return
        self._shard.tell(
            group.group_id,
            "new_generation",
            f"generation {group.generation_id}, {len(group.members)} members, "
            f"protocol {group.protocol_name}, leader {group.leader_id}",
        )
        for member in group.members.values():
            self._shard.respond(group.take_join_token(member), self.join_response(group, member))
            self.renew_session(group, member, now_ms)
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
        self._shard.schedule(
            group.sync_timer,
            now_ms + group.rebalance_timeout_ms,
            partial(self._expire_pending_sync, group, group.generation_id),
        )

    def join_response(
        self, group: ClassicGroup, member: Member, *, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The present generation as one member sees it; the leader sees all members."""
        members = []
        if group.is_leader(member.member_id):
            members = [
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata(group.protocol_name),
                )
                for each in group.members.values()
            ]
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    def _schedule_initial(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int
    ) -> None:
        action = partial(self._end_initial_delay, group, delay_ms, remaining_ms)
        self._shard.schedule(group.join_timer, now_ms + delay_ms, action)

    def _schedule_join_end(self, group: ClassicGroup, delay_ms: int, now_ms: int) -> None:
        action = partial(self.complete_join, group)
        self._shard.schedule(group.join_timer, now_ms + delay_ms, action)

    def _end_initial_delay(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int
    ) -> None:
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            configured_ms = self._shard.config.group_initial_rebalance_delay_ms
            self._schedule_initial(
                group, min(configured_ms, remaining_ms), max(remaining_ms - delay_ms, 0), now_ms
            )
        else:
            self.complete_join(group, now_ms)

    def _persist_empty(self, group: ClassicGroup, now_ms: int) -> None:
        """Write that the group has no members. A failure needs no answer: if the log then still
        says that the last generation lives, its members' sessions end after the next load."""
        self._shard.tell(group.group_id, "empty", f"generation {group.generation_id}")
        self._shard.appends.append(
            self._shard.group_records(group.group_id, group.as_record({}), now_ms),
            now_ms,
            on_outcome=partial(self._note_failure, group),
        )

    def _note_failure(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        if error is not ErrorCode.NONE:
            self._shard.counters.append_failures += 1
            self._shard.tell(group.group_id, "append_failed", error.name)

    # ---- sync phase

    def sync(
        self, request: SyncGroupRequest, api_version: int, token: ReplyToken, now_ms: int
    ) -> None:
        """A member asks for its assignment; the leader brings everybody's."""
        group = self._shard.groups.get(request.group_id)
        error = self._sync_error(group, request, api_version)
        if group is None or error is not ErrorCode.NONE:
            self._shard.respond(token, SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            self._shard.respond(
                token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            )
            return
        group.pending_sync_members.pop(member.member_id, None)
        if not group.pending_sync_members:
            group.sync_timer.cancel()
        if group.state is GroupState.STABLE:
            self._shard.respond(token, self._sync_response(group, member))
            return
        replaced, member.sync_token = member.sync_token, token
        self._shard.respond(replaced, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        if group.is_leader(member.member_id) and not group.is_sync_in_flight:
            self._persist_assignments(group, request, now_ms)

    def _sync_error(
        self, group: ClassicGroup | None, request: SyncGroupRequest, api_version: int
    ) -> ErrorCode:
        protocol_type, protocol_name = request.protocol_type, request.protocol_name
        if api_version >= _SYNC_VERSION_WITH_PROTOCOL and None in (protocol_type, protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group is None or group.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.validate_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if _differ(protocol_type, group.protocol_type) or _differ(
            protocol_name, group.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _persist_assignments(
        self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int
    ) -> None:
        brought = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: brought.get(member_id, b"") for member_id in group.members}
        growth_bytes = sum(map(len, assignments.values()))
        growth_bytes -= sum(len(member.assignment) for member in group.members.values())
        if not self.has_memory(group.group_id, growth_bytes, now_ms):
            self._reset_assignments(group, ErrorCode.GROUP_MAX_SIZE_REACHED, now_ms)
            self.prepare(group, "no memory left for the assignment", now_ms)
            return
        group.is_sync_in_flight = True
        self._shard.appends.append(
            self._shard.group_records(group.group_id, group.as_record(assignments), now_ms),
            now_ms,
            on_outcome=partial(self._end_sync, group, group.generation_id, assignments),
        )

    def has_memory(self, group_id: str, growth_bytes: int, now_ms: int) -> bool:
        """Whether members may take so much more of the broker's memory. The tenant's own limit is
        for who is new: a group would come to no end of its rebalances, could its members not be
        given the partitions of one that has gone."""
        if growth_bytes <= 0:
            return True
        shard = self._shard
        used, own = shard.totals.whole.member_bytes, shard.totals.tenant.member_bytes
        bound = Bound("bytes of members", shard.config.members_max_bytes, used, own)
        return shard.has_room(bound, growth_bytes, group_id, now_ms)

    def _end_sync(
        self,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        """The assignments are in the log, or never will be. By now the group may be elsewhere."""
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != generation_id
        ):
            return
        group.is_sync_in_flight = False
        if error is not ErrorCode.NONE:
            self._note_failure(group, error, now_ms)
            self._reset_assignments(group, response_error_of_append(error), now_ms)
            self.prepare(group, f"{error.name} when storing the assignment", now_ms)
            return
        for member in group.members.values():
            group.assign(member, assignments[member.member_id])
            token, member.sync_token = member.sync_token, None
            if token is not None:
                self._shard.respond(token, self._sync_response(group, member))
                self.renew_session(group, member, now_ms)
        group.transition_to(GroupState.STABLE, now_ms)
        self._shard.counters.rebalances_completed += 1
        self._shard.tell(group.group_id, "stable", f"generation {group.generation_id}")

    def _reset_assignments(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        for member in group.members.values():
            group.assign(member, b"")
            token, member.sync_token = member.sync_token, None
            if token is not None:
                self._shard.respond(token, SyncGroupResponse(error_code=error))
                self.renew_session(group, member, now_ms)

    def _expire_pending_sync(self, group: ClassicGroup, generation_id: int, now_ms: int) -> None:
        assert generation_id == group.generation_id
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if not group.pending_sync_members:
            return
        silent = [group.members[member_id] for member_id in sorted(group.pending_sync_members)]
        for member in silent:
            self._shard.tell(group.group_id, "member_removed", f"{member.member_id}: no sync")
            self.remove_member(group, member)
        self.prepare(group, f"{len(silent)} members did not sync in time", now_ms)

    @staticmethod
    def _sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    # ---- members

    def renew_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """The member has been heard of: its session ends so long from now."""
        self.end_session_at(group, member, now_ms + member.session_timeout_ms)

    def end_session_at(self, group: ClassicGroup, member: Member, end_ms: int) -> None:
        action = partial(self._expire_session, group, member)
        self._shard.schedule(member.session_timer, end_ms, action)

    def resume_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """The member was loaded with its group. It has a whole session from when it can be heard:
        groups are restored one by one, and requests are answered when all of them are."""
        opened_ms = self._shard.opened_ms
        end_ms = (now_ms if opened_ms is None else opened_ms) + member.session_timeout_ms
        if opened_ms is not None and end_ms <= now_ms:
            self._expire_session(group, member, now_ms)
        else:
            action = partial(self.resume_session, group, member)
            self._shard.schedule(member.session_timer, end_ms, action)

    def _expire_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        if member.is_excused_from_heartbeat:
            return
        self._shard.counters.members_expired += 1
        self._shard.tell(group.group_id, "member_removed", f"{member.member_id}: session expired")
        self.remove_member(group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, f"session of {member.member_id} expired", now_ms)
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self.complete_join(group, now_ms)

    def answer_parked(self, group: ClassicGroup, member: Member, error: ErrorCode) -> None:
        """Answer what a member is waiting for, because it will not come."""
        member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        self._shard.respond(
            group.take_join_token(member),
            JoinGroupResponse(member_id=member_id, error_code=error),
        )
        token, member.sync_token = member.sync_token, None
        self._shard.respond(token, SyncGroupResponse(error_code=error))

    def remove_member(self, group: ClassicGroup, member: Member) -> None:
        """Take a member out. A client that is still there learns that it has to join anew."""
        self.answer_parked(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove_member(member.member_id)


def _differ(asked: str | None, present: str | None) -> bool:
    return asked is not None and present is not None and asked != present
