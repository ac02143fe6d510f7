"""What becomes of commands: cancelled, moved, done before, or refused and why.

    by offset   pending? ─► cancelled, or moved to the new time
                else said before? ─► done
                else a delayed message once? ─► too late, or else unknown
    by id       those of its messages that are pending ─► cancelled, or moved
                else said before? ─► done
                else any of that id found? ─► too late, or else unknown

Commands of a batch are judged in their order, each by what those before it have done. They know
nothing of the messages of their own batch, which are stored with them.

Pure: what it goes by comes from a `Messages` port.

Invariants
- A batch is judged as a whole or refused, with the records at fault named.
- A fact speaks of a message that is pending, by what is known and the facts before it.

Deliberately absent: reading (stored_messages.py), and whether things are still so when the facts
are stored (judging.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from data_plane.log.errors import AppendError
from data_plane.wire.errors import ErrorCode
from features.delayed.commands import Command, Fact
from features.delayed.names import FOUND_MAX
from features.delayed.outcomes import outcome_of

# Of a batch, whose messages are looked up one after the other.
COMMANDS_MAX: Final = 10_000
# All commands of a batch together; each message stands in the stored batch.
FACTS_MAX: Final = 20_000
# Records that are named in a refusal; a client reads no more.
PROBLEMS_MAX: Final = 1_000

_UNKNOWN_OFFSET: Final = "unknown: there is no delayed message at this offset"
_UNKNOWN_ID: Final = "unknown: no pending message has this id"
_DELIVERED: Final = "too late: the message is pending no more"
_CANCELLED: Final = "too late: the message is cancelled"


class Messages(Protocol):
    """What is known of a partition's delayed messages, as of some moment."""

    def due_ms(self, offset: int) -> int | None:
        """When the message at `offset` is due; None when none is pending there. Raises AppendError
        when it cannot be read now."""

    def was_message(self, offset: int) -> bool:
        """Whether a delayed message has that offset, pending or not, as far as the log says.
        Raises AppendError."""

    def message_id(self, offset: int) -> bytes:
        """What a pending message has in `tw-id`, or empty. Raises AppendError."""

    def with_id(self, message_id: bytes) -> Sequence[int]:
        """The offsets of all pending ones with this id, and of some that are pending no more, in
        their order. Of more than FOUND_MAX not all. Raises AppendError."""

    def had_id(self, message_id: bytes) -> bool:
        """Whether a message had it that is pending no more; of those of long ago nobody knows.
        Raises AppendError."""

    def was_said(self, outcome: int) -> bool:
        """Whether something was commanded lately (outcomes.py)."""


class Refused(Exception):
    """What a command's producer is told."""


class Judged(NamedTuple):
    """What follows from each command, by the index of its record. The messages at `as_they_are` are
    due already when some commands want them to be."""

    facts: dict[int, tuple[Fact, ...]]
    as_they_are: frozenset[int] = frozenset()

    @property
    def offsets(self) -> set[int]:
        """Of all messages that are concerned."""
        changed = {fact.offset for facts in self.facts.values() for fact in facts}
        return changed | self.as_they_are


def judge(commands: Mapping[int, Command], messages: Messages) -> Judged:
    """By the index of its record each. Raises AppendError, which names those that are refused."""
    if len(commands) > COMMANDS_MAX:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(commands)} commands, more than {COMMANDS_MAX}",
        )
    so_far = _SoFar(messages)
    facts: dict[int, tuple[Fact, ...]] = {}
    facts_count = 0
    problems: list[tuple[int, str]] = []
    for index, command in commands.items():
        try:
            facts[index] = _facts(command, so_far)
        except Refused as refusal:
            name = command.header[0].decode()
            problems.append((index, f"header {name}: {refusal}"))
            continue
        so_far.take(command, facts[index])
        facts_count += len(facts[index])
        if facts_count > FACTS_MAX:
            raise AppendError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch's commands concern more than {FACTS_MAX} messages: send fewer at once",
            )
    if problems:
        index, problem = problems[0]
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"record {index}: {problem}",
            len(problems),
            lambda: problems[:PROBLEMS_MAX],
        )
    return Judged(facts, frozenset(so_far.as_they_are))


class _SoFar:
    """What is known, with what the commands before have done."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._due_ms: dict[int, int | None] = {}
        self._said: set[int] = set()
        self.as_they_are: set[int] = set()

    def take(self, command: Command, facts: Sequence[Fact]) -> None:
        if facts:
            self._said.add(outcome_of(command.header, command.due_ms))
        for fact in facts:
            self._due_ms[fact.offset] = fact.new_due_ms

    def due_ms(self, offset: int) -> int | None:
        if offset in self._due_ms:
            return self._due_ms[offset]
        return self._messages.due_ms(offset)

    def is_cancelled(self, offset: int) -> bool:
        if offset in self._due_ms:
            return self._due_ms[offset] is None
        itself = Command(offset, b"", None)
        return self._messages.was_said(outcome_of(itself.header, None))

    def was_said(self, command: Command) -> bool:
        outcome = outcome_of(command.header, command.due_ms)
        return outcome in self._said or self._messages.was_said(outcome)

    def was_message(self, offset: int) -> bool:
        return self._messages.was_message(offset)

    def with_id(self, message_id: bytes) -> Sequence[int]:
        return self._messages.with_id(message_id)

    def had_id(self, message_id: bytes) -> bool:
        return self._messages.had_id(message_id)

    def message_id(self, offset: int) -> bytes:
        return self._messages.message_id(offset)


def _facts(command: Command, so_far: _SoFar) -> tuple[Fact, ...]:
    """What follows from it; raises Refused."""
    if command.offset is None:
        offsets = so_far.with_id(command.message_id)
        if len(offsets) > FOUND_MAX:
            raise Refused(f"more than {FOUND_MAX} messages have this id: name their offsets")
    else:
        offsets = (command.offset,)
    pending = [
        (offset, due_ms) for offset in offsets if (due_ms := so_far.due_ms(offset)) is not None
    ]
    if not pending:
        if so_far.was_said(command):
            return ()
        raise Refused(_why_not(command, offsets, so_far))
    if command.due_ms is None:
        return tuple(Fact(offset, due_ms) for offset, due_ms in pending)
    so_far.as_they_are.update(offset for offset, due_ms in pending if due_ms == command.due_ms)
    return tuple(
        Fact(offset, due_ms, command.due_ms, so_far.message_id(offset))
        for offset, due_ms in pending
        if due_ms != command.due_ms
    )


def _why_not(command: Command, offsets: Sequence[int], so_far: _SoFar) -> str:
    """Nothing is pending of what it names."""
    if command.offset is None:
        if not offsets:
            return _DELIVERED if so_far.had_id(command.message_id) else _UNKNOWN_ID
    elif so_far.is_cancelled(command.offset):
        return _CANCELLED
    elif not so_far.was_message(command.offset):
        return _UNKNOWN_OFFSET
    is_cancelled = all(so_far.is_cancelled(offset) for offset in offsets)
    return _CANCELLED if is_cancelled else _DELIVERED
