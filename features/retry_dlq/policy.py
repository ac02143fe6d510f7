"""After which delay a message that failed comes back, and how often: a subscription's policy.

    fixed:5s              5 s, 5 s, 5 s, …
    linear:5s..10m        5 s, 10 s, 15 s, …, 10 min, 10 min, …
    exponential:1s..2h    1 s, 2 s, 4 s, …, 2 h, 2 h, …
    list:1s,10s,5m        1 s, 10 s, 5 min, 5 min, …

Jitter takes away a random share of each delay, up to that of the policy: so messages that failed
together do not come back together, and none later than the policy says.

Invariants
- A delay is one that a delayed message may have: DELAY_MS_MAX (times.py) at most, 1 ms at least.
- Without jitter delays never get shorter from one attempt to the next, but for a list's.

Deliberately absent: dates, and the source of randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from data_plane.broker.config.definition import Value
from features.delayed.times import DELAY_MS_MAX, InvalidTime, delay_ms

BACKOFF_PROPERTY: Final = "tidewheel.retry.backoff"
JITTER_PROPERTY: Final = "tidewheel.retry.jitter"
ATTEMPTS_PROPERTY: Final = "tidewheel.retry.attempts.max"
ORDER_PROPERTY: Final = "tidewheel.ordering"
ORDERS: Final = ("none", "key")
BREAKER_PROPERTY: Final = "tidewheel.retry.breaker"
DEFAULT_BACKOFF: Final = "exponential:5s..2h"
DEFAULT_ATTEMPTS_MAX: Final = 16
# Of a list.
LISTED_DELAYS_MAX: Final = 100
# More doublings than any delay has room for.
_DOUBLINGS_MAX: Final = 64
_KINDS: Final = "fixed:5s, linear:5s..10m, exponential:1s..2h or list:1s,10s,5m"


class InvalidBackoff(ValueError):
    """What is wrong with it, in words for whoever has written it."""


class Backoff(NamedTuple):
    """`listed_ms` are the delays of a list; all others go by `first_ms` and `cap_ms`."""

    kind: str
    first_ms: int = 0
    cap_ms: int = 0
    listed_ms: tuple[int, ...] = ()

    def delay_ms(self, failed_attempt: int) -> int:
        """After the attempt of this number, the first one being 1, has failed."""
        assert failed_attempt >= 1
        match self.kind:
            case "fixed":
                return self.first_ms
            case "linear":
                return min(self.cap_ms, self.first_ms * failed_attempt)
            case "exponential":
                doublings = min(failed_attempt - 1, _DOUBLINGS_MAX)
                return min(self.cap_ms, self.first_ms << doublings)
            case _:
                return self.listed_ms[min(failed_attempt, len(self.listed_ms)) - 1]


class Policy(NamedTuple):
    """What becomes of messages that failed. `attempts_max` counts deliveries in all, 0 is for
    ever."""

    backoff: Backoff
    jitter: float
    attempts_max: int

    def is_last(self, attempt: int) -> bool:
        """Whether a message is not delivered again when this attempt has failed."""
        return 0 < self.attempts_max <= attempt

    def delay_ms(self, failed_attempt: int, share: float) -> int:
        """The delay after an attempt has failed; `share`, in [0, 1), is random."""
        whole_ms = self.backoff.delay_ms(failed_attempt)
        return max(1, whole_ms - int(whole_ms * self.jitter * share))


def parse_backoff(text: str) -> Backoff:
    """What `tidewheel.retry.backoff` says; raises InvalidBackoff.

    >>> parse_backoff("linear:5s..10m")
    Backoff(kind='linear', first_ms=5000, cap_ms=600000, listed_ms=())
    """
    kind, colon, rest = text.strip().partition(":")
    parsers: Mapping[str, Callable[[str], Backoff]] = {
        "fixed": lambda rest: Backoff("fixed", _delay_ms(rest)),
        "linear": lambda rest: Backoff("linear", *_range_ms("linear", rest)),
        "exponential": lambda rest: Backoff("exponential", *_range_ms("exponential", rest)),
        "list": lambda rest: Backoff("list", listed_ms=_listed_ms(rest)),
    }
    parse = parsers.get(kind)
    if parse is None or not colon:
        raise InvalidBackoff(f"a backoff is {_KINDS}")
    return parse(rest)


def _delay_ms(text: str) -> int:
    try:
        return delay_ms(text.strip().encode())
    except InvalidTime as error:
        raise InvalidBackoff(f"{text.strip()[:40]!r}: {error}") from error


def _range_ms(kind: str, text: str) -> tuple[int, int]:
    first, dots, cap = text.partition("..")
    if not dots:
        raise InvalidBackoff(f"{kind} has a first delay and a longest one: {kind}:5s..10m")
    first_ms, cap_ms = _delay_ms(first), _delay_ms(cap)
    if cap_ms < first_ms:
        raise InvalidBackoff(f"the longest delay, {cap.strip()}, is below the first one")
    return first_ms, cap_ms


def _listed_ms(text: str) -> tuple[int, ...]:
    delays = text.split(",")
    if len(delays) > LISTED_DELAYS_MAX:
        raise InvalidBackoff(f"a list has at most {LISTED_DELAYS_MAX} delays")
    return tuple(_delay_ms(delay) for delay in delays)


def policy_of(value_of: Callable[[str], Value]) -> Policy:
    """That of a topic with these values, which are valid."""
    jitter, attempts_max = value_of(JITTER_PROPERTY), value_of(ATTEMPTS_PROPERTY)
    assert isinstance(jitter, float)
    assert isinstance(attempts_max, int)
    return Policy(parse_backoff(str(value_of(BACKOFF_PROPERTY))), jitter, attempts_max)


assert DELAY_MS_MAX << 1 < 1 << _DOUBLINGS_MAX
