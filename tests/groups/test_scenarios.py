"""Groups through crashes, failovers and failing disks, told step by step.

A `LocalBroker` is the real service, handlers and coordinator over records in memory; `hold` keeps
appends from settling, `restart` is another process over the same log.
"""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.api import Deferred
from data_plane.groups.partitioning import partition_for_group
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.requests import (
    commit,
    delete_offsets,
    fetch,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def new_broker(**properties: str) -> LocalBroker:
    broker = LocalBroker(
        {
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )
    broker.create_topic("orders", 3)
    broker.handle(Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
    return broker


def answer(broker: LocalBroker, result: Any, within_ms: int = 0) -> Any:
    """The response, which must be there after `within_ms`."""
    if not isinstance(result, Deferred):
        return result
    answers: list[Any] = []
    result.when_complete(answers.append)
    if not answers:
        broker.advance(within_ms)
    assert answers, "still waiting"
    return answers[0]


def is_waiting(result: Any) -> bool:
    return isinstance(result, Deferred) and not result.done


class Member:
    """A client that does what it is asked to."""

    def __init__(self, broker: LocalBroker, name: str, **joining: Any) -> None:
        self.broker = broker
        self.name = name
        self.joining = joining
        self.instance_id = joining.get("instance_id")
        self.member_id = ""
        self.generation_id = -1
        if self.instance_id is None:
            response = self.send_join()
            assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = response.member_id

    def call(self, api_key: Api, version: int, request: Any) -> Any:
        return self.broker.handle(api_key, version, request, client_id=self.name)

    def send_join(self, **changes: Any) -> Any:
        request = join("g", self.member_id, **{**self.joining, **changes})
        return self.call(Api.JOIN_GROUP, 9, request)

    def joined(self, result: Any, within_ms: int = 0) -> Any:
        response = answer(self.broker, result, within_ms)
        if response.error_code == ErrorCode.NONE:
            self.member_id, self.generation_id = response.member_id, response.generation_id
        return response

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        request = sync(
            "g", self.member_id, self.generation_id, assignments, instance_id=self.instance_id
        )
        return self.call(Api.SYNC_GROUP, 5, request)

    def beat(self) -> ErrorCode:
        request = heartbeat("g", self.member_id, self.generation_id, self.instance_id)
        return ErrorCode(self.call(Api.HEARTBEAT, 4, request).error_code)

    def send_commit(self, offset: int, partition: int = 0) -> Any:
        request = commit(
            "g",
            {("orders", partition): offset},
            member_id=self.member_id,
            generation_id=self.generation_id,
            instance_id=self.instance_id,
        )
        return self.call(Api.OFFSET_COMMIT, 9, request)

    def send_leave(self) -> Any:
        return self.call(Api.LEAVE_GROUP, 5, leave("g", (self.member_id, self.instance_id)))


def stable_group(broker: LocalBroker, *members: Member) -> None:
    """All join and sync; the first one leads. Assignments are the members' names."""
    results = [member.send_join() for member in members]
    broker.advance(100)
    for member, result in zip(members, results, strict=True):
        assert member.joined(result).error_code == ErrorCode.NONE
    assignments = {each.member_id: each.name.encode() for each in members}
    results = [each.send_sync(assignments if each is members[0] else None) for each in members]
    broker.settle()
    for member, result in zip(members, results, strict=True):
        assert answer(broker, result).assignment == member.name.encode()


def error_of_commit(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def committed(broker: LocalBroker, partition: int = 0, *, stable: bool = False) -> Any:
    """The committed offset, or the error's name."""
    request = fetch("g", {"orders": [partition]}, require_stable=stable)
    group = broker.handle(Api.OFFSET_FETCH, 9, request).groups[0]
    if group.error_code:
        return ErrorCode(group.error_code).name
    each = group.topics[0].partitions[0]
    return ErrorCode(each.error_code).name if each.error_code else each.committed_offset


def state_of_group(broker: LocalBroker) -> str:
    request = DescribeGroupsRequest(groups=["g"])
    state: str = broker.handle(Api.DESCRIBE_GROUPS, 5, request).groups[0].group_state
    return state


# ---- crashes and failovers


def test_members_go_on_where_they_were_after_a_restart() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    answer(broker, a.send_commit(42))

    after = broker.restart()
    a.broker = b.broker = after
    assert state_of_group(after) == "Stable"
    assert a.beat() is ErrorCode.NONE
    assert b.beat() is ErrorCode.NONE
    assert committed(after) == 42
    assert error_of_commit(answer(after, a.send_commit(43))) is ErrorCode.NONE
    assert answer(after, b.send_sync()).assignment == b"b"


def test_a_member_that_does_not_come_back_after_a_restart_is_removed() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, a, b)
    after = broker.restart()
    a.broker = after
    for _ in range(3):
        after.advance(4_000)
        a.beat()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    response = a.joined(a.send_join())
    assert [each.member_id for each in response.members] == [a.member_id]
    assert response.generation_id == 2


def test_a_crash_before_the_assignment_is_written_means_joining_again() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    a.joined(a.send_join(), 100)
    broker.topic.hold = True
    assert is_waiting(a.send_sync({a.member_id: b"x"}))

    after = broker.restart()
    a.broker = after
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    a.member_id = ""
    a.member_id = a.send_join().member_id
    a.joined(a.send_join(), 100)
    assert a.generation_id == 1


def test_losing_the_partition_answers_all_who_wait() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, a, b)
    broker.topic.hold = True
    join_result = b.send_join(protocols=[("range", subscription("other"))])
    commit_result = a.send_commit(7)
    assert is_waiting(join_result)
    assert is_waiting(commit_result)

    broker.groups.stop(broker.now_ms)
    assert answer(broker, join_result).error_code == ErrorCode.NOT_COORDINATOR
    assert error_of_commit(answer(broker, commit_result)) is ErrorCode.NOT_COORDINATOR
    assert a.beat() is ErrorCode.NOT_COORDINATOR
    assert committed(broker) == "NOT_COORDINATOR"
    broker.settle()  # The log took the commit after all; nobody is there to hear of it.
    assert committed(broker.restart()) == 7


def test_a_group_without_a_partition_here_has_no_coordinator() -> None:
    broker = LocalBroker()
    assert broker.handle(Api.HEARTBEAT, 4, heartbeat("g", "m", 1)).error_code == (
        ErrorCode.NOT_COORDINATOR
    )
    response = broker.handle(Api.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"]))
    assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert broker.handle(Api.LIST_GROUPS, 5, ListGroupsRequest()).error_code == ErrorCode.NONE


def test_while_a_partition_loads_members_are_asked_for_patience() -> None:
    broker = new_broker()
    for partition in range(3):
        broker.groups.coordinator.unload(partition, broker.now_ms)
        assert broker.groups.coordinator.start_loading(partition, 5)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    call = broker.handle
    # A member is believed to be in the group that is being loaded.
    assert call(Api.HEARTBEAT, 4, heartbeat("g", "m", 1)).error_code == ErrorCode.NONE
    assert call(Api.JOIN_GROUP, 9, join("g")).error_code == loading
    assert call(Api.SYNC_GROUP, 5, sync("g", "m", 1)).error_code == loading
    assert call(Api.LEAVE_GROUP, 5, leave("g", ("m", None))).error_code == loading
    assert error_of_commit(call(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))) is loading
    assert committed(broker) == loading.name
    assert call(Api.OFFSET_DELETE, 0, delete_offsets("g", {"orders": [0]})).error_code == loading
    assert call(Api.LIST_GROUPS, 5, ListGroupsRequest()).error_code == loading
    request = DescribeGroupsRequest(groups=["g"])
    assert call(Api.DESCRIBE_GROUPS, 6, request).groups[0].error_code == loading
    deleted = call(Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert deleted.results[0].error_code == loading


def test_the_first_question_for_a_coordinator_makes_the_topic() -> None:
    broker = LocalBroker({"offsets.topic.num.partitions": "7"})
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    found = broker.handle(Api.FIND_COORDINATOR, 4, request).coordinators[0]
    assert found.error_code == ErrorCode.NONE
    topic = broker.services.image.topics_by_name["__consumer_offsets"]
    assert len(topic.partitions) == 7
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.internal


def test_an_existing_topic_decides_the_number_of_partitions() -> None:
    broker = new_broker(offsets_topic_num_partitions="3")
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 5})))
    after = LocalBroker(
        {"offsets.topic.num.partitions": "50"}, store=broker.store, records=broker.topic.records
    )
    assert after.groups.coordinator.config.offsets_topic_num_partitions == 3
    assert committed(after) == 5


@pytest.mark.parametrize("key_type", [1, 2, 9])
def test_only_groups_have_coordinators(key_type: int) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    found = new_broker().handle(Api.FIND_COORDINATOR, 6, request).coordinators[0]
    assert found.error_code == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if key_type == 1
        else ErrorCode.INVALID_REQUEST
    )
    assert found.node_id == -1


# ---- appends that wait or fail


def test_a_commit_is_answered_and_seen_when_the_log_has_it() -> None:
    broker = new_broker()
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1})))
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 2}))
    assert is_waiting(result)
    assert committed(broker) == 1
    assert committed(broker, stable=True) == "UNSTABLE_OFFSET_COMMIT"
    broker.settle()
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE
    assert committed(broker, stable=True) == 2


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_failed_appends_are_answered_as_kafka_maps_them(
    failure: ErrorCode, expected: ErrorCode
) -> None:
    broker = new_broker()
    broker.topic.fail_with = failure
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    assert error_of_commit(answer(broker, result)) is expected
    assert committed(broker) == -1
    assert committed(broker, stable=True) == -1


def test_a_slow_log_is_answered_for_but_its_records_count() -> None:
    broker = new_broker()
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    broker.advance(4_999)
    assert is_waiting(result)
    response = answer(broker, result, 1)
    assert error_of_commit(response) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(broker) == -1
    broker.settle()
    assert committed(broker) == 1


def test_an_assignment_that_cannot_be_written_starts_a_rebalance() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    results = [a.send_join(), b.send_join()]
    broker.advance(100)
    a.joined(results[0])
    b.joined(results[1])
    waiting = b.send_sync()
    broker.topic.hold = True
    leading = a.send_sync({a.member_id: b"x"})
    broker.settle(ErrorCode.KAFKA_STORAGE_ERROR)
    assert answer(broker, waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert answer(broker, leading).error_code == ErrorCode.NOT_COORDINATOR
    assert state_of_group(broker) == "PreparingRebalance"
    broker.topic.hold = False
    stable_group(broker, a, b)
    assert a.generation_id == 2


def test_a_leader_that_asks_twice_writes_once() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    a.joined(a.send_join(), 100)
    broker.topic.hold = True
    first = a.send_sync({a.member_id: b"first"})
    second = a.send_sync({a.member_id: b"second"})
    assert answer(broker, first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(broker.topic.waiting) == 1
    broker.settle()
    assert answer(broker, second).assignment == b"first"
    assert answer(broker.restart(), a.send_sync()).assignment == b"first"


def test_an_assignment_that_comes_too_late_for_its_generation_is_forgotten() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    results = [a.send_join(), b.send_join()]
    broker.advance(100)
    a.joined(results[0])
    b.joined(results[1])
    broker.topic.hold = True
    leading = a.send_sync({a.member_id: b"x"})
    result = b.send_leave()
    assert answer(broker, leading).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    broker.settle()
    assert answer(broker, result).members[0].error_code == ErrorCode.NONE
    assert state_of_group(broker) == "PreparingRebalance"


def test_a_group_that_cannot_be_written_down_is_not_made() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="100")
    broker.topic.hold = True
    result = broker.handle(Api.JOIN_GROUP, 3, join("g"))
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert answer(broker, result).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of_group(broker) == "Dead"
    broker.advance(DAY_MS)


def test_a_group_that_got_going_outlives_the_failure_of_its_first_record() -> None:
    broker = new_broker()
    broker.topic.hold = True
    result = broker.handle(Api.JOIN_GROUP, 3, join("g"))
    response = answer(broker, result, 100)
    assert response.generation_id == 1
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert state_of_group(broker) == "CompletingRebalance"
    request = heartbeat("g", response.member_id, 1)
    assert broker.handle(Api.HEARTBEAT, 4, request).error_code == ErrorCode.NONE


def test_a_static_member_whose_new_id_cannot_be_written_keeps_the_old_one() -> None:
    broker = new_broker()
    a, b = Member(broker, "a", instance_id="i-a"), Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    broker.topic.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    old_id, b.member_id = b.member_id, ""
    response = b.joined(b.send_join())
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert response.member_id == ""
    broker.topic.fail_with = ErrorCode.NONE
    b.member_id = old_id
    assert b.beat() is ErrorCode.NONE
    assert answer(broker, b.send_sync()).assignment == b"b"


def test_a_static_member_is_answered_by_the_rebalance_that_overtakes_it() -> None:
    broker = new_broker()
    a, b = Member(broker, "a", instance_id="i-a"), Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    broker.topic.hold = True
    b.member_id = ""
    back = b.send_join()
    leading = a.send_join()  # The leader asks for a rebalance meanwhile; b has joined already.
    assert b.joined(back).generation_id == 2
    assert len(a.joined(leading).members) == 2
    broker.settle()
    assert state_of_group(broker) == "CompletingRebalance"


def test_leaving_last_is_answered_when_the_empty_group_is_written() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    broker.topic.hold = True
    result = a.send_leave()
    assert is_waiting(result)
    broker.settle()
    assert answer(broker, result).members[0].error_code == ErrorCode.NONE
    assert state_of_group(broker.restart()) == "Empty"


# ---- rebalances


def test_the_first_rebalance_waits_longer_for_each_newcomer() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="3000")
    members = [Member(broker, name, rebalance_timeout_ms=7_000) for name in "abc"]
    first = members[0].send_join()
    broker.advance(2_000)
    results = [first, members[1].send_join()]
    broker.advance(2_000)
    assert is_waiting(first), "b came within the first three seconds"
    results.append(members[2].send_join())
    broker.advance(2_500)
    assert is_waiting(first), "c came within the second three seconds"
    broker.advance(500)
    assert [answer(broker, each).generation_id for each in results] == [1, 1, 1]


def test_the_first_rebalance_ends_with_the_rebalance_timeout() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="3000")
    results = [Member(broker, "m0", rebalance_timeout_ms=5_000).send_join()]
    for number in range(1, 6):
        broker.advance(900)
        results.append(Member(broker, f"m{number}", rebalance_timeout_ms=5_000).send_join())
    broker.advance(500)
    assert not any(is_waiting(each) for each in results)


def test_newcomers_of_an_earlier_first_rebalance_do_not_prolong_a_later_one() -> None:
    broker = new_broker(group_initial_rebalance_delay_ms="3000")
    a = Member(broker, "a", rebalance_timeout_ms=3_000)
    b = Member(broker, "b", rebalance_timeout_ms=3_000)
    results = [a.send_join(), b.send_join()]
    broker.advance(3_000)
    for member, result in zip((a, b), results, strict=True):
        member.joined(result)
        answer(broker, member.send_leave())
        if member is a:
            broker.advance(3_000)
    assert state_of_group(broker) == "Empty"
    late = Member(broker, "c", rebalance_timeout_ms=60_000)
    result = late.send_join()
    broker.advance(3_000)
    assert not is_waiting(result)


def test_waiting_for_static_members_does_not_spin() -> None:
    """Only static members are left, none has joined again, and they allow no time for it."""
    broker = new_broker()
    a = Member(broker, "a", instance_id="i-a", rebalance_timeout_ms=0)
    b = Member(broker, "b", instance_id="i-b", rebalance_timeout_ms=0)
    c = Member(broker, "c", rebalance_timeout_ms=0)
    results = [member.send_join() for member in (a, b, c)]
    while any(is_waiting(each) for each in results):
        broker.services.tick(broker.now_ms)
    for member, result in zip((a, b, c), results, strict=True):
        member.joined(result)
    for member in (a, b, c):
        member.send_sync({} if member is a else None)
    answer(broker, c.send_leave())
    ticks = 0
    while ticks < 20:
        deadline_ms = broker.services.next_deadline_ms()
        if deadline_ms is None or deadline_ms > broker.now_ms:
            break
        broker.services.tick(broker.now_ms)
        ticks += 1
    assert ticks < 20
    assert state_of_group(broker) == "PreparingRebalance"


def test_a_member_that_waits_for_the_others_need_not_beat() -> None:
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=60_000) for name in "ab")
    stable_group(broker, a, b)
    result = b.send_join(protocols=[("range", subscription("other"))])
    for _ in range(6):
        broker.advance(5_000)
        assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert is_waiting(result), "three sessions have passed"
    a.joined(a.send_join())
    assert b.joined(result).error_code == ErrorCode.NONE
    # The same while it waits for its assignment.
    waiting = b.send_sync()
    for _ in range(6):
        broker.advance(5_000)
        assert a.beat() is ErrorCode.NONE
    assert is_waiting(waiting)
    answer(broker, a.send_sync({b.member_id: b"b"}))
    assert answer(broker, waiting).assignment == b"b"


def test_an_assignment_of_the_last_generation_is_not_taken_for_this_one() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    results = [a.send_join(), b.send_join()]
    broker.advance(100)
    a.joined(results[0])
    b.joined(results[1])
    broker.topic.hold = True
    late = a.send_sync({a.member_id: b"old", b.member_id: b"old"})
    changed = b.send_join(protocols=[("range", subscription("other"))])
    assert answer(broker, late).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = a.send_join()
    assert b.joined(changed).generation_id == 2
    assert a.joined(again).generation_id == 2
    waiting = b.send_sync()
    broker.settle()
    assert is_waiting(waiting)
    assert state_of_group(broker) == "CompletingRebalance"
    leading = a.send_sync({a.member_id: b"a2", b.member_id: b"b2"})
    broker.settle()
    assert answer(broker, leading).assignment == b"a2"
    assert answer(broker, waiting).assignment == b"b2"


def test_committing_is_as_good_as_beating() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    for offset in range(6):
        broker.advance(9_000)
        assert error_of_commit(answer(broker, a.send_commit(offset))) is ErrorCode.NONE
    broker.advance(10_000)
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_that_nobody_hears_of_is_dropped_after_five_minutes() -> None:
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=3_600_000) for name in "ab")
    stable_group(broker, a, b)
    newcomer = Member(broker, "c", rebalance_timeout_ms=3_600_000)
    result = newcomer.send_join()
    for _ in range(60):
        broker.advance(5_000)
        a.beat()
        b.beat()
    assert answer(broker, result).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_smaller_group_max_size_is_enforced_when_a_group_is_loaded() -> None:
    broker = new_broker()
    members = [Member(broker, name) for name in "abc"]
    stable_group(broker, *members)
    after = LocalBroker({"group.max.size": "2"}, store=broker.store, records=broker.topic.records)
    for member in members:
        member.broker = after
        assert member.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    results = [member.send_join() for member in members]
    assert answer(after, results[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not any(is_waiting(each) for each in results)


# ---- bounds


def test_pending_ids_are_bounded() -> None:
    broker = new_broker()
    coordinator = broker.groups.coordinator
    object.__setattr__(coordinator.config, "pending_members_max", 3)
    errors = [broker.handle(Api.JOIN_GROUP, 9, join("g")).error_code for _ in range(4)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    broker.advance(10_000)
    assert broker.handle(Api.JOIN_GROUP, 9, join("g")).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_groups_are_bounded() -> None:
    broker = new_broker()
    object.__setattr__(broker.groups.coordinator.config, "groups_max", 2)
    for name, expected in (
        ("g-1", ErrorCode.MEMBER_ID_REQUIRED),
        ("g-2", ErrorCode.MEMBER_ID_REQUIRED),
        ("g-3", ErrorCode.POLICY_VIOLATION),
        ("g-2", ErrorCode.MEMBER_ID_REQUIRED),
    ):
        assert broker.handle(Api.JOIN_GROUP, 9, join(name)).error_code == expected
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g-4", {("orders", 0): 1}))
    assert error_of_commit(answer(broker, result)) is ErrorCode.POLICY_VIOLATION


def test_appends_in_flight_are_bounded() -> None:
    broker = new_broker()
    object.__setattr__(broker.groups.coordinator.config, "appends_in_flight_max", 2)
    broker.topic.hold = True
    results = [
        broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): offset}))
        for offset in range(3)
    ]
    assert [is_waiting(each) for each in results] == [True, True, False]
    assert error_of_commit(results[2]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.handle(Api.JOIN_GROUP, 9, join("g")).error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    broker.settle()
    assert committed(broker) == 1


def test_a_long_client_id_is_cut_in_member_ids() -> None:
    broker = new_broker()
    result = broker.handle(Api.JOIN_GROUP, 9, join("g"), client_id="é" * 16_000)
    assert len(result.member_id.encode()) <= 32_767


# ---- expiry and deletion


def commit_as_nobody(broker: LocalBroker, partition: int = 0, **kwargs: Any) -> None:
    version = 4 if "retention_time_ms" in kwargs else 9
    request = commit("g", {("orders", partition): 1}, **kwargs)
    result = broker.handle(Api.OFFSET_COMMIT, version, request)
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE


def test_offsets_of_a_simple_group_expire_one_by_one_after_their_commit() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0)
    broker.advance(4 * DAY_MS)
    commit_as_nobody(broker, 1)
    broker.advance(3 * DAY_MS + 20 * MINUTE_MS)
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 1)
    assert state_of_group(broker) == "Empty"
    broker.advance(4 * DAY_MS)
    assert committed(broker, 1) == -1
    assert state_of_group(broker) == "Dead", "the group goes with its last offset"
    after = broker.restart()
    assert (committed(after, 0), committed(after, 1)) == (-1, -1)
    assert state_of_group(after) == "Dead"


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    broker = new_broker()
    a = Member(broker, "a", session_timeout_ms=1_800_000)
    stable_group(broker, a)
    answer(broker, a.send_commit(5))
    for _ in range(8 * 24 * 3):
        broker.advance(20 * MINUTE_MS)
        assert a.beat() is ErrorCode.NONE
    answer(broker, a.send_leave())
    broker.advance(6 * DAY_MS)
    assert committed(broker) == 5, "in use until a day ago"
    after = broker.restart()
    after.advance(DAY_MS + 20 * MINUTE_MS)
    assert committed(after) == -1
    assert state_of_group(after) == "Dead"


def test_a_live_group_keeps_what_it_reads_and_loses_what_it_no_longer_reads() -> None:
    broker = new_broker()
    broker.create_topic("payments", 1)
    a = Member(
        broker,
        "a",
        session_timeout_ms=1_800_000,
        protocols=[("range", subscription("orders"))],
    )
    stable_group(broker, a)
    request = commit(
        "g",
        {("orders", 0): 5, ("payments", 0): 6},
        member_id=a.member_id,
        generation_id=a.generation_id,
    )
    answer(broker, a.call(Api.OFFSET_COMMIT, 9, request))
    for _ in range(7 * 24 * 3 + 2):
        broker.advance(20 * MINUTE_MS)
        a.beat()
    group = broker.handle(Api.OFFSET_FETCH, 9, fetch("g")).groups[0]
    assert [topic.name for topic in group.topics] == ["orders"]


@pytest.mark.parametrize("protocols", [[("range", b"?")], [("connect", b"")]])
def test_a_live_group_of_unknown_subscription_keeps_everything(
    protocols: list[tuple[str, bytes]],
) -> None:
    broker = new_broker()
    kind = "connect" if protocols[0][0] == "connect" else "consumer"
    a = Member(broker, "a", session_timeout_ms=1_800_000, protocols=protocols, protocol_type=kind)
    a.joined(a.send_join(), 100)
    request = sync(
        "g",
        a.member_id,
        a.generation_id,
        {},
        protocol_type=kind,
        protocol_name=protocols[0][0],
    )
    answer(broker, a.call(Api.SYNC_GROUP, 5, request))
    answer(broker, a.send_commit(5))
    for _ in range(8 * 24 * 3):
        broker.advance(20 * MINUTE_MS)
        a.beat()
    assert committed(broker) == 5


def test_an_old_client_decides_when_its_offsets_expire() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0, retention_time_ms=30 * MINUTE_MS)
    commit_as_nobody(broker, 1, retention_time_ms=30 * DAY_MS)
    broker = broker.restart()
    broker.advance(50 * MINUTE_MS)
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 1)
    broker.advance(20 * DAY_MS)
    assert committed(broker, 1) == 1


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_leave())
    broker.advance(11 * MINUTE_MS)
    assert state_of_group(broker) == "Dead"


def test_a_commit_in_flight_keeps_a_group_from_expiring() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    broker.advance(7 * DAY_MS - 9 * MINUTE_MS)
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 2}))
    broker.advance(10 * MINUTE_MS)
    assert not is_waiting(result)
    broker.settle()
    assert committed(broker) == 2


def test_a_group_does_not_go_with_its_last_offset_while_the_next_is_in_flight() -> None:
    broker = new_broker()
    commit_as_nobody(broker, 0)
    broker.advance(7 * DAY_MS - 5 * MINUTE_MS)
    broker.topic.hold = True
    broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 2}))
    broker.advance(10 * MINUTE_MS)
    assert state_of_group(broker) == "Empty"
    broker.settle()
    assert (committed(broker, 0), committed(broker, 1)) == (-1, 2)


def test_deleting_a_topic_deletes_its_offsets() -> None:
    broker = new_broker()
    broker.create_topic("payments", 1)
    request = commit("g", {("orders", 0): 5, ("payments", 0): 6})
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    broker.topic.hold = True
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 1): 7}))
    broker.delete_topic("orders")
    broker.settle()
    assert error_of_commit(answer(broker, result)) is ErrorCode.NONE
    for each in (broker, broker.restart()):
        group = each.handle(Api.OFFSET_FETCH, 9, fetch("g")).groups[0]
        assert [topic.name for topic in group.topics] == ["payments"]


def test_a_topic_made_anew_does_not_inherit_offsets() -> None:
    """The broker died after the topic's deletion and before the offsets' tombstones."""
    broker = new_broker()
    commit_as_nobody(broker, 0)
    commit_as_nobody(broker, 1)
    records = {index: list(each) for index, each in broker.topic.records.items()}
    broker.delete_topic("orders")
    broker.create_topic("orders", 3)
    # What a broker that came back has seen since: a commit for the new topic.
    commit_as_nobody(broker, 1)
    index = partition_for_group("g", 3)
    records[index].append(broker.topic.records[index][-1])
    crashed = LocalBroker(store=broker.store, records=records)
    assert (committed(crashed, 0), committed(crashed, 1)) == (-1, 1)
    assert crashed.groups.coordinator.offset_count() == 1


def test_deleting_a_group_can_fail_and_be_repeated() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    request = DeleteGroupsRequest(groups_names=["g"])
    broker.topic.hold = True
    result = broker.handle(Api.DELETE_GROUPS, 2, request)
    assert state_of_group(broker) == "Dead"
    refused = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 2}))
    assert error_of_commit(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    response = answer(broker, result)
    assert response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (state_of_group(broker), committed(broker)) == ("Empty", 1)
    broker.topic.hold = False
    response = answer(broker, broker.handle(Api.DELETE_GROUPS, 2, request))
    assert response.results[0].error_code == ErrorCode.NONE
    assert state_of_group(broker.restart()) == "Dead"


def test_many_offsets_are_deleted_in_several_batches() -> None:
    broker = new_broker()
    broker.create_topic("wide", 2_500)
    request = commit("g", {("wide", index): index for index in range(2_500)})
    answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request))
    broker.topic.hold = True
    result = broker.handle(Api.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    sizes = [len(records) for _, records, _ in broker.topic.waiting]
    assert sizes == [1_000, 1_000, 500, 1]
    broker.settle()
    assert answer(broker, result).results[0].error_code == ErrorCode.NONE
    assert broker.groups.coordinator.offset_count() == 0


# ---- what operators see


def test_metrics_and_log_lines() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_commit(5))
    registry = broker.services.metrics
    value = registry.get_sample_value
    assert value("tidewheel_groups", {"state": "Stable"}) == 1
    assert value("tidewheel_groups", {"state": "Empty"}) == 0
    assert value("tidewheel_group_offsets") == 1
    assert value("tidewheel_group_rebalances_completed_total") == 1
    assert value("tidewheel_group_offset_commits_total") == 1
    events = [event for event, fields in broker.log.lines if fields.get("group") == "g"]
    assert events == ["group_preparing_rebalance", "group_new_generation", "group_stable"]
