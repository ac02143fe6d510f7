"""Delayed messages of one partition of the broker in memory: what is hidden, pending, due.

    orders[0]@100   tw-delay: 30m           hidden for good; pending until it is due
    orders[0]@101   tw-cancel-offset: 100   hidden; 100 is pending no more, or the record is refused
    orders[0]@102   the message of 100      when it was due, with tw-source and tw-produced-at

As with a real broker: what is delivered is another record, under a new offset, and a command is
judged before it is stored. A command that is sent again is done, not too late.

Pure: the broker says what time it is and stores what is due.

Deliberately absent: forgetting outcomes after an hour, and batches that are refused as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from tidewheel.errors import ConfigurationError, InvalidRequest
from tidewheel.headers import (
    CANCEL_HEADER,
    CANCEL_OFFSET_HEADER,
    DELAY_HEADER,
    DELAY_MS_MAX,
    DELIVER_AT_HEADER,
    RESCHEDULE_HEADER,
    RESCHEDULE_OFFSET_HEADER,
    duration_ms,
    epoch_ms,
)
from tidewheel.message import PRODUCED_AT_HEADER, SOURCE_HEADER, Message

_TIMES: Final = frozenset({DELAY_HEADER, DELIVER_AT_HEADER})
_OF_OFFSETS: Final = frozenset({CANCEL_OFFSET_HEADER, RESCHEDULE_OFFSET_HEADER})
_RESCHEDULES: Final = frozenset({RESCHEDULE_HEADER, RESCHEDULE_OFFSET_HEADER})
_COMMANDS: Final = frozenset(
    {CANCEL_HEADER, CANCEL_OFFSET_HEADER, RESCHEDULE_HEADER, RESCHEDULE_OFFSET_HEADER}
)
_TAKEN_OFF: Final = frozenset({*_TIMES, SOURCE_HEADER, PRODUCED_AT_HEADER})
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


class DelayedMessages:
    """See the module."""

    def __init__(self) -> None:
        self._hidden: set[int] = set()
        # Originals by offset, and when they are due.
        self._pending: dict[int, tuple[int, Message]] = {}
        # Of each message that was ever delayed: its id, and what the last command has said of it:
        # when it is due, or None if it is cancelled.
        self._ids: dict[int, bytes | None] = {}
        self._said: dict[int, int | None] = {}

    def hides(self, offset: int) -> bool:
        """Whether readers never see the record there."""
        return offset in self._hidden

    @property
    def hides_any(self) -> bool:
        """Whether any record is hidden."""
        return bool(self._hidden)

    @property
    def next_due_ms(self) -> int | None:
        """When the next message is due."""
        return min((due_ms for due_ms, _ in self._pending.values()), default=None)

    def take(self, record: Message, now_ms: int) -> bool:
        """Note what a record that is about to be stored under its offset means; whether it is
        hidden. Raises InvalidRequest for one that a broker refuses."""
        command, due_ms = _read(record, now_ms)
        if command is not None:
            for offset in self._judge(*command, due_ms):
                self._said[offset] = due_ms
                _, original = self._pending.pop(offset)
                if due_ms is not None:
                    self._pending[offset] = due_ms, original
        elif due_ms is None:
            return False
        else:
            self._pending[record.offset] = due_ms, record
            self._ids[record.offset] = record.id
        self._hidden.add(record.offset)
        return True

    def pending(self) -> list[tuple[int, Message]]:
        """When each is due, and the message as it was sent; the first ones first."""
        return sorted(self._pending.values(), key=lambda one: (one[0], one[1].offset))

    def refusal_of(self, record: Message, now_ms: int) -> str | None:
        """Why a record would be refused now, in the broker's words; None if it would not."""
        try:
            command, due_ms = _read(record, now_ms)
            if command is not None:
                self._judge(*command, due_ms)
        except InvalidRequest as refusal:
            return refusal.message
        return None

    def take_due(self, now_ms: int) -> list[Message]:
        """What is due by now, in the order in which it is delivered."""
        due = sorted((due, offset) for offset, (due, _) in self._pending.items() if due <= now_ms)
        return [_delivered(self._pending.pop(offset)[1], now_ms) for _, offset in due]

    def _judge(self, name: str, value: bytes | None, due_ms: int | None) -> list[int]:
        """Which pending messages a command is about. Raises InvalidRequest."""
        if (due_ms is None) == (name in _RESCHEDULES):
            raise InvalidRequest(f"header {name}: a time goes with re-schedules, and only those")
        if name in _OF_OFFSETS:
            text = (value or b"").decode("utf-8", "replace")
            if not _NUMBER.fullmatch(text):
                raise InvalidRequest(f"header {name}: it names an offset, in decimal")
            concerned = [int(text)] if int(text) in self._ids else []
        else:
            concerned = [offset for offset, message_id in self._ids.items() if message_id == value]
        if not concerned:
            raise InvalidRequest(f"header {name}: unknown: no message is meant by it")
        pending = [offset for offset in concerned if offset in self._pending]
        unsaid = object()
        if not pending and all(self._said.get(each, unsaid) != due_ms for each in concerned):
            raise InvalidRequest(f"header {name}: too late: the message is pending no more")
        return pending


def _read(record: Message, now_ms: int) -> tuple[tuple[str, bytes | None] | None, int | None]:
    """Its command, if it is one, and the time that it says. Raises InvalidRequest."""
    commands = [header for header in record.headers if header[0] in _COMMANDS]
    times = [header for header in record.headers if header[0] in _TIMES]
    if len(times) > 1 or len(commands) > 1:
        raise InvalidRequest("A record has one time to be delivered at, and one command")
    due_ms = _due_ms(*times[0], now_ms) if times else None
    return commands[0] if commands else None, due_ms


def _due_ms(name: str, value: bytes | None, now_ms: int) -> int:
    text = (value or b"").decode("utf-8", "replace")
    try:
        if name == DELAY_HEADER:
            delay_ms = int(text) if _NUMBER.fullmatch(text) else duration_ms(text)
            if not 0 < delay_ms <= DELAY_MS_MAX:
                raise ConfigurationError("a delay is from 1 ms to 3652d")
            return now_ms + delay_ms
        is_number = _NUMBER.fullmatch(text) is not None
        due_ms = int(text) if is_number else epoch_ms(datetime.fromisoformat(text))
    except ValueError as error:
        raise InvalidRequest(f"header {name}: {error}") from error
    if due_ms > now_ms + DELAY_MS_MAX:
        raise InvalidRequest(f"header {name}: it is more than ten years ahead")
    return due_ms


def _delivered(original: Message, now_ms: int) -> Message:
    source = f"{original.topic}/{original.partition}/{original.offset}"
    headers: Sequence[tuple[str, bytes | None]] = (
        *(header for header in original.headers if header[0] not in _TAKEN_OFF),
        (SOURCE_HEADER, source.encode()),
        (PRODUCED_AT_HEADER, b"%d" % original.timestamp_ms),
    )
    topic, partition = original.topic, original.partition
    return Message(topic, partition, -1, now_ms, original.key, original.value, headers)
