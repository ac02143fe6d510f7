"""Judges what clients were told and what they saw against what the log says afterwards. Pure.

Writers are idempotent producers that number their messages per partition from 0 on. Readers are
members of one consumer group over the same topic. Whatever happened to the brokers in between:

Writers, per writer and partition
- nothing acknowledged is missing, and each is at the offset it was acknowledged with;
- no number is there twice, and they stand in the order they were sent;
- no number is there that was never sent.

Readers, per partition
- what a reader was given stands in the log, at that offset (nothing was shown that vanished later);
- while a reader holds a partition it gets every offset, one after the other;
- a partition is taken up no later than where it was left (nothing is passed over) and no earlier
  than what was committed and acknowledged (no commit is lost);
- in the end everything in the log has been read.

Offsets of a plain topic have no gaps, which makes "one after the other" a strict check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PROBLEMS_MAX = 20
"""As many as a person reads."""

UNKNOWN_OFFSET = -1
"""Acknowledged, but the broker did not say where."""


class Message(NamedTuple):
    """What a record says of itself: who wrote it, and as which of his to this partition."""

    writer: int
    number: int


@dataclass(slots=True)
class WriterHistory:
    """`sent[p]` numbers 0 … n-1 went to partition p; `acknowledged[p][number]` is the offset."""

    writer: int
    sent: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))


class Assigned(NamedTuple):
    """A reader got partitions."""

    reader: str
    partitions: tuple[int, ...]


class Delivered(NamedTuple):
    """A reader was given a record."""

    reader: str
    partition: int
    offset: int
    message: Message


class Committed(NamedTuple):
    """A reader's commit was acknowledged; `offset` is the next one to read."""

    reader: str
    partition: int
    offset: int


ReaderEvent = Assigned | Delivered | Committed

Log = Mapping[int, Sequence[Message]]
"""Partition → records; a record's index is its offset."""


def judge(writers: Sequence[WriterHistory], log: Log) -> list[str]:
    """What is wrong with the log, in words; empty when nothing is."""
    problems: list[str] = []
    by_id = {writer.writer: writer for writer in writers}
    for partition, records in sorted(log.items()):
        last: dict[int, int] = {}
        for offset, message in enumerate(records):
            where = f"partition {partition} offset {offset}"
            writer = by_id.get(message.writer)
            if writer is None or message.number >= writer.sent.get(partition, 0):
                problems.append(f"{where}: {message} was never sent")
            elif message.number <= last.get(message.writer, -1):
                problems.append(
                    f"{where}: number {message.number} of writer {message.writer} follows its "
                    f"{last[message.writer]}: repeated or out of order"
                )
            last[message.writer] = message.number
    for writer in writers:
        for partition, offsets in sorted(writer.acknowledged.items()):
            problems += _unkept_promises(writer.writer, partition, offsets, log[partition])
    return problems[:PROBLEMS_MAX]


def _unkept_promises(
    writer: int, partition: int, offsets: Mapping[int, int], records: Sequence[Message]
) -> list[str]:
    problems = []
    present = {message.number for message in records if message.writer == writer}
    for number, offset in sorted(offsets.items()):
        if offset == UNKNOWN_OFFSET:
            if number not in present:
                problems.append(
                    f"partition {partition}: number {number} of writer {writer} was acknowledged, "
                    "and there is nothing of it"
                )
            continue
        found = records[offset] if 0 <= offset < len(records) else None
        if found != Message(writer, number):
            problems.append(
                f"partition {partition}: number {number} of writer {writer} was acknowledged at "
                f"offset {offset}, where there is {found or 'nothing'}"
            )
    return problems


def judge_readers(events: Sequence[ReaderEvent], log: Log) -> list[str]:
    """What is wrong with what the readers saw. `events` of all readers in the order of time."""
    problems: list[str] = []
    # Per partition: what the next offset in this assignment must be; None right after it began.
    expected: dict[int, int | None] = {}
    owner: dict[int, str] = {}
    read_up_to: dict[int, int] = defaultdict(int)
    committed: dict[int, int] = defaultdict(int)
    for event in events:
        match event:
            case Assigned(reader, partitions):
                for partition in partitions:
                    owner[partition] = reader
                    expected[partition] = None
            case Committed(_, partition, offset):
                committed[partition] = max(committed[partition], offset)
            case Delivered(reader, partition, offset, _):
                if owner.get(partition) != reader:
                    # A reader that does not know yet that it lost the partition. What it is
                    # given is still held against the log.
                    problems += _wrong_record(log, event)
                    continue
                want = expected[partition]
                if want is None:
                    problems += _wrong_start(event, read_up_to[partition], committed[partition])
                elif offset != want:
                    problems.append(
                        f"partition {partition}: {reader} was given offset {offset} instead of "
                        f"{want}"
                    )
                problems += _wrong_record(log, event)
                expected[partition] = offset + 1
                read_up_to[partition] = max(read_up_to[partition], offset + 1)
    for partition, records in sorted(log.items()):
        if read_up_to[partition] < len(records):
            problems.append(
                f"partition {partition}: read up to {read_up_to[partition]} of {len(records)}"
            )
    return problems[:PROBLEMS_MAX]


def _wrong_record(log: Log, event: Delivered) -> list[str]:
    records = log[event.partition]
    found = records[event.offset] if event.offset < len(records) else None
    if found == event.message:
        return []
    return [
        f"partition {event.partition} offset {event.offset}: {event.reader} was given "
        f"{event.message}, and the log has {found or 'nothing'} there"
    ]


def _wrong_start(event: Delivered, read_up_to: int, committed: int) -> list[str]:
    where = f"partition {event.partition}: {event.reader} began at {event.offset}"
    if event.offset > read_up_to:
        return [f"{where}, although nobody had read from {read_up_to} on"]
    if event.offset < committed:
        return [f"{where}, although {committed} was committed"]
    return []
