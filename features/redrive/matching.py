"""Which dead letters an operation is about, for a worker thread.

A letter says its reason and its exception in headers, its id in `tw-id`, its tags in `tw-tag`; its
time is that of its death. What was redriven or purged before is not chosen, unless `again` asks for
what was redriven.
"""

from __future__ import annotations

from data_plane.broker.dead_letter_operations import Selection
from data_plane.wire.records import Record
from features.delayed.commands import ID_HEADER, MESSAGE_ID_BYTES_MAX
from features.filtering.language import InvalidFilter, parse_filter
from features.filtering.matching import Matcher
from features.filtering.tags import TAG_HEADER, join_tags
from features.redrive.marks import Marks
from features.retry_dlq.commands import (
    EXCEPTION_HEADER,
    NAME_BYTES_MAX,
    REASON_BYTES_MAX,
    REASON_HEADER,
)

# Offsets and ids that a selection names.
NAMED_MAX = 1_000


def problem_of(selection: Selection) -> str | None:
    """What is wrong with it, in words for whoever asks; None when nothing."""
    if not selection.is_all and not selection.conditions_count:
        return "it is empty, which means nothing: give a condition, or ask for all"
    if selection.is_all and selection.conditions_count:
        return "all, and conditions: give one or the other"
    for name, named in (("offsets", selection.offsets), ("ids", selection.ids)):
        if len(named) > NAMED_MAX:
            return f"{name}: {len(named)} of them; give at most {NAMED_MAX}"
    for name, text, bytes_max in (
        ("reason", selection.reason, REASON_BYTES_MAX),
        ("exception", selection.exception, NAME_BYTES_MAX),
    ):
        if len(text.encode()) > bytes_max:
            return f"{name}: more than {bytes_max} bytes, which no letter has"
    if any(offset < 0 for offset in selection.offsets):
        return "offsets: none is less than 0"
    if any(not 1 <= len(one.encode()) <= MESSAGE_ID_BYTES_MAX for one in selection.ids):
        return f"ids: each has 1 to {MESSAGE_ID_BYTES_MAX} bytes"
    if selection.filter:
        try:
            parse_filter(selection.filter)
        except InvalidFilter as error:
            return f"filter: {error}"
    return None


class Choice:
    """A selection made ready for use. It has no problem."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._matcher = Matcher(parse_filter(selection.filter)) if selection.filter else None
        self._offsets = frozenset(selection.offsets)
        self._ids = frozenset(one.encode() for one in selection.ids)
        self._reason = selection.reason.casefold()
        self._exception = selection.exception

    def chooses(self, record: Record, redriven: Marks, purged: Marks) -> bool:
        """Whether a letter that readers see is one of these, by what was done with it before."""
        wanted, offset = self._selection, record.offset
        if offset in purged or (offset in redriven and not wanted.again):
            return False
        if self._offsets and offset not in self._offsets:
            return False
        if not _is_within(record.timestamp, wanted.from_ms, wanted.until_ms):
            return False
        if not _is_within(offset, wanted.from_offset, wanted.until_offset):
            return False
        return self._says(dict(record.headers)) and self._is_tagged(record)

    def _says(self, headers: dict[bytes, bytes | None]) -> bool:
        if self._ids and headers.get(ID_HEADER) not in self._ids:
            return False
        if self._reason and self._reason not in _text(headers, REASON_HEADER).casefold():
            return False
        if not self._exception:
            return True
        exception = _text(headers, EXCEPTION_HEADER)
        return self._exception in (exception, exception.rpartition(".")[2])

    def _is_tagged(self, record: Record) -> bool:
        if self._matcher is None:
            return True
        tags = [value or b"" for key, value in record.headers if key == TAG_HEADER]
        return self._matcher.passes(join_tags(tags))


def _is_within(number: int, start: int | None, end: int | None) -> bool:
    return (start is None or number >= start) and (end is None or number < end)


def _text(headers: dict[bytes, bytes | None], name: bytes) -> str:
    return (headers.get(name) or b"").decode(errors="replace")
