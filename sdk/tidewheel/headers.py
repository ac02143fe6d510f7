"""Tags, delays and ids as record headers: what `send(tags=…, delay=…)` puts on the wire.

The headers start with `tw-` and mean something on topics created with `tidewheel.headers=true`;
on any other topic they are stored and delivered like all headers. Values are checked here, so
that a typing error is reported where it was made and not by a broker for a whole batch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tidewheel.errors import ConfigurationError
from tidewheel.message import ID_HEADER, TAG_HEADER, Headers, HeaderValue, ProducerRecord

DELAY_HEADER: Final = "tw-delay"
DELIVER_AT_HEADER: Final = "tw-deliver-at"
CANCEL_HEADER: Final = "tw-cancel"
CANCEL_OFFSET_HEADER: Final = "tw-cancel-offset"
RESCHEDULE_HEADER: Final = "tw-reschedule"
RESCHEDULE_OFFSET_HEADER: Final = "tw-reschedule-offset"

TAGS_MAX: Final = 64
TAG_BYTES_MAX: Final = 128
ID_BYTES_MAX: Final = 64
DELAY_MS_MAX: Final = 3652 * 86_400_000
"""Ten years, the longest delay a broker takes."""

DELAY_LEVELS: Final[tuple[str, ...]] = (
    *("1s", "5s", "10s", "30s"),
    *("1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m"),
    *("1h", "2h"),
)
"""The named delays of queues with fixed levels, for code that moves over from one of them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


Duration = str | float | timedelta


def duration_ms(value: Duration, *, what: str = "delay") -> int:
    """Milliseconds of `"30m"`, `"1500ms"`, a timedelta, or a number of seconds; rounded up.

    >>> duration_ms("30m"), duration_ms(1.5), duration_ms(timedelta(days=2))
    (1800000, 1500, 172800000)
    """
    if isinstance(value, timedelta):
        milliseconds = -(-value // timedelta(milliseconds=1))
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ConfigurationError(
                f"{what} {value!r} is not a duration",
                hint='Write a whole number and a unit: "1500ms", "30s", "10m", "2h" or "45d"',
            )
        milliseconds = int(match[1]) * _UNIT_MS[match[2]]
    else:
        # What is a millisecond too much by the rounding of fractions alone is not meant.
        milliseconds = math.ceil(round(value * 1000, 6))
    if milliseconds < 0:
        raise ConfigurationError(f"{what} {value!r} is negative", hint="Give a duration from 0 up")
    return milliseconds


def retry_delay_ms(value: Duration) -> int:
    """Milliseconds of a retry's delay. Raises ConfigurationError for one that brokers refuse."""
    milliseconds = duration_ms(value)
    if not 1 <= milliseconds <= DELAY_MS_MAX:
        raise ConfigurationError(
            f"A retry after {value!r}", hint="A delay is at least 1 ms and at most ten years"
        )
    return milliseconds


def duration_text(milliseconds: int) -> str:
    """A duration in the largest unit that says it in whole numbers.

    >>> duration_text(5_400_000), duration_text(1_500)
    ('90m', '1500ms')
    """
    size, unit = max((size, unit) for unit, size in _UNIT_MS.items() if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}"


def epoch_ms(value: datetime | int, *, what: str = "deliver_at") -> int:
    """Epoch milliseconds of an aware datetime, rounded up, or the number itself."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ConfigurationError(
            f"{what} {value.isoformat()} has no time zone",
            hint="Give an aware datetime, e.g. datetime.now(UTC) + timedelta(hours=1)",
        )
    return -((_EPOCH - value) // timedelta(milliseconds=1))


def encode_headers(record: ProducerRecord) -> list[tuple[str, HeaderValue]]:
    """All headers of a record: its own, then tags, delay and id. Raises ConfigurationError."""
    headers = _checked_headers(record.headers)
    if record.tags:
        headers.extend((TAG_HEADER, tag) for tag in _checked_tags(record.tags))
    if record.delay is not None:
        if record.deliver_at is not None:
            raise ConfigurationError("Both delay and deliver_at are given", hint="Give one of them")
        milliseconds = duration_ms(record.delay)
        if not milliseconds:
            raise ConfigurationError(f"delay {record.delay!r} is no delay", hint="Leave it out")
        if milliseconds > DELAY_MS_MAX:
            raise ConfigurationError(
                f"delay {record.delay!r} is longer than ten years", hint="Choose a shorter one"
            )
        headers.append((DELAY_HEADER, b"%dms" % milliseconds))
    elif record.deliver_at is not None:
        due_ms = epoch_ms(record.deliver_at)
        if due_ms < 0:
            raise ConfigurationError(
                f"deliver_at {record.deliver_at!r} is before 1970",
                hint="Give an aware datetime, or milliseconds since 1970",
            )
        headers.append((DELIVER_AT_HEADER, b"%d" % due_ms))
    if record.id is not None:
        headers.append((ID_HEADER, id_bytes(record.id)))
    return headers


def _checked_headers(headers: Headers) -> list[tuple[str, HeaderValue]]:
    checked = list(headers)
    for pair in checked:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if is_pair and isinstance(pair[0], str) and isinstance(pair[1], bytes | str | None):
            continue
        raise ConfigurationError(
            f"The header {pair!r} is not a name and bytes, str or None",
            hint='Write headers=[("trace", "ab12")]',
        )
    return checked


def id_bytes(value: str | bytes) -> bytes:
    """A message id as it goes on the wire."""
    data = value.encode() if isinstance(value, str) else value
    if not 0 < len(data) <= ID_BYTES_MAX:
        raise ConfigurationError(
            f"The message id has {len(data)} bytes", hint=f"Use 1 to {ID_BYTES_MAX} bytes"
        )
    return data


def _checked_tags(tags: Sequence[str]) -> list[bytes]:
    if isinstance(tags, str):
        raise ConfigurationError("tags is one string", hint=f"Give a list: tags=[{tags!r}]")
    if len(tags) > TAGS_MAX:
        raise ConfigurationError(f"{len(tags)} tags", hint=f"Give at most {TAGS_MAX}")
    encoded = [tag.encode() for tag in tags]
    for tag in encoded:
        if not 0 < len(tag) <= TAG_BYTES_MAX:
            raise ConfigurationError(
                f"The tag {tag.decode()[:40]!r} has {len(tag)} bytes",
                hint=f"Use 1 to {TAG_BYTES_MAX} bytes",
            )
    return encoded
