"""Which records are hidden, and the form in which their batch is stored.

In a batch that the leader has flagged (HIDDEN_FLAG) those are hidden that have `tw-deliver-at`, a
command's header (commands.py), or `tw-filler`; in other batches none are. `tw-delay` counts from
the leader's clock when the batch is looked at, and becomes `tw-deliver-at` there and then:

    produced   key, value, tw-tag: eu, tw-delay: 30m
    stored     key, value, tw-tag: eu, tw-deliver-at: 1798786800000     in a flagged batch

Invariants
- What is stored has its producer's id, epoch and sequence, as many records, and the codec.
- Every hidden message of a stored batch has a time that `deliver_at_ms` understands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from data_plane.log.errors import AppendError
from data_plane.log.file_system import Buffer
from data_plane.log.record_rules import HidingTerms
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import decode_records, scan_headers
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import BatchHeader, Header, NewRecord, build_batch
from features.delayed.commands import COMMAND_HEADERS, COMMAND_PREFIXES
from features.delayed.times import (
    DELAY_HEADER,
    DELAY_MS_MAX,
    DELIVER_AT_HEADER,
    InvalidTime,
    delay_ms,
    deliver_at_ms,
)

TIME_HEADERS: Final = frozenset({DELAY_HEADER, DELIVER_AT_HEADER})
# Of a record that stands for a batch of duplicates: it keeps its producer's sequence, and is hidden
# for ever (features/dedup/judgement.py).
FILLER_HEADER: Final = b"tw-filler"
# What both begin with, and few others do.
_PREFIX: Final = b"tw-de"
_CLOCK_IN_DOUBT: Final = (
    "header tw-delay: the broker's clock is too far from the metadata store's, or not compared yet"
)


def time_problem(key: bytes, value: bytes | None) -> str | None:
    """What is wrong with one of TIME_HEADERS; None when nothing."""
    try:
        if key == DELAY_HEADER:
            delay_ms(value)
        else:
            deliver_at_ms(value)
    except InvalidTime as error:
        return str(error)
    return None


def hides(buf: Buffer, start: int, end: int, record_count: int) -> bool:
    """Whether some of a client's records, which are sound, are to be hidden."""
    found = scan_headers(buf, start, end, record_count, _PREFIX)
    if any(key in TIME_HEADERS for _, key, _ in found):
        return True
    return next(_commands(buf, start, end, record_count), None) is not None


def commands_in(buf: Buffer, start: int, end: int, record_count: int) -> frozenset[int]:
    """The places of those of these records that are commands."""
    return frozenset(_commands(buf, start, end, record_count))


def _commands(buf: Buffer, start: int, end: int, record_count: int) -> Iterator[int]:
    """The indices of those that are."""
    for prefix in COMMAND_PREFIXES:
        for index, key, _ in scan_headers(buf, start, end, record_count, prefix):
            if key in COMMAND_HEADERS:
                yield index


def hidden_form(
    header: BatchHeader, buf: Buffer, start: int, end: int, terms: HidingTerms
) -> bytearray:
    """The batch to store; see `RecordRules`. Raises AppendError."""
    records = decode_records(
        buf, start, end, header.record_count, header.base_offset, header.base_timestamp
    )
    stored = []
    for index, record in enumerate(records):
        headers = tuple(_stored(index, one, terms) for one in record.headers)
        delta = record.offset - header.base_offset
        stored.append(NewRecord(record.timestamp, record.key, record.value, headers, delta))
    return hidden_batch(header, stored)


def hidden_batch(header: BatchHeader, records: Sequence[NewRecord]) -> bytearray:
    """These in the place of a client's batch with this header: with its producer, epoch, sequences
    and codec, and hidden."""
    return build_batch(
        records,
        base_offset=header.base_offset,
        compression=header.compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=HIDDEN_FLAG,
    )


def _stored(index: int, header: Header, terms: HidingTerms) -> Header:
    key, value = header
    if key not in TIME_HEADERS:
        return header
    if key == DELAY_HEADER:
        if terms.wall_ms is None:
            # Whoever tries again finds a broker that knows, or this one when it does.
            raise AppendError(ErrorCode.REQUEST_TIMED_OUT, _CLOCK_IN_DOUBT)
        return DELIVER_AT_HEADER, b"%d" % (terms.wall_ms + delay_ms(value))
    due_ms = deliver_at_ms(value)
    if terms.wall_ms is not None and due_ms > terms.wall_ms + DELAY_MS_MAX:
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"record {index}: header tw-deliver-at: that is more than 3652 days from now",
        )
    return header


def shown(buf: Buffer, start: int, end: int, record_count: int) -> bytes | bool:
    """Which records of a flagged batch readers see."""
    selection = bytearray(b"\1") * record_count
    for index, _, _ in scan_headers(buf, start, end, record_count, DELIVER_AT_HEADER):
        selection[index] = 0
    for index in _commands(buf, start, end, record_count):
        selection[index] = 0
    for index, key, _ in scan_headers(buf, start, end, record_count, FILLER_HEADER):
        if key == FILLER_HEADER:
            selection[index] = 0
    return bytes(selection) if any(selection) else False
