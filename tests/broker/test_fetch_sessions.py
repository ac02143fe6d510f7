"""The fetch session cache: numbering, epochs, eviction (KIP-227)."""

from __future__ import annotations

import random

from data_plane.broker.fetch.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_AGE_MS,
    NO_SESSION_ID,
    FetchSessionCache,
    FetchSet,
    next_epoch,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchPartitionView, FetchTopicView


def make_set(partitions_count: int, now_ms: int, uses_topic_ids: bool = False) -> FetchSet:
    fetch_set = FetchSet("default", uses_topic_ids, now_ms)
    wanted = [
        FetchPartitionView(index, -1, 0, -1, -1, 1 << 20, bytes(16), -1)
        for index in range(partitions_count)
    ]
    fetch_set.name(FetchTopicView("topic", bytes(16), wanted))
    return fetch_set


def make_cache(slots_max: int) -> FetchSessionCache:
    return FetchSessionCache(slots_max, random.Random(1))


def test_epochs_go_round_without_zero() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(1) == 2
    assert next_epoch(EPOCH_MAX) == 1
    assert next_epoch(-1) == -1


def test_a_session_answers_to_its_id_and_epoch_only() -> None:
    cache = make_cache(10)
    fetch_set = make_set(2, 0)
    assert cache.keep(fetch_set, 0)
    session_id = fetch_set.session_id
    assert session_id > 0
    assert cache.find(session_id + 1, 1, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.find(session_id, 2, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session_id, 1, True, 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.find(session_id, 1, False, 0) is fetch_set
    assert cache.find(session_id, 1, False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.find(session_id, 2, False, 0) is fetch_set
    cache.remove(session_id)
    assert cache.find(session_id, 3, False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_slots_there_are_no_sessions() -> None:
    fetch_set = make_set(1, 0)
    assert not make_cache(0).keep(fetch_set, 0)
    assert fetch_set.session_id == NO_SESSION_ID


def test_a_full_cache_keeps_what_is_in_use() -> None:
    cache = make_cache(2)
    assert cache.keep(make_set(5, 0), 0)
    assert cache.keep(make_set(5, 0), 0)
    assert not cache.keep(make_set(9, 1000), 1000)
    assert len(cache) == 2


def test_a_session_unused_for_long_gives_its_slot_away() -> None:
    cache = make_cache(2)
    old, used = make_set(5, 0), make_set(5, 0)
    cache.keep(old, 0)
    cache.keep(used, 0)
    later_ms = EVICTION_AGE_MS + 1
    assert cache.find(used.session_id, 1, False, later_ms) is used
    assert cache.keep(make_set(1, later_ms), later_ms)
    assert cache.find(old.session_id, 1, False, later_ms) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.find(used.session_id, 2, False, later_ms) is used


def test_a_bigger_session_takes_the_slot_of_the_smallest_old_one() -> None:
    cache = make_cache(2)
    small, big = make_set(2, 0), make_set(8, 0)
    cache.keep(small, 0)
    cache.keep(big, 0)
    later_ms = EVICTION_AGE_MS + 1
    for session in (small, big):
        assert cache.find(session.session_id, 1, False, later_ms) is session
    assert not cache.keep(make_set(2, later_ms), later_ms)
    assert cache.keep(make_set(3, later_ms), later_ms)
    assert cache.find(small.session_id, 2, False, later_ms) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.find(big.session_id, 2, False, later_ms) is big
    assert cache.evictions_count == 1
