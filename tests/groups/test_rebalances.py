"""How long rebalances wait, and what is bounded."""

from __future__ import annotations

import pytest

from data_plane.wire.errors import ErrorCode
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.members import (
    Member,
    answer,
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
    join,
    subscription,
)

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


def test_static_members_that_do_not_join_again_hold_up_the_others_for_two_timeouts() -> None:
    """When the first ends nobody is there who could lead; the second ends with whoever is."""
    broker = new_broker()
    a, b = (
        Member(broker, name, instance_id=f"i-{name}", session_timeout_ms=60_000) for name in "ab"
    )
    c = Member(broker, "c")
    stable_group(broker, a, b, c)
    answer(broker, c.send_leave())
    broker.advance(10_000)
    assert state_of_group(broker) == "PreparingRebalance"
    result = a.send_join()
    broker.advance(9_999)
    assert b.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert is_waiting(result)
    response = a.joined(result, 1)
    assert (response.generation_id, response.leader) == (2, a.member_id)
    assert {each.member_id for each in response.members} == {a.member_id, b.member_id}
    assert b.beat() is ErrorCode.ILLEGAL_GENERATION


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


def test_a_member_that_waited_for_longer_than_its_session_gets_a_new_one_with_its_answer() -> None:
    """Its session ended while it was excused; one that dies with its assignment is missed."""
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=60_000) for name in "ab")
    joined_group(broker, a, b)
    waiting = b.send_sync()
    for _ in range(3):
        broker.advance(5_000)
        assert a.beat() is ErrorCode.NONE
    answer(broker, a.send_sync({b.member_id: b"b"}))
    assert answer(broker, waiting).assignment == b"b"
    broker.advance(5_000)
    assert a.beat() is ErrorCode.NONE
    broker.advance(4_999)
    assert a.beat() is ErrorCode.NONE, "b has a whole session"
    broker.advance(1)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_waited_for_an_assignment_in_vain_gets_a_new_session() -> None:
    """It is not removed for not joining again: only its session can end it."""
    broker = new_broker()
    a = Member(broker, "a", rebalance_timeout_ms=60_000)
    b = Member(broker, "b", rebalance_timeout_ms=60_000, instance_id="i-b")
    joined_group(broker, a, b)
    waiting = b.send_sync()
    for _ in range(3):
        broker.advance(5_000)
        assert a.beat() is ErrorCode.NONE
    answer(broker, a.send_leave())
    assert answer(broker, waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    broker.advance(9_999)
    assert state_of_group(broker) == "PreparingRebalance"
    broker.advance(1)
    assert state_of_group(broker) == "Empty"


def test_a_static_member_that_came_back_over_a_slow_log_gets_a_new_session() -> None:
    """The log takes longer than its session to write down its new id."""
    broker = new_broker(offsets_commit_timeout_ms="60000")
    a = Member(broker, "a", rebalance_timeout_ms=60_000)
    b = Member(broker, "b", rebalance_timeout_ms=60_000, instance_id="i-b")
    stable_group(broker, a, b)
    broker.topic.hold = True
    b.member_id = ""
    back = b.send_join()
    for _ in range(3):
        broker.advance(5_000)
        assert a.beat() is ErrorCode.NONE
    broker.settle()
    assert b.joined(back).generation_id == 1
    answer(broker, b.send_sync())
    broker.advance(5_000)
    assert a.beat() is ErrorCode.NONE
    broker.advance(5_000)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_that_is_answered_begins_a_new_session() -> None:
    """The last one is nearly over when the others have joined, too."""
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=60_000) for name in "ab")
    stable_group(broker, a, b)
    result = b.send_join(protocols=[("range", subscription("other"))])
    broker.advance(9_000)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.joined(a.send_join())
    b.joined(result)
    broker.advance(3_000)
    assert b.beat() is ErrorCode.NONE


def test_a_static_member_that_comes_back_in_a_rebalance_can_be_the_last() -> None:
    broker = new_broker()
    a = Member(broker, "a", rebalance_timeout_ms=60_000)
    b = Member(broker, "b", rebalance_timeout_ms=60_000, instance_id="i-b")
    stable_group(broker, a, b)
    result = a.send_join()
    assert is_waiting(result)
    b.member_id = ""
    assert b.joined(b.send_join()).generation_id == a.joined(result).generation_id == 2


def test_a_static_member_that_changes_the_vote_begins_a_rebalance() -> None:
    broker = new_broker()
    both = [("range", subscription("orders")), ("sticky", subscription("orders"))]
    a = Member(broker, "a", instance_id="i-a", protocols=both)
    b = Member(broker, "b", instance_id="i-b", protocols=both)
    stable_group(broker, a, b)
    b.member_id = ""
    unchanged = b.joined(b.send_join())
    assert (unchanged.generation_id, unchanged.protocol_name) == (1, "range")
    b.member_id = ""
    changed = b.send_join(protocols=[("sticky", subscription("orders"))])
    assert is_waiting(changed)
    a.joined(a.send_join())
    response = b.joined(changed)
    assert (response.generation_id, response.protocol_name) == (2, "sticky")


@pytest.mark.parametrize("names", [("range", "sticky"), ("sticky", "range")])
def test_of_two_protocols_with_as_many_votes_the_first_member_s_wins(
    names: tuple[str, str],
) -> None:
    broker = new_broker()
    first, second = ((name, subscription("orders")) for name in names)
    a = Member(broker, "a", protocols=[first, second])
    b = Member(broker, "b", protocols=[second, first])
    results = [a.send_join(), b.send_join()]
    broker.advance(100)
    assert [answer(broker, each).protocol_name for each in results] == [names[0]] * 2


def test_generations_begin_again_behind_the_last_number() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    (group,) = broker.groups.coordinator.groups()
    group.generation_id = 2**31 - 1
    assert a.joined(a.send_join()).generation_id == 1


def test_a_member_that_joins_again_may_have_other_timeouts() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, a, b)
    results = [
        member.send_join(session_timeout_ms=30_000, rebalance_timeout_ms=40_000)
        for member in (a, b)
    ]
    for member, result in zip((a, b), results, strict=True):
        member.joined(result)
    broker.advance(29_999)
    assert a.beat() is ErrorCode.NONE
    broker.advance(10_000)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS, "b's session has ended, a's has not"


def test_a_rebalance_waits_for_as_long_as_its_members_last_said() -> None:
    broker = new_broker()
    a = Member(broker, "a", session_timeout_ms=60_000)
    b = Member(broker, "b", session_timeout_ms=60_000)
    stable_group(broker, a, b)
    results = [member.send_join(rebalance_timeout_ms=40_000) for member in (a, b)]
    for member, result in zip((a, b), results, strict=True):
        member.joined(result)
    assignments = {each.member_id: b"" for each in (a, b)}
    answer(broker, a.send_sync(assignments))
    answer(broker, b.send_sync())
    waiting = a.send_join()
    broker.advance(39_999)
    assert is_waiting(waiting)
    broker.advance(1)
    assert len(answer(broker, waiting).members) == 1


def test_committing_is_as_good_as_beating_in_a_rebalance_too() -> None:
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=60_000) for name in "ab")
    stable_group(broker, a, b)
    b.send_join(protocols=[("range", subscription("other"))])
    for offset in range(3):
        broker.advance(6_000)
        assert error_of_commit(answer(broker, a.send_commit(offset))) is ErrorCode.NONE


def test_beating_for_another_generation_keeps_nobody_in_a_group() -> None:
    """As with a process that has got stuck in the last one."""
    broker = new_broker()
    a = Member(broker, "a")
    b = Member(broker, "b", instance_id="i-b")
    stable_group(broker, a, b)
    b.generation_id = 0
    broker.advance(5_000)
    assert b.beat() is ErrorCode.ILLEGAL_GENERATION
    assert a.beat() is ErrorCode.NONE
    broker.advance(5_000)
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_that_is_not_used_holds_up_a_rebalance_for_its_session_only() -> None:
    broker = new_broker()
    a, b = (Member(broker, name, rebalance_timeout_ms=60_000) for name in "ab")
    stable_group(broker, a, b)
    Member(broker, "c", session_timeout_ms=6_000)
    results = [member.send_join(protocols=[("range", subscription("other"))]) for member in (a, b)]
    broker.advance(5_999)
    assert all(is_waiting(each) for each in results)
    broker.advance(1)
    assert [
        member.joined(each).generation_id for member, each in zip((a, b), results, strict=True)
    ] == [2, 2]


def test_an_assignment_of_the_last_generation_is_not_taken_for_this_one() -> None:
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    joined_group(broker, a, b)
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
        assert is_waiting(result)
        broker.advance(5_000)
        a.beat()
        b.beat()
    assert answer(broker, result).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_came_back_without_asking_for_its_assignment_is_removed() -> None:
    broker = new_broker()
    a = Member(broker, "a", instance_id="i-a", rebalance_timeout_ms=5_000)
    b = Member(broker, "b", instance_id="i-b", rebalance_timeout_ms=5_000)
    joined_group(broker, a, b)
    answer(broker, a.send_sync({a.member_id: b"a", b.member_id: b"b"}))
    b.member_id = ""
    assert b.joined(b.send_join()).generation_id == 1
    broker.advance(5_000)
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID
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


def test_a_group_of_just_group_max_size_is_loaded_as_it_was() -> None:
    broker = new_broker()
    members = [Member(broker, name) for name in "ab"]
    stable_group(broker, *members)
    after = LocalBroker({"group.max.size": "2"}, store=broker.store, records=broker.topic.records)
    for member in members:
        member.broker = after
        assert member.beat() is ErrorCode.NONE


def test_who_asks_twice_to_join_a_full_group_keeps_its_place() -> None:
    broker = new_broker(group_max_size="2", group_initial_rebalance_delay_ms="3000")
    a, b, c = (Member(broker, name) for name in "abc")
    first = [a.send_join(), b.send_join()]
    assert answer(broker, c.send_join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = a.send_join()
    assert answer(broker, first[0]).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert is_waiting(again)
    broker.advance(6_000)
    assert a.joined(again).generation_id == b.joined(first[1]).generation_id == 1


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
        ("g-3", ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("g-2", ErrorCode.MEMBER_ID_REQUIRED),
    ):
        assert broker.handle(Api.JOIN_GROUP, 9, join(name)).error_code == expected
    result = broker.handle(Api.OFFSET_COMMIT, 9, commit("g-4", {("orders", 0): 1}))
    assert error_of_commit(answer(broker, result)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


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


# ---- what operators see


def test_metrics_and_log_lines() -> None:
    broker = new_broker()
    a = Member(broker, "a")
    stable_group(broker, a)
    answer(broker, a.send_commit(4))
    answer(broker, a.send_commit(5))
    registry = broker.services.metrics
    value = registry.get_sample_value
    assert value("tidewheel_groups", {"state": "Stable"}) == 1
    assert value("tidewheel_groups", {"state": "Empty"}) == 0
    assert value("tidewheel_group_offsets") == 1
    assert value("tidewheel_group_rebalances_completed_total") == 1
    assert value("tidewheel_group_offset_commits_total") == 2
    events = [event for event, fields in broker.log.lines if fields.get("group") == "g"]
    assert events == ["group_preparing_rebalance", "group_new_generation", "group_stable"]


def test_who_is_about_to_join_when_the_last_member_goes_is_taken() -> None:
    """The rebalance waits for the newcomer, and nobody is left whose protocols it could lack."""
    broker = new_broker()
    a, b = Member(broker, "a"), Member(broker, "b")
    stable_group(broker, a, b)
    newcomer = Member(broker, "c")
    for member in (a, b):
        assert answer(broker, member.send_leave()).error_code == ErrorCode.NONE
    assert state_of_group(broker) == "PreparingRebalance"
    joined = newcomer.send_join()
    assert answer(broker, joined, within_ms=10_000).error_code == ErrorCode.NONE
