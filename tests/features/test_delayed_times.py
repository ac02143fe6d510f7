"""What `tw-delay` and `tw-deliver-at` mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.delayed.times import DELAY_MS_MAX, InvalidTime, delay_ms, deliver_at_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"1", 1),
        (b"1500", 1500),
        (b"1500ms", 1500),
        (b"30s", 30_000),
        (b"10m", 600_000),
        (b"2h", 7_200_000),
        (b"45d", 45 * 86_400_000),
        (b"3652d", DELAY_MS_MAX),
        (b"007s", 7_000),
    ],
)
def test_a_delay(value: bytes, expected: int) -> None:
    assert delay_ms(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"0", b"0d", b"-1", b"+5", b"5 m", b"1.5h", b"11y", b"1w", b"4015d", b"3653d"),
        *(b"1e9d", b"d", b"5M", b"1h30m", b"9" * 16, "٣s".encode(), b"5s\n", b"315532800001"),
    ],
)
def test_no_delay(value: bytes | None) -> None:
    with pytest.raises(InvalidTime, match="delay"):
        delay_ms(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"0", 0),
        (b"1798786800000", 1798786800000),
        (b"2027-01-01T08:00:00+01:00", 1798786800000),
        (b"2027-01-01T07:00:00Z", 1798786800000),
        (b"2027-01-01t07:00:00.25z", 1798786800250),
        # What lies between two milliseconds is the later one.
        (b"2027-01-01T07:00:00.0001Z", 1798786800001),
        (b"2027-01-01T07:00:00.999999999Z", 1798786801000),
    ],
)
def test_a_time(value: bytes, expected: int) -> None:
    assert deliver_at_ms(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"-1", b"tomorrow", b"2027-01-01", b"2027-01-01T07:00:00", b"9" * 16),
        *(b"2027-02-30T07:00:00Z", b"2027-01-01T07:00:60Z", b"2027-01-01T25:00:00Z"),
        *(b"1969-12-31T23:59:59Z", b"2027-01-01 07:00:00Z", b"2027-01-01T07:00:00.Z"),
        b"2027-01-01T07:00:00+25:00",
    ],
)
def test_no_time(value: bytes | None) -> None:
    with pytest.raises(InvalidTime, match="time"):
        deliver_at_ms(value)


@given(
    st.integers(0, 253_402_300_799_999 - 86_400_000),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_time_is_the_same_in_both_forms(at_ms: int, zone_minutes: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    try:
        local = moment.astimezone(timezone(timedelta(minutes=zone_minutes)))
    except OverflowError:
        return
    if local.year >= 1:
        text = local.isoformat(timespec="milliseconds")
        assert deliver_at_ms(text.encode()) == deliver_at_ms(b"%d" % at_ms) == at_ms
