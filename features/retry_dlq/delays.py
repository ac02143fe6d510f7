"""What is pending of a retry log: a copy until it is fired, as delayed messages are.

    stored       tw-nack: 6:100, tw-deliver-at: …, tw-source: orders/3/100, tw-attempt: 2     hidden
    delivered    tw-fired: 40, tw-source: orders/3/100, tw-attempt: 2                         at 52

Deliberately absent: what was nacked (nacks.py), and firing (features/delayed/firing.py).
"""

from __future__ import annotations

from typing import Final

from data_plane.log.fold import FoldContext
from data_plane.wire.records import NewRecord, Record
from features.delayed.commands import Headers
from features.delayed.fold import DelayedMessages
from features.delayed.names import DUE_MAX_MS
from features.delayed.times import DELIVER_AT_HEADER, deliver_at_ms
from features.retry_dlq.commands import NACK_HEADER
from features.retry_dlq.nacks import Nacks
from features.retry_dlq.stored_form import FIRED_HEADER

_TAKEN_OFF: Final = frozenset({NACK_HEADER, DELIVER_AT_HEADER})


class RetryDelays(DelayedMessages):
    """The fold of one retry log."""

    # Its value is the copy's offset; in `tw-source` stands that of the record in the source.
    fact_header = FIRED_HEADER

    def _apply_record(self, offset: int, headers: Headers) -> None:
        # Nobody cancels a copy, and ids are the source's.
        for key, value in headers:
            if key == DELIVER_AT_HEADER:
                self.pending.add(min(deliver_at_ms(value), DUE_MAX_MS), offset)

    def delivered(self, original: Record, wall_ms: int) -> NewRecord:
        headers = (
            *(header for header in original.headers if header[0] not in _TAKEN_OFF),
            (FIRED_HEADER, b"%d" % original.offset),
        )
        return NewRecord(wall_ms, original.key, original.value, headers)


def _is_retry_log(context: FoldContext) -> bool:
    rules = context.config.record_rules
    return rules is not None and rules.takes_commands


def make_delays(context: FoldContext) -> RetryDelays | None:
    return RetryDelays(context) if _is_retry_log(context) else None


def make_nacks(context: FoldContext) -> Nacks | None:
    return Nacks(context) if _is_retry_log(context) else None
