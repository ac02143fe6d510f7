"""What a handler's subscription is asked for, checked when it is declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from tidewheel.consumer_options import Commit, Start
from tidewheel.errors import ConfigurationError
from tidewheel.headers import Duration, duration_ms
from tidewheel.message import Message
from tidewheel.retry_policy import RetryPolicy
from tidewheel.serialization import Deserializer
from tidewheel.settings import ConsumerSettings

_SIMPLE: Final = ("stop", "skip", "nack")

Handler = Callable[[Message], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class RetryInPlace:
    """Call the handler again with the same message after growing pauses.

    The messages of the same key wait meanwhile; others go on. After `attempts` calls in all,
    `then` decides: "stop" ends the app with HandlerFailed and the message is delivered again on
    the next start; "skip" logs the error and counts the message as done; "nack" has the brokers
    deliver it again later, by the policy of its subscription. `attempts=None` never gives up.
    """

    first: Duration = "500ms"
    factor: float = 2.0
    cap: Duration = "30s"
    attempts: int | None = 5
    then: Literal["stop", "skip", "nack"] = "stop"

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait after the attempt of that number, counted from 1."""
        cap_s = duration_ms(self.cap, what="cap") / 1000
        first_s = duration_ms(self.first, what="first") / 1000
        exponent = min(attempt - 1, 64)
        return min(cap_s, first_s * self.factor**exponent)


OnError = RetryInPlace | Literal["stop", "skip", "nack"]


@dataclass(frozen=True, slots=True)
class SubscriberOptions:
    """What `App.subscriber` was asked for."""

    topics: tuple[str, ...]
    group: str
    concurrency: int = 16
    commit: Commit = "after"
    start: Start = "earliest"
    on_error: OnError | None = None
    key_order: bool = True
    buffer_max: int = 1_000
    drain_timeout_s: float = 30.0
    settings: ConsumerSettings | None = None
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    filter: str | None = None
    subscription: str | None = None
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if self.commit not in ("before", "after"):
            raise ConfigurationError(f"commit={self.commit!r}", hint="Use before or after")
        if self.concurrency < 1 or self.buffer_max < 1:
            raise ConfigurationError(
                "concurrency and buffer_max must be at least 1", hint="Give larger numbers"
            )
        if not isinstance(self.on_error, RetryInPlace | None) and self.on_error not in _SIMPLE:
            raise ConfigurationError(
                f"on_error={self.on_error!r}",
                hint='Use RetryInPlace(...), "stop", "skip" or "nack"',
            )
        if self.in_place.then not in _SIMPLE:
            raise ConfigurationError(
                f"then={self.in_place.then!r}", hint='Use "stop", "skip" or "nack"'
            )

    @property
    def in_place(self) -> RetryInPlace:
        """The error policy in its general form."""
        if isinstance(self.on_error, RetryInPlace):
            return self.on_error
        if self.on_error is None:
            return RetryInPlace() if self.retry is None else RetryInPlace(attempts=1, then="nack")
        return RetryInPlace(attempts=1, then=self.on_error)
