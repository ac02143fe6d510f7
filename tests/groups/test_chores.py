"""Work in pieces: how much a turn does, in which order, and what members see meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any

from data_plane.groups.chores import WAITING, Chores, Pieces
from data_plane.groups.config import GroupCoordinatorConfig
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.effects import ClientContext, Effect, Respond
from data_plane.groups.loaded_shard import RESTORE_GROUP_WORK, RESTORE_MEMBER_WORK
from data_plane.groups.loading import Folded
from data_plane.groups.record_formats import GroupRecord, MemberRecord
from data_plane.wire.errors import ErrorCode
from tests.groups.requests import commit, heartbeat, join, subscription

CLIENT = ClientContext("c", "/127.0.0.1", 9)
SESSION_MS = 10_000


def pieces(done: list[str], name: str, *works: int) -> Pieces:
    for number, work in enumerate(works):
        done.append(f"{name}{number}")
        yield work


def test_a_turn_does_what_it_has_time_for_and_the_rest_is_due_a_millisecond_later() -> None:
    chores, done = Chores(10), list[str]()
    chores.begin(None, pieces(done, "a", 4, 4, 4, 4), 100)
    assert done == ["a0", "a1", "a2"]
    chores.run(100)
    assert len(done) == 3, "there is one budget for all that happens in a millisecond"
    assert chores.next_deadline_ms() == 101
    chores.run(101)
    assert len(done) == 4
    assert chores.next_deadline_ms() is None


def test_what_clients_wait_for_comes_first() -> None:
    chores, done = Chores(1), list[str]()
    chores.begin(None, pieces(done, "expiry", 1, 1), 0)
    chores.begin(None, pieces(done, "loading", 1, 1), 0, is_urgent=True)
    for now_ms in range(1, 6):
        chores.run(now_ms)
    assert done == ["expiry0", "loading0", "loading1", "expiry1"]


def test_tenants_have_their_turns_however_much_one_has_to_do() -> None:
    chores, done = Chores(1), list[str]()
    chores.begin(None, pieces(done, "a", 1, 1, 1), 0, tenant="acme")
    chores.begin(None, pieces(done, "b", 1), 0, tenant="acme")
    chores.begin(None, pieces(done, "x", 1, 1), 0, tenant="globex")
    for now_ms in range(1, 10):
        chores.run(now_ms)
    assert done == ["a0", "a1", "x0", "a2", "x1", "b0"]
    assert chores.next_deadline_ms() is None


def test_who_waits_for_an_append_is_asked_again_when_one_has_settled() -> None:
    chores, done = Chores(10), list[str]()
    chores.begin(None, pieces(done, "a", WAITING, 1), 0)
    assert (done, chores.next_deadline_ms()) == (["a0"], None)
    chores.run(1)
    assert done == ["a0"]
    chores.wake(2)
    assert done == ["a0", "a1"]


def test_chores_end_with_their_owner() -> None:
    chores, done = Chores(1), list[str]()
    owner, other = object(), object()
    chores.begin(owner, pieces(done, "running", 1, 1), 0)
    chores.begin(owner, pieces(done, "waiting", WAITING, 1), 1)
    chores.begin(other, pieces(done, "other", 1), 1)
    chores.drop(owner)
    chores.wake(2)
    chores.finish(3)
    assert done == ["running0", "running1", "other0"] or done == ["running0", "other0"]


def test_only_the_chores_of_its_tenant_are_looked_at_for_an_owner_that_is_given_up() -> None:
    chores, done = Chores(1), list[str]()
    chores.begin(None, pieces(done, "loading", *[1] * 3), 0, is_urgent=True)
    owners = {f"t{number}": object() for number in range(100)}
    for tenant, owner in owners.items():
        chores.begin(owner, pieces(done, f"{tenant}.", 1), 0, tenant=tenant)
        chores.begin(object(), pieces(done, f"{tenant}-other.", 1), 0, tenant=tenant)
    looked_at = 0

    class Looked(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked_at
            looked_at += 1
            return super().__iter__()

    chores._others = {tenant: Looked(queue) for tenant, queue in chores._others.items()}
    looked_at = 0
    for tenant, owner in owners.items():
        chores.drop(owner, tenant=tenant)
    assert looked_at == len(owners)
    chores.finish(1)
    assert done == [
        *(f"loading{number}" for number in range(3)),
        *(f"{tenant}-other.0" for tenant in owners),
    ]


def test_a_loading_that_is_given_up_ends() -> None:
    chores, done = Chores(1), list[str]()
    owner = object()
    chores.begin(owner, pieces(done, "loading", 1, 1, 1), 0, is_urgent=True)
    chores.begin(None, pieces(done, "other", 1), 0)
    chores.drop(owner, is_urgent=True)
    chores.finish(1)
    assert done == ["loading0", "other0"]


def coordinator_of(group_count: int, work_per_turn_max: int) -> tuple[GroupCoordinator, Folded]:
    """One that is about to load so many groups with a member each."""
    numbers: Iterator[int] = count()
    config = GroupCoordinatorConfig(
        offsets_topic_num_partitions=1, work_per_turn_max=work_per_turn_max
    )
    coordinator = GroupCoordinator(config, new_uuid=lambda: str(next(numbers)))
    member = MemberRecord("m", None, "c", "/h", 1_000, SESSION_MS, subscription("orders"), b"x")
    record = GroupRecord("consumer", 1, "range", "m", 0, (member,))
    groups = [(f"g-{number}", record) for number in reversed(range(group_count))]
    assert coordinator.start_loading(0, 1)
    return coordinator, Folded(groups=groups)


def response_of(effects: list[Effect]) -> int:
    (answer,) = [each for each in effects if isinstance(each, Respond)]
    error_code: int = answer.response.error_code
    return error_code


def test_groups_are_restored_over_many_turns_and_their_members_have_whole_sessions() -> None:
    groups_per_turn = 10
    work = groups_per_turn * (RESTORE_GROUP_WORK + RESTORE_MEMBER_WORK)
    coordinator, folded = coordinator_of(100 * groups_per_turn, work)
    coordinator.load(0, 1, {"default": folded}, 0)
    # The broker is slow: each turn comes after a fifth of a session.
    turns = [turn * SESSION_MS // 5 for turn in range(1, 101)]
    for now_ms in turns:
        assert not coordinator.is_loaded(0)
        deadline_ms = coordinator.next_deadline_ms()
        assert deadline_ms is not None
        assert deadline_ms <= now_ms
        beat = heartbeat("g-0", "m", 1)
        assert response_of(coordinator.heartbeat("default", beat, 1, now_ms)) == ErrorCode.NONE
        refused = coordinator.join_group("default", join("g-0", "m"), CLIENT, 2, now_ms)
        assert response_of(refused) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinator.tick(now_ms)
    assert coordinator.is_loaded(0)
    assert coordinator.counters.members_expired == 0
    end_ms = turns[-1] + SESSION_MS
    while (deadline_ms := coordinator.next_deadline_ms()) is not None and deadline_ms < end_ms:
        coordinator.tick(deadline_ms)
    assert coordinator.counters.members_expired == 0
    for now_ms in range(end_ms, end_ms + 20):
        coordinator.tick(now_ms)
    assert coordinator.counters.members_expired == 100 * groups_per_turn


def test_a_partition_that_is_given_up_is_left_over_many_turns_and_refused_at_once() -> None:
    coordinator, folded = coordinator_of(100, 1_000_000)
    coordinator.load(0, 1, {"default": folded}, 0)
    assert coordinator.is_loaded(0)
    coordinator._chores._work_per_turn_max = 1
    old_client = ClientContext("c", "/127.0.0.1", 3)
    # Each waits for the member that is there to join again.
    parked = [
        coordinator.join_group("default", join(f"g-{number}"), old_client, number, 1)
        for number in range(100)
    ]
    assert not any(isinstance(each, Respond) for effects in parked for each in effects)
    told = coordinator.unload(0, 2)
    now_ms = 2
    commits = [commit("g-99", {("orders", 0): 1}), commit("new", {("orders", 0): 1})]
    for request in commits:
        (answer,) = coordinator.commit_offsets("default", request, CLIENT, "commit", now_ms)
        assert isinstance(answer, Respond)
        error_code = answer.response.topics[0].partitions[0].error_code
        assert error_code == ErrorCode.NOT_COORDINATOR
    while coordinator.has_chores:
        now_ms += 1
        told += coordinator.tick(now_ms)
    answers = [each for each in told if isinstance(each, Respond)]
    assert [each.token for each in answers] == list(range(100))
    assert {each.response.error_code for each in answers} == {ErrorCode.NOT_COORDINATOR}
    assert now_ms >= 100
    totals = coordinator.totals
    assert (totals.group_count, totals.member_bytes, totals.offset_count) == (0, 0, 0)
