"""Dead letters of a log: what an operation moves next, and the batch that moves it; in a worker
thread.

    dead letter   key, value, h: 1, tw-source: orders/3/100, tw-attempt: 16, tw-reason: timeout, …,
                  tw-dead: <subscription>/3/4/52                           at 120, of pay.dlq
    redriven      key, value, h: 1, tw-source: orders/3/100, tw-attempt: 1, tw-redriven: 1,
                  tw-dead: <pay.dlq>/3/7/900/120                         of operation 900 in epoch 7

To a topic that is no subscription it goes without `tw-attempt`.

Invariants
- A plan has letters of one target, in the order of the log, and all that the operation is about
  between its first and its last one.
- What is planned is below the high watermark of the moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from data_plane.broker.dead_letter_operations import Counts
from data_plane.log.errors import OffsetOutOfRange
from data_plane.log.log import Log
from data_plane.wire.kernel_types import FACTS_FLAG, HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    iter_batch_headers,
    unpacked_records,
)
from features.delayed.fold import DEAD_HEADER, PRODUCED_AT_HEADER, SOURCE_HEADER
from features.delayed.hidden import shown
from features.delayed.originals import HEADER_BYTES
from features.redrive.marks import Marks, bits_of
from features.redrive.matching import Choice
from features.redrive.operations import Operation, Plan
from features.retry_dlq.arrivals import encode_arrival, read_arrival
from features.retry_dlq.commands import CONSUMER_HEADER, EXCEPTION_HEADER, REASON_HEADER
from features.retry_dlq.stored_form import (
    ATTEMPT_HEADER,
    FAILED_HEADER,
    FIRST_FAILED_HEADER,
    REDRIVEN_HEADER,
)

READ_BYTES: Final = 1 << 20
# Of keys, values and headers, with one record more; looked at for them at a time.
RECORDS_BYTES_MAX: Final = 1 << 20
SCANNED_BYTES_MAX: Final = 8 << 20
RECORDS_MAX: Final = 1_000
# What a step says of, in bits: so many offsets from the first one to the last.
SPAN_MAX: Final = 1 << 16

_TAKEN_OFF: Final = frozenset(
    {
        DEAD_HEADER,
        ATTEMPT_HEADER,
        FAILED_HEADER,
        REASON_HEADER,
        EXCEPTION_HEADER,
        CONSUMER_HEADER,
        REDRIVEN_HEADER,
    }
)
_OF_DEAD: Final = frozenset(
    {SOURCE_HEADER, ATTEMPT_HEADER, PRODUCED_AT_HEADER, FIRST_FAILED_HEADER}
)


class Target(NamedTuple):
    """A partition of a topic, or of a subscription, by the id in hex."""

    topic: str
    partition: int


class Letters(NamedTuple):
    """In the order of the log; `compression` is that of the last one's batch."""

    records: list[Record]
    compression: int


class Found(NamedTuple):
    """What comes next: `letters` go to `target`, if there are any, and `counts` are as of then, but
    for those. It has been looked at up to `cursor`."""

    cursor: int
    counts: Counts
    target: Target | None
    letters: Letters

    def plan(self) -> Plan | None:
        if self.target is None:
            return None
        return Plan(*self.target, bits_of(one.offset for one in self.letters.records), -1)


class Outlook(NamedTuple):
    """By what letters are looked for: up to where the log is committed, how many at a time, and of
    how many partitions the topic is that they go to (0: of none, as they go back, or nowhere).
    `redriven`, `purged`: what was done before."""

    high_watermark: int
    count_max: int
    target_partitions: int
    redriven: Marks
    purged: Marks


def find_letters(log: Log, operation: Operation, choice: Choice, outlook: Outlook) -> Found:
    """The first of those behind the operation's cursor. Raises LogError, InvalidRecords."""
    order = operation.order
    end_offset = order.end_offset
    looked, _, over_limit, no_origin = operation.counts
    letters: list[Record] = []
    target: Target | None = None
    size = compression = 0
    cursor = operation.cursor
    places = _records(log, cursor, end_offset, outlook.high_watermark)
    for cursor, record, header in places:
        if record is None:
            continue
        offset = record.offset
        if letters and offset - letters[0].offset >= SPAN_MAX:
            cursor = offset
            break
        if not choice.chooses(record, outlook.redriven, outlook.purged):
            looked += 1
            continue
        found = _target_of(operation, record, header, log.partition, outlook)
        if found is None:
            looked, no_origin = looked + 1, no_origin + 1
        elif not order.is_purge and _is_over(_limit(operation, found), record):
            looked, over_limit = looked + 1, over_limit + 1
        elif target is not None and found != target:
            cursor = offset
            break
        else:
            looked, target = looked + 1, found
            letters.append(record)
            compression = header.compression
            size += size_of(record)
            if len(letters) >= outlook.count_max or size >= RECORDS_BYTES_MAX:
                cursor = offset + 1
                break
    else:
        if not letters and cursor == operation.cursor:
            # Nothing is there any more.
            cursor = end_offset
    counts = operation.counts._replace(looked=looked, over_limit=over_limit, no_origin=no_origin)
    return Found(cursor, counts, target, Letters(letters, compression))


def read_letters(log: Log, operation: Operation, high_watermark: int) -> Letters:
    """Those of its plan that are still there. Raises LogError, InvalidRecords."""
    plan = operation.plan
    assert plan is not None
    offsets = plan.letters.offsets()
    wanted = set(offsets)
    found = []
    compression = 0
    for _, record, header in _records(
        log, offsets[0], offsets[-1] + 1, high_watermark, is_bounded=False
    ):
        if record is not None and record.offset in wanted:
            found.append(record)
            compression = header.compression
    return Letters(found, compression)


def redriven_batch(log: Log, operation: Operation, letters: Letters, wall_ms: int) -> bytearray:
    """The batch that brings these to where they go."""
    is_back = not operation.order.target
    records = []
    for record in letters.records:
        count = b"%d" % (redriven_count(record) + 1)
        dead = encode_arrival(log.topic_id.bytes, log.partition, *operation.number, record.offset)
        headers = [one for one in record.headers if one[0] not in _TAKEN_OFF]
        if is_back:
            headers.append((ATTEMPT_HEADER, b"1"))
        headers += [(REDRIVEN_HEADER, count), (DEAD_HEADER, dead)]
        records.append(NewRecord(wall_ms, record.key, record.value, tuple(headers)))
    return build_batch(records, compression=letters.compression)


def redriven_count(record: Record) -> int:
    """How often a letter was redriven; what is no number was put there by nobody who counts."""
    value = dict(record.headers).get(REDRIVEN_HEADER) or b""
    return int(value) if value.isdigit() and len(value) < 10 else 0


def size_of(record: Record) -> int:
    headers = sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _is_over(limit: int, record: Record) -> bool:
    return limit > 0 and redriven_count(record) >= limit


def _limit(operation: Operation, target: Target) -> int:
    order = operation.order
    return order.limit if order.target else order.subscriptions[target.topic]


def _target_of(
    operation: Operation, record: Record, header: BatchHeader, partition: int, outlook: Outlook
) -> Target | None:
    """None for one that came from no subscription that it could go back to."""
    order = operation.order
    if order.is_purge:
        return Target("", 0)
    if order.target:
        return Target(order.target, partition % outlook.target_partitions)
    headers = dict(record.headers)
    is_fact = header.attributes & FACTS_FLAG
    arrival = read_arrival(headers.get(DEAD_HEADER)) if is_fact else None
    if arrival is None or len(arrival.position) != 2 or not headers.keys() >= _OF_DEAD:
        return None
    topic, _, index = arrival.origin.decode().partition("/")
    return Target(topic, int(index)) if topic in order.subscriptions else None


def _records(
    log: Log,
    offset: int,
    end_offset: int,
    high_watermark: int,
    *,
    is_bounded: bool = True,
) -> Iterator[tuple[int, Record | None, BatchHeader]]:
    """Where it has got to, the record before that, which readers see, and its batch; at the end of
    each batch a place without a record. If it is bounded it ends after some MiB."""
    scanned = 0
    offset = max(offset, log.log_start_offset)
    while offset < end_offset and not (is_bounded and scanned >= SCANNED_BYTES_MAX):
        try:
            read = log.read_cold(
                offset, READ_BYTES, max_offset=high_watermark, at_least_one_batch=True
            )
        except OffsetOutOfRange:
            if offset >= log.log_start_offset:
                raise
            # Retention, or DeleteRecords.
            offset = log.log_start_offset
            continue
        data = b"".join(bytes(buffer) for buffer in read.buffers)
        if not data:
            return
        scanned += len(data)
        for header in iter_batch_headers(data, 0, len(data), incomplete_tail=True):
            if header.base_offset >= end_offset:
                yield end_offset, None, header
                return
            for record in _shown_records(data, header):
                if offset <= record.offset < end_offset:
                    yield record.offset + 1, record, header
            offset = max(offset, header.next_offset)
            yield min(offset, end_offset), None, header


def _shown_records(data: bytes, header: BatchHeader) -> list[Record]:
    if header.is_control:
        return []
    if not header.attributes & HIDDEN_FLAG:
        return decode_batch(data, header.position)
    selection = shown(*unpacked_records(data, header), header.record_count)
    if selection is False:
        return []
    records = decode_batch(data, header.position)
    if selection is True:
        return records
    return [one for one, is_shown in zip(records, selection, strict=True) if is_shown]
