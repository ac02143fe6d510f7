"""Retry partitions of a broker in memory: what was nacked comes back when it is due, or is a dead
letter.

As on a real broker the odd partitions of a subscription are logs of their own. What a client sends
there are nacks; each is stored as the message that comes back, hidden, and when the clock is there
a visible record follows:

    offset 0   hidden    copy of orders/3/100, due in 5 s
    offset 1   hidden    copy of orders/3/117, due in 5 s
    offset 2   visible   orders/3/100, tw-attempt: 2, tw-fired: 0

A position that was nacked before is not nacked again: the command succeeds, and nothing follows.

Nothing runs by itself here: whoever looks says what time it is, and what is due by then stands in
the log, at its own time.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidewheel.dead_letters import FAILED_HEADER, FIRST_FAILED_HEADER
from tidewheel.errors import ConfigurationError, InvalidRequest
from tidewheel.headers import DELAY_HEADER, DELIVER_AT_HEADER, retry_delay_ms
from tidewheel.message import ATTEMPT_HEADER, PRODUCED_AT_HEADER, SOURCE_HEADER, Message
from tidewheel.nacks import (
    CONSUMER_HEADER,
    DEAD_LETTER_HEADER,
    EXCEPTION_HEADER,
    NACK_HEADER,
    REASON_HEADER,
)
from tidewheel.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from tidewheel.testing.topics import MemoryTopic

FIRED_HEADER: Final = "tw-fired"
DEAD_HEADER: Final = "tw-dead"
# What an earlier round has said, which the next one says anew.
OF_BROKER: Final = frozenset(
    {
        SOURCE_HEADER,
        PRODUCED_AT_HEADER,
        DELAY_HEADER,
        DELIVER_AT_HEADER,
        NACK_HEADER,
        DEAD_LETTER_HEADER,
        REASON_HEADER,
        EXCEPTION_HEADER,
        CONSUMER_HEADER,
        ATTEMPT_HEADER,
        FIRST_FAILED_HEADER,
        FAILED_HEADER,
        FIRED_HEADER,
        DEAD_HEADER,
    }
)
_COMMANDS: Final = (NACK_HEADER, DEAD_LETTER_HEADER)
_TEXTS: Final = (REASON_HEADER, EXCEPTION_HEADER, CONSUMER_HEADER)
_POSITION: Final = re.compile(rb"(\d{1,10}):(\d{1,19})")

Stored = tuple[tuple[str, bytes | None], ...]


class Command(NamedTuple):
    """What one record says. `position`: partition and offset, as delivered."""

    position: tuple[int, int]
    is_dead_letter: bool
    delay_ms: int | None
    texts: Stored


class RetryLog:
    """The retry partition of one partition of the source.

    Args:
        topic: the subscription's name.
        pair: the number of the source's partition.
        source: with the records that were delivered from the source.
        send_dead: takes a dead letter, for a partition of the dead-letter topic.
    """

    def __init__(
        self, topic: str, pair: int, source: MemoryTopic, send_dead: Callable[[Message], None]
    ) -> None:
        self._topic = topic
        self._pair = pair
        self._partition = 2 * pair + 1
        self._source = source
        self._send_dead = send_dead
        # None where a record is hidden.
        self._log: list[Message | None] = []
        self._pending: list[tuple[int, int, Message]] = []
        self._said: set[tuple[int, int]] = set()

    @property
    def next_due_ms(self) -> int | None:
        """When the next message comes back, if any does."""
        return self._pending[0][0] if self._pending else None

    def end_offset(self, now_ms: int) -> int:
        """The next offset to be written."""
        self._fire(now_ms)
        return len(self._log)

    def read(self, position: int, messages_max: int, now_ms: int) -> tuple[Sequence[Message], int]:
        """What is visible from an offset on, and where a reader goes on."""
        self._fire(now_ms)
        found: list[Message] = []
        while position < len(self._log) and len(found) < messages_max:
            record = self._log[position]
            if record is not None:
                found.append(record)
            position += 1
        return found, position

    def append(self, sent: Message, policy: RetryPolicy, share: float, now_ms: int) -> None:
        """Judge and store a command; `sent` gets its offset and time. Raises InvalidRequest for
        one that brokers refuse."""
        self._fire(now_ms)
        command = _command(sent.headers)
        if command.position in self._said:
            self._store(sent, now_ms)
            return
        original = self._original(command.position)
        attempt = original.attempt if command.position[0] % 2 else 1
        offset = len(self._log)
        headers = [one for one in original.headers if one[0] not in OF_BROKER]
        story = self._story(original, command, now_ms)
        if command.is_dead_letter or policy.is_last(attempt):
            said = (
                *story,
                (ATTEMPT_HEADER, b"%d" % attempt),
                (FAILED_HEADER, b"%d" % now_ms),
                (DEAD_HEADER, f"{self._topic}/{self._pair}/0/{offset}".encode()),
            )
            self._send_dead(_record("", self._pair, -1, now_ms, original, (*headers, *said)))
        else:
            delay_ms = command.delay_ms
            if delay_ms is None:
                delay_ms = policy.delay_ms(attempt, share)
            said = (
                *story,
                (ATTEMPT_HEADER, b"%d" % (attempt + 1)),
                (FIRED_HEADER, b"%d" % offset),
            )
            copy = _record(
                self._topic, self._partition, -1, now_ms + delay_ms, original, (*headers, *said)
            )
            heapq.heappush(self._pending, (now_ms + delay_ms, offset, copy))
        self._said.add(command.position)
        self._store(sent, now_ms)

    def take_back(self, redriven: Message, now_ms: int) -> None:
        """Store a dead letter that is put back."""
        self._fire(now_ms)
        redriven.topic, redriven.partition = self._topic, self._partition
        redriven.offset = len(self._log)
        self._log.append(redriven)

    def _store(self, sent: Message, now_ms: int) -> None:
        sent.offset, sent.timestamp_ms = len(self._log), now_ms
        self._log.append(None)

    def _fire(self, now_ms: int) -> None:
        while self._pending and self._pending[0][0] <= now_ms:
            _, _, copy = heapq.heappop(self._pending)
            copy.offset = len(self._log)
            self._log.append(copy)

    def _original(self, position: tuple[int, int]) -> Message:
        partition, offset = position
        if partition // 2 != self._pair:
            raise InvalidRequest(f"partition {partition} is not one of this pair")
        found: Message | None = None
        if partition % 2:
            found = self._log[offset] if offset < len(self._log) else None
        elif self._source.start_offset(self._pair) <= offset < self._source.end_offset(self._pair):
            shown, _ = self._source.read(self._pair, offset, 1)
            # Where a record is hidden, that is the next one.
            found = shown[0] if shown and shown[0].offset == offset else None
        if found is None:
            raise InvalidRequest(f"{partition}:{offset}: nothing was delivered there")
        return found

    def _story(self, original: Message, command: Command, now_ms: int) -> Stored:
        source = f"{self._source.name}/{self._pair}/{original.offset}".encode()
        produced_at, first_failed = b"%d" % original.timestamp_ms, b"%d" % now_ms
        if command.position[0] % 2:
            source = original.header(SOURCE_HEADER) or source
            produced_at = original.header(PRODUCED_AT_HEADER) or produced_at
            first_failed = original.header(FIRST_FAILED_HEADER) or first_failed
        return (
            (SOURCE_HEADER, source),
            (PRODUCED_AT_HEADER, produced_at),
            (FIRST_FAILED_HEADER, first_failed),
            *command.texts,
        )


def _record(
    topic: str, partition: int, offset: int, timestamp_ms: int, original: Message, headers: Stored
) -> Message:
    return Message(topic, partition, offset, timestamp_ms, original.key, original.value, headers)


def _command(headers: Sequence[tuple[str, bytes | None]]) -> Command:
    """Raises InvalidRequest."""
    own = [(name, value) for name, value in headers if name.startswith("tw-")]
    values = {name: value for name, value in own if value is not None}
    unknown = {name for name, _ in own} - {*_COMMANDS, *_TEXTS, DELAY_HEADER}
    if unknown or len(values) < len(own):
        raise InvalidRequest(f"{sorted(unknown or dict(own))}: each once, with a value")
    commands = [name for name in _COMMANDS if name in values]
    position = _POSITION.fullmatch(values[commands[0]]) if len(commands) == 1 else None
    if position is None:
        raise InvalidRequest("a subscription takes records with one tw-nack or tw-dead-letter")
    delay_ms: int | None = None
    if DELAY_HEADER in values:
        try:
            delay_ms = retry_delay_ms(values[DELAY_HEADER].decode())
        except ConfigurationError as error:
            raise InvalidRequest(error.message) from error
    return Command(
        (int(position[1]), int(position[2])),
        commands[0] == DEAD_LETTER_HEADER,
        delay_ms,
        tuple((name, value) for name, value in own if name in _TEXTS),
    )
