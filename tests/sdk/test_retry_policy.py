"""Policies of retries: what they say, and that brokers read the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidewheel import Delays, Exponential, Fixed, Linear, RetryPolicy
from tidewheel.errors import ConfigurationError
from tidewheel.headers import DELAY_MS_MAX, duration_ms, duration_text
from tidewheel.retry_policy import policy_of

from features.retry_dlq import policy as brokers

MILLISECONDS = st.one_of(st.integers(1, 10_000), st.integers(1, DELAY_MS_MAX))
TEXTS = MILLISECONDS.map(duration_text)
JITTERS = st.floats(0, 1)
ATTEMPTS = st.one_of(st.none(), st.integers(1, 1000))


@st.composite
def growing(draw: st.DrawFn) -> RetryPolicy:
    first, cap = sorted([draw(MILLISECONDS), draw(MILLISECONDS)])
    kind = draw(st.sampled_from([Linear, Exponential]))
    return kind(
        duration_text(first),
        cap=duration_text(cap),
        attempts=draw(ATTEMPTS),
        jitter=draw(JITTERS),
        dead_letters=draw(st.sampled_from(["", "all.dead"])),
    )


POLICIES = st.one_of(
    growing(),
    st.builds(Fixed, TEXTS, attempts=ATTEMPTS, jitter=JITTERS),
    st.builds(Delays, st.lists(TEXTS, min_size=1, max_size=100), attempts=ATTEMPTS),
)


def as_brokers_read(policy: RetryPolicy) -> brokers.Policy:
    configs = policy.configs()
    return brokers.Policy(
        brokers.parse_backoff(configs[brokers.BACKOFF_PROPERTY]),
        float(configs.get(brokers.JITTER_PROPERTY, "0")),
        int(configs[brokers.ATTEMPTS_PROPERTY]),
    )


@given(POLICIES, st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_brokers_read_the_same(policy: RetryPolicy, attempt: int, share: float) -> None:
    read = as_brokers_read(policy)
    assert read.delay_ms(attempt, share) == policy.delay_ms(attempt, share)
    assert read.is_last(attempt) == policy.is_last(attempt)


@given(POLICIES)
def test_what_is_said_is_read_again(policy: RetryPolicy) -> None:
    assert policy_of(policy.configs()).configs() == policy.configs()


@given(MILLISECONDS)
def test_durations_are_written_as_they_are_read(milliseconds: int) -> None:
    assert duration_ms(duration_text(milliseconds)) == milliseconds


def test_the_default_is_that_of_brokers() -> None:
    default = policy_of({})
    assert default.backoff() == brokers.DEFAULT_BACKOFF
    assert default.attempts == brokers.DEFAULT_ATTEMPTS_MAX
    # As a broker lists them.
    assert policy_of({"tidewheel.retry.jitter": "", "tidewheel.dlq.topic": ""}) == default


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Fixed("5s"), [5_000, 5_000, 5_000]),
        (Linear("5s", cap="12s"), [5_000, 10_000, 12_000]),
        (Exponential("5s", cap="18s"), [5_000, 10_000, 18_000]),
        (Delays(["1s", 0.5, "5m"]), [1_000, 500, 300_000, 300_000]),
    ],
)
def test_delays(policy: RetryPolicy, delays: list[int]) -> None:
    assert [policy.delay_ms(n + 1) for n in range(len(delays))] == delays


def test_what_makes_no_sense_is_said_at_once() -> None:
    making: list[Callable[[], RetryPolicy]] = [
        lambda: Fixed("soon"),
        lambda: Fixed(0),
        lambda: Fixed("4000d"),
        lambda: Fixed("5s", attempts=0),
        lambda: Fixed("5s", jitter=1.5),
        lambda: Exponential("1h", cap="1m"),
        lambda: Delays([]),
        lambda: Delays("5s"),
        lambda: Delays(["1s"] * 101),
        lambda: policy_of({"tidewheel.retry.backoff": "sometimes"}),
        lambda: policy_of({"tidewheel.retry.backoff": "fixed:1s..2s"}),
        lambda: policy_of({"tidewheel.retry.attempts.max": "many"}),
        lambda: policy_of({"tidewheel.retry.jitter": "some"}),
    ]
    for make in making:
        with pytest.raises(ConfigurationError):
            make()
