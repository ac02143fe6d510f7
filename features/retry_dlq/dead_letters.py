"""Dead records of a retry log, and the batch that takes them to their topic; in a worker thread.

    dead record    key, value, h: 1, tw-source: orders/3/100, tw-attempt: 16, tw-dead-letter: 7:40,
                   tw-target: pay.dlq/3                            at 52, in leader epoch 4
    dead letter    key, value, h: 1, tw-source: orders/3/100, tw-attempt: 16, tw-dead: …/3/4/52

Invariants
- A batch has dead records of one target, in the order of the log, and all there are between the
  first one and the last.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from data_plane.log.log import Log
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import (
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    read_batch_header,
)
from features.delayed.fold import DEAD_HEADER
from features.delayed.originals import HEADER_BYTES
from features.retry_dlq.arrivals import encode_arrival
from features.retry_dlq.commands import DEAD_LETTER_HEADER
from features.retry_dlq.stored_form import TARGET_HEADER

# Of keys, values and headers, with one record more; looked at for them at a time.
RECORDS_BYTES_MAX: Final = 1 << 20
SCANNED_BYTES_MAX: Final = 8 << 20
RECORDS_MAX: Final = 1_000

_TAKEN_OFF: Final = frozenset({DEAD_LETTER_HEADER, TARGET_HEADER})


class DeadBatch(NamedTuple):
    """`batch` has so many dead letters for `target`, the last one dead at `last_offset`; it is
    empty when there are none before `next_offset`."""

    batch: bytearray
    target: tuple[str, int]
    letters_count: int
    last_offset: int
    next_offset: int


def read_dead_letters(
    log: Log, offset: int, end_offset: int, topic_id: bytes, count_max: int = RECORDS_MAX
) -> DeadBatch:
    """The first of those in [offset, end_offset), at most so many; `topic_id` is the
    subscription's. Raises LogError, InvalidRecords."""
    records: list[NewRecord] = []
    target: bytes | None = None
    size = scanned = compression = 0
    last_offset = -1
    while offset < end_offset and scanned < SCANNED_BYTES_MAX:
        read = log.read_held(offset, max_offset=end_offset)
        data = b"".join(bytes(buffer) for buffer in read.buffers)
        if not data:
            offset = end_offset
            break
        header = read_batch_header(data, 0)
        scanned += len(data)
        dead = decode_batch(data, 0) if header.attributes & HIDDEN_FLAG else []
        for record in dead:
            headers = dict(record.headers)
            if record.offset < offset or DEAD_LETTER_HEADER not in headers:
                continue
            goes_to = headers[TARGET_HEADER]
            is_full = size >= RECORDS_BYTES_MAX or len(records) >= count_max
            if is_full or (target is not None and goes_to != target):
                return _made(records, target, compression, last_offset, record.offset)
            target, last_offset = goes_to, record.offset
            compression = header.compression
            epoch = header.partition_leader_epoch
            records.append(
                _letter(record, encode_arrival(topic_id, log.partition, epoch, record.offset))
            )
            size += _size_of(record)
        offset = max(header.next_offset, offset + 1)
    return _made(records, target, compression, last_offset, offset)


def _made(
    records: list[NewRecord],
    target: bytes | None,
    compression: int,
    last_offset: int,
    next_offset: int,
) -> DeadBatch:
    if target is None:
        return DeadBatch(bytearray(), ("", 0), 0, last_offset, next_offset)
    topic, _, index = target.decode().rpartition("/")
    batch = build_batch(records, compression=compression)
    return DeadBatch(batch, (topic, int(index)), len(records), last_offset, next_offset)


def _letter(record: Record, arrival: bytes) -> NewRecord:
    headers = (
        *(one for one in record.headers if one[0] not in _TAKEN_OFF),
        (DEAD_HEADER, arrival),
    )
    return NewRecord(record.timestamp, record.key, record.value, headers)


def _size_of(record: Record) -> int:
    headers = sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
