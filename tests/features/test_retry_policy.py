"""Delays and attempts of retries: what configurations say, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.delayed.times import DELAY_MS_MAX
from features.retry_dlq.policy import (
    DEFAULT_BACKOFF,
    LISTED_DELAYS_MAX,
    Backoff,
    InvalidBackoff,
    Policy,
    parse_backoff,
)

delays = st.integers(1, DELAY_MS_MAX)
attempts = st.integers(1, 100_000)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first_ms, cap_ms = sorted((draw(delays), draw(delays)))
    listed = tuple(draw(st.lists(delays, min_size=1, max_size=8)))
    kind = draw(st.sampled_from(["fixed", "linear", "exponential", "list"]))
    return {
        "fixed": Backoff("fixed", first_ms),
        "linear": Backoff("linear", first_ms, cap_ms),
        "exponential": Backoff("exponential", first_ms, cap_ms),
        "list": Backoff("list", listed_ms=listed),
    }[kind]


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("fixed:5s", [5, 5, 5, 5]),
        ("linear:5s..12s", [5, 10, 12, 12]),
        ("exponential:1s..5s", [1, 2, 4, 5, 5]),
        ("exponential:7s..7s", [7, 7]),
        ("list:1s,10s,5m", [1, 10, 300, 300]),
        (" list: 1s , 10s ", [1, 10, 10]),
        (DEFAULT_BACKOFF, [5, 10, 20, 40]),
    ],
)
def test_each_kind_is_as_it_says(text: str, expected_s: list[int]) -> None:
    backoff = parse_backoff(text)
    assert [backoff.delay_ms(1 + at) for at in range(len(expected_s))] == [
        1_000 * seconds for seconds in expected_s
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a backoff is fixed:5s, linear"),
        ("5s", "a backoff is fixed:5s"),
        ("fixed", "a backoff is fixed:5s"),
        ("Fixed:5s", "a backoff is fixed:5s"),
        ("fixed:", "a delay is a number"),
        ("fixed:0s", "at least 1 ms"),
        ("fixed:-5s", "a delay is a number"),
        ("fixed:5s..9s", "a delay is a number"),
        ("fixed:3653d", "at most 3652d"),
        ("linear:5s", "a first delay and a longest one"),
        ("exponential:1s", "exponential:5s..10m"),
        ("exponential:2h..1s", "the longest delay, 1s, is below"),
        ("list:1s,,5s", "a delay is a number"),
        ("list:" + ",".join(["1s"] * (LISTED_DELAYS_MAX + 1)), f"at most {LISTED_DELAYS_MAX}"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidBackoff, match=says.replace(".", r"\.")):
        parse_backoff(text)


def test_a_list_may_have_so_many() -> None:
    parsed = parse_backoff("list:" + ",".join(["1s"] * LISTED_DELAYS_MAX))
    assert len(parsed.listed_ms) == LISTED_DELAYS_MAX


@given(backoffs(), attempts, st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_one_that_a_message_may_have(
    backoff: Backoff, attempt: int, jitter: float, share: float
) -> None:
    whole_ms = backoff.delay_ms(attempt)
    delay_ms = Policy(backoff, jitter, 0).delay_ms(attempt, share)
    assert 1 <= delay_ms <= whole_ms <= DELAY_MS_MAX
    assert delay_ms >= whole_ms - whole_ms * jitter


@given(backoffs(), attempts)
def test_delays_do_not_get_shorter_but_for_those_of_a_list(backoff: Backoff, attempt: int) -> None:
    if backoff.kind != "list":
        assert backoff.delay_ms(attempt) <= backoff.delay_ms(attempt + 1)
    assert backoff.delay_ms(10**9) >= 1


@given(attempts, st.integers(0, 50))
def test_the_last_attempt_is_the_last(attempt: int, attempts_max: int) -> None:
    policy = Policy(parse_backoff("fixed:1s"), 0.0, attempts_max)
    assert policy.is_last(attempt) is (attempts_max != 0 and attempt >= attempts_max)
