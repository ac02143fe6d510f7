"""Commands: records that change what becomes of pending messages, as they are produced and stored.

    produced   tw-cancel: order-7                          tw-reschedule-offset: 100, tw-delay: 2h
    stored     tw-cancel: order-7                          tw-reschedule-offset: 100
               tw-cancelled: 100:1798786800000             tw-moved: 100:1798786800000:1798794000000
               tw-cancelled: 140:1798786900000             tw-judged-at: 1798786800000
               tw-judged-at: 1798786800000

What is stored says by itself what follows: which offsets, and when they were due. So a fold that
applies it looks nothing up. A command that changes nothing, since it was said before, says nothing.

Invariants
- Only the leader stores CANCELLED_HEADER, MOVED_HEADER and JUDGED_AT_HEADER: the rules for headers
  know none of them.
- A stored command has no TIME_HEADERS, so nobody takes it for a message.

Deliberately absent: whether there are such messages, and what becomes of a command (judgement.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from features.delayed.times import DELAY_HEADER, DELIVER_AT_HEADER

CANCEL_HEADER: Final = b"tw-cancel"
CANCEL_OFFSET_HEADER: Final = b"tw-cancel-offset"
RESCHEDULE_HEADER: Final = b"tw-reschedule"
RESCHEDULE_OFFSET_HEADER: Final = b"tw-reschedule-offset"
COMMAND_HEADERS: Final = frozenset(
    {CANCEL_HEADER, CANCEL_OFFSET_HEADER, RESCHEDULE_HEADER, RESCHEDULE_OFFSET_HEADER}
)
# What their names begin with.
COMMAND_PREFIXES: Final = (CANCEL_HEADER, RESCHEDULE_HEADER)
ID_HEADER: Final = b"tw-id"
MESSAGE_ID_BYTES_MAX: Final = 64

CANCELLED_HEADER: Final = b"tw-cancelled"
MOVED_HEADER: Final = b"tw-moved"
JUDGED_AT_HEADER: Final = b"tw-judged-at"

_OF_RESCHEDULES: Final = frozenset({RESCHEDULE_HEADER, RESCHEDULE_OFFSET_HEADER})
_OF_OFFSETS: Final = frozenset({CANCEL_OFFSET_HEADER, RESCHEDULE_OFFSET_HEADER})
_TIMES: Final = frozenset({DELAY_HEADER, DELIVER_AT_HEADER})
_OFFSET: Final = re.compile(rb"[0-9]{1,19}")
_OFFSET_END: Final = 1 << 63

Headers = Sequence[tuple[bytes, bytes | None]]


class Command(NamedTuple):
    """What a record asks for: about the message at `offset`, or all pending ones with `message_id`.
    They are cancelled or, with `due_ms`, due then."""

    offset: int | None
    message_id: bytes
    due_ms: int | None

    @property
    def header(self) -> tuple[bytes, bytes]:
        """As the record says it."""
        if self.offset is None:
            key = CANCEL_HEADER if self.due_ms is None else RESCHEDULE_HEADER
            return key, self.message_id
        key = CANCEL_OFFSET_HEADER if self.due_ms is None else RESCHEDULE_OFFSET_HEADER
        return key, b"%d" % self.offset


class Fact(NamedTuple):
    """The message at `offset`, which was due at `due_ms`, is cancelled or, with `new_due_ms`, due
    then. `message_id` is what it has in `tw-id` if it is moved, or empty."""

    offset: int
    due_ms: int
    new_due_ms: int | None = None
    message_id: bytes = b""


def id_problem(value: bytes | None) -> str | None:
    """What is wrong with a message's id; None when nothing."""
    if not value:
        return "an id is not empty"
    if len(value) > MESSAGE_ID_BYTES_MAX:
        return f"the id has {len(value)} bytes, more than {MESSAGE_ID_BYTES_MAX}"
    return None


def command_problem(headers: Headers) -> str | None:
    """What is wrong with a record with some of COMMAND_HEADERS, of which these are all that begin
    with `tw-` but tags, each sound in itself; None when nothing."""
    commands = [(key, value) for key, value in headers if key in COMMAND_HEADERS]
    key, value = commands[0]
    name = key.decode()
    if len(commands) > 1:
        return f"header {name}: a record has one command"
    if key not in _OF_OFFSETS:
        problem = id_problem(value)
        if problem is not None:
            return f"header {name}: {problem}"
    elif value is None or _OFFSET.fullmatch(value) is None or int(value) >= _OFFSET_END:
        return f"header {name}: it names an offset, in decimal"
    has_time = any(other in _TIMES for other, _ in headers)
    if has_time and key not in _OF_RESCHEDULES:
        return f"header {name}: what is cancelled has no time to be delivered at"
    if not has_time and key in _OF_RESCHEDULES:
        return f"header {name}: it needs tw-delay or tw-deliver-at"
    if any(other == ID_HEADER for other, _ in headers):
        return f"header {name}: a command has no {ID_HEADER.decode()} of its own"
    return None


def command_of(headers: Headers) -> Command | None:
    """The command of a record that has no problem, with a time in milliseconds; None for a
    message."""
    for key, value in headers:
        if key in COMMAND_HEADERS:
            assert value is not None
            due_ms = None
            if key in _OF_RESCHEDULES:
                due_ms = next(int(time or b"") for name, time in headers if name in _TIMES)
            if key in _OF_OFFSETS:
                return Command(int(value), b"", due_ms)
            return Command(None, value, due_ms)
    return None


def encode_fact(fact: Fact) -> tuple[bytes, bytes]:
    """The header that says it."""
    if fact.new_due_ms is None:
        return CANCELLED_HEADER, b"%d:%d" % (fact.offset, fact.due_ms)
    value = b"%d:%d:%d" % (fact.offset, fact.due_ms, fact.new_due_ms)
    if fact.message_id:
        value += b":" + fact.message_id.hex().encode()
    return MOVED_HEADER, value


def decode_fact(value: bytes | None) -> Fact:
    """What a header says that a leader has stored."""
    assert value is not None
    offset, due_ms, *moved = value.split(b":")
    if not moved:
        return Fact(int(offset), int(due_ms))
    message_id = bytes.fromhex(moved[1].decode()) if len(moved) > 1 else b""
    return Fact(int(offset), int(due_ms), int(moved[0]), message_id)
