"""Subscriptions that keep the order of their keys (`tidewheel.ordering=key`): what failed is not
nacked, but handled again in this process, and the messages of its key wait for that.

    order      a1 fails, a1 again after 5 s, a1 again after 10 s, a2, a3     b1, b2 meanwhile
    no order   a1 fails and is nacked, a2, a3, a1 from the retry partition

By the same policy: delays, attempts, and the dead-letter topic, where a1 goes after the last one.
The policy is the subscription's, so it is looked at again from time to time.

Deliberately absent: which messages wait, and how many (lanes.py, subscriber.py).
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tidewheel.errors import TidewheelError
from tidewheel.message import ATTEMPT_HEADER, Message
from tidewheel.nacks import DeadLetter, Nack, Nacker, RetryLater
from tidewheel.retry_policy import RetryPolicy
from tidewheel.transport.port import Clock

KNOWN_MS: Final = 10_000
"""For how long a policy is taken for what it was."""


class Again(NamedTuple):
    """To be handled again, as this message, after so many seconds; its key waits."""

    message: Message
    seconds: float


class _Known(NamedTuple):
    policy: RetryPolicy | None
    until_ms: int


class KeyOrder:
    """Of one subscriber's subscriptions."""

    def __init__(self, nacker: Nacker, clock: Clock) -> None:
        self._nacker = nacker
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def policy_for(self, topic: str) -> RetryPolicy | None:
        """Of a subscription that keeps the order of its keys; None for all others, which is looked
        at once. Raises TidewheelError while nothing is known."""
        known = self._known.get(topic)
        now_ms = self._clock.now_ms()
        if known is not None and (known.policy is None or now_ms < known.until_ms):
            return known.policy
        try:
            policy = await self._nacker.policy(topic)
        except TidewheelError:
            if known is None:
                raise
            return known.policy
        kept = policy if policy is not None and policy.order == "key" else None
        self._known[topic] = _Known(kept, now_ms + KNOWN_MS)
        return kept


def what_follows(policy: RetryPolicy, message: Message, error: Exception) -> Again | Nack:
    """After an attempt at a message of a key has failed: another one, or its end."""
    attempt = message.attempt
    nack = Nack.after(message, error)
    if isinstance(error, DeadLetter):
        return nack
    if policy.is_last(attempt):
        reason = f"{nack.reason} (attempt {attempt}, in the order of its key)"
        return Nack(message, None, reason, nack.exception, is_dead_letter=True)
    delay_ms = error.delay_ms if isinstance(error, RetryLater) else None
    if delay_ms is None:
        delay_ms = policy.delay_ms(attempt, random.random())
    return Again(_as_attempt(message, attempt + 1), delay_ms / 1000)


def _as_attempt(message: Message, attempt: int) -> Message:
    """It says which one it is, as one from a retry partition does."""
    headers = [header for header in message.headers if header[0] != ATTEMPT_HEADER]
    headers.append((ATTEMPT_HEADER, b"%d" % attempt))
    return Message(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_ms,
        message.key,
        message.value,
        tuple(headers),
    )
