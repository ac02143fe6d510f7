"""Blocks of producer ids: one in reserve in a cell, none before they are needed when alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.produce.init_producer_id import BLOCK_IDS, ProducerIds
from data_plane.broker.produce.producer_id_cipher import NUMBERS_MAX, told_producer_id
from data_plane.broker.request.api import Deferred
from data_plane.wire.errors import ErrorCode
from tests.broker.member_player import Member


def started(member: Member) -> ProducerIds:
    ids = ProducerIds(member.services)
    member.services.components.append(ids)
    member.services.start(member.now_ms())
    member.run_jobs()
    return ids


def take(ids: ProducerIds) -> int:
    response = ids.allocate()
    assert not isinstance(response, Deferred), "this one has to wait"
    assert response.error_code == 0
    return response.producer_id


def test_new_producers_work_while_the_store_is_away() -> None:
    member = Member()
    ids = started(member)
    member.store.is_down = True
    taken = [take(ids) for _ in range(2 * BLOCK_IDS)]
    assert taken == list(range(2 * BLOCK_IDS))
    assert isinstance(ids.allocate(), Deferred)


def test_after_the_first_id_of_the_reserve_there_is_a_new_reserve() -> None:
    member = Member()
    ids = started(member)
    for _ in range(BLOCK_IDS + 1):
        take(ids)
    member.run_jobs()
    member.store.is_down = True
    for _ in range(2 * BLOCK_IDS - 1):
        take(ids)


def test_a_reserve_that_could_not_be_had_is_fetched_later() -> None:
    member = Member()
    member.store.is_down = True
    ids = started(member)
    waiting = ids.allocate()
    assert isinstance(waiting, Deferred)
    member.pass_time(20_000, 100)
    answers: list[int] = []
    waiting.when_complete(lambda response: answers.append(response.error_code))
    assert answers == [int(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    member.store.is_down = False
    member.pass_time(3_000, 100)
    member.store.is_down = True
    taken = {take(ids) for _ in range(2 * BLOCK_IDS)}
    assert len(taken) == 2 * BLOCK_IDS


def test_alone_a_block_is_fetched_when_it_is_needed() -> None:
    member = Member(is_shared=False)
    ids = started(member)
    assert member.image.next_producer_id == 0
    waiting = ids.allocate()
    assert isinstance(waiting, Deferred)
    member.run_jobs()
    assert member.image.next_producer_id == BLOCK_IDS
    for _ in range(BLOCK_IDS // 2 + 1):
        take(ids)
    member.run_jobs()
    assert member.image.next_producer_id == 2 * BLOCK_IDS


def test_two_brokers_never_give_out_the_same_id() -> None:
    first = Member()
    second = Member(first.cell_store, first.clock, node_id=2)
    both = [started(first), started(second)]
    taken = [take(ids) for ids in both for _ in range(2 * BLOCK_IDS)]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_stopped_broker_fetches_nothing(is_shared: bool) -> None:
    member = Member(is_shared=is_shared)
    ids = started(member)
    version = member.cell_store.read().version
    member.services.stop(member.now_ms())
    member.services.tick(member.now_ms() + 60_000)
    member.run_jobs()
    assert ids.next_deadline_ms() is None
    assert member.cell_store.read().version == version


def test_what_the_last_life_has_left_serves_while_the_store_is_away() -> None:
    first = Member()
    ids = started(first)
    taken = {take(ids) for _ in range(700)}
    left = ids.unused
    assert sum(end - start for start, end in left) == 2 * BLOCK_IDS - 700
    again = Member(first.cell_store, first.clock)
    again.store.is_down = True
    ids = ProducerIds(again.services, left)
    again.services.components.append(ids)
    again.services.start(again.now_ms())
    again.run_jobs()
    more = {take(ids) for _ in range(2 * BLOCK_IDS - 700)}
    assert not more & taken
    assert ids.unused == []


# What clients are told


@given(st.sets(st.integers(0, NUMBERS_MAX - 1), min_size=2, max_size=50), st.binary(min_size=1))
def test_each_number_has_an_id_of_its_own_above_those_without_a_key(
    numbers: set[int], key: bytes
) -> None:
    told = [told_producer_id(number, key) for number in numbers]
    assert len(set(told)) == len(numbers)
    assert all(NUMBERS_MAX <= each < 2 * NUMBERS_MAX for each in told)
    assert [told_producer_id(number, key) for number in numbers] == told
    assert [told_producer_id(number, b"") for number in numbers] == list(numbers)


def test_ids_of_neighbours_say_nothing_of_each_other() -> None:
    told = [told_producer_id(number, b"key") for number in range(2000)]
    gaps = [abs(b - a) for a, b in itertools.pairwise(told)]
    # Of random ids one gap in two thousand is that small, at most.
    assert sum(gap < NUMBERS_MAX // 2000 for gap in gaps) < 20
    assert sum(b > a for a, b in itertools.pairwise(told)) in range(800, 1200)
    assert told[:5] != [told_producer_id(number, b"other") for number in range(5)]


def test_a_tenant_cannot_count_what_producers_others_have() -> None:
    member = Member()
    ids = started(member)
    before = take(ids)
    services = member.services
    services.image = replace(services.image, decoy_key=b"k" * 32)
    told = [take(ids) for _ in range(BLOCK_IDS // 4)]
    assert before == 0
    assert len(set(told)) == len(told)
    assert not {each + 1 for each in told}.intersection(told)
    assert min(told) >= NUMBERS_MAX
