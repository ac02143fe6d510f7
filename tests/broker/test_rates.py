"""Rates over windows, as Apache Kafka measures them, and buckets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.quotas.rates import Bucket, SampledRate, Windows, throttle_ms

T = 1_000_000
WINDOWS = Windows()


def test_who_has_just_begun_is_measured_over_all_windows_but_one() -> None:
    rate = SampledRate(WINDOWS)
    assert rate.measure(T) == (0, 10_000)
    rate.record(10_000, T)
    assert rate.measure(T) == (1000, 10_000)
    assert rate.measure(T + 500) == (10_000 / 10.5, 10_500)
    # Kafka's words: the window that is not over counts with what there is of it.
    assert rate.measure(T + 9_999) == (10_000 / 10.999, 10_999)
    assert rate.measure(T + 10_999) == (10_000 / 10.999, 10_999)
    assert rate.measure(T + 11_000) == (0, 10_000)


def test_for_how_long_nothing_more_may_be_recorded() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(10_000, T)
    assert throttle_ms(rate, 1000, T) == 0
    assert throttle_ms(rate, 500, T) == 10_000
    assert throttle_ms(rate, 800, T) == 2_500
    # What is taken back was never there.
    rate.record(-10_000, T)
    assert throttle_ms(rate, 1, T) == 0


def test_windows_of_another_size() -> None:
    rate = SampledRate(Windows(2, 5000))
    rate.record(100, T)
    assert rate.measure(T) == (20, 5000)
    assert round(rate.measure(T + 9_999)[0], 6) == round(100 / 9.999, 6)
    assert rate.measure(T + 10_000)[0] == 0


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 1000)), max_size=60))
def test_a_rate_is_what_was_recorded_in_the_windows_that_count(
    steps: list[tuple[int, int]],
) -> None:
    rate = SampledRate(WINDOWS)
    now_ms = T
    starts: list[list[int]] = []
    for pause_ms, amount in steps:
        now_ms += pause_ms
        if not starts or now_ms - starts[-1][0] >= 1000:
            starts.append([now_ms, 0])
        starts[-1][1] += amount
        rate.record(amount, now_ms)
        counted = [each for each in starts if now_ms - each[0] < 11_000]
        elapsed_ms = now_ms - counted[0][0]
        elapsed_ms += max(0, 10 - elapsed_ms // 1000) * 1000
        expected = sum(each[1] for each in counted) * 1000 / elapsed_ms
        assert abs(rate.measure(now_ms)[0] - expected) < 1e-6


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = Bucket(100, 2, T)
    bucket.take(200, T)
    assert bucket.wait_ms(T) == 0
    bucket.take(50, T)
    assert bucket.wait_ms(T) == 500
    assert bucket.wait_ms(T + 400) == 100
    assert bucket.wait_ms(T + 500) == 0
    assert bucket.level(T + 100_000) == 200


def test_a_bucket_whose_rate_changes_keeps_its_debt_and_no_more_than_its_burst() -> None:
    bucket = Bucket(100, 1, T)
    bucket.set_rate(10, T)
    assert bucket.level(T) == 10
    bucket.take(110, T)
    bucket.set_rate(50, T)
    assert bucket.wait_ms(T) == 2000
    # A clock that goes back changes nothing.
    assert bucket.level(T - 1000) == -100


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 500)), max_size=80))
def test_who_waits_as_he_is_told_never_has_more_than_burst_and_rate(
    steps: list[tuple[int, int]],
) -> None:
    bucket = Bucket(100, 1, T)
    now_ms, taken, last = T, 0, 0
    for pause_ms, amount in steps:
        now_ms += max(pause_ms, bucket.wait_ms(now_ms))
        bucket.take(amount, now_ms)
        taken, last = taken + amount, amount
        assert taken - last <= 100 + 100 * (now_ms - T) / 1000 + 1


def test_who_waits_as_if_a_rate_had_grown_already_has_no_more_in_the_end() -> None:
    bucket = Bucket(100, 1, T)
    bucket.expected_per_s = 1000
    bucket.take(200, T)
    assert bucket.wait_ms(T) == 100
    now_ms, taken = T, 0
    while now_ms < T + 100_000:
        now_ms += bucket.wait_ms(now_ms)
        bucket.take(50, now_ms)
        taken += 50
    assert taken <= 1.1 * 100 * 100


def test_a_debt_has_a_maximum_and_one_that_is_owed_stays() -> None:
    bucket = Bucket(100, 1, T, debt_s=10)
    bucket.take(5_000, T)
    assert bucket.level(T) == -1_000
    # What it may be soon counts.
    bucket.expected_per_s = 200
    bucket.take(5_000, T)
    assert bucket.level(T) == -2_000
    bucket.expected_per_s = 0
    bucket.set_rate(10, T)
    bucket.take(5_000, T)
    assert bucket.level(T) == -2_000
