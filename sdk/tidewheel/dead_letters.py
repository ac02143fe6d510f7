"""Dead letters, as they are in a dead-letter topic: what brokers say of each in its headers.

    tw-source: orders/3/100     where it came from
    tw-attempt: 16              how often it was delivered
    tw-reason, tw-exception, tw-consumer, tw-first-failed-at, tw-failed-at, tw-produced-at

A dead-letter topic is a topic like any other. What has no such headers was put there by somebody
else, and is no dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidewheel.admin import Admin
from tidewheel.errors import InvalidRequest, NotAuthorized, RetriesUnsupported
from tidewheel.message import ATTEMPT_HEADER, PRODUCED_AT_HEADER, Message, time_ms_of
from tidewheel.nacks import CONSUMER_HEADER, EXCEPTION_HEADER, REASON_HEADER
from tidewheel.retry_policy import DEAD_LETTERS_SUFFIX

FIRST_FAILED_HEADER: Final = "tw-first-failed-at"
FAILED_HEADER: Final = "tw-failed-at"


@dataclass(frozen=True, slots=True)
class Dead:
    """One dead letter. Times are epoch milliseconds, None where nothing is said."""

    message: Message
    topic: str
    partition: int
    offset: int
    attempts: int
    reason: str
    exception: str
    consumer: str
    produced_at_ms: int | None
    first_failed_at_ms: int | None
    failed_at_ms: int | None

    @property
    def origin(self) -> str:
        """TOPIC/PARTITION/OFFSET of the record that it was."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def dead_letter_of(message: Message) -> Dead | None:
    """None for a message that no broker has put there."""
    source = message.source
    if source is None or message.header(ATTEMPT_HEADER) is None:
        return None
    return Dead(
        message,
        source.topic,
        source.partition,
        source.offset,
        message.attempt,
        _text(message, REASON_HEADER),
        _text(message, EXCEPTION_HEADER),
        _text(message, CONSUMER_HEADER),
        time_ms_of(message, PRODUCED_AT_HEADER),
        time_ms_of(message, FIRST_FAILED_HEADER),
        time_ms_of(message, FAILED_HEADER),
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters are wanted; what is "" or None says nothing.

    `reason` is a part of it, in any case of letters; `exception` a class, with its module or
    without; `origin` a topic, TOPIC/PARTITION, or one record.
    """

    reason: str = ""
    exception: str = ""
    origin: str = ""
    attempts: int | None = None

    def matches(self, dead: Dead) -> bool:
        """Whether it is one of these."""
        return (
            self.reason.casefold() in dead.reason.casefold()
            and self.exception in ("", dead.exception, dead.exception.rpartition(".")[2])
            and (not self.origin or f"{dead.origin}/".startswith(f"{self.origin}/"))
            and self.attempts in (None, dead.attempts)
        )


async def topic_of(admin: Admin, name: str) -> str:
    """The dead-letter topic of a subscription; any other topic is taken for one itself. Raises
    TopicNotFound."""
    try:
        await admin.subscription(name)
        policy = await admin.retry_policy(name)
    except (InvalidRequest, NotAuthorized):
        return name
    except RetriesUnsupported:
        return name + DEAD_LETTERS_SUFFIX
    return policy.dead_letters or name + DEAD_LETTERS_SUFFIX


def _text(message: Message, header: str) -> str:
    return (message.header(header) or b"").decode("utf-8", "replace")
