"""One classic group: its members, its state, and what may be said of them.

This module holds data and the questions that can be answered from it alone. When a group moves
from one state to the next, who is answered and what is written to the log is decided in
`rebalance`, `membership` and `group_deletion`.

    Empty ──first join──► PreparingRebalance ──all joined, or time-out──► CompletingRebalance
      ▲                     │      ▲    ▲                                  │            │
      └──all have left──────┘      │    └──member joins, leaves, expires───┘     leader's assignment
                                   └──member joins, leaves, expires──── Stable ◄────────┘
    any ──deleted or expired──► Dead

Invariants
- `leader_id` names a member whenever there are members.
- The protocol type is one for all members, and some protocol is supported by all of them.
- `awaiting_join_count` is the number of members with a parked JoinGroup.
- A pending member has been given its id (KIP-394) but is not a member yet; an id is never both.

Deliberately absent: the meaning of member metadata and assignments. They are the clients' bytes,
except that the topics of a consumer's subscription can be read (see `subscription`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from data_plane.groups.deadlines import Timer
from data_plane.groups.effects import ReplyToken
from data_plane.groups.group_state import GroupState
from data_plane.groups.member import Member, Protocols
from data_plane.groups.record_formats import GroupRecord, MemberRecord
from data_plane.groups.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    decode_subscribed_topics,
)
from data_plane.groups.totals import ShardTotals
from data_plane.wire.errors import ErrorCode

GENERATION_ID_MAX: Final = 2**31 - 1


# What an id that nobody has used yet takes beside its text: see MEMBER_OVERHEAD_BYTES.
PENDING_ID_OVERHEAD_BYTES: Final = 700


_PREVIOUS_STATES: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class ClassicGroup:
    """A group of the classic protocol, or a simple group: offsets only, no protocol type."""

    __slots__ = (
        "_protocol_votes",
        "_state",
        "_totals",
        "_wall_ms",
        "awaiting_join_count",
        "current_state_timestamp_ms",
        "generation_id",
        "group_id",
        "is_made_by_commit",
        "is_sync_in_flight",
        "join_timer",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_timers",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "static_members",
        "subscribed_topics",
        "sync_timer",
    )

    def __init__(
        self,
        group_id: str,
        now_ms: int | None,
        *,
        totals: ShardTotals,
        wall_ms: Callable[[int], int],
    ) -> None:
        """It counts in `totals` until `ShardTotals.forget_group`; `wall_ms` is the date at a steady
        time."""
        self._wall_ms = wall_ms
        self.group_id = group_id
        self._totals = totals
        self._state = GroupState.EMPTY
        totals.add_group(GroupState.EMPTY)
        self.previous_state = GroupState.DEAD
        self.current_state_timestamp_ms = None if now_ms is None else wall_ms(now_ms)
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        # Ids handed out and not yet used, each with the timer that takes it back.
        self.pending_join_timers: dict[str, Timer] = {}
        self.pending_sync_members: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.awaiting_join_count = 0
        self.new_member_added = False
        # A commit of offsets has made it: without any the log does not know it, until a generation
        # is written.
        self.is_made_by_commit = False
        # The leader's assignment of this generation is on its way to the log.
        self.is_sync_in_flight = False
        self.join_timer = Timer()
        self.sync_timer = Timer()
        self._protocol_votes: dict[str, int] = {}

    # ---- questions

    @property
    def state(self) -> GroupState:
        return self._state

    @state.setter
    def state(self, state: GroupState) -> None:
        self._totals.change_state(self._state, state)
        self._state = state

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_nothing_without_offsets(self) -> bool:
        """Whether it is neither in the log nor known to anybody, but for its offsets."""
        return (
            self.is_made_by_commit
            and self.is_empty
            and self.generation_id == 0
            and not self.pending_join_timers
        )

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join_timers

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' rebalance time-outs."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def supports_protocols(self, protocol_type: str, protocol_names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be added to the present members."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in protocol_names)
        return self.protocol_type == protocol_type and any(
            self._protocol_votes.get(name, 0) == len(self.members) for name in protocol_names
        )

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has taken its place."""
        if group_instance_id is not None:
            existing_id = self.static_members.get(group_instance_id)
            if existing_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether offsets of `topic` are in use. Consumers whose subscription cannot be read may
        be subscribed to anything."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def select_protocol(self) -> str:
        """The protocol that all members support and most of them prefer. Among equals the one
        that the member who joined first voted for wins."""
        candidates = {
            name for name, votes in self._protocol_votes.items() if votes == len(self.members)
        }
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def as_record(self, assignments: dict[str, bytes]) -> GroupRecord:
        """This generation as it is persisted, with `assignments` by member id."""
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id,
            current_state_timestamp_ms=self.current_state_timestamp_ms,
            members=tuple(
                MemberRecord(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    # ---- changes

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in _PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = self._wall_ms(now_ms)

    def add_member(self, member: Member) -> None:
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_bytes(member)
        self._add_votes(member.protocols)
        if member.join_token is not None:
            self.awaiting_join_count += 1
        self.take_pending_member(member.member_id)

    def remove_member(self, member_id: str) -> None:
        """Forget a member; leadership passes to the member who joined first of the others.

        The member must have no parked request; its session timer is cancelled.
        """
        member = self.members.pop(member_id)
        assert member.join_token is None
        assert member.sync_token is None
        member.session_timer.cancel()
        self._totals.add_member_bytes(-member.size_bytes)
        self._withdraw_votes(member)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync_members.pop(member_id, None)

    def replace_static_member(self, old: Member, new: Member) -> None:
        """Put `new` in the place of `old`: same instance id, other member id.

        The new member has no parked request yet; the old one has none any more.
        """
        assert old.group_instance_id is not None
        assert old.group_instance_id == new.group_instance_id
        assert old.join_token is None
        assert old.sync_token is None
        assert new.join_token is None
        old.session_timer.cancel()
        self._totals.add_member_bytes(-old.size_bytes)
        old.size_bytes = 0
        self._count_bytes(new)
        self.members = {
            (new.member_id if member is old else member_id): (new if member is old else member)
            for member_id, member in self.members.items()
        }
        self._withdraw_votes(old)
        self._add_votes(new.protocols)
        self.static_members[old.group_instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_sync_members:
            del self.pending_sync_members[old.member_id]
            self.pending_sync_members[new.member_id] = None

    def update_member(
        self,
        member: Member,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._withdraw_votes(member)
        member.protocols = protocols
        self._add_votes(protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._count_bytes(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """What the member is to work on, as the leader of its generation says."""
        member.assignment = assignment
        self._count_bytes(member)

    def forget_members(self) -> None:
        """The group is given up, and all who waited in it have been answered."""
        for member in self.members.values():
            assert member.join_token is None
            assert member.sync_token is None
            member.session_timer.cancel()
            self._totals.add_member_bytes(-member.size_bytes)
        self.members.clear()
        while self.pending_join_timers:
            self.take_pending_member(next(iter(self.pending_join_timers)))

    def park_join(self, member: Member, token: ReplyToken) -> ReplyToken | None:
        """Remember who waits for the end of the join phase; returns a token it replaces."""
        replaced = member.join_token
        if replaced is None:
            self.awaiting_join_count += 1
        member.join_token = token
        return replaced

    def take_join_token(self, member: Member) -> ReplyToken | None:
        token = member.join_token
        if token is not None:
            member.join_token = None
            self.awaiting_join_count -= 1
        return token

    def add_pending_member(self, member_id: str) -> Timer:
        """An id has been handed out. Returns the timer that is to take it back."""
        timer = self.pending_join_timers[member_id] = Timer()
        self._totals.add_member_bytes(self.pending_bytes(member_id))
        return timer

    def pending_bytes(self, member_id: str) -> int:
        """What an id takes that has been handed out and is not used yet; 0 for any other."""
        is_pending = member_id in self.pending_join_timers
        return PENDING_ID_OVERHEAD_BYTES + len(member_id) if is_pending else 0

    def take_pending_member(self, member_id: str) -> bool:
        """Forget a pending member's id. False when there was no such id."""
        size_bytes = self.pending_bytes(member_id)
        timer = self.pending_join_timers.pop(member_id, None)
        if timer is None:
            return False
        self._totals.add_member_bytes(-size_bytes)
        timer.cancel()
        return True

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among those who joined; False when nobody has joined."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader_id = member.member_id
                return True
        return False

    def init_next_generation(self, now_ms: int) -> None:
        """End the join phase: with members in CompletingRebalance, without in Empty."""
        is_last = self.generation_id == GENERATION_ID_MAX
        self.generation_id = 1 if is_last else self.generation_id + 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self._compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self._compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_ms)
        self.pending_sync_members.clear()
        self.is_sync_in_flight = False

    def restore(self, record: GroupRecord, members: list[Member]) -> None:
        """Become what `record` says; `members` are its members with timers of this coordinator."""
        assert not self.members
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.generation_id = record.generation_id
        self.protocol_name = record.protocol_name
        self.current_state_timestamp_ms = record.current_state_timestamp_ms
        self.leader_id = record.leader_id
        for member in members:
            self.add_member(member)
        self.protocol_type = record.protocol_type or None
        if self.leader_id not in self.members:
            self.leader_id = next(iter(self.members), None)
        self.subscribed_topics = self._compute_subscribed_topics()

    def _count_bytes(self, member: Member) -> None:
        size_bytes = member.measure_bytes()
        self._totals.add_member_bytes(size_bytes - member.size_bytes)
        member.size_bytes = size_bytes

    def _add_votes(self, protocols: Protocols) -> None:
        for name, _ in protocols:
            self._protocol_votes[name] = self._protocol_votes.get(name, 0) + 1

    def _withdraw_votes(self, member: Member) -> None:
        for name, _ in member.protocols:
            votes = self._protocol_votes[name] - 1
            if votes > 0:
                self._protocol_votes[name] = votes
            else:
                del self._protocol_votes[name]

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        if self.protocol_name is not None:
            for member in self.members.values():
                subscribed = decode_subscribed_topics(member.metadata(self.protocol_name))
                if subscribed is None:
                    return None
                topics |= subscribed
        if self.members and self.protocol_name is None:
            return None
        return frozenset(topics)
