"""What `tw-delay` and `tw-deliver-at` say, in milliseconds.

    tw-delay        1500ms  30s  10m  2h  45d  or a bare number of milliseconds; 1 ms to 10 years
    tw-deliver-at   1798786800000  or RFC 3339: 2027-01-01T08:00:00+01:00, 2027-01-01T07:00:00.250Z

Digits are ASCII, there is one unit, no sign and no exponent: what could be read in two ways is
refused, since a message that comes a year late is a lost one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

DELAY_HEADER: Final = b"tw-delay"
DELIVER_AT_HEADER: Final = b"tw-deliver-at"
# Ten years.
DELAY_MS_MAX: Final = 3652 * 24 * 3600 * 1000
# Of either header; more than any that makes sense.
VALUE_BYTES_MAX: Final = 40

_UNIT_MS: Final = {
    b"": 1,
    b"ms": 1,
    b"s": 1000,
    b"m": 60 * 1000,
    b"h": 3600 * 1000,
    b"d": 24 * 3600 * 1000,
}
_DELAY: Final = re.compile(rb"([0-9]{1,15})(ms|s|m|h|d|)")
_DATE: Final = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?"
    rb"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,15}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidTime(ValueError):
    """What is wrong, in words for whoever has sent it."""


def delay_ms(value: bytes | None) -> int:
    """What `tw-delay` says; raises InvalidTime."""
    match = _match(_DELAY, value)
    if match is None:
        raise InvalidTime("a delay is a number with ms, s, m, h or d, such as 30m or 45d")
    found = int(match[1]) * _UNIT_MS[match[2]]
    if not found:
        raise InvalidTime("a delay is at least 1 ms")
    if found > DELAY_MS_MAX:
        raise InvalidTime("a delay is at most 3652d")
    return found


def deliver_at_ms(value: bytes | None) -> int:
    """What `tw-deliver-at` says, in ms since 1970; raises InvalidTime."""
    if _match(_MILLISECONDS, value) is not None:
        assert value is not None
        return int(value)
    match = _match(_DATE, value)
    if match is None:
        raise InvalidTime(
            "a time is in milliseconds since 1970, or as in 2027-01-01T08:00:00Z (RFC 3339)"
        )
    day, time, fraction, zone = match.groups()
    zone = b"+00:00" if zone in b"Zz" else zone
    try:
        found = datetime.fromisoformat(b"".join((day, b"T", time, zone)).decode())
    except ValueError as error:
        raise InvalidTime(f"there is no such time: {error}") from error
    # Rounded up: a message is never early.
    billionths = int((fraction or b".0")[1:].ljust(9, b"0"))
    passed_ms = (found - _EPOCH) // timedelta(milliseconds=1) - (-billionths // 1_000_000)
    if passed_ms < 0:
        raise InvalidTime("a time is not before 1970")
    return passed_ms


def _match(pattern: re.Pattern[bytes], value: bytes | None) -> re.Match[bytes] | None:
    if value is None or len(value) > VALUE_BYTES_MAX:
        return None
    return pattern.fullmatch(value)
