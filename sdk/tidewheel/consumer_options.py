"""What a consumer is asked for, checked before anything is opened, and how messages are made ready
for the application: interceptors in their order, then deserializers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from tidewheel.errors import ConfigurationError, DeserializationFailed, InterceptorFailed
from tidewheel.interceptors import ConsumerInterceptor
from tidewheel.message import Message, TopicPartition
from tidewheel.retry_policy import RetryPolicy
from tidewheel.serialization import Deserializer
from tidewheel.settings import ConsumerSettings
from tidewheel.subscriptions import Subscription

Commit = Literal["before", "after", "manual"]
Start = Literal["earliest", "latest"] | datetime | timedelta | int
RebalanceCallback = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What `Client.subscribe` was asked for."""

    topics: tuple[str, ...]
    group: str | None
    start: Start
    commit: Commit
    settings: ConsumerSettings
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    interceptors: Sequence[ConsumerInterceptor] = ()
    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None
    # What is read under the only name in `topics`, and made when it is not there.
    subscription: Subscription | None = None
    # What it begins with when it is made.
    retry: RetryPolicy | None = None

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigurationError("No topic to subscribe to", hint="Name at least one")
        if self.commit not in ("before", "after", "manual"):
            raise ConfigurationError(f"commit={self.commit!r}", hint="Use before, after or manual")
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            raise ConfigurationError(
                f"start={self.start!r}", hint="Use earliest, latest, a time, or an offset"
            )
        if self.group == "":
            raise ConfigurationError("The group's name is empty", hint="Give a name or None")
        if isinstance(self.start, int) and self.start < 0:
            raise ConfigurationError(
                f"start={self.start} is no offset", hint="Offsets count from 0; or use latest"
            )
        if isinstance(self.start, int) and self.group is not None:
            raise ConfigurationError(
                "start is an offset, which says nothing about several partitions of a group",
                hint="Give a time, or seek in on_assigned",
            )


def prepare(message: Message, options: ConsumerOptions) -> Message:
    """The message after interceptors and deserializers. `message` itself stays raw.

    Raises InterceptorFailed, DeserializationFailed; both hold the raw message."""
    prepared = Message(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_ms,
        message.key,
        message.value,
        message.headers,
    )
    for interceptor in options.interceptors:
        try:
            prepared = interceptor.on_consume(prepared)
        except Exception as broken:
            raise InterceptorFailed(
                f"{type(interceptor).__name__}.on_consume raised {broken!r} for {message!r}",
                consumed=message,
            ) from broken
    try:
        if options.key_deserializer is not None:
            prepared.key = options.key_deserializer(prepared.key)
        if options.value_deserializer is not None:
            prepared.value = options.value_deserializer(prepared.value)
    except Exception as broken:
        raise DeserializationFailed(
            f"Reading {message!r} raised {broken!r}", consumed=message
        ) from broken
    return prepared
