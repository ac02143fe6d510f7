"""Record batches, version 2: read, build, and edit in place.

The layout is in `kernel_types.py`; the loops over records are the kernel's. This module puts the
two together with compression, and writes.

Invariants
- In-place edits touch the bytes they name and nothing else. `set_base_offset` leaves the CRC
  alone, which does not cover what it writes; whatever changes covered bytes writes a new CRC.
- Rewriting a batch (`recompress`, `filter_batch`) keeps offsets, timestamps, keys, values and
  headers of surviving records byte for byte, and the producer's id, epoch and base sequence.
- Bytes from outside raise nothing but `InvalidRecords`; a wrong argument is a ValueError.
- Nothing unpacks to more than `size_max`, by default compression.DECOMPRESSED_BYTES_MAX.

Deliberately absent: message formats 0 and 1, refused as Kafka 4 does with
UNSUPPORTED_FOR_MESSAGE_FORMAT, and the checks of what a client may produce: those are
`kernel.check_batches`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import compress as compress_choices
from typing import Final

from crc32c import crc32c

from data_plane.wire import kernel
from data_plane.wire.compression import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    Unpacker,
    compress,
    decompress,
)
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Header,
    NewRecord,
    Record,
    WalkSummary,
)

__all__ = [
    "BATCH_HEADER_BYTES",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Compression",
    "Header",
    "NewRecord",
    "Record",
    "WalkSummary",
    "build_batch",
    "decode_batch",
    "filter_batch",
    "find_first_at",
    "find_max_timestamp",
    "is_crc_valid",
    "iter_batch_headers",
    "read_batch_header",
    "recompress",
    "set_base_offset",
    "set_leader_epoch",
    "set_log_append_time",
    "set_max_timestamp",
    "summarize_batch",
    "unpacked_records",
]

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

NO_LEADER_EPOCH: Final = -1

_BASE_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")


def read_batch_header(buf: Buffer, position: int) -> BatchHeader:
    """The header at `position`. The batch need not be whole, and its CRC is not looked at.

    Raises InvalidRecords: UNSUPPORTED_FOR_MESSAGE_FORMAT for magic 0 and 1, else CORRUPT_MESSAGE.
    """
    if position < 0 or len(buf) - position < BATCH_HEADER_BYTES:
        _refuse_old_magic(buf, position)
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE, f"no whole record batch header at byte {position}"
        )
    header = BatchHeader(position, *BATCH_HEADER.unpack_from(buf, position))
    if header.magic != MAGIC:
        _refuse_old_magic(buf, position)
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE, f"unknown magic {header.magic} at byte {position}"
        )
    if header.batch_length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch length {header.batch_length} at byte {position} is less than a header",
        )
    return header


def _refuse_old_magic(buf: Buffer, position: int) -> None:
    if position >= 0 and len(buf) - position > MAGIC_POSITION:
        magic = buf[position + MAGIC_POSITION]
        if magic < MAGIC:
            raise InvalidRecords(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"message format {magic} at byte {position} is not supported",
            )


def iter_batch_headers(
    buf: Buffer, start: int, end: int, *, incomplete_tail: bool = False
) -> Iterator[BatchHeader]:
    """The headers of the batches in buf[start:end], CRCs unseen.

    A batch that ends beyond `end` is CORRUPT_MESSAGE, or with `incomplete_tail` the silent end, as
    in a fetch response, which brokers may cut anywhere.
    """
    position = start
    while position < end:
        if end - position < BATCH_HEADER_BYTES and incomplete_tail:
            return
        header = read_batch_header(buf, position)
        if header.end_position > end:
            if incomplete_tail:
                return
            raise InvalidRecords(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at byte {position} ends at {header.end_position}, beyond {end}",
            )
        yield header
        position = header.end_position


def is_crc_valid(buf: Buffer, header: BatchHeader) -> bool:
    """Whether the whole batch is in `buf` and its bytes have the CRC they say."""
    if header.end_position > len(buf):
        return False
    with memoryview(buf) as view:
        return _crc(view, header.position, header.end_position) == header.crc


def unpacked_records(
    buf: Buffer,
    header: BatchHeader,
    size_max: int = DECOMPRESSED_BYTES_MAX,
    unpacker: Unpacker | None = None,
) -> tuple[Buffer, int, int]:
    """(buffer, start, end) of the uncompressed records: `buf` itself where they are plain. With an
    `unpacker` the buffer may be its own."""
    if header.end_position > len(buf):
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at byte {header.position} ends beyond its buffer",
        )
    if header.compression == Compression.NONE:
        return buf, header.records_position, header.end_position
    unpack = decompress if unpacker is None else unpacker.unpack
    with memoryview(buf) as view:
        packed = view[header.records_position : header.end_position]
        data = unpack(header.compression, packed, size_max)
    return data, 0, len(data)


def decode_batch(
    buf: Buffer, position: int = 0, *, size_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """The records of the batch at `position`, control records included. CRC unseen."""
    header = read_batch_header(buf, position)
    data, start, end = unpacked_records(buf, header, size_max)
    append_timestamp = header.max_timestamp if header.log_append_time else None
    return kernel.decode_records(
        data,
        start,
        end,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_timestamp,
    )


def decode_chosen(buf: Buffer, header: BatchHeader, offsets: Sequence[int]) -> list[Record]:
    """The records of a batch at `offsets`, which ascend and lie in it; without making objects of
    the others, where the batch has no gaps. Others may be among them where it has. CRC unseen."""
    if header.record_count != header.next_offset - header.base_offset:
        return decode_batch(buf, header.position)
    data, start, end = unpacked_records(buf, header)
    keep = bytearray(header.record_count)
    for offset in offsets:
        keep[offset - header.base_offset] = 1
    kept = kernel.filter_records(
        data, start, end, header.record_count, header.base_timestamp, bytes(keep)
    )
    return kernel.decode_records(
        kept.payload,
        0,
        len(kept.payload),
        kept.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.log_append_time else None,
    )


def summarize_batch(
    buf: Buffer,
    header: BatchHeader,
    *,
    consecutive: bool = True,
    size_max: int = DECOMPRESSED_BYTES_MAX,
    unpacker: Unpacker | None = None,
) -> WalkSummary:
    """`kernel.walk_records` over the batch, unpacked when it is compressed."""
    data, start, end = unpacked_records(buf, header, size_max, unpacker)
    return kernel.walk_records(
        data,
        start,
        end,
        header.record_count,
        header.base_timestamp,
        consecutive=consecutive,
    )


def outline_batch(buf: Buffer, header: BatchHeader) -> list[tuple[int, bool]]:
    """`kernel.outline_records` of the batch, unpacked when it is compressed."""
    data, start, end = unpacked_records(buf, header, DECOMPRESSED_BYTES_MAX)
    return kernel.outline_records(data, start, end, header.record_count, header.base_timestamp)


def find_first_at(
    buf: Buffer,
    header: BatchHeader,
    timestamp: int,
    offset_min: int = 0,
    *,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at or after `timestamp`, and from offset
    `offset_min` on, or None."""
    wanted = timestamp
    if header.log_append_time:
        if header.max_timestamp < timestamp:
            return None
        wanted = header.base_timestamp - 2**63  # Any record will do, and the first is found.
    data, start, end = unpacked_records(buf, header, size_max)
    found = kernel.find_timestamp(
        data,
        start,
        end,
        header.record_count,
        header.base_timestamp,
        wanted,
        _delta_of(header, offset_min),
    )
    if found is None:
        return None
    found_timestamp = header.max_timestamp if header.log_append_time else found[1]
    return header.base_offset + found[0], found_timestamp


def _delta_of(header: BatchHeader, offset: int) -> int:
    """`offset` as an offset delta, or the nearest there can be: 2^31 is behind all of them."""
    return max(0, min(offset - header.base_offset, 2**31))


def find_max_timestamp(
    buf: Buffer,
    header: BatchHeader,
    offset_min: int = 0,
    offset_end: int = 2**63 - 1,
    *,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with the highest timestamp of the batch's records in
    [offset_min, offset_end), or None when it has none there. That is their first one where the
    broker has stamped the batch."""
    if header.log_append_time:
        if offset_min <= header.base_offset and header.last_offset < offset_end:
            return header.base_offset, header.max_timestamp
        found = find_first_at(buf, header, header.max_timestamp, offset_min, size_max=size_max)
        return found if found is not None and found[0] < offset_end else None
    data, start, end = unpacked_records(buf, header, size_max)
    found = kernel.find_max_timestamp(
        data,
        start,
        end,
        header.record_count,
        header.base_timestamp,
        _delta_of(header, offset_min),
        _delta_of(header, offset_end),
    )
    return None if found is None else (header.base_offset + found[0], found[1])


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: int | None = None,
    attributes: int = 0,
) -> bytearray:
    """One batch of at least one record. `log_append_time` in ms replaces every timestamp;
    `attributes` are further ones."""
    if not records:
        raise ValueError("a batch has at least one record")
    attributes |= int(compression)
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    if log_append_time is None:
        base_timestamp = records[0].timestamp
        max_timestamp = max(record.timestamp for record in records)
    else:
        attributes |= LOG_APPEND_TIME_FLAG
        base_timestamp = max_timestamp = log_append_time
        records = [record._replace(timestamp=log_append_time) for record in records]
    payload, last_offset_delta = kernel.encode_records(records, base_timestamp)
    return _assemble(
        BatchHeader(
            position=0,
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=partition_leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
        payload,
        level,
    )


def _assemble(header: BatchHeader, payload: Buffer, level: int | None) -> bytearray:
    """A batch of `header`'s fields, its length and CRC made new, around the plain records."""
    packed = (
        payload
        if header.compression == Compression.NONE
        else compress(header.compression, payload, level)
    )
    batch_length = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed)
    batch = bytearray(BATCH_HEADER.pack(*header._replace(batch_length=batch_length)[1:]))
    batch += packed
    _write_crc(batch, 0, len(batch))
    return batch


def set_base_offset(
    buf: WritableBuffer, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Where the leader puts the batch. The CRC does not cover these fields."""
    _BASE_OFFSET.pack_into(buf, position, base_offset)
    _INT32.pack_into(buf, position + LOG_OVERHEAD_BYTES, partition_leader_epoch)


def set_leader_epoch(buf: WritableBuffer, position: int, partition_leader_epoch: int) -> None:
    """The epoch alone. The CRC does not cover it."""
    _INT32.pack_into(buf, position + LOG_OVERHEAD_BYTES, partition_leader_epoch)


def set_log_append_time(buf: WritableBuffer, position: int, now_ms: int) -> None:
    """Stamp the batch with the broker's time; readers then ignore its records' own timestamps."""
    header = _whole_header(buf, position)
    _INT16.pack_into(buf, position + ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME_FLAG)
    _BASE_OFFSET.pack_into(buf, position + MAX_TIMESTAMP_POSITION, now_ms)
    _write_crc(buf, position, header.end_position)


def set_flags(buf: WritableBuffer, position: int, flags: int) -> None:
    """Add bits to the batch's attributes."""
    header = _whole_header(buf, position)
    _INT16.pack_into(buf, position + ATTRIBUTES_POSITION, header.attributes | flags)
    _write_crc(buf, position, header.end_position)


def set_max_timestamp(buf: WritableBuffer, position: int, max_timestamp: int) -> None:
    """Correct what the header says about its records."""
    header = _whole_header(buf, position)
    _BASE_OFFSET.pack_into(buf, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    _write_crc(buf, position, header.end_position)


def recompress(
    buf: Buffer,
    position: int,
    compression: int,
    level: int | None = None,
    *,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same batch in another codec (or none), for topics whose compression.type says so."""
    header = _whole_header(buf, position)
    data, start, end = unpacked_records(buf, header, size_max)
    attributes = (header.attributes & ~CODEC_MASK) | int(compression)
    with memoryview(data) as view:
        return _assemble(header._replace(attributes=attributes), view[start:end], level)


def filter_batch(
    buf: Buffer,
    position: int,
    keep: Buffer,
    *,
    shrink: bool = False,
    delete_horizon_ms: int | None = None,
    blanks: Buffer | None = None,
    size_max: int = DECOMPRESSED_BYTES_MAX,
    records: tuple[Buffer, int, int] | None = None,
) -> bytearray | None:
    """The batch with only the records whose byte in `keep` is not zero; None when that is none.

    The last offset stays the original one, as Kafka's compaction leaves it, so that producer
    sequences and epochs still fit; `shrink` makes it the last survivor's, as a fetch must (some
    clients crawl through a gap at the tail). The codec stays. `delete_horizon_ms` marks the batch
    with the time when its tombstones may go (KIP-534), which becomes the base of its timestamps.
    Survivors whose byte in `blanks` is not zero become tombstones. `records` is what
    `unpacked_records` gave of this batch, where that is known.
    """
    header = _whole_header(buf, position)
    data, start, end = records or unpacked_records(buf, header, size_max)
    kept = kernel.filter_records(
        data, start, end, header.record_count, header.base_timestamp, bytes(keep)
    )
    if not kept.record_count:
        return None
    payload: Buffer = kept.payload
    old_base = new_base = header.base_timestamp
    if delete_horizon_ms is not None:
        new_base = delete_horizon_ms
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms
        )
    if new_base != old_base or blanks is not None:
        blanked = b"" if blanks is None else bytes(compress_choices(bytes(blanks), bytes(keep)))
        payload = _rebuild(kept.payload, kept.record_count, old_base, new_base, blanked)
    return _assemble(
        header._replace(
            record_count=kept.record_count,
            last_offset_delta=kept.last_offset_delta if shrink else header.last_offset_delta,
            max_timestamp=(header.max_timestamp if header.log_append_time else kept.max_timestamp),
        ),
        payload,
        None,
    )


def _rebuild(
    payload: bytes, record_count: int, old_base: int, new_base: int, blanks: bytes
) -> bytearray:
    """The same records with timestamps counted from another base, and without the values of those
    whose byte in `blanks` is not zero. InvalidRecords for offsets that do not ascend."""
    records = [
        NewRecord(record.timestamp, record.key, record.value, record.headers, record.offset)
        for record in kernel.decode_records(payload, 0, len(payload), record_count, 0, old_base)
    ]
    for index, is_blank in enumerate(blanks):
        if is_blank:
            records[index] = records[index]._replace(value=None)
    try:
        return kernel.encode_records(records, new_base)[0]
    except ValueError as error:
        # Whoever wrote the batch did not count its offsets upwards.
        raise InvalidRecords(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _whole_header(buf: Buffer, position: int) -> BatchHeader:
    header = read_batch_header(buf, position)
    if header.end_position > len(buf):
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} ends beyond its buffer"
        )
    return header


def _crc(view: memoryview, position: int, end: int) -> int:
    value: int = crc32c(view[position + ATTRIBUTES_POSITION : end])
    return value


def _write_crc(buf: WritableBuffer, position: int, end: int) -> None:
    with memoryview(buf) as view:
        crc = _crc(view, position, end)
    _UINT32.pack_into(buf, position + CRC_POSITION, crc)
