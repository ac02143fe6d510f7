"""The record that is stored for a command, in the place of what the client has sent.

    copy     key, value and headers of the original, tw-nack, tw-attempt, tw-deliver-at, …
    dead     the same with tw-dead-letter, tw-target
    repeat   tw-repeat: 6:100, and nothing else

Invariants
- The batch has the client's producer, epoch and sequences, as many records, and its codec.
- All records are hidden: the batch has HIDDEN_FLAG, and in retry logs that hides all of it.
- Of the original's headers all stay but those in OF_BROKER, which say what an earlier round was.

Deliberately absent: which of the three it is (judgement.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from data_plane.wire.records import BatchHeader, Header, NewRecord
from features.delayed.fold import DEAD_HEADER, PRODUCED_AT_HEADER, SOURCE_HEADER
from features.delayed.hidden import hidden_batch
from features.delayed.times import DELAY_HEADER, DELIVER_AT_HEADER
from features.retry_dlq.commands import (
    CONSUMER_HEADER,
    DEAD_LETTER_HEADER,
    EXCEPTION_HEADER,
    NACK_HEADER,
    REASON_HEADER,
)
from features.retry_dlq.judgement import Copy, Dead, Original, Outcome, Outlook, Repeat
from features.retry_dlq.nacks import REPEAT_HEADER

ATTEMPT_HEADER: Final = b"tw-attempt"
FIRST_FAILED_HEADER: Final = b"tw-first-failed-at"
FAILED_HEADER: Final = b"tw-failed-at"
# Of a dead record: the partition that its copy goes to.
TARGET_HEADER: Final = b"tw-target"
# Of a fired record: the offset of the copy that it is the delivery of.
FIRED_HEADER: Final = b"tw-fired"
# How often it was redriven (features/redrive/letters.py).
REDRIVEN_HEADER: Final = b"tw-redriven"

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
        TARGET_HEADER,
        FIRED_HEADER,
        DEAD_HEADER,
    }
)


def stored_batch(
    header: BatchHeader, timestamps: Sequence[int], outcomes: Sequence[Outcome], outlook: Outlook
) -> bytearray:
    """The batch to store in the place of the client's with this header, whose records have these
    timestamps."""
    records = [
        _record(timestamp, outcome, outlook)
        for timestamp, outcome in zip(timestamps, outcomes, strict=True)
    ]
    return hidden_batch(header, records)


def _record(timestamp: int, outcome: Outcome, outlook: Outlook) -> NewRecord:
    position = outcome.command.position.encoded()
    match outcome:
        case Repeat():
            return NewRecord(timestamp, None, None, ((REPEAT_HEADER, position),))
        case Copy(command, original, attempt, due_ms):
            own: tuple[Header, ...] = (
                (NACK_HEADER, position),
                (DELIVER_AT_HEADER, b"%d" % due_ms),
            )
        case Dead(command, original, attempt):
            own = (
                (DEAD_LETTER_HEADER, position),
                (TARGET_HEADER, outlook.target),
                (FAILED_HEADER, b"%d" % outlook.wall_ms),
            )
    headers = (
        *(one for one in original.record.headers if one[0] not in OF_BROKER),
        *own,
        *_story(original, attempt, outlook.wall_ms),
        *command.texts,
    )
    return NewRecord(timestamp, original.record.key, original.record.value, headers)


def _story(original: Original, attempt: int, wall_ms: int) -> tuple[Header, ...]:
    first_ms = original.first_failed_at_ms
    return (
        (SOURCE_HEADER, original.source),
        (ATTEMPT_HEADER, b"%d" % attempt),
        (PRODUCED_AT_HEADER, b"%d" % original.produced_at_ms),
        (FIRST_FAILED_HEADER, b"%d" % (wall_ms if first_ms is None else first_ms)),
    )
