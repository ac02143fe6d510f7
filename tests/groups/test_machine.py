"""The whole group machine under random histories, checked after every step.

What happens: members of both kinds join, sync, beat, commit, leave and fall silent; appends settle
late, fail, or take too long; groups, offsets and topics are deleted; time passes; the coordinator
is unloaded and loaded again from its log.

What must hold
- Every request is answered exactly once, and whoever is not answered yet is parked somewhere.
- Offsets are exactly what the log says, at every moment.
- Whoever waits will not wait for ever: each waiting phase has a timer or an append in flight.
- A member gets the assignment that the leader of its generation made for it, or an error.
- A loaded coordinator has the groups that were stable or empty, with generation and members.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import (
    AppendRecords,
    ClientContext,
    Effect,
    GroupEvent,
    Respond,
)
from data_plane.groups.group import PENDING_ID_OVERHEAD_BYTES, ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.loading import fold_records
from data_plane.groups.partitioning import partition_for_group
from data_plane.groups.record_formats import CommittedOffset, OffsetKey
from data_plane.groups.totals import GROUP_QUOTAS, TenantTotals
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.offset_commit_response import OffsetCommitResponse
from data_plane.wire.messages.sync_group_response import SyncGroupResponse
from data_plane.wire.primitives import ZERO_UUID
from data_plane.wire.records import Record
from tests.groups.requests import (
    commit,
    delete_offsets,
    fetch_group,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)

# A history is forty steps; the profile of the run says how many histories.
MAX_EXAMPLES = max(150, settings().max_examples)

PARTITION_COUNT = 2
GROUPS = ["g-1", "g-2", "g-3"]
TOPICS = ["orders", "payments"]
PROTOCOLS = {
    "range": [("range", subscription("orders"))],
    "both": [("sticky", subscription("orders")), ("range", subscription("orders"))],
    "other": [("range", subscription("payments"))],
}
CONFIG = GroupCoordinatorConfig(
    offsets_topic_num_partitions=PARTITION_COUNT,
    group_min_session_timeout_ms=100,
    group_initial_rebalance_delay_ms=50,
    group_max_size=4,
    offsets_retention_ms=20_000,
    offsets_retention_check_interval_ms=7_000,
    offset_commit_timeout_ms=500,
    pending_members_max=3,
    appends_in_flight_max=8,
)
APPEND_ERRORS = [
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
]


@dataclass
class Client:
    """A client of one group, as it sees itself."""

    group_id: str
    instance_id: str | None
    protocols: str
    member_id: str = ""
    generation_id: int = -1
    is_leader: bool = False
    member_names: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What assignments call this client: it outlives a static member's id."""
        return self.instance_id or self.member_id


@dataclass
class Waiting:
    """A request without its answer."""

    kind: str
    client: Client | None = None
    generation_id: int = -1


# Group, instance id, protocols. Two clients share an instance id and fence each other; the first
# group has more clients than members fit in.
CLIENTS = [
    ("g-1", None, "range"),
    ("g-1", None, "both"),
    ("g-1", None, "other"),
    ("g-1", "i-1", "both"),
    ("g-1", "i-1", "range"),
    ("g-1", "i-2", "other"),
    ("g-2", None, "range"),
    ("g-2", None, "both"),
    ("g-2", "i-3", "other"),
    ("g-3", None, "range"),
    ("g-3", "i-4", "range"),
]
clients = st.integers(0, len(CLIENTS) - 1)


class GroupMachine(RuleBasedStateMachine):
    config = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.uuids = count(1)
        self.tokens = count(1)
        self.coordinator = self._new_coordinator()
        self.logs: dict[int, list[Record]] = {each: [] for each in range(PARTITION_COUNT)}
        self.in_flight: dict[int, deque[AppendRecords]] = {each: deque() for each in self.logs}
        self.waiting: dict[int, Waiting] = {}
        self.clients = [Client(*each) for each in CLIENTS]
        self.has_failed_append = False
        self._load()

    # ---- plumbing

    def _load(self) -> None:
        """Begin to load all partitions, and have it done unless this machine does it in pieces."""
        self.epoch += 1
        for partition, log in self.logs.items():
            assert self.coordinator.start_loading(partition, self.epoch)
            folded, unreadable_count = fold_records(log)
            assert unreadable_count == 0
            self._do(self.coordinator.load(partition, self.epoch, folded, self.now_ms))

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, new_uuid=lambda: f"uuid{next(self.uuids)}")

    def _token(self, kind: str, client: Client | None = None) -> int:
        token = next(self.tokens)
        self.waiting[token] = Waiting(kind, client, client.generation_id if client else -1)
        return token

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Respond(token, response):
                    assert isinstance(token, int)
                    assert token in self.waiting, "answered twice"
                    self._answered(self.waiting.pop(token), response)
                case AppendRecords():
                    self.in_flight[effect.partition].append(effect)
                case GroupEvent():
                    pass

    def _answered(self, waiting: Waiting, response: Any) -> None:
        client = waiting.client
        if isinstance(response, JoinGroupResponse) and client is not None:
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
            if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            if response.error_code == ErrorCode.NONE:
                client.generation_id = response.generation_id
                client.is_leader = bool(response.members) and not response.skip_assignment
                client.member_names = tuple(
                    (each.member_id, each.group_instance_id or each.member_id)
                    for each in response.members
                )
                if response.members:
                    assert response.leader == response.member_id
        elif isinstance(response, SyncGroupResponse) and client is not None:
            if response.error_code == ErrorCode.NONE:
                expected = f"{waiting.generation_id}:{client.name}".encode()
                assert response.assignment in (expected, b""), "somebody else's assignment"
        elif isinstance(response, OffsetCommitResponse):
            pass  # The invariant compares offsets with the log.

    def _context(self, version: int) -> ClientContext:
        return ClientContext("client", "/127.0.0.1", version)

    def _client(self, index: int) -> Client:
        return self.clients[index]

    def _pick_group(self, group_id: str) -> ClassicGroup | None:
        return next((each for each in self.coordinator.groups() if each.group_id == group_id), None)

    # ---- members

    @rule(
        index=clients,
        version=st.sampled_from([3, 8, 9]),
        rebalance_timeout_ms=st.sampled_from([0, 300, 2_000]),
        forget=st.booleans(),
    )
    def send_join(self, index: int, version: int, rebalance_timeout_ms: int, forget: bool) -> None:
        client = self._client(index)
        if forget:
            client.member_id = ""  # The process was restarted.
        request = join(
            client.group_id,
            client.member_id,
            protocols=PROTOCOLS[client.protocols],
            session_timeout_ms=1_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=client.instance_id,
        )
        token = self._token("join", client)
        self._do(
            self.coordinator.join_group(
                "default", request, self._context(version), token, self.now_ms
            )
        )

    @rule(index=clients, forgets_members=st.booleans())
    def send_sync(self, index: int, forgets_members: bool) -> None:
        client = self._client(index)
        assignments = {}
        if client.is_leader and not forgets_members:
            assignments = {
                member_id: f"{client.generation_id}:{name}".encode()
                for member_id, name in client.member_names
            }
        request = sync(
            client.group_id,
            client.member_id,
            client.generation_id,
            assignments,
            instance_id=client.instance_id,
            protocol_name=None,
        )
        token = self._token("sync", client)
        self._do(
            self.coordinator.sync_group("default", request, self._context(4), token, self.now_ms)
        )

    @rule(
        group_id=st.sampled_from(GROUPS),
        who=st.sets(st.integers(0, 5), min_size=1),
        syncs=st.sampled_from([True, True, True, False]),
        settles=st.sampled_from([True, True, True, False]),
    )
    def group_rebalances(self, group_id: str, who: set[int], syncs: bool, settles: bool) -> None:
        """What well-behaved clients do, so that histories get somewhere."""
        indexes = [i for i, each in enumerate(self.clients) if each.group_id == group_id]
        indexes = [index for at, index in enumerate(indexes) if at in who]
        for _ in range(2):  # The first join of a dynamic client only brings its id.
            for index in indexes:
                if not any(each.client is self.clients[index] for each in self.waiting.values()):
                    self.send_join(index, 9, 300, False)
        self.time_passes(400)
        if syncs:
            for index in indexes:
                self.send_sync(index, False)
        if settles:
            self.all_appends_settle()

    @rule(index=clients)
    def beat(self, index: int) -> None:
        client = self._client(index)
        request = heartbeat(
            client.group_id, client.member_id, client.generation_id, client.instance_id
        )
        token = self._token("heartbeat")
        self._do(self.coordinator.heartbeat("default", request, token, self.now_ms))

    @rule(index=clients, by_instance=st.booleans())
    def send_leave(self, index: int, by_instance: bool) -> None:
        client = self._client(index)
        member_id = "" if by_instance else client.member_id
        request = leave(client.group_id, (member_id, client.instance_id))
        token = self._token("leave")
        self._do(self.coordinator.leave_group("default", request, token, self.now_ms))

    # ---- offsets

    @rule(
        index=clients,
        topic=st.sampled_from(TOPICS),
        partition=st.integers(0, 2),
        offset=st.integers(0, 1_000),
        is_simple=st.booleans(),
    )
    def send_commit(
        self, index: int, topic: str, partition: int, offset: int, is_simple: bool
    ) -> None:
        client = self._client(index)
        request = commit(
            client.group_id,
            {(topic, partition): offset},
            member_id="" if is_simple else client.member_id,
            generation_id=-1 if is_simple else client.generation_id,
        )
        token = self._token("commit")
        self._do(
            self.coordinator.commit_offsets(
                "default", request, self._context(9), token, self.now_ms
            )
        )

    @rule(group_id=st.sampled_from(GROUPS), topic=st.sampled_from(TOPICS))
    def send_delete_offsets(self, group_id: str, topic: str) -> None:
        request = delete_offsets(group_id, {topic: [0, 1, 2]})
        token = self._token("delete_offsets")
        self._do(self.coordinator.delete_offsets("default", request, token, self.now_ms))

    @rule(group_ids=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3))
    def send_delete_groups(self, group_ids: list[str]) -> None:
        token = self._token("delete_groups")
        self._do(self.coordinator.delete_groups("default", group_ids, token, self.now_ms))

    @rule(topic=st.sampled_from(TOPICS))
    def topic_is_deleted(self, topic: str) -> None:
        self._do(self.coordinator.topics_deleted("default", {topic: ZERO_UUID}, self.now_ms))

    @rule(group_id=st.sampled_from(GROUPS), require_stable=st.booleans())
    def fetch(self, group_id: str, require_stable: bool) -> None:
        request = fetch_group(group_id, {topic: [0, 1, 2] for topic in TOPICS})
        effects = self.coordinator.fetch_offsets(
            "default", [request], "fetch", self.now_ms, require_stable=require_stable
        )
        (answer,) = effects
        assert isinstance(answer, Respond)
        (response,) = answer.response
        offsets = self._offsets_in_log()
        for topic in response.topics:
            for each in topic.partitions:
                committed = offsets.get(OffsetKey(group_id, topic.name, each.partition_index))
                if each.error_code == ErrorCode.NONE:
                    expected = -1 if committed is None else committed.offset
                    assert each.committed_offset == expected
                else:
                    assert require_stable
                    assert each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT

    # ---- the world

    @rule(duration_ms=st.sampled_from([0, 10, 60, 400, 1_100, 8_000, 25_000]))
    def time_passes(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        for _ in range(10_000):
            deadline_ms = self.coordinator.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self._do(self.coordinator.tick(self.now_ms))
        else:
            raise AssertionError("timers spin")
        self.now_ms = end_ms

    @precondition(lambda self: any(self.in_flight.values()))
    @rule(
        choice=st.integers(0, PARTITION_COUNT - 1),
        error=st.sampled_from([ErrorCode.NONE] * 8 + APPEND_ERRORS),
    )
    def append_settles(self, choice: int, error: ErrorCode) -> None:
        busy = [partition for partition, appends in self.in_flight.items() if appends]
        self._settle(busy[choice % len(busy)], error)

    @rule()
    def all_appends_settle(self) -> None:
        for partition in self.logs:
            while self.in_flight[partition]:
                self._settle(partition, ErrorCode.NONE)

    def _settle(self, partition: int, error: ErrorCode) -> None:
        effect = self.in_flight[partition].popleft()
        if error is ErrorCode.NONE:
            log = self.logs[partition]
            for each in effect.records:
                log.append(Record(len(log), each.timestamp, each.key, each.value, ()))
        else:
            self.has_failed_append = True
        self._do(self.coordinator.append_done(effect.append_id, error, self.now_ms))

    @rule(settle_first=st.booleans(), new_process=st.booleans())
    def coordinator_moves(self, settle_first: bool, new_process: bool) -> None:
        """Unload and load. Appends that have not settled may or may not be in the log."""
        if settle_first:
            self.all_appends_settle()
        before = {
            group.group_id: self._essence(group)
            for group in self.coordinator.groups()
            if group.state in (GroupState.STABLE, GroupState.EMPTY)
            # A simple group is nothing but its offsets; without any the log does not know it.
            and group.protocol_type is not None
        }
        offsets = self._offsets_in_log()
        is_quiet = not any(self.in_flight.values()) and not self.has_failed_append
        for partition in self.logs:
            self._do(self.coordinator.unload(partition, self.now_ms))
        assert not list(self.coordinator.groups())
        if new_process or settle_first:
            self._do(self.coordinator.finish(self.now_ms))
            assert not self.waiting, "unloading answers everything"
        if settle_first:
            self._check_loaded(before, is_quiet, offsets, new_process)
            return
        # The log gets what was in flight after all; nobody is told any more.
        for partition in self.logs:
            while self.in_flight[partition]:
                self._settle(partition, ErrorCode.NONE)
        self._load()

    def _check_loaded(
        self,
        before: dict[str, Any],
        is_quiet: bool,
        offsets: dict[OffsetKey, CommittedOffset],
        new_process: bool,
    ) -> None:
        if new_process:
            self.coordinator = self._new_coordinator()
        self._load()
        self._do(self.coordinator.finish(self.now_ms))
        assert self.coordinator.committed_offsets("default") == offsets
        if not is_quiet:
            return
        after = {group.group_id: self._essence(group) for group in self.coordinator.groups()}
        for group_id, essence in before.items():
            assert after[group_id] == essence

    @staticmethod
    def _essence(group: ClassicGroup) -> Any:
        members = {
            member.member_id: (member.group_instance_id, member.assignment)
            for member in group.members.values()
        }
        return group.state, group.generation_id, group.protocol_type, members

    # ---- what must hold

    def _offsets_in_log(self) -> dict[OffsetKey, CommittedOffset]:
        offsets: dict[OffsetKey, CommittedOffset] = {}
        for log in self.logs.values():
            tenants, _ = fold_records(log)
            for folded in tenants.values():
                offsets.update(folded.offsets.snapshot())
        return offsets

    @invariant()
    def offsets_are_those_of_the_log(self) -> None:
        known = self.coordinator.committed_offsets("default")
        assert known == {
            key: committed
            for key, committed in self._offsets_in_log().items()
            if self.coordinator.is_loaded(self.coordinator.partition_of("default", key.group_id))
        }

    @invariant()
    def totals_are_what_adding_up_gives(self) -> None:
        if self.coordinator.has_chores:
            return  # Partitions that are taken over or given up count in part.
        groups = list(self.coordinator.groups())
        totals = self.coordinator.totals
        assert totals.group_count == len(groups)
        for state in GroupState:
            assert totals.state_counts[state] == sum(each.state is state for each in groups)
        assert totals.offset_count == len(self.coordinator.committed_offsets("default"))
        member_bytes = 0
        for group in groups:
            member_bytes += sum(each.measure_bytes() for each in group.members.values())
            for member_id in group.pending_join_timers:
                member_bytes += PENDING_ID_OVERHEAD_BYTES + len(member_id)
        assert totals.member_bytes == member_bytes
        stores = [loaded.shard.offsets for loaded in self.coordinator.partitions.shards()]
        assert totals.offset_bytes == sum(each.size_bytes for each in stores)
        assert set(totals.tenants) <= {"default"}
        of_tenant = totals.tenants.get("default", TenantTotals())
        pending = totals.pending_offset_count, totals.pending_offset_bytes
        assert [of_tenant.use_of(quota) for quota in GROUP_QUOTAS] == [
            totals.group_count,
            totals.offset_count + pending[0],
            member_bytes + totals.offset_bytes + pending[1],
        ]
        if not any(self.in_flight.values()):
            assert pending == (0, 0)
            if not groups:
                assert totals.member_bytes == 0
            if not totals.offset_count:
                assert totals.offset_bytes == 0

    @invariant()
    def who_waits_is_parked(self) -> None:
        if self.coordinator.has_chores:
            return  # Those who waited for a partition that is given up are yet to be told.
        parked: set[Any] = set()
        for group in self.coordinator.groups():
            for member in group.members.values():
                parked.update({member.join_token, member.sync_token} - {None})
        for loaded in self.coordinator.partitions.shards():
            for in_flight in loaded.shard.appends._in_flight.values():
                parked.update(reply.token for reply in in_flight.replies)
            for in_flight in loaded.shard.appends._announced.values():
                parked.update(reply.token for reply in in_flight.replies)
        deleting = {token for token, each in self.waiting.items() if each.kind == "delete_groups"}
        assert set(self.waiting) - deleting == parked
        if not any(self.in_flight.values()):
            assert not deleting

    @invariant()
    def groups_are_sound(self) -> None:
        for group in self.coordinator.groups():
            members = group.members
            # As in Kafka, static members that have not come back yet do not count meanwhile.
            assert group.awaiting_join_count <= CONFIG.group_max_size
            assert len(group.pending_join_timers) <= CONFIG.pending_members_max
            assert not set(members) & set(group.pending_join_timers)
            assert bool(members) == (group.leader_id in members)
            parked_count = sum(each.join_token is not None for each in members.values())
            assert parked_count == group.awaiting_join_count
            static = {
                each.group_instance_id: member_id
                for member_id, each in members.items()
                if each.group_instance_id is not None
            }
            assert static == group.static_members
            assert set(group.pending_sync_members) <= set(members)
            if members:
                names = [{name for name, _ in each.protocols} for each in members.values()]
                assert set.intersection(*names)
                assert group.state is not GroupState.EMPTY
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                assert members
                assert group.protocol_name in set.intersection(*names)

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        for group in self.coordinator.groups():
            if group.state is GroupState.PREPARING_REBALANCE:
                assert group.join_timer.due_ms is not None
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert group.sync_timer.due_ms is not None or group.is_sync_in_flight
            for member in group.members.values():
                assert member.session_timer.due_ms is not None or member.is_excused_from_heartbeat
            assert all(each.due_ms is not None for each in group.pending_join_timers.values())

    @invariant()
    def histories_get_somewhere(self) -> None:
        """Shown by pytest --hypothesis-show-statistics."""
        for group in self.coordinator.groups():
            kind = "static" if group.static_members else "dynamic"
            event(f"{group.state.value} with {len(group.members)} {kind}")

    @invariant()
    def partitions_are_right(self) -> None:
        for loaded in self.coordinator.partitions.shards():
            shard = loaded.shard
            for group_id in shard.groups:
                found = partition_for_group(shard.tenant, group_id, PARTITION_COUNT)
                assert found == shard.partition

    def teardown(self) -> None:
        """Left alone, everything comes to rest and everybody has been answered."""
        self.all_appends_settle()
        for _ in range(4):
            self.time_passes(400_000)
            while any(self.in_flight.values()):
                self.all_appends_settle()
                self.time_passes(1_000)
        assert not self.waiting
        for group in self.coordinator.groups():
            assert not group.members, "a silent member outlived its session"


# Ten thousand histories take minutes; what hangs every day is found within two of them.
TIMEOUT_S = 120 if MAX_EXAMPLES <= 300 else 7200


class MachineInPieces(GroupMachine):
    """The same, where each turn of the loop has time for one piece of a chore, all that can be done
    in several appends is, and a large group is one with more than two offsets. Requests, time,
    appends and changes of leaders come in between."""

    config = replace(CONFIG, work_per_turn_max=1, tombstones_per_append_max=2, chore_appends_max=1)

    @rule()
    def a_turn(self) -> None:
        self.time_passes(1)

    @rule()
    def list_all_groups(self) -> None:
        token = self._token("list")
        request = ListGroupsRequest()
        self._do(self.coordinator.list_groups("default", request, token, self.now_ms))

    @rule(new_process=st.booleans())
    def coordinator_moves_at_once(self, new_process: bool) -> None:
        """It leads again before it has let go, and before it has loaded."""
        for partition in self.logs:
            self._do(self.coordinator.unload(partition, self.now_ms))
        if new_process:
            self._do(self.coordinator.finish(self.now_ms))
            self.coordinator = self._new_coordinator()
        for partition in self.logs:
            while self.in_flight[partition]:
                self._settle(partition, ErrorCode.NONE)
        self._load()


TestGroupMachine = pytest.mark.timeout(TIMEOUT_S)(GroupMachine.TestCase)
TestGroupMachine.settings = settings(
    settings.default, max_examples=MAX_EXAMPLES, stateful_step_count=40, deadline=None
)
TestMachineInPieces = pytest.mark.timeout(TIMEOUT_S)(MachineInPieces.TestCase)
TestMachineInPieces.settings = TestGroupMachine.settings
