"""After which delay a message that failed comes back, and how often: a subscription's policy.

    Fixed("5s")                       5 s, 5 s, 5 s, …
    Linear("5s", cap="10m")           5 s, 10 s, 15 s, …, 10 min, 10 min, …
    Exponential("5s", cap="2h")       5 s, 10 s, 20 s, …, 2 h, 2 h, …
    Delays(["1s", "10s", "5m"])       1 s, 10 s, 5 min, 5 min, …

Brokers keep it as properties of the subscription, which any Kafka tool shows and edits; each nack
goes by what they say when it comes. Here it is only what a new subscription begins with.

Deliberately absent: randomness. Who delays passes the share of the jitter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

from tidewheel.errors import ConfigurationError
from tidewheel.headers import Duration, duration_text, retry_delay_ms

BACKOFF_PROPERTY: Final = "tidewheel.retry.backoff"
JITTER_PROPERTY: Final = "tidewheel.retry.jitter"
ATTEMPTS_PROPERTY: Final = "tidewheel.retry.attempts.max"
DEAD_LETTERS_PROPERTY: Final = "tidewheel.dlq.topic"
ORDER_PROPERTY: Final = "tidewheel.ordering"
POLICY_PROPERTIES: Final = (
    BACKOFF_PROPERTY,
    JITTER_PROPERTY,
    ATTEMPTS_PROPERTY,
    DEAD_LETTERS_PROPERTY,
    ORDER_PROPERTY,
)
ORDERS: Final = ("none", "key")
ATTEMPTS_DEFAULT: Final = 16
ATTEMPTS_MAX: Final = 2**31 - 1
LISTED_DELAYS_MAX: Final = 100
DEAD_LETTERS_SUFFIX: Final = ".dlq"

# More doublings than any delay has room for.
_DOUBLINGS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What all policies have.

    Attributes:
        attempts: deliveries in all, the first one included; what fails then is a dead letter.
            None: for ever.
        jitter: 0 to 1. Each delay is shortened by a random share of it, up to this, so that
            messages that failed together do not come back together.
        dead_letters: the topic of dead letters; "" is `<subscription>.dlq`.
        order: "key": messages wait while an earlier one of their key is retried, which an app's
            handlers do in their process. "none": they go on, and it comes back behind them.
    """

    attempts: int | None = ATTEMPTS_DEFAULT
    jitter: float = 0.0
    dead_letters: str = ""
    order: Literal["none", "key"] = "none"

    def __post_init__(self) -> None:
        if self.attempts is not None and not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ConfigurationError(
                f"attempts={self.attempts}", hint="Give a number from 1 up, or None: for ever"
            )
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter={self.jitter}", hint="Give a share: 0 to 1")
        if self.order not in ORDERS:
            raise ConfigurationError(f"order={self.order!r}", hint='Use "none" or "key"')
        # What is wrong with a delay is said here, and not when the first message fails.
        self.backoff()

    def backoff(self) -> str:
        """As brokers write it, for example "exponential:5s..2h"."""
        raise NotImplementedError

    def whole_delay_ms(self, failed_attempt: int) -> int:
        """After the attempt of this number, the first one being 1, without jitter."""
        raise NotImplementedError

    def delay_ms(self, failed_attempt: int, share: float = 0.0) -> int:
        """The delay after an attempt has failed; `share`, in [0, 1), is random."""
        whole_ms = self.whole_delay_ms(failed_attempt)
        return max(1, whole_ms - int(whole_ms * self.jitter * share))

    def is_last(self, attempt: int) -> bool:
        """Whether a message is not delivered again when this attempt has failed."""
        return self.attempts is not None and self.attempts <= attempt

    def configs(self) -> dict[str, str]:
        """The subscription's properties that say the same."""
        configs = {BACKOFF_PROPERTY: self.backoff(), ATTEMPTS_PROPERTY: str(self.attempts or 0)}
        if self.jitter:
            configs[JITTER_PROPERTY] = str(float(self.jitter))
        if self.dead_letters:
            configs[DEAD_LETTERS_PROPERTY] = self.dead_letters
        if self.order != "none":
            configs[ORDER_PROPERTY] = self.order
        return configs


@dataclass(frozen=True, slots=True)
class Fixed(RetryPolicy):
    """The same delay each time."""

    delay: Duration

    def backoff(self) -> str:
        """See the base."""
        return f"fixed:{_text(self.delay)}"

    def whole_delay_ms(self, failed_attempt: int) -> int:
        """See the base."""
        return retry_delay_ms(self.delay)


@dataclass(frozen=True, slots=True)
class _Growing(RetryPolicy):
    """From a first delay to a longest one."""

    first: Duration = "5s"
    cap: Duration = field(default="2h", kw_only=True)
    _kind: ClassVar[str]

    def backoff(self) -> str:
        """See the base."""
        if retry_delay_ms(self.cap) < retry_delay_ms(self.first):
            raise ConfigurationError(
                f"The longest delay, {self.cap}, is below the first one, {self.first}"
            )
        return f"{self._kind}:{_text(self.first)}..{_text(self.cap)}"


@dataclass(frozen=True, slots=True)
class Linear(_Growing):
    """Each delay is longer than the one before by the first one, up to `cap`."""

    _kind = "linear"

    def whole_delay_ms(self, failed_attempt: int) -> int:
        """See the base."""
        return min(retry_delay_ms(self.cap), retry_delay_ms(self.first) * failed_attempt)


@dataclass(frozen=True, slots=True)
class Exponential(_Growing):
    """Each delay is twice the one before, up to `cap`."""

    _kind = "exponential"

    def whole_delay_ms(self, failed_attempt: int) -> int:
        """See the base."""
        doublings = min(failed_attempt - 1, _DOUBLINGS_MAX)
        return min(retry_delay_ms(self.cap), retry_delay_ms(self.first) << doublings)


@dataclass(frozen=True, slots=True)
class Delays(RetryPolicy):
    """These delays, and the last one again and again."""

    delays: Sequence[Duration]

    def backoff(self) -> str:
        """See the base."""
        if isinstance(self.delays, str) or not 1 <= len(self.delays) <= LISTED_DELAYS_MAX:
            raise ConfigurationError(
                f"delays={self.delays!r}",
                hint=f'Give a list of 1 to {LISTED_DELAYS_MAX}: Delays(["1s", "10s", "5m"])',
            )
        return f"list:{','.join(map(_text, self.delays))}"

    def whole_delay_ms(self, failed_attempt: int) -> int:
        """See the base."""
        return retry_delay_ms(self.delays[min(failed_attempt, len(self.delays)) - 1])


def policy_of(configs: Mapping[str, str]) -> RetryPolicy:
    """What a subscription's properties say, defaults where there are none. Raises
    ConfigurationError."""
    attempts = _whole(configs.get(ATTEMPTS_PROPERTY) or str(ATTEMPTS_DEFAULT))
    policy = _backoff_of(configs.get(BACKOFF_PROPERTY) or DEFAULT_POLICY.backoff())
    return replace(
        policy,
        attempts=attempts or None,
        jitter=_share(configs.get(JITTER_PROPERTY) or "0"),
        dead_letters=configs.get(DEAD_LETTERS_PROPERTY) or "",
        order=_order(configs.get(ORDER_PROPERTY) or "none"),
    )


def _backoff_of(text: str) -> RetryPolicy:
    kind, _, rest = text.strip().partition(":")
    first, dots, cap = (part.strip() for part in rest.partition(".."))
    match kind, dots:
        case "fixed", "":
            return Fixed(first)
        case "linear", "..":
            return Linear(first, cap=cap)
        case "exponential", "..":
            return Exponential(first, cap=cap)
        case "list", "":
            return Delays(tuple(one.strip() for one in rest.split(",")))
    raise ConfigurationError(
        f"{BACKOFF_PROPERTY}={text!r}",
        hint="Write fixed:5s, linear:5s..10m, exponential:1s..2h or list:1s,10s,5m",
    )


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigurationError(f"{ATTEMPTS_PROPERTY}={text!r} is not a whole number") from error


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigurationError(f"{JITTER_PROPERTY}={text!r} is not a number") from error


def _order(text: str) -> Literal["none", "key"]:
    match text.strip():
        case "none":
            return "none"
        case "key":
            return "key"
    raise ConfigurationError(f"{ORDER_PROPERTY}={text!r}", hint="Write none or key")


def _text(delay: Duration) -> str:
    return duration_text(retry_delay_ms(delay))


DEFAULT_POLICY: Final = Exponential()
"""That of brokers."""
