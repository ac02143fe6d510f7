"""What clients may have a broker keep: groups, the bytes of members, the bytes of offsets.

Who would take more is told so; who is there already goes on.
"""

from __future__ import annotations

from typing import Any

from data_plane.groups.member import MEMBER_OVERHEAD_BYTES
from data_plane.groups.offsets import OFFSET_OVERHEAD_BYTES, TOPIC_OVERHEAD_BYTES
from data_plane.wire.errors import ErrorCode
from data_plane.wire.registry import ApiKey as Api
from tests.groups.local_player import LocalBroker
from tests.groups.members import (
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
from tests.groups.requests import commit, join, subscription

LARGE = [("range", subscription("orders") + b"m" * 100_000)]


def with_members_bytes(bytes_max: int) -> LocalBroker:
    """One that keeps so much of members."""
    return new_broker(group_coordinator_members_max_bytes=str(bytes_max))


def with_offsets_bytes(bytes_max: int) -> LocalBroker:
    """One that keeps so much of offsets."""
    return new_broker(group_coordinator_offsets_max_bytes=str(bytes_max))


def at_the_bound(**joining: Any) -> tuple[LocalBroker, Member]:
    """A broker with room for one large member, and that member."""
    broker = with_members_bytes(110_000 + 2 * MEMBER_OVERHEAD_BYTES)
    member = Member(broker, "a", protocols=LARGE, **joining)
    stable_group(broker, member)
    return broker, member


def member_bytes(broker: LocalBroker) -> int:
    return broker.groups.coordinator.totals.member_bytes


def test_members_are_bounded_by_what_they_bring() -> None:
    broker, first = at_the_bound()
    refused = broker.handle(Api.JOIN_GROUP, 3, join("other", protocols=LARGE))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "other" not in {each.group_id for each in broker.groups.coordinator.groups()}
    assert first.beat() is ErrorCode.NONE
    answer(broker, first.send_leave())
    again = broker.handle(Api.JOIN_GROUP, 3, join("other", protocols=LARGE))
    assert answer(broker, again, 10_000).error_code == ErrorCode.NONE


def test_at_the_bound_a_member_may_join_again_with_what_it_has() -> None:
    broker, member = at_the_bound()
    larger = [("range", LARGE[0][1] + b"m" * 100_000)]
    assert member.joined(member.send_join(), 10_000).error_code == ErrorCode.NONE
    refused = member.joined(member.send_join(protocols=larger))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert member_bytes(broker) == 0, "who is turned away has left"


def test_at_the_bound_a_static_member_may_come_back() -> None:
    broker, _ = at_the_bound(instance_id="i-a")
    before = member_bytes(broker)
    back = Member(broker, "a", protocols=LARGE, instance_id="i-a")
    assert back.joined(back.send_join(), 10_000).error_code == ErrorCode.NONE
    assert member_bytes(broker) == before


def test_assignments_are_bounded_and_everybody_who_waits_is_told() -> None:
    broker = with_members_bytes(100_000)
    a, b = Member(broker, "a"), Member(broker, "b")
    joined_group(broker, a, b)
    waiting = b.send_sync()
    assert is_waiting(waiting)
    refused = answer(broker, a.send_sync({b.member_id: b"x" * 100_000}))
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert answer(broker, waiting).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert state_of_group(broker) == "PreparingRebalance"
    joined_group(broker, a, b)
    b.send_sync()
    assert answer(broker, a.send_sync({a.member_id: b"x" * 50_000})).error_code == ErrorCode.NONE


def test_what_members_take_is_free_when_they_go() -> None:
    broker = new_broker()
    stable_group(broker, *(Member(broker, name, protocols=LARGE) for name in "abc"))
    Member(broker, "has only an id")
    assert member_bytes(broker) > 300_000
    broker.advance(600_000)
    assert member_bytes(broker) == 0


def offsets_in(broker: LocalBroker, *partitions: int) -> ErrorCode:
    request = commit("g", dict.fromkeys([("orders", each) for each in partitions], 1))
    return error_of_commit(answer(broker, broker.handle(Api.OFFSET_COMMIT, 9, request)))


def test_offsets_are_bounded_by_what_they_take() -> None:
    broker = with_offsets_bytes(TOPIC_OVERHEAD_BYTES + 3 * OFFSET_OVERHEAD_BYTES)
    assert offsets_in(broker, 0, 1, 2) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert committed(broker) == -1
    assert offsets_in(broker, 0) is ErrorCode.NONE
    assert offsets_in(broker, 0) is ErrorCode.NONE, "what is there can be committed anew"
    totals = broker.groups.coordinator.totals
    object.__setattr__(broker.groups.coordinator.config, "offsets_max_bytes", totals.offset_bytes)
    assert offsets_in(broker, 1) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert offsets_in(broker, 0) is ErrorCode.NONE


def test_commits_in_flight_count() -> None:
    broker = with_offsets_bytes(TOPIC_OVERHEAD_BYTES + 2 * OFFSET_OVERHEAD_BYTES)
    broker.topic.hold = True
    first = broker.handle(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 1}))
    assert is_waiting(first)
    assert offsets_in(broker, 1) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    broker.settle(ErrorCode.NOT_ENOUGH_REPLICAS)
    broker.topic.hold = False
    assert offsets_in(broker, 1) is ErrorCode.NONE


def test_what_offsets_take_is_free_when_they_go() -> None:
    broker = new_broker()
    for partition in range(3):
        commit_as_nobody(broker, partition)
    totals = broker.groups.coordinator.totals
    assert totals.offset_bytes > 3 * OFFSET_OVERHEAD_BYTES
    broker.delete_topic("orders")
    assert (totals.offset_bytes, totals.offset_count) == (0, 0)
