"""Static members (KIP-345): a member with a name of its own that outlives its process.

A static member joins with an empty member id whenever its process starts. Its new id takes the
place of the old one, which is fenced: whoever still uses it is told FENCED_INSTANCE_ID.

    Stable, and the selected protocol stays the same
        nobody else notices: the new id is written to the log, and the answer carries the present
        generation. A returning leader is told to keep its assignments (KIP-814), or, in versions
        that cannot say that, is not told that it leads.
    Stable otherwise, or CompletingRebalance
        a rebalance; in CompletingRebalance the leader may be assigning to the old id just now.
    PreparingRebalance
        it has joined, like any other.

Invariants
- The new id is used by nobody before it is in the log; if it cannot be written, the old one stays.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from data_plane.groups.appends import response_error_of_append
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import Member
from data_plane.groups.rebalance import Rebalance
from data_plane.groups.shard import Shard
from data_plane.wire.errors import ErrorCode

JOIN_VERSION_WITH_SKIP_ASSIGNMENT: Final = 9


class StaticMembers:
    """Replaces static members that have come back, for the groups of one shard."""

    def __init__(self, shard: Shard, rebalance: Rebalance) -> None:
        self._shard = shard
        self._rebalance = rebalance

    def replace(
        self,
        group: ClassicGroup,
        old: Member,
        new: Member,
        reason: str | None,
        api_version: int,
        token: ReplyToken,
        now_ms: int,
    ) -> None:
        """`new` asks to join in the place of `old`; the JoinGroup had version `api_version`."""
        self._rebalance.answer_parked(group, old, ErrorCode.FENCED_INSTANCE_ID)
        new.protocol_type = old.protocol_type
        new.client_id, new.client_host = old.client_id, old.client_host
        new.assignment = old.assignment
        leader_id = group.leader_id
        group.replace_static_member(old, new)
        group.park_join(new, token)
        self._rebalance.renew_session(group, new, now_ms)
        why = f"static member {new.group_instance_id} is back; {reason_of(reason)}"
        match group.state:
            case GroupState.STABLE if group.protocol_name == group.select_protocol():
                self._shard.tell(group.group_id, "static_member", why)
                self._persist_replacement(group, old, new, leader_id, api_version, now_ms)
            case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
                # In CompletingRebalance the leader may be assigning to the old id just now.
                self._rebalance.prepare(group, why, now_ms)
            case _:
                self._rebalance.complete_join_if_all_joined(group, now_ms)

    def _persist_replacement(
        self,
        group: ClassicGroup,
        old: Member,
        new: Member,
        leader_id: str | None,
        api_version: int,
        now_ms: int,
    ) -> None:
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        self._shard.appends.append(
            self._shard.group_records(group.group_id, group.as_record(assignments), now_ms),
            now_ms,
            on_outcome=partial(self._end_replacement, group, old, new, leader_id, api_version),
        )

    def _end_replacement(
        self,
        group: ClassicGroup,
        old: Member,
        new: Member,
        leader_id: str | None,
        api_version: int,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        """The new id is in the log, or never will be. By now the member may be replaced again, or
        the group may be rebalancing, which then answers the member."""
        is_current = group.members.get(new.member_id) is new
        if not is_current or group.state is not GroupState.STABLE or new.join_token is None:
            return
        token = group.take_join_token(new)
        # While it waited for the log it was excused, and its session may have ended unseen.
        self._rebalance.renew_session(group, new, now_ms)
        if error is not ErrorCode.NONE:
            self._shard.counters.append_failures += 1
            self._shard.tell(group.group_id, "append_failed", error.name)
            group.replace_static_member(new, old)
            self._rebalance.renew_session(group, old, now_ms)
            response = self._rebalance.join_response(group, old)
            response.member_id, response.members = "", []
            response.leader = leader_id or ""
            response.error_code = response_error_of_append(error)
        elif api_version >= JOIN_VERSION_WITH_SKIP_ASSIGNMENT:
            is_leader = group.is_leader(new.member_id)
            response = self._rebalance.join_response(group, new, skip_assignment=is_leader)
        else:
            # Older clients cannot be told to skip the assignment: a leader sees its old id as the
            # leader's, takes itself for a follower, and so leaves the assignments alone.
            response = self._rebalance.join_response(group, new)
            response.leader, response.members = leader_id or "", []
        self._shard.respond(token, response)


def reason_of(reason: str | None) -> str:
    """Why a client says that it joins or leaves, for the log."""
    return f"client reason: {reason or 'not provided'}"
