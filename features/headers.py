"""Headers of records that mean something to the broker: those that begin with `tw-`.

A topic reads them when it was created with `tidewheel.headers=true`; on all others they are plain
headers like any other. Where they are read, a header of that prefix is one of these, with a value
that makes sense, or the whole batch is refused, so that nothing is stored which means something
else than its producer thinks.

- `tw-tag`, up to TAGS_PER_RECORD_MAX of them: a tag (filtering/tags.py).
- `tw-id`: a message id of up to 64 bytes, once (dedup).
- `tw-delay` or `tw-deliver-at`, one of them and once: when the message is to be delivered
  (delayed/times.py). It is hidden until then.
- `tw-cancel`, `tw-cancel-offset`, `tw-reschedule`, `tw-reschedule-offset`: a command about messages
  that are hidden (delayed/commands.py). Readers never see it.
- BROKER_HEADERS are set by the broker. From clients, who forward or mirror what they have read,
  they are plain data.
- NACK_HEADERS say that a message failed, and go to the subscription that delivered it
  (retry_dlq/commands.py).

Deliberately absent: what the headers do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence, Set
from itertools import groupby
from operator import itemgetter
from typing import Final

from data_plane.broker.config.definition import ConfigDefinition, Value, define
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log.file_system import Buffer
from data_plane.log.record_rules import HidingTerms, RecordRules
from data_plane.wire.kernel import map_header_sets, scan_headers
from data_plane.wire.records import BatchHeader
from features.dedup.window import WINDOW_PROPERTY
from features.delayed.commands import COMMAND_HEADERS, ID_HEADER, command_problem, id_problem
from features.delayed.hidden import (
    TIME_HEADERS,
    commands_in,
    hidden_form,
    hides,
    time_problem,
)
from features.filtering.tags import (
    TAG_BYTES_MAX,
    TAG_HEADER,
    TAGS_BYTES_MAX,
    TAGS_PER_RECORD_MAX,
    TOO_MANY,
    split_tags,
    tag_problem,
)

PREFIX: Final = b"tw-"
BROKER_HEADERS: Final = frozenset(
    {
        b"tw-source",
        b"tw-attempt",
        b"tw-produced-at",
        b"tw-reason",
        b"tw-exception",
        b"tw-consumer",
        b"tw-first-failed-at",
        b"tw-failed-at",
        b"tw-fired",
        b"tw-dead",
        b"tw-redriven",
    }
)
NACK_HEADERS: Final = frozenset(
    {
        b"tw-nack",
        b"tw-dead-letter",
    }
)
# Sets of tags that were found sound, up to so many bytes each.
REMEMBERED_MAX: Final = 4096
REMEMBERED_BYTES_MAX: Final = 512
# Other headers of the prefix in a batch: objects are made of them.
OTHER_HEADERS_MAX: Final = 100_000
# Problems of a batch that are told; a client reads no more.
PROBLEMS_MAX: Final = 1_000

_NUMBER = struct.Struct(">i")
_TOO_MANY_TAGS = (
    f"header tw-tag: the record has more than {TAGS_PER_RECORD_MAX} tags, or larger ones than "
    f"{TAG_BYTES_MAX} bytes"
)

HEADERS_DEFINITION: Final[ConfigDefinition] = define(
    HEADERS_PROPERTY,
    "BOOLEAN",
    "false",
    "Whether headers of records that begin with `tw-` are read: tags (`tw-tag`), message ids "
    "(`tw-id`), when to deliver (`tw-delay`, `tw-deliver-at`), and commands about that "
    "(`tw-cancel`, `tw-reschedule`, …). Records with others of that "
    "prefix, or with values that make no sense, are refused then. Set when the topic is created.",
)


def make_rules(value_of: Callable[[str], Value]) -> RecordRules | None:
    """For topics that read headers."""
    if value_of(HEADERS_PROPERTY) is not True:
        return None
    window_ms = value_of(WINDOW_PROPERTY)
    assert isinstance(window_ms, int)
    return HeaderRules(window_ms) if window_ms else HEADER_RULES


class HeaderRules:
    """See the module. Those with the same window are equal: a log's configuration has not changed
    when it is made anew."""

    takes_commands = False

    def __init__(self, dedup_window_ms: int = 0) -> None:
        self.dedup_window_ms = dedup_window_ms
        # All of them sound; what a set says depends on nothing else.
        self._sound: dict[bytes, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeaderRules) and self.dedup_window_ms == other.dedup_window_ms

    def __hash__(self) -> int:
        return hash(self.dedup_window_ms)

    def has_ids(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return bool(scan_headers(buf, start, end, record_count, ID_HEADER, found_max=1))

    def problems(
        self, buf: Buffer, start: int, end: int, record_count: int
    ) -> Sequence[tuple[int, str]]:
        others = scan_headers(
            buf, start, end, record_count, PREFIX, TAG_HEADER, OTHER_HEADERS_MAX + 1
        )
        if len(others) > OTHER_HEADERS_MAX:
            index, _, _ = others[OTHER_HEADERS_MAX]
            return [(index, f"more than {OTHER_HEADERS_MAX} headers of the batch begin with tw-")]
        found = _other_problems(others)
        reasons: list[str] = []

        def number_of(stored: bytes) -> int:
            reason = tags_problem(stored)
            if reason is None:
                if len(stored) <= REMEMBERED_BYTES_MAX:
                    if len(self._sound) >= REMEMBERED_MAX:
                        self._sound = {}
                    self._sound[stored] = 0
                return 0
            if len(reasons) < PROBLEMS_MAX:
                reasons.append(reason)
            return len(reasons)

        numbers = map_header_sets(
            buf,
            start,
            end,
            record_count,
            TAG_HEADER,
            self._sound,
            number_of,
            TAGS_PER_RECORD_MAX,
            TAGS_BYTES_MAX,
        )
        if numbers is not None and (reasons or TOO_MANY in numbers):
            found += _tag_problems(numbers, reasons)
            found.sort(key=lambda problem: problem[0])
        return found

    def hides(self, buf: Buffer, start: int, end: int, record_count: int) -> bool:
        return hides(buf, start, end, record_count)

    def commands_in(self, buf: Buffer, start: int, end: int, record_count: int) -> Set[int]:
        return commands_in(buf, start, end, record_count)

    def hidden_form(
        self, header: BatchHeader, buf: Buffer, start: int, end: int, terms: HidingTerms
    ) -> bytearray:
        return hidden_form(header, buf, start, end, terms)


def _tag_problems(numbers: bytearray, reasons: Sequence[str]) -> list[tuple[int, str]]:
    """Of each record that is at fault, by its number: that of its reason, or -1."""
    problems = []
    for index, (number,) in enumerate(_NUMBER.iter_unpack(numbers)):
        if number:
            problems.append((index, _TOO_MANY_TAGS if number < 0 else reasons[number - 1]))
            if len(problems) >= PROBLEMS_MAX:
                break
    return problems


def tags_problem(stored: bytes) -> str | None:
    """What is wrong with the tags of a record, which stand as tags.py says; None when nothing."""
    for tag in split_tags(stored):
        reason = tag_problem(tag)
        if reason is not None:
            return f"header tw-tag: {reason}"
    return None


def _other_problems(headers: Sequence[tuple[int, bytes, bytes | None]]) -> list[tuple[int, str]]:
    """Of records with these headers, in their order."""
    problems: list[tuple[int, str]] = []
    for index, of_record in groupby(headers, itemgetter(0)):
        found = [(key, value) for _, key, value in of_record]
        seen: set[bytes] = set()
        for key, value in found:
            problem = _other_problem(key, value, seen)
            seen.add(key)
            if problem is not None:
                problems.append((index, f"header {shown(key)}: {problem}"))
                break
        else:
            if any(key in COMMAND_HEADERS for key, _ in found):
                problem = command_problem(found)
                problems += [] if problem is None else [(index, problem)]
        if len(problems) >= PROBLEMS_MAX:
            break
    return problems


def _other_problem(key: bytes, value: bytes | None, seen: set[bytes]) -> str | None:
    """What is wrong with a header of a record that has `seen` before it."""
    if key == ID_HEADER:
        return "a record has one id" if key in seen else id_problem(value)
    if key in TIME_HEADERS:
        if not seen.isdisjoint(TIME_HEADERS):
            return "a record has one time to be delivered at"
        return time_problem(key, value)
    if key in NACK_HEADERS:
        return (
            "it goes to the subscription that delivered the message, to partition 2p + 1, and to "
            "no other topic"
        )
    if key in COMMAND_HEADERS or key in BROKER_HEADERS:
        return None
    return "no header of the prefix tw- has this name"


def shown(key: bytes) -> str:
    """A header's name for people, who may have sent anything."""
    text = key.decode(errors="backslashreplace")
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 100 else text[:100] + "…"


HEADER_RULES: Final = HeaderRules()
