"""What was committed in a partition with delayed messages, and what commands have to make of it.

    0 [hidden, due 900, id a]  1 [hidden, due 700, id a]  …  7 [tw-cancel: a → 0, 1]  …  9 fired: ?

A batch is taken when it is committed, in the order of the log. So whether a message was pending
when somebody cancelled it is known here without asking a fold: what a stored command says of itself
is held against that, and so is each delivery.

- A command by offset concerns that message; one by id those that are pending with it. It may not
  have seen what was not committed when its first try was sent (`Sends`); all else it has.
- It says when each was due, and leaves out only what is due at that time anyway.
- One that changes nothing was said before, or its message is due then already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, Record
from features.delayed.commands import (
    CANCEL_HEADER,
    CANCEL_OFFSET_HEADER,
    COMMAND_HEADERS,
    ID_HEADER,
    RESCHEDULE_OFFSET_HEADER,
    Fact,
    decode_fact,
)
from features.delayed.fold import FACT_HEADERS, source_offset
from features.delayed.times import DELAY_HEADER, DELIVER_AT_HEADER, deliver_at_ms

# As the record says it: the header's name, and whom it means.
Said = tuple[bytes, bytes]


class Untrue(Exception):
    """The log says what cannot be."""


class Message(NamedTuple):
    """`message_id` is empty without one."""

    due_ms: int
    value: bytes
    message_id: bytes


class Delivery(NamedTuple):
    """`record` delivers what was at `offset`, and due at `due_ms`."""

    record: Record
    offset: int
    due_ms: int


def is_cancel(said: Said) -> bool:
    return said[0] in (CANCEL_HEADER, CANCEL_OFFSET_HEADER)


def offset_named(said: Said) -> int | None:
    """None for a command by id."""
    is_by_offset = said[0] in (CANCEL_OFFSET_HEADER, RESCHEDULE_OFFSET_HEADER)
    return int(said[1]) if is_by_offset else None


def said_in(headers: dict[bytes, bytes | None]) -> Said | None:
    """The command of a record; None for a message."""
    for key, value in headers.items():
        if key in COMMAND_HEADERS:
            return key, value or b""
    return None


def facts_of(record: Record) -> list[Fact]:
    """What a stored command says of itself."""
    return [decode_fact(value) for key, value in record.headers if key in FACT_HEADERS]


class Sends:
    """Commands that are under way, or whose answer is lost: what was committed when they were sent
    for the first time."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[frozenset[Said], int]] = {}

    def sent(self, name: str, number: int, said: frozenset[Said], known_until: int) -> None:
        self._open[name, number] = said, known_until

    def answered(self, name: str, number: int) -> None:
        """All tries of it."""
        self._open.pop((name, number), None)

    def known_until(self, said: Said) -> int:
        """Below it a command that says so has seen everything."""
        return min((end for some, end in self._open.values() if said in some), default=0)


class DelayedTruth:
    """See the module."""

    def __init__(self) -> None:
        self.sends = Sends()
        # Hidden originals that were neither delivered nor cancelled.
        self.pending: dict[int, Message] = {}
        # All that there ever were.
        self.messages: set[int] = set()
        self.delivered: set[int] = set()
        self.cancelled: set[int] = set()
        # Commands by their own offset.
        self.stored: dict[int, Said] = {}
        # What has come of commands, with the time to which they move, and where that stands first.
        self.outcomes: dict[tuple[Said, int | None], int] = {}
        # What readers see, by offset.
        self.shown: dict[int, Record] = {}

    def take(self, header: BatchHeader, records: list[Record]) -> Iterator[Delivery]:
        """A batch that is committed now. Raises Untrue."""
        for record in records:
            headers = dict(record.headers)
            if header.attributes & HIDDEN_FLAG and self._take_hidden(header, record, headers):
                continue
            if not headers.keys().isdisjoint({DELAY_HEADER, DELIVER_AT_HEADER, *COMMAND_HEADERS}):
                raise Untrue(f"{record} is for the broker, and not hidden")
            self.shown[record.offset] = record
            if header.attributes & FACTS_FLAG:
                yield self._take_delivered(record, source_offset(headers[b"tw-source"]))

    def _take_hidden(
        self, header: BatchHeader, record: Record, headers: dict[bytes, bytes | None]
    ) -> bool:
        said = said_in(headers)
        if said is not None:
            self._take_command(header.base_offset, record, said)
            return True
        if DELIVER_AT_HEADER not in headers:
            return False
        due_ms = deliver_at_ms(headers[DELIVER_AT_HEADER])
        message_id = headers.get(ID_HEADER) or b""
        self.pending[record.offset] = Message(due_ms, bytes(record.value or b""), message_id)
        self.messages.add(record.offset)
        return True

    def _take_delivered(self, record: Record, offset: int) -> Delivery:
        if offset in self.delivered:
            raise Untrue(f"the message at {offset} is delivered twice")
        if offset in self.cancelled:
            raise Untrue(f"{record} delivers {offset}, which was cancelled before")
        if offset not in self.pending:
            raise Untrue(f"{record} delivers {offset}, which is not pending")
        due_ms, value, _ = self.pending.pop(offset)
        self.delivered.add(offset)
        if bytes(record.value or b"") != value:
            raise Untrue(f"{record} is not the message at {offset}")
        return Delivery(record, offset, due_ms)

    # Commands

    def _take_command(self, base_offset: int, record: Record, said: Said) -> None:
        facts = facts_of(record)
        meant = self.meant(said, base_offset)
        for fact in facts:
            message = meant.get(fact.offset)
            if message is None or message.due_ms != fact.due_ms:
                raise Untrue(f"{record} says {fact}; pending of what it means are {meant}")
            if is_cancel(said) != (fact.new_due_ms is None):
                raise Untrue(f"{record} says {fact}")
        if len({fact.offset for fact in facts}) < len(facts):
            raise Untrue(f"{record} says something twice of a message")
        if len({fact.new_due_ms for fact in facts}) > 1:
            raise Untrue(f"{record} moves messages to several times")
        self._check_left_out(record, said, meant, facts)
        for fact in facts:
            self._apply(record.offset, fact)
        if facts:
            self.outcomes.setdefault((said, facts[0].new_due_ms), record.offset)
        self.stored[record.offset] = said

    def meant(self, said: Said, end_offset: int) -> dict[int, Message]:
        """What a command means of the messages below `end_offset` that are pending."""
        offset = offset_named(said)
        if offset is None:
            return {
                at: message
                for at, message in self.pending.items()
                if message.message_id == said[1] and at < end_offset
            }
        found = self.pending.get(offset)
        return {} if found is None or offset >= end_offset else {offset: found}

    def _check_left_out(
        self, record: Record, said: Said, meant: dict[int, Message], facts: list[Fact]
    ) -> None:
        concerned = {fact.offset for fact in facts}
        known_until = self.sends.known_until(said)
        left = {at: one for at, one in meant.items() if at not in concerned and at < known_until}
        if facts and facts[0].new_due_ms is not None:
            left = {at: one for at, one in left.items() if one.due_ms != facts[0].new_due_ms}
        elif not facts and not is_cancel(said) and len({one.due_ms for one in left.values()}) == 1:
            # Where to it was to be moved is not stored; all of them were due then.
            left = {}
        if left:
            raise Untrue(f"{record} leaves out {left}, which were known when it was sent")
        is_empty = not facts and not meant
        if is_empty and all(known != said for known, _ in self.outcomes):
            raise Untrue(f"{record} changes nothing, and nobody has said that before")

    def _apply(self, command_offset: int, fact: Fact) -> None:
        offset = fact.offset
        if fact.new_due_ms is None:
            del self.pending[offset]
            self.cancelled.add(offset)
            itself = CANCEL_OFFSET_HEADER, b"%d" % offset
        else:
            self.pending[offset] = self.pending[offset]._replace(due_ms=fact.new_due_ms)
            itself = RESCHEDULE_OFFSET_HEADER, b"%d" % offset
        self.outcomes.setdefault((itself, fact.new_due_ms), command_offset)
