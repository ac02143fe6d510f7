"""Groups through crashes, failovers and failing disks, told step by step.

A `LocalBroker` is the real service, handlers and coordinator over records in memory; `hold` keeps
appends from settling, `restart` is another process over the same log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from data_plane.broker.coordinators.coordinator_log import (
    LOAD_RETRY_MS_MAX,
    LOAD_RETRY_MS_MIN,
    LOADS_AT_ONCE_MAX,
)
from data_plane.groups.loading import Folded
from data_plane.groups.partitioning import partition_for_group
from data_plane.groups.record_formats import (
    GroupRecord,
    MemberRecord,
    decode_group,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.members import (
    DAY_MS,
    Member,
    answer,
    commit_as_nobody,
    committed,
    error_of_commit,
    is_waiting,
    joined_group,
    new_broker,
    stable_group,
    state_of_group,
)
from tests.groups.requests import (
    commit,
    delete_offsets,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)

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


@pytest.mark.parametrize("begin", [joined_group, stable_group])
def test_a_partition_that_is_lost_leaves_nothing_to_wait_for(
    begin: Callable[[LocalBroker, Member], None],
) -> None:
    broker = new_broker()
    begin(broker, Member(broker, "a"))
    coordinator = broker.groups.coordinator
    assert coordinator.next_deadline_ms() is not None
    for partition in range(3):
        coordinator.unload(partition, broker.now_ms)
    assert coordinator.next_deadline_ms() is None


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
    topic = broker.services.image.topics_of("default")["__consumer_offsets"]
    assert len(topic.partitions) == 7
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.internal


def test_a_topic_made_by_somebody_else_decides_the_number_of_partitions() -> None:
    broker = LocalBroker({"offsets.topic.num.partitions": "7"})
    broker.create_topic("__consumer_offsets", 2)
    broker.create_topic("orders", 1)
    assert broker.groups.coordinator.config.offsets_topic_num_partitions == 2
    commit_as_nobody(broker)
    assert committed(broker.restart()) == 1


def test_nothing_is_remembered_of_an_offsets_topic_that_was_deleted_and_made_anew() -> None:
    """In one step, as a broker sees it that reads several commits at once: the new one has the same
    partitions, leaders and epochs."""
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_commit(42))
    broker.topic.hold = True
    waiting = a.send_commit(43)
    broker.topic.records.clear()
    broker.make_topic_anew("__consumer_offsets", 3)
    assert error_of_commit(answer(broker, waiting)) is ErrorCode.NOT_COORDINATOR
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(broker) == -1


def test_what_was_read_for_an_older_leadership_is_not_loaded() -> None:
    broker = LocalBroker()
    coordinator = broker.groups.coordinator
    assert coordinator.start_loading(0, 5)
    assert not coordinator.start_loading(0, 5)
    coordinator.unload(0, broker.now_ms)
    assert coordinator.load(0, 5, {}, broker.now_ms) == []
    assert not coordinator.is_loaded(0)
    assert coordinator.start_loading(0, 7)
    coordinator.load(0, 5, {}, broker.now_ms)
    assert not coordinator.is_loaded(0)
    # Nor does it matter that it could not be read then.
    coordinator.load_failed(0, 5)
    coordinator.load(0, 7, {}, broker.now_ms)
    assert coordinator.is_loaded(0)


def test_a_partition_that_cannot_be_read_has_no_coordinator() -> None:
    broker = LocalBroker()
    coordinator = broker.groups.coordinator
    partition = partition_for_group("default", "g", 5)
    assert coordinator.start_loading(partition, 0)
    coordinator.load_failed(partition, 0)
    assert broker.handle(Api.HEARTBEAT, 4, heartbeat("g", "m", 1)).error_code == (
        ErrorCode.NOT_COORDINATOR
    )
    assert broker.handle(Api.LIST_GROUPS, 5, ListGroupsRequest()).error_code == ErrorCode.NONE


def test_a_partition_that_could_not_be_read_is_read_again() -> None:
    """While this broker leads it, its groups have no other coordinator."""
    broker = new_broker()
    commit_as_nobody(broker)
    partition = partition_for_group("default", "g", 3)
    after = LocalBroker(store=broker.store, records=broker.topic.records, unreadable=[partition])
    pauses_ms = [1000, 2000, 4000, 8000, 16_000, 30_000]
    for pause_ms in pauses_ms:
        after.advance(pause_ms)
        assert committed(after) == "NOT_COORDINATOR"
    after.topic.unreadable = frozenset()
    after.advance(LOAD_RETRY_MS_MAX - 1)
    assert committed(after) == "NOT_COORDINATOR"
    after.advance(1)
    assert committed(after) == 1


def test_what_passes_soon_keeps_a_partition_from_its_groups_for_a_second() -> None:
    broker = new_broker()
    commit_as_nobody(broker)
    partition = partition_for_group("default", "g", 3)
    after = LocalBroker(store=broker.store, records=broker.topic.records, unreadable=[partition])
    after.topic.unreadable = frozenset()
    after.advance(LOAD_RETRY_MS_MIN - 1)
    assert committed(after) == "NOT_COORDINATOR"
    after.advance(1)
    assert committed(after) == 1


def test_partitions_that_cannot_be_read_do_not_keep_others_from_being_loaded() -> None:
    """As many fail as may be read at once; the next one is read all the same."""
    count = LOADS_AT_ONCE_MAX + 1
    broker = LocalBroker({"offsets.topic.num.partitions": str(count)})
    broker.handle(Api.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
    after = LocalBroker(
        store=broker.store, records=broker.topic.records, unreadable=range(LOADS_AT_ONCE_MAX)
    )
    is_loaded = [after.groups.coordinator.is_loaded(partition) for partition in range(count)]
    assert is_loaded == [False] * LOADS_AT_ONCE_MAX + [True]
    failed = [fields["partition"] for event, fields in after.log.lines if "not_loaded" in event]
    assert failed == list(range(LOADS_AT_ONCE_MAX))


@pytest.mark.parametrize("leader_id", [None, "gone"])
def test_a_loaded_group_has_a_leader_whatever_the_log_says(leader_id: str | None) -> None:
    member = MemberRecord("m-1", None, "c", "/h", 1_000, 10_000, subscription("orders"), b"x")
    record = GroupRecord("consumer", 3, "range", leader_id, 0, (member,))
    broker = new_broker()
    coordinator = broker.groups.coordinator
    partition = partition_for_group("default", "g", 3)
    coordinator.unload(partition, broker.now_ms)
    coordinator.start_loading(partition, 9)
    coordinator.load(partition, 9, {"default": Folded(groups=[("g", record)])}, broker.now_ms)
    (group,) = coordinator.groups()
    assert group.leader_id == "m-1"


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
    joined_group(broker, a, b)
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
    joined_group(broker, a, b)
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


def test_an_old_id_that_is_kept_keeps_its_session_too() -> None:
    """Nobody uses it: its process is gone, and the new one may never come again."""
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    broker.topic.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    b.member_id = ""
    b.send_join()
    broker.topic.fail_with = ErrorCode.NONE
    broker.advance(5_000)
    assert a.beat() is ErrorCode.NONE
    broker.advance(5_000)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_assignment_of_a_static_member_that_came_back_outlives_a_crash() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    b.member_id = ""
    assert b.joined(b.send_join()).generation_id == 1
    after = broker.restart()
    for member in (a, b):
        member.broker = after
        assert answer(after, member.send_sync()).assignment == member.name.encode()


def test_a_static_member_waits_for_the_others_of_a_rebalance_that_overtakes_it() -> None:
    """Its new id gets into the log meanwhile, which says nothing of the next generation."""
    broker = new_broker()
    a, b, c = Member(broker, "a"), Member(broker, "b", instance_id="i-b"), Member(broker, "c")
    stable_group(broker, a, b, c)
    broker.topic.hold = True
    b.member_id = ""
    back = b.send_join()
    leading = a.send_join()
    broker.settle()
    assert is_waiting(back)
    last = c.send_join()
    results = [member.joined(each) for member, each in ((a, leading), (b, back), (c, last))]
    assert [each.generation_id for each in results] == [2, 2, 2]


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
    (records,) = broker.topic.records.values()
    assert decode_group(records[-1].value or b"") == GroupRecord(
        "consumer", 2, None, None, broker.now_ms, ()
    )
    assert state_of_group(broker.restart()) == "Empty"
