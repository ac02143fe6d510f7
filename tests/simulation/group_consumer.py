"""A member of a consumer group: join, synchronize, read on from the committed offsets, commit.

The classic protocol as librdkafka speaks it, range assignment by the group's leader. What it
commits and what it is told is checked by promises.py; members come, go and stall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from data_plane.wire.registry import ApiKey
from tests.simulation.promises import OffsetCommit
from tests.simulation.reader import Position, Reader, Target
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

SESSION_TIMEOUT_MS = 1200
REBALANCE_TIMEOUT_MS = 1500
HEARTBEAT_MS = 250
COMMIT_MS = 120
PAUSE_MS = 50

# The member is out and has to join anew.
REJOIN = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
# Somebody else is the coordinator, or will be.
MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# An answer with one of these says that the commit has not happened and never will. A coordinator
# that is one no more cannot say that: its append may have got to others.
NOT_COMMITTED = REJOIN | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
# How often a member commits as if it had not heard of the last rebalance.
STALE_CHANCE = 0.05


class GroupConsumer(Reader):
    """See the module."""

    # Of static members (static_members.py).
    instance_id: str | None = None

    def __init__(self, cell: Cell, name: str, group: str, topics: list[str]) -> None:
        super().__init__(cell, name)
        self._group = group
        self._subscribed = topics
        self._coordinator = -1
        self._member_id = ""
        self._generation = -1
        self._state = "lost"
        self._round = 0
        self._is_committing = False
        self._committed: dict[Target, int] = {}

    def start(self) -> None:
        super().start()
        self._again()
        self.world.at(HEARTBEAT_MS * US_PER_MS, self._heartbeat)
        self.world.at(COMMIT_MS * US_PER_MS, self._commit)

    def leave(self) -> None:
        """Say good-bye, and join again a while later as somebody new."""
        if self._state != "stable":
            return
        request = LeaveGroupRequest(
            group_id=self._group, members=[MemberIdentity(member_id=self._member_id)]
        )
        self.world.count("members left")
        self.ask(self._coordinator, ApiKey.LEAVE_GROUP, request, lambda response: None)
        self._member_id = ""
        self._lost()

    @property
    def state(self) -> str:
        return self._state

    @property
    def is_settled(self) -> bool:
        """A stable member that has committed all that it has read."""
        return self._state == "stable" and all(
            position.offset == max(0, self._committed.get(target, -1))
            for target, position in self.positions.items()
        )

    # Steps of joining. `_round` tells answers of an earlier attempt from this one's.

    def _again(self, delay_ms: int = PAUSE_MS) -> None:
        self._round += 1
        self.world.at(delay_ms * US_PER_MS, self._find_coordinator, self._round)

    def _lost(self, *, is_moved: bool = False) -> None:
        self._state = "lost"
        self.positions.clear()
        self._committed.clear()
        if is_moved:
            self._coordinator = -1
        self._again()

    def _find_coordinator(self, number: int) -> None:
        if number != self._round or self.is_stopped:
            return
        if self._coordinator >= 0:
            self._join(number)
            return
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        self.ask(
            self.any_node(),
            ApiKey.FIND_COORDINATOR,
            request,
            lambda response: self._found_coordinator(number, response),
        )

    def _found_coordinator(self, number: int, response: Any) -> None:
        if number != self._round:
            return
        found = None if response is None else response.coordinators[0]
        if found is None or found.error_code:
            self._again()
            return
        self._coordinator = found.node_id
        self._join(number)

    def _join(self, number: int) -> None:
        self._state = "joining"
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"any")],
        )
        self.ask(
            self._coordinator,
            ApiKey.JOIN_GROUP,
            request,
            lambda response: self._joined(number, response),
            purpose="join",
        )

    def _failed(self, error: ErrorCode | None) -> None:
        """What becomes of a member after an error; None is no answer at all."""
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if error is None or error in MOVED:
            self._lost(is_moved=error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif error in REJOIN:
            self._lost()
        else:
            self.world.violate(f"{self.name} of group {self._group} is told {error.name}")

    def _joined(self, number: int, response: Any) -> None:
        if number != self._round:
            return
        error = None if response is None else ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self._join(number)
            return
        if error is not ErrorCode.NONE:
            self._failed(error)
            return
        self._member_id = response.member_id
        self._generation = response.generation_id
        self.world.count("generations joined")
        assignments = []
        if response.leader == response.member_id and not response.skip_assignment:
            members = sorted(member.member_id for member in response.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=self._share(position, len(members))
                )
                for position, member in enumerate(members)
            ]
        names = {one.member_id: one.group_instance_id for one in response.members}
        for one in assignments:
            holder = names[one.member_id] or one.member_id
            self.cell.promises.share_given(
                self._group, self._generation, holder, bytes(one.assignment)
            )
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self.ask(
            self._coordinator,
            ApiKey.SYNC_GROUP,
            request,
            lambda response: self._synced(number, response),
            purpose="join",
        )

    def _share(self, position: int, count: int) -> bytes:
        targets = sorted(
            (topic, index)
            for topic in self._subscribed
            if topic in self.topics
            for index in self.topics[topic].partitions
        )
        return ",".join(f"{topic}:{index}" for topic, index in targets[position::count]).encode()

    def _synced(self, number: int, response: Any) -> None:
        if number != self._round:
            return
        error = None if response is None else ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._failed(error)
            return
        share = bytes(response.assignment)
        holder = self.instance_id or self._member_id
        self.cell.promises.check_share(self._group, self._generation, holder, share)
        self._state = "fetching offsets"
        targets = []
        for item in share.decode().split(","):
            if item:
                topic, _, index = item.partition(":")
                targets.append((topic, int(index)))
        self.cell.promises.share_taken(self._group, self._generation, holder, targets)
        self._fetch_offsets(number, targets)

    def _fetch_offsets(self, number: int, targets: list[Target]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, index in targets:
            by_topic.setdefault(topic, []).append(index)
        group = OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[
                OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic.items()
            ],
        )
        asked_us = self.world.now_us
        self.ask(
            self._coordinator,
            ApiKey.OFFSET_FETCH,
            OffsetFetchRequest(groups=[group]),
            lambda response: self._fetched_offsets(number, targets, asked_us, response),
        )

    def _fetched_offsets(
        self, number: int, targets: list[Target], asked_us: int, response: Any
    ) -> None:
        if number != self._round:
            return
        answer = None if response is None else response.groups[0]
        error = None if answer is None else ErrorCode(answer.error_code)
        if answer is None or error is not ErrorCode.NONE:
            self._failed(error)
            return
        for topic in answer.topics:
            for piece in topic.partitions:
                offset = piece.committed_offset
                self.cell.promises.offset_fetched(
                    self._group, topic.name, piece.partition_index, offset, asked_us
                )
                target = (topic.name, piece.partition_index)
                self.positions[target] = Position(max(offset, 0))
                self._committed[target] = offset
        self._state = "stable"

    # Life as a member

    def _heartbeat(self) -> None:
        if self.is_stopped:
            return
        self.world.at(HEARTBEAT_MS * US_PER_MS, self._heartbeat)
        if self._state not in ("stable", "fetching offsets"):
            return
        number = self._round
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
        )
        self.ask(
            self._coordinator,
            ApiKey.HEARTBEAT,
            request,
            lambda response: self._heard(number, response),
        )

    def _heard(self, number: int, response: Any) -> None:
        if number == self._round and (response is None or response.error_code):
            self._failed(None if response is None else ErrorCode(response.error_code))

    def _commit(self) -> None:
        if self.is_stopped:
            return
        self.world.at(COMMIT_MS * US_PER_MS, self._commit)
        if self._state != "stable" or self._is_committing:
            return
        if self.random.random() < STALE_CHANCE:
            self._commit_as_before()
        due = {
            target: position.offset
            for target, position in self.positions.items()
            if position.offset != max(0, self._committed.get(target, -1))
        }
        if not due:
            return
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        sent: dict[Target, OffsetCommit] = {}
        for (topic, index), offset in due.items():
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            )
            sent[(topic, index)] = self.cell.promises.offset_commit_sent(
                self._group, topic, index, offset
            )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        self._is_committing = True
        number = self._round
        self.ask(
            self._coordinator,
            ApiKey.OFFSET_COMMIT,
            request,
            lambda response: self._committed_offsets(number, sent, response),
        )

    def _commit_as_before(self) -> None:
        """What a member says that has not heard of the last rebalance: others may have its
        partitions by now, and have committed what they have read."""
        topic = self._subscribed[0]
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1 << 40)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation - 1,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        self.ask(self._coordinator, ApiKey.OFFSET_COMMIT, request, self._refused_as_before)

    def _refused_as_before(self, response: Any) -> None:
        is_taken = response is not None and not response.topics[0].partitions[0].error_code
        if is_taken and not self.cell.is_group_lossy(self._group):
            self.world.violate(
                f"{self.name} commits for group {self._group} in a generation that is over"
            )

    def _committed_offsets(
        self, number: int, sent: dict[Target, OffsetCommit], response: Any
    ) -> None:
        self._is_committing = False
        if response is None:
            if number == self._round:
                self._failed(None)
            return
        failure: ErrorCode | None = None
        for topic in response.topics:
            for piece in topic.partitions:
                error = ErrorCode(piece.error_code)
                target = (topic.name, piece.partition_index)
                commit = sent[target]
                if error is ErrorCode.NONE:
                    commit.acknowledged_us = self.world.now_us
                    self.world.count("group offsets committed")
                    if number == self._round:
                        self._committed[target] = commit.offset
                    continue
                self.world.count(f"offset commit {error.name}")
                if error in NOT_COMMITTED:
                    self.cell.promises.offset_commit_refused(self._group, *target, commit)
                if error in REJOIN or error in MOVED:
                    failure = error
        if failure is not None and number == self._round:
            self._failed(failure)
