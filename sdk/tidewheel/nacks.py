"""Giving back what failed: a nack is a record to the subscription's retry partition.

    delivered        orders.pay[6]@100, or [7]@52 when it came back before
    nack             to orders.pay[7]: tw-nack = 6:100, tw-delay = 600000ms, tw-reason, …

The brokers keep the message from then on, and deliver it again when it is due, in partition 7; or,
after the last attempt and for `tw-dead-letter`, they put it into the dead-letter topic. Saying it
twice changes nothing, so a nack without an answer is sent again.

Invariants
- A nack goes to what is known to be a subscription, and to nothing else: to a plain topic it would
  be one more message.
- It counts when all in-sync replicas have it, whatever the client's own messages wait for.
- When `send` raises, each of its messages either has come to the brokers or is named by the error.

Deliberately absent: what a policy says (brokers), and what is committed (consumer, subscriber).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.errors import (
    InvalidRequest,
    MessageRefused,
    NackFailed,
    NotAuthorized,
    QueueFull,
    RetriesUnsupported,
    TidewheelError,
)
from tidewheel.headers import DELAY_HEADER, Duration, retry_delay_ms
from tidewheel.message import HeaderValue, Message
from tidewheel.retry_policy import BACKOFF_PROPERTY, RetryPolicy, policy_of
from tidewheel.sender import Delivery, Sender
from tidewheel.subscriptions import SOURCE_PROPERTY
from tidewheel.transport.port import AdminTransport

NACK_HEADER: Final = "tw-nack"
DEAD_LETTER_HEADER: Final = "tw-dead-letter"
REASON_HEADER: Final = "tw-reason"
EXCEPTION_HEADER: Final = "tw-exception"
CONSUMER_HEADER: Final = "tw-consumer"
REASON_BYTES_MAX: Final = 1024
NAME_BYTES_MAX: Final = 256

# Says that another record of the batch was refused, and this one only with it.
_WITH_ANOTHER: Final = "_INVALID_DIFFERENT_RECORD"


class RetryLater(Exception):
    """Raised by a handler: the message comes back after `delay`, whatever the policy says; without
    one, after the policy's. After the last attempt it is a dead letter as any other.

    Args:
        delay: "10m", seconds as a number, or a timedelta.
        reason: shown with the message from then on.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_ms = None if delay is None else retry_delay_ms(delay)
        self.reason = reason


class DeadLetter(Exception):
    """Raised by a handler: the message goes to the dead-letter topic at once, with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Nack:
    """One message that failed. `delay_ms` None: after the policy's delay. `exception` is the name
    of a class."""

    message: Message
    delay_ms: int | None = None
    reason: str = ""
    exception: str = ""
    is_dead_letter: bool = False

    @classmethod
    def after(cls, message: Message, error: BaseException) -> Nack:
        """What a handler's exception asks for. Of RetryLater and DeadLetter that were raised from
        another exception, it is that one that is named."""
        if not isinstance(error, RetryLater | DeadLetter):
            return cls(message, None, str(error) or repr(error), class_name(error))
        cause = error.__cause__
        return cls(
            message,
            error.delay_ms if isinstance(error, RetryLater) else None,
            error.reason or (str(cause) if cause is not None else ""),
            "" if cause is None else class_name(cause),
            isinstance(error, DeadLetter),
        )

    @property
    def partition(self) -> int:
        """Where it is sent: the retry partition beside the one that has delivered the message."""
        return self.message.partition | 1

    def headers(self, consumer: str) -> list[tuple[str, HeaderValue]]:
        """What it says. Longer texts than brokers take are cut."""
        command = DEAD_LETTER_HEADER if self.is_dead_letter else NACK_HEADER
        headers: list[tuple[str, HeaderValue]] = [
            (command, b"%d:%d" % (self.message.partition, self.message.offset))
        ]
        if self.delay_ms is not None:
            headers.append((DELAY_HEADER, b"%dms" % self.delay_ms))
        texts = (
            (REASON_HEADER, self.reason, REASON_BYTES_MAX),
            (EXCEPTION_HEADER, self.exception, NAME_BYTES_MAX),
            (CONSUMER_HEADER, consumer, NAME_BYTES_MAX),
        )
        headers.extend((name, cut(text, bytes_max)) for name, text, bytes_max in texts if text)
        return headers


class Nacker:
    """Sends nacks, and waits until brokers have them.

    Args:
        ready_sender: a sender whose messages all in-sync replicas have when they count as sent.
        requests: gives those by which it is looked up what a topic is.
        consumer: who nacks, as brokers show it.
    """

    def __init__(
        self,
        ready_sender: Callable[[], Awaitable[Sender]],
        requests: Callable[[], AdminTransport],
        consumer: str,
    ) -> None:
        self._ready_sender = ready_sender
        self._requests = requests
        self._consumer = consumer
        # Topics that have been looked at: whether they are subscriptions, which is for ever.
        self._are_subscriptions: dict[str, bool] = {}

    async def is_subscription(self, topic: str) -> bool:
        """Whether its messages come back when they are nacked; looked up once. Raises
        RetriesUnsupported for a subscription of brokers without retries, NotAuthorized."""
        known = self._are_subscriptions.get(topic)
        if known is not None:
            return known
        try:
            entries = await self._requests().configs(topic)
        except NotAuthorized as error:
            raise NotAuthorized(
                f'Whether "{topic}" is a subscription cannot be looked at: {error.message}',
                hint="Whoever nacks needs describe-configs on it: ask an operator (where there is "
                "a control plane, a grant of the role manager has it)",
            ) from error
        values = {entry.name: entry.value for entry in entries}
        found = bool(values.get(SOURCE_PROPERTY))
        if found and BACKOFF_PROPERTY not in values:
            raise RetriesUnsupported(f'The brokers take no nacks of "{topic}"')
        self._are_subscriptions[topic] = found
        return found

    async def policy(self, topic: str) -> RetryPolicy | None:
        """By which messages of a subscription come back; None for a plain topic. Raises as
        `is_subscription`, and ConfigurationError for one that is not understood."""
        if not await self.is_subscription(topic):
            return None
        entries = await self._requests().configs(topic)
        return policy_of({one.name: one.value or "" for one in entries})

    async def send(self, nacks: Iterable[Nack]) -> None:
        """Nack these, together. Raises NackFailed for those that did not come to the brokers,
        InvalidRequest for messages of a plain topic, RetriesUnsupported, NotAuthorized."""
        pending = list(nacks)
        for topic in {nack.message.topic for nack in pending}:
            if not await self.is_subscription(topic):
                raise InvalidRequest(
                    f'"{topic}" is no subscription: its messages cannot be nacked',
                    hint="Read it with filter= or retry=, which make a subscription over it",
                )
        sender = await self._ready_sender()
        failed: list[tuple[Nack, TidewheelError]] = []
        while pending:
            outcomes = await self._outcomes(sender, pending)
            failed += [(nack, error) for nack, error in outcomes if not _goes_again(error)]
            # In a batch with one that is refused the others are, too: they go again without it.
            pending = [nack for nack, error in outcomes if _goes_again(error)]
        if failed:
            first, error = failed[0]
            raise NackFailed(
                f"{len(failed)} messages could not be nacked; the first, {first.message!r}: "
                f"{error.message}",
                consumed=[nack.message for nack, _ in failed],
                cause=_gravest([error for _, error in failed]),
            ) from error

    async def _outcomes(
        self, sender: Sender, nacks: Sequence[Nack]
    ) -> list[tuple[Nack, TidewheelError]]:
        """Of those that failed."""
        deliveries = [await self._queued(sender, nack) for nack in nacks]
        found: list[tuple[Nack, TidewheelError]] = []
        for nack, delivery in zip(nacks, deliveries, strict=True):
            try:
                await delivery
            except TidewheelError as error:
                found.append((nack, error))
        return found

    async def _queued(self, sender: Sender, nack: Nack) -> Delivery:
        """Interceptors are for the application's own messages, and see nothing of it."""
        topic, headers = nack.message.topic, nack.headers(self._consumer)
        while True:
            delivery = Delivery(sender, topic)
            try:
                sender.produce(topic, None, None, nack.partition, delivery.settle, 0, headers)
            except QueueFull:
                await sender.progress()
            else:
                return delivery


def _goes_again(error: TidewheelError) -> bool:
    return error.kafka_name == _WITH_ANOTHER


def _gravest(errors: Sequence[TidewheelError]) -> TidewheelError:
    """Trying again helps only if it helps with all of them."""
    lasting = [error for error in errors if not error.retriable]
    refused = [error for error in lasting if isinstance(error, MessageRefused)]
    return next(iter([*refused, *lasting, *errors]))


def class_name(error: BaseException) -> str:
    """An exception's class, with its module unless it is one of Python's own."""
    kind = type(error)
    is_own = kind.__module__ == "builtins"
    return kind.__qualname__ if is_own else f"{kind.__module__}.{kind.__qualname__}"


def cut(text: str, bytes_max: int) -> bytes:
    """UTF-8 of at most so many bytes, cut between characters. What is no text is replaced."""
    data = text.encode("utf-8", "replace")
    return data if len(data) <= bytes_max else data[:bytes_max].decode("utf-8", "ignore").encode()
