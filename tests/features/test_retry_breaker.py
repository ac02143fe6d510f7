"""The breaker of retries: against what a plain list says of the same history, and case by case."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from features.retry_dlq.breaker import (
    FETCHES_MAX,
    JUDGE_MS_MIN,
    NACKED_SHARE,
    PASSED_MIN,
    PROBES_MAX,
    UNSEEN_MS_MAX,
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    WINDOW_MS,
    Breaker,
    Fetched,
    Passage,
)

T0_MS = 1_000_000


def failing_breaker(count: int = PASSED_MIN) -> Breaker:
    breaker = Breaker()
    breaker.nacked([(0, offset) for offset in range(count)], T0_MS)
    return breaker


def handle(breaker: Breaker, outcomes: list[bool], now_ms: int, offset: int = 0) -> None:
    """Messages in their order, from `offset` on; True: it failed."""
    failed = [(0, offset + index) for index, has_failed in enumerate(outcomes) if has_failed]
    breaker.nacked(failed, now_ms)


def test_opens_when_nearly_all_of_enough_messages_failed() -> None:
    assert not failing_breaker(PASSED_MIN - 1).is_open
    breaker = failing_breaker()
    assert breaker.is_open
    assert str(breaker.pause) == "100 of 100 messages passed within 10 s were nacked"


def test_the_share_counts_what_was_passed_in_between() -> None:
    nine_of_ten = Breaker()
    handle(nine_of_ten, ([True] * 9 + [False]) * 11 + [True], T0_MS)
    assert nine_of_ten.is_open
    fewer = Breaker()
    handle(fewer, ([True] * 8 + [False]) * 200 + [True], T0_MS)
    assert not fewer.is_open


def test_what_failed_long_ago_does_not_count() -> None:
    breaker = failing_breaker(PASSED_MIN - 1)
    breaker.nacked([(0, 200)], T0_MS + WINDOW_MS)
    assert not breaker.is_open


def test_opens_soon_after_handlers_break_that_did_well() -> None:
    breaker = Breaker()
    now_ms, offset = T0_MS, 0
    for _ in range(100):
        handle(breaker, [False] * 99 + [True], now_ms, offset)
        offset, now_ms = offset + 100, now_ms + 100
    assert not breaker.is_open
    broken_ms = now_ms
    while not breaker.is_open:
        handle(breaker, [True] * 100, now_ms, offset)
        offset, now_ms = offset + 100, now_ms + 100
    assert now_ms - broken_ms <= 5_000


def test_a_filter_hides_what_does_not_count() -> None:
    breaker = Breaker()
    breaker.fetched(0, 0, 2_000, 200, T0_MS)
    breaker.nacked([(0, offset) for offset in range(0, 1_100, 10)], T0_MS)
    assert breaker.is_open


def test_probes_come_after_times_that_double_up_to_five_minutes() -> None:
    breaker = failing_breaker()
    now_ms, wait_ms, offset = T0_MS, WAIT_MS_MIN, 1_000
    for _ in range(12):
        assert breaker.may_fire(now_ms + wait_ms - 1) == 0
        assert breaker.look_again_ms(now_ms) == now_ms + wait_ms
        now_ms += wait_ms
        assert breaker.may_fire(now_ms) == PROBES_MAX
        breaker.fired(offset, PROBES_MAX, now_ms)
        assert breaker.may_fire(now_ms) == 0
        breaker.fetched(1, 0, offset + PROBES_MAX, PROBES_MAX, now_ms)
        breaker.nacked([(1, offset + index) for index in range(PROBES_MAX)], now_ms)
        wait_ms = min(WAIT_MS_MAX, 2 * wait_ms)
        offset += PROBES_MAX
    assert wait_ms == WAIT_MS_MAX
    assert breaker.is_open


def test_closes_when_half_of_the_probes_are_not_nacked() -> None:
    breaker = failing_breaker()
    now_ms = T0_MS + WAIT_MS_MIN
    breaker.may_fire(now_ms)
    breaker.fired(1_000, 4, now_ms)
    breaker.nacked([(1, 1_000), (1, 1_001)], now_ms)
    # Nobody has fetched them all yet.
    assert breaker.may_fire(now_ms + JUDGE_MS_MIN) == 0
    breaker.fetched(1, 0, 1_004, 4, now_ms + JUDGE_MS_MIN)
    assert breaker.may_fire(now_ms + 2 * JUDGE_MS_MIN - 1) == 0
    assert breaker.may_fire(now_ms + 2 * JUDGE_MS_MIN) is None
    assert not breaker.is_open
    # What failed before has been counted.
    breaker.nacked([(1, 1_002)], now_ms + 2 * JUDGE_MS_MIN)
    assert not breaker.is_open


def test_slow_handlers_have_the_time_that_they_take() -> None:
    breaker = Breaker()
    breaker.fetched(0, 0, 100, 100, T0_MS - 20_000)
    breaker.nacked([(0, offset) for offset in range(100)], T0_MS)
    now_ms = T0_MS + WAIT_MS_MIN
    assert breaker.may_fire(now_ms) == PROBES_MAX
    breaker.fired(0, 1, now_ms)
    breaker.fetched(1, 0, 1, 1, now_ms)
    assert breaker.may_fire(now_ms + 39_999) == 0
    assert breaker.may_fire(now_ms + 40_000) is None


def test_a_probe_that_nobody_fetches_and_a_pause_without_retries_end() -> None:
    breaker = failing_breaker()
    breaker.fired(7, 1, T0_MS)
    assert breaker.look_again_ms(T0_MS) == T0_MS + UNSEEN_MS_MAX
    assert breaker.may_fire(T0_MS + UNSEEN_MS_MAX - 1) == 0
    assert breaker.may_fire(T0_MS + UNSEEN_MS_MAX) is None
    idle = failing_breaker()
    over_ms = T0_MS + WAIT_MS_MIN + UNSEEN_MS_MAX
    assert idle.may_fire(over_ms - 1) == PROBES_MAX
    assert idle.may_fire(over_ms) is None


def test_a_consumer_that_begins_anew_is_followed() -> None:
    passage = Passage()
    passage.fetched(Fetched(0, 100, 50, T0_MS))
    assert passage.nacked(9, is_first=False) == (1, T0_MS)
    assert passage.nacked(99, is_first=False) == (45, T0_MS)
    passage.fetched(Fetched(40, 60, 20, T0_MS + 1))
    assert passage.nacked(49, is_first=False) == (10, T0_MS + 1)


def test_of_what_was_fetched_elsewhere_offsets_count() -> None:
    passage = Passage()
    assert passage.nacked(0, is_first=False) == (1, None)
    passage.fetched(Fetched(11, 21, 5, T0_MS))
    assert passage.nacked(30, is_first=False) == (10 + 5 + 10, None)


@given(st.lists(st.integers(1, 50), max_size=2 * FETCHES_MAX), st.data())
def test_what_is_passed_is_what_lies_between_nacks(sizes: list[int], data: st.DataObject) -> None:
    passage = Passage()
    end = 0
    for size in sizes:
        passage.fetched(Fetched(end, end + size, size, T0_MS))
        end += size
    offsets = data.draw(st.lists(st.integers(0, end + 100), max_size=30))
    highest: int | None = None
    for offset in offsets:
        passed, _ = passage.nacked(offset, is_first=False)
        before = offset - 1 if highest is None else highest
        assert passed == max(0, offset - before)
        highest = max(offset, before)


HISTORY = st.lists(
    st.tuples(
        st.integers(0, 3_000),  # ms that pass before
        st.integers(0, 60),  # messages that succeed
        st.integers(0, 60),  # and, behind them, that fail
    ),
    max_size=40,
)


@given(HISTORY)
def test_opens_when_a_list_of_all_that_happened_says_so(
    history: list[tuple[int, int, int]],
) -> None:
    breaker = Breaker()
    now_ms, offset = T0_MS, 0
    happened: list[tuple[int, int, int]] = []  # second, passed, nacked
    unseen = 0
    for ms, succeeding_count, failing_count in history:
        now_ms += ms
        second = now_ms // 1_000
        unseen += succeeding_count
        offset += succeeding_count
        recent = [one for one in happened if one[0] > second - 10]
        if failing_count:
            passed = failing_count + (unseen if recent else 0)
            happened.append((second, passed, failing_count))
            recent.append(happened[-1])
            unseen = 0
        breaker.nacked([(0, offset + index) for index in range(failing_count)], now_ms)
        offset += failing_count
        says_open = failing_count and any(
            sum(one[1] for one in last) >= PASSED_MIN
            and sum(one[2] for one in last) >= NACKED_SHARE * sum(one[1] for one in last)
            for first in {one[0] for one in recent}
            for last in [[one for one in recent if one[0] >= first]]
        )
        assert breaker.is_open == bool(says_open)
        if says_open:
            return
        assert breaker.may_fire(now_ms) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 400_000)),
        st.tuples(st.just("fire"), st.integers(1, PROBES_MAX)),
        st.tuples(st.just("fetch"), st.integers(0, 50)),
        st.tuples(st.just("nack"), st.lists(st.integers(0, 300), max_size=120)),
    ),
    max_size=60,
)


@given(STEPS)
def test_never_lets_more_through_than_it_said_and_never_pauses_for_good(
    steps: list[tuple[str, int | list[int]]],
) -> None:
    breaker = failing_breaker()
    now_ms, own_end = T0_MS, 0
    for kind, value in steps:
        if isinstance(value, list):
            breaker.nacked([(index % 2, index // 2) for index in value], now_ms)
        elif kind == "wait":
            now_ms += value
        elif kind == "fetch":
            breaker.fetched(1, max(0, own_end - value), own_end, value, now_ms)
        else:
            room = breaker.may_fire(now_ms)
            assert room in (None, 0, PROBES_MAX)
            if room is not None and value <= room:
                breaker.fired(own_end, value, now_ms)
                own_end += value
                assert breaker.may_fire(now_ms) == 0
        if breaker.may_fire(now_ms) == 0:
            assert now_ms < breaker.look_again_ms(now_ms) <= now_ms + UNSEEN_MS_MAX
    # Nothing fails any more.
    while (room := breaker.may_fire(now_ms)) is not None:
        if room:
            breaker.fired(own_end, 1, now_ms)
            own_end += 1
        now_ms = max(now_ms + 1, breaker.look_again_ms(now_ms))
        assert now_ms <= T0_MS + sum(v for k, v in steps if k == "wait" and isinstance(v, int)) + (
            3 * UNSEEN_MS_MAX
        )
