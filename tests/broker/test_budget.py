"""Budgets and the shares of namespaces in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.fetch import kept_partitions
from data_plane.broker.fetch.cold_reads import ANSWER_BYTES_MIN
from data_plane.broker.fetch.fetch_sessions import EVICTION_AGE_MS, FetchSessionCache, FetchSet
from data_plane.broker.fetch.kept_partitions import ClosingSets, KeptPartitions
from data_plane.broker.request import budget as budget_module
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.budget import Budget, TooManyNamespaces
from data_plane.broker.request.principal import Principal
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchPartitionView, FetchTopicView
from tests.broker.broker_player import BrokerPlayer, values_of
from tests.broker.test_fetch import fill
from tests.broker.test_fetch_sessions import make_set
from tests.broker.test_produce import only

NAMES = ("default", "acme", "globex")


@given(
    st.integers(0, 30),
    st.none() | st.integers(0, 30),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 12), st.booleans())),
)
def test_nobody_takes_more_than_its_share_nor_all_more_than_there_is(
    maximum: int, share_max: int | None, steps: list[tuple[str, int, bool]]
) -> None:
    budget = Budget(maximum, share_max)
    shares = {name: budget.of(name) for name in NAMES}
    taken = dict.fromkeys(NAMES, 0)
    bound = maximum if share_max is None else min(maximum, share_max)
    for name, amount, takes in steps:
        share = shares[name]
        if takes:
            has_room = sum(taken.values()) + amount <= maximum
            has_room = has_room and (share_max is None or taken[name] + amount <= share_max)
            assert share.take(amount) is has_room
            taken[name] += amount if has_room else 0
        else:
            amount = min(amount, taken[name])
            share.give_back(amount)
            taken[name] -= amount
        assert {one: shares[one].used for one in NAMES} == taken
        assert budget.used == sum(taken.values()) <= maximum
        assert share.used <= bound
        left = maximum - budget.used
        assert share.left() == (left if share_max is None else min(left, share_max - share.used))


@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 40), st.booleans())),
)
def test_nobody_takes_more_than_is_left_unused_then(
    maximum: int, steps: list[tuple[str, int, bool]]
) -> None:
    budget = Budget(maximum)
    budget.leaves_room = True
    shares = {name: budget.of(name) for name in NAMES}
    for name, amount, takes in steps:
        share = shares[name]
        if not takes:
            share.give_back(min(amount, share.used))
            continue
        may = share.used + amount <= maximum - budget.used - amount
        assert share.take(amount) is may
        assert not may or share.used <= maximum - budget.used


@pytest.mark.parametrize(("tenants", "part"), [(1, 0.5), (2, 1 / 3), (9, 0.1), (99, 0.01)])
def test_who_take_all_they_can_have_equal_parts_and_leave_one(tenants: int, part: float) -> None:
    budget = Budget(10_000)
    budget.leaves_room = True
    shares = [budget.of(f"t{number}") for number in range(tenants)]
    first = shares[0]
    while first.take(1):
        pass
    assert 4_998 <= first.used <= 5_000
    # It does not grow any more when others come, but it is theirs only when it has given it back.
    assert not first.take(1)
    first.give_back(first.used)
    for _ in range(10_000):
        for share in shares:
            share.take(1)
    assert {share.used for share in shares} <= {int(10_000 * part), int(10_000 * part) - 1}
    assert budget.of("newcomer").left() >= 1


def test_a_share_may_have_a_maximum_of_its_own() -> None:
    budget = Budget(100, share_max=10)
    small, large = budget.of("small"), budget.of("large")
    large.share_max = 50
    assert (small.left(), large.left()) == (10, 50)
    assert large.take(50)
    assert large.is_full
    assert not small.is_full
    # What is there already counts, be it too much.
    small.add(60)
    assert (small.left(), large.left(), budget.used) == (-50, -10, 110)


def test_a_share_is_one_as_long_as_somebody_holds_it() -> None:
    budget = Budget(100)
    share = budget.of("acme")
    share.take(5)
    assert budget.of("acme") is share
    share.give_back(5)
    del share
    assert len(budget._shares) == 0


def test_there_is_a_bound_for_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "NAMESPACES_MAX", 2)
    budget = Budget()
    held = [budget.of(name) for name in NAMES[:2]]
    with pytest.raises(TooManyNamespaces):
        budget.of(NAMES[2])
    held.pop()
    held.append(budget.of(NAMES[2]))


# Fetch sessions


def test_a_namespace_has_no_more_sessions_than_its_share() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    cache.slots.share_max = 2
    for name in ("acme", "globex"):
        assert cache.keep(make_set(5, 0), 0, name)
        assert cache.keep(make_set(5, 0), 0, name)
        assert not cache.keep(make_set(9, 1000), 1000, name)
    assert len(cache) == 4


def test_who_has_its_share_makes_room_among_its_own_sessions() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    cache.slots.share_max = 1
    foreign, own = make_set(1, 0), make_set(5, 0)
    assert cache.keep(foreign, 0, "globex")
    assert cache.keep(own, 0, "acme")
    later_ms = EVICTION_AGE_MS + 1
    newer = make_set(9, later_ms)
    assert cache.keep(newer, later_ms, "acme")
    assert (cache.evictions_count, cache.slots.used) == (1, 2)
    assert foreign.session_id in cache._sessions
    assert own.session_id not in cache._sessions
    cache.remove(newer.session_id)
    assert cache.slots.of("acme").used == 0


def test_a_session_is_known_to_its_namespace_alone() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    session = make_set(5, 0)
    assert cache.keep(session, 0, "acme")
    for other in ("globex", "default"):
        found = cache.find(session.session_id, 1, False, 0, namespace=other)
        assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        cache.end(session.session_id, other)
    assert cache.find(session.session_id, 1, False, 0, namespace="acme") is session
    cache.end(session.session_id, "acme")
    assert len(cache) == 0


def test_a_session_is_known_to_its_principal_alone() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    session = make_set(5, 0)
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    assert cache.keep(session, 0, "acme", alice)
    found = cache.find(session.session_id, 1, False, 0, namespace="acme", principal=bob)
    assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    cache.end(session.session_id, "acme", bob)
    found = cache.find(session.session_id, 1, False, 0, namespace="acme", principal=alice)
    assert found is session
    cache.end(session.session_id, "acme", alice)
    assert len(cache) == 0


def test_a_full_cache_gives_a_newcomer_a_session_of_who_has_most() -> None:
    cache = FetchSessionCache(6, random.Random(1))
    greedy = [make_set(1, 0) for _ in range(6)]
    for session in greedy:
        assert cache.keep(session, 0, "greedy")
    # It has used its first one since.
    cache.find(greedy[0].session_id, 1, False, 0, namespace="greedy")
    assert not cache.keep(make_set(1, 0), 0, "greedy")
    for name in ("acme", "globex", "acme", "globex"):
        assert cache.keep(make_set(1, 0), 0, name)
    assert not cache.keep(make_set(1, 0), 0, "acme"), "now each has as much"
    assert [cache.slots.of(name).used for name in ("greedy", "acme", "globex")] == [2, 2, 2]
    assert [one.session_id in cache._sessions for one in greedy] == [True] + [False] * 4 + [True]


class Kept:
    """Sets of ten partitions that tenants have kept."""

    def __init__(self, partitions_max: int) -> None:
        self.kept = KeptPartitions(partitions_max)
        self.given_up: list[FetchSet] = []

    def keep(self, tenant: str, partitions: int = 10) -> FetchSet | None:
        fetch_set = make_set(partitions, 0)
        fetch_set.tenant = tenant
        if not self.kept.take(fetch_set):
            return None

        def give_up() -> None:
            self.given_up.append(fetch_set)
            fetch_set.close()

        self.kept.may_give_up(fetch_set, give_up)
        return fetch_set

    def used(self, *tenants: str) -> list[int]:
        return [self.kept.budget.of(tenant).used for tenant in tenants]


def test_who_has_most_partitions_gives_up_some_for_a_newcomer() -> None:
    world = Kept(120)
    first = [world.keep("first") for _ in range(12)]
    assert world.keep("first") is None
    assert world.used("first") == [120], "who is alone has all"
    while world.keep("second"):
        pass
    assert world.used("first", "second") == [60, 60]
    while world.keep("third"):
        pass
    assert world.used("first", "second", "third") == [40, 40, 40]
    assert [world.keep(tenant) for tenant in ("first", "second", "third")] == [None] * 3
    # The oldest ones go.
    assert [one for one in first if one in world.given_up] == first[:8]


class Walked(dict[Any, Any]):
    """Remembers how many of its keys were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += len(self)
        return super().__iter__()


def test_tenants_are_looked_through_once_for_all_that_a_newcomer_needs() -> None:
    world = Kept(500)
    for _ in range(5):
        for number in range(10):
            world.keep(f"t{number}")
    world.kept._sets = walked = Walked(world.kept._sets)
    assert world.keep("newcomer", 30) is not None
    assert [one.tenant for one in world.given_up] == ["t0", "t1", "t2"]
    assert walked.looks == 10


def test_a_set_that_is_closed_counts_no_more_and_is_not_given_up() -> None:
    world = Kept(30)
    kept = [one for _ in range(3) if (one := world.keep("first")) is not None]
    world.kept.forget(kept[0])
    assert world.keep("second") is not None
    assert world.given_up == [kept[1]]
    assert world.kept.count == 30
    kept[0].close()
    assert world.kept.count == 20


def test_a_set_that_grows_beyond_the_room_counts_as_before() -> None:
    kept = KeptPartitions(10)
    one = make_set(10, 0)
    assert kept.take(one)
    wanted = [FetchPartitionView(index, -1, 0, -1, -1, 1, bytes(16), -1) for index in range(3)]
    one.name_changes([FetchTopicView("more", bytes(16), wanted)])
    assert not kept.take(one)
    assert kept.count == 10
    for topic, index in (("more", 0), ("more", 1), ("topic", 0)):
        one.forget(topic, bytes(16), index)
    assert kept.take(one)
    assert kept.count == 10
    one.close()
    assert kept.count == 0


def test_sets_that_are_let_go_of_in_turns_count_until_then() -> None:
    kept = KeptPartitions(kept_partitions.CLOSED_PER_TURN_MAX * 3)
    closing = ClosingSets(kept)
    large = make_set(kept_partitions.CLOSED_PER_TURN_MAX * 2 + 1, 0)
    closing.close(large)
    counts = [kept.count]
    while closing.has_work:
        closing.run()
        counts.append(kept.count)
    turn = kept_partitions.CLOSED_PER_TURN_MAX
    assert counts == [2 * turn + 1, turn + 1, 1, 0]


@pytest.mark.parametrize("turns_count", [0, 1, 2])
def test_a_set_that_is_closed_twice_is_let_go_of_once(turns_count: int) -> None:
    """Its connection ends, and so does the poll that used it."""
    kept = KeptPartitions(kept_partitions.CLOSED_PER_TURN_MAX * 3)
    closing = ClosingSets(kept)
    large = make_set(kept_partitions.CLOSED_PER_TURN_MAX * 2 + 1, 0)
    closing.close(large)
    for _ in range(turns_count):
        closing.run()
    closing.close(large)
    for _ in range(3 - turns_count):
        assert closing.has_work
        closing.run()
    assert (closing.has_work, kept.count) == (False, 0)


# What clients leave unread


def test_who_leaves_much_unread_gets_less_and_the_others_do_not() -> None:
    broker = BrokerPlayer()
    unsent = broker.services.unsent
    unsent.share_max = 4 * ANSWER_BYTES_MIN
    connections: dict[str, ConnectionInfo] = {}
    for name in ("acme", "globex"):
        connections[name] = broker.connect()
        connections[name].namespace = name
        broker.make_tenant(name)
        broker.create_topic("orders", tenant=name)
        fill(broker, 0, 100, size=1_000, connection=connections[name])
    share = unsent.of("acme")
    share.add(4 * ANSWER_BYTES_MIN - 10)

    def records_count(name: str) -> int:
        poll = broker.fetch({("orders", 0): 0}, connection=connections[name])
        return len(values_of(only(poll.response).records))

    assert records_count("globex") == 100
    # A batch has some 1,070 bytes.
    assert 58 <= records_count("acme") <= 62
    share.give_back(share.used)
    assert records_count("acme") == 100
