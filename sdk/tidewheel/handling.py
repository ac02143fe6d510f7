"""One message and its handler: called, called again in place, skipped, nacked, or the end of all.

    returned                          done
    RetryLater, DeadLetter            nacked: done when the brokers have it. From a plain topic
                                      nothing comes back, so there they are errors like any other
    anything else                     again in place, as often as the error policy says; then
                                      "stop", "skip" or "nack"

What would be nacked, and belongs to a key whose order counts, is handed back to be handled again
later, before all others of its key (key_order.py).

Invariants
- A message is done when its handler returned, the policy skipped it, or a nack was acknowledged.
- What cannot be nacked for good ends the application with HandlerFailed, and is not done. What only
  fails for now is nacked again, for as long as the partition is ours.

Deliberately absent: which message is whose turn, and commits (subscriber.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from tidewheel.consumer_options import ConsumerOptions, prepare
from tidewheel.errors import (
    DeserializationFailed,
    HandlerFailed,
    InterceptorFailed,
    TidewheelError,
)
from tidewheel.gate import Gate
from tidewheel.key_order import Again, KeyOrder, what_follows
from tidewheel.message import Message
from tidewheel.nacks import DeadLetter, Nack, Nacker, RetryLater
from tidewheel.retry_policy import RetryPolicy
from tidewheel.subscriber_options import Handler, RetryInPlace
from tidewheel.transport.librdkafka.connection import logger

NACK_PAUSES: Final = RetryInPlace("200ms", cap="10s")
"""Between attempts to nack what the brokers do not take now."""


T = TypeVar("T")


class Turn(NamedTuple):
    """What the handling of one message asks of who runs it: wait so many seconds, which is False
    when the partition or the application goes away first; and whether the partition is ours.
    `is_alone`: nothing else runs in this process, which who runs it sees to."""

    pause: Callable[[float], Awaitable[bool]]
    is_ours: Callable[[], bool]
    is_alone: bool = False


class Handling:
    """Calls one handler, and does with messages that fail what the error policy says."""

    def __init__(
        self,
        handler: Handler,
        options: ConsumerOptions,
        in_place: RetryInPlace,
        nacker: Nacker,
        gate: Gate,
        order: KeyOrder,
    ) -> None:
        self._handler = handler
        self._order = order
        self._gate = gate
        self._options = options
        self._in_place = in_place
        self._nacker = nacker

    async def handle(self, message: Message, turn: Turn) -> bool | Again:
        """Whether the message is done, or when it is handled again. Raises HandlerFailed."""
        attempt = 0
        while True:
            attempt += 1
            try:
                if turn.is_alone:
                    await self._call(message)
                else:
                    async with self._gate.entered(alone=False):
                        await self._call(message)
            except Exception as error:
                if isinstance(error, RetryLater | DeadLetter):
                    comes_back = await self._comes_back(message, error, turn)
                    if comes_back is None:
                        return False
                    if comes_back:
                        return await self._give_back(message, error, turn)
                # What cannot be read now cannot be read later.
                hopeless = isinstance(error, DeserializationFailed | InterceptorFailed)
                if hopeless or attempt == self._in_place.attempts:
                    return await self._give_up(message, error, attempt, turn)
                pause_s = self._in_place.pause_s(attempt)
                logger.warning(
                    "Handling %r failed (attempt %d), again in %.3g s: %r",
                    message,
                    attempt,
                    pause_s,
                    error,
                )
                if not await turn.pause(pause_s):
                    return False
            else:
                return True

    async def _call(self, message: Message) -> None:
        result = self._handler(prepare(message, self._options))
        if inspect.isawaitable(result):
            await result

    async def _give_up(
        self, message: Message, error: Exception, attempt: int, turn: Turn
    ) -> bool | Again:
        match self._in_place.then:
            case "skip":
                logger.error(
                    "Skipping %r after %d attempts: %r", message, attempt, error, exc_info=error
                )
                return True
            case "nack":
                return await self._give_back(message, error, turn)
        raise HandlerFailed(
            f"Handling {message!r} failed {attempt} times: {error!r}", consumed=message
        ) from error

    async def _give_back(self, message: Message, error: Exception, turn: Turn) -> bool | Again:
        """Nack it, unless the order of its key counts."""
        nack = Nack.after(message, error)
        if message.key is not None:

            async def ask() -> tuple[RetryPolicy | None]:
                return (await self._order.policy_for(message.topic),)

            answer = await self._insist(ask, message, error, turn)
            if answer is None:
                return False
            (policy,) = answer
            if policy is not None:
                follows = what_follows(policy, message, error)
                if isinstance(follows, Again):
                    logger.warning(
                        "%r failed (attempt %d), its key waits %.3g s: %r",
                        message,
                        message.attempt,
                        follows.seconds,
                        error,
                    )
                    return follows
                nack = follows
        return await self.nack(nack, error, turn)

    async def nack(self, nack: Nack, error: Exception | None, turn: Turn) -> bool:
        """Whether the brokers have it. Raises HandlerFailed when they never will."""
        logger.warning(
            "%r %s: %s",
            nack.message,
            "becomes a dead letter" if nack.is_dead_letter else "failed and is given back",
            nack.reason or error,
        )

        async def send() -> bool:
            await self._nacker.send([nack])
            return True

        return bool(await self._insist(send, nack.message, error, turn))

    async def _comes_back(self, message: Message, error: Exception, turn: Turn) -> bool | None:
        """Whether the brokers take nacks of it; None when nobody needs to know any more."""

        async def ask() -> bool:
            return await self._nacker.is_subscription(message.topic)

        found = await self._insist(ask, message, error, turn)
        if found is False:
            logger.warning("%r comes from no subscription: it cannot be nacked", message)
        return found

    async def _insist(
        self,
        request: Callable[[], Awaitable[T]],
        message: Message,
        error: Exception | None,
        turn: Turn,
    ) -> T | None:
        """What is answered, however often it has to be asked; None when the message is not ours any
        more. Raises HandlerFailed."""
        attempt = 0
        while turn.is_ours():
            attempt += 1
            try:
                return await request()
            except TidewheelError as refusal:
                if not refusal.retriable:
                    raise HandlerFailed(
                        f"Handling {message!r} failed, and it cannot be nacked: {error!r}, "
                        f"{refusal.message}",
                        consumed=message,
                        hint=refusal.hint,
                    ) from refusal
                logger.warning("Nacking %r failed, and is tried again: %s", message, refusal)
                if not await turn.pause(NACK_PAUSES.pause_s(attempt)):
                    return None
        return None
