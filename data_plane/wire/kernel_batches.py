"""The kernel's part that knows record batches: check what a client sent, scan what is stored.

Written once: interpreted as it stands, or compiled to C by `hatch_build.py` with the types of
`kernel_batches.pxd`. Callers import from `data_plane.wire.kernel`, which picks one of the two.

Invariants
- No byte outside [start, end) of the caller's buffer is read, whatever the bytes say.
- A refusal is `InvalidRecords` with Kafka's error code and a text that names the batch; anything
  else that escapes is a caller's mistake (ValueError: a range that is not inside the buffer).
- Nothing is written here; in-place edits are `records.py`'s.

Deliberately absent: decompression (the caller unpacks first), and rules that need more than the
bytes, such as timestamps against the clock or sequences against the producer's last ones.
"""

from __future__ import annotations

from typing import Any, Final

from crc32c import crc32c

from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import BATCH_HEADER, BatchHeader

try:
    # The compiler needs to see this very line; when interpreted the module is seldom there.
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from data_plane.wire import kernel_shim as cython

if not cython.compiled:
    from data_plane.wire.kernel_leaves import (
        acquire,
        length,
        load_int8,
        load_int16,
        load_int32,
        load_int64,
        load_uint32,
        overflows,
        pointer,
        release,
        yield_gil,
    )
    from data_plane.wire.kernel_records import walk_records
else:
    from data_plane.wire.kernel_compiled.kernel_records import walk_records  # type: ignore[no-redef]

_new: Final = tuple.__new__
"""Builds the named tuples here: their own constructors cost three times as much."""

_ZSTD: Final = 4

GIL_RELEASE_BYTES: Final = 262_144
"""From this much on, work lets other threads run: compaction and scrubbing must not stall the event
loop. Below, the loop itself would pay, since a thread that gets the lock keeps it for up to 5 ms.
Written as a number where C must know it."""


def check_batches(
    buf: Any,
    start: int,
    end: int,
    *,
    batch_bytes_max: int = 2**31 - 1,
    one_batch: bool = True,
    zstd_allowed: bool = True,
    walk: bool = False,
    parts_max: int = 2**62,
) -> list[BatchHeader]:
    """Everything Kafka's broker asks of produced bytes before it looks at the log.

    `buf[start:end]` is what a client sent for one partition. `one_batch` is Kafka's rule for
    Produce 3 and later; `zstd_allowed` is false below Produce 7; `walk` has the records of
    uncompressed batches walked too; their headers then have the highest timestamp of the records,
    whatever the bytes of the header say. `parts_max` bounds the records and headers of a batch that
    is walked. Sizes in bytes.

    Raises InvalidRecords: CORRUPT_MESSAGE (sizes, magic, CRC), INVALID_RECORD (none or several
    batches, base offset, counts, flags, sequence, records), MESSAGE_TOO_LARGE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT (message format 0 or 1), UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_PRODUCER_EPOCH, INVALID_TIMESTAMP (the log append time flag, the broker's to set).

    The codes are those of Apache Kafka 4.3 for the same bytes, but for what no client sends: bytes
    behind the batch (Kafka drops them), attribute bits without a meaning and the log append time
    flag (Kafka overwrites or stores them), unknown codecs (UNKNOWN_SERVER_ERROR there), message
    formats 0 and 1 (INVALID_RECORD there), offsets in a walk that are not consecutive.
    """
    return _check_batches(
        buf, start, end, batch_bytes_max, one_batch, zstd_allowed, walk, parts_max
    )


def _check_batches(
    buf: Any,
    start: int,
    end: int,
    batch_bytes_max: int,
    one_batch: bool,
    zstd_allowed: bool,
    walk: bool,
    parts_max: int,
) -> list[BatchHeader]:
    headers: list[BatchHeader] = []
    view = acquire(buf)
    whole = memoryview(buf)
    try:
        _check_range(start, end, length(view))
        p = pointer(view)
        pos = start
        while pos < end:
            index = len(headers)
            batch_end = _check_frame(p, pos, end, index)
            if one_batch and index == 1:
                raise _refused(ErrorCode.INVALID_RECORD, 1, "only one batch is allowed")
            if load_int64(p, pos) != 0:
                raise _refused(
                    ErrorCode.INVALID_RECORD,
                    index,
                    f"the base offset should be 0, but it is {load_int64(p, pos)}",
                )
            if batch_end - pos > batch_bytes_max:
                raise _refused(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    index,
                    f"its size is {batch_end - pos} bytes, more than the maximum {batch_bytes_max}",
                )
            if _crc(whole, pos + 21, batch_end) != load_uint32(p, pos + 17):
                raise _refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    index,
                    f"it is corrupt (stored crc = {load_uint32(p, pos + 17)})",
                )
            _check_fields(p, pos, index, zstd_allowed)
            header = _load_header(p, pos)
            if walk and load_int16(p, pos + 21) & 7 == 0:
                summary = walk_records(
                    buf,
                    pos + 61,
                    batch_end,
                    load_int32(p, pos + 57),
                    load_int64(p, pos + 27),
                    batch_index=index,
                    parts_max=parts_max,
                )
                if summary.max_timestamp != load_int64(p, pos + 35):
                    header = header._replace(max_timestamp=summary.max_timestamp)
            headers.append(header)
            pos = batch_end
    finally:
        whole.release()
        release(view)
    if not headers:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "there must be at least one record batch")
    return headers


def scan_batches(
    buf: Any, start: int, end: int, *, check_crc: bool = True
) -> tuple[list[BatchHeader], int, str]:
    """The whole, sound batches at the front of stored or replicated bytes.

    Returns their headers, the position where the first unsound or incomplete batch begins (`end`
    when there is none), and what is wrong there ("" for nothing; "incomplete" for a batch that
    ends beyond `end`). Offsets must increase from batch to batch; control batches, gaps and
    compacted batches are fine. Never raises for what the bytes say.
    """
    return _scan_batches(buf, start, end, check_crc)


def _scan_batches(
    buf: Any, start: int, end: int, check_crc: bool
) -> tuple[list[BatchHeader], int, str]:
    headers: list[BatchHeader] = []
    problem = ""
    view = acquire(buf)
    whole = memoryview(buf)
    try:
        _check_range(start, end, length(view))
        p = pointer(view)
        pos = start
        rested = start
        next_offset = 0
        while pos < end:
            if end - pos < 12:
                problem = "incomplete"
                break
            batch_length = load_int32(p, pos + 8)
            if batch_length < 49:
                problem = f"the batch length {batch_length} is less than a header"
                break
            if batch_length > end - pos - 12:
                if end - pos > 16 and load_int8(p, pos + 16) != 2:
                    problem = f"unknown magic {load_int8(p, pos + 16)}"
                else:
                    problem = "incomplete"
                break
            if load_int8(p, pos + 16) != 2:
                problem = f"unknown magic {load_int8(p, pos + 16)}"
                break
            base_offset = load_int64(p, pos)
            last_offset_delta = load_int32(p, pos + 23)
            if base_offset < next_offset or overflows(base_offset, 2147483647):
                problem = f"the base offset {base_offset} is out of order"
                break
            if last_offset_delta < 0 or load_int32(p, pos + 57) < 0:
                problem = "a negative offset delta or record count"
                break
            batch_end = pos + 12 + batch_length
            if check_crc and _crc(whole, pos + 21, batch_end) != load_uint32(p, pos + 17):
                problem = f"the stored crc {load_uint32(p, pos + 17)} is not that of the bytes"
                break
            headers.append(_load_header(p, pos))
            next_offset = base_offset + last_offset_delta + 1
            pos = batch_end
            if pos - rested >= 262144:  # GIL_RELEASE_BYTES
                rested = pos
                yield_gil()
    finally:
        whole.release()
        release(view)
    return headers, pos, problem


def _crc(whole: memoryview, start: int, end: int) -> int:
    with whole[start:end] as covered:
        if end - start < 262144:  # GIL_RELEASE_BYTES
            value: int = crc32c(covered, 0, 0)
        else:
            # In half the time, and without the lock. It takes 0.04 s and 5 MiB to load, which is
            # why only a broker that sees such batches does (docs/adr/0024).
            from awscrt.checksums import crc32c as large_crc32c

            value = large_crc32c(covered)
    return value


def _load_header(p: Any, pos: int) -> BatchHeader:
    if not cython.compiled:
        return BatchHeader(pos, *BATCH_HEADER.unpack_from(p, pos))
    return _new(
        BatchHeader,
        (
            pos,
            load_int64(p, pos),
            load_int32(p, pos + 8),
            load_int32(p, pos + 12),
            load_int8(p, pos + 16),
            load_uint32(p, pos + 17),
            load_int16(p, pos + 21),
            load_int32(p, pos + 23),
            load_int64(p, pos + 27),
            load_int64(p, pos + 35),
            load_int64(p, pos + 43),
            load_int16(p, pos + 51),
            load_int32(p, pos + 53),
            load_int32(p, pos + 57),
        ),
    )


def _check_range(pos: int, end: int, size: int) -> None:
    if pos < 0 or end < pos or end > size:
        raise ValueError(f"no range [{pos}, {end}) in {size} bytes")


def _check_frame(p: Any, pos: int, end: int, index: int) -> int:
    """The end of the batch at `pos`, which is whole and of magic 2 when this returns."""
    remaining = end - pos
    if remaining < 12:
        raise _incomplete(index)
    batch_length = load_int32(p, pos + 8)
    if batch_length < 14:
        raise _refused(
            ErrorCode.CORRUPT_MESSAGE,
            index,
            f"record size {batch_length} is less than the minimum record overhead (14)",
        )
    if remaining < 17:
        raise _incomplete(index)
    magic = load_int8(p, pos + 16)
    if magic < 0 or magic > 2:
        raise _refused(ErrorCode.CORRUPT_MESSAGE, index, f"invalid magic {magic}")
    if batch_length > remaining - 12:
        raise _incomplete(index)
    if magic < 2:
        raise _refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            index,
            f"message format {magic} is not supported, only record batches of magic 2",
        )
    if batch_length < 49:
        raise _refused(
            ErrorCode.CORRUPT_MESSAGE,
            index,
            f"record size {batch_length} is less than the header of a record batch",
        )
    return pos + 12 + batch_length


def _check_fields(p: Any, pos: int, index: int, zstd_allowed: bool) -> None:
    """The header's fields against each other, as a client may set them."""
    attributes = load_int16(p, pos + 21)
    codec = attributes & 7
    if codec > 4 or (codec == _ZSTD and not zstd_allowed):
        raise _refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            index,
            f"compression codec {codec} is not allowed here",
        )
    last_offset_delta = load_int32(p, pos + 23)
    record_count = load_int32(p, pos + 57)
    if last_offset_delta < 0:
        raise _invalid(index, f"it has an invalid offset range: [0, {last_offset_delta}]")
    if record_count <= 0:
        raise _invalid(index, f"invalid reported record count {record_count}")
    if record_count - 1 != last_offset_delta:
        raise _invalid(
            index,
            f"inconsistent offset range [0, {last_offset_delta}] and record count {record_count}",
        )
    if attributes & 0x20:
        raise _invalid(index, "clients are not allowed to write control records")
    if attributes & 0x08:
        raise _refused(
            ErrorCode.INVALID_TIMESTAMP,
            index,
            "a producer should not set the timestamp type to LogAppendTime",
        )
    if attributes & 0xFFC0:
        raise _invalid(index, f"attributes 0x{attributes & 0xFFFF:04x} set unknown bits")
    if load_int64(p, pos + 43) >= 0:
        if load_int32(p, pos + 53) < 0:
            raise _invalid(
                index,
                f"invalid sequence number {load_int32(p, pos + 53)} "
                f"with producer id {load_int64(p, pos + 43)}",
            )
        if load_int16(p, pos + 51) < 0:
            raise _refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                index,
                f"invalid producer epoch {load_int16(p, pos + 51)} "
                f"with producer id {load_int64(p, pos + 43)}",
            )
    elif attributes & 0x10:
        raise _invalid(index, "it is transactional without a producer id")


def _where(batch_index: int) -> str:
    return "" if batch_index < 0 else f"batch {batch_index}: "


def _refused(code: ErrorCode, batch_index: int, text: str) -> InvalidRecords:
    return InvalidRecords(code, _where(batch_index) + text)


def _invalid(batch_index: int, text: str) -> InvalidRecords:
    return InvalidRecords(ErrorCode.INVALID_RECORD, _where(batch_index) + text)


def _incomplete(batch_index: int) -> InvalidRecords:
    if batch_index == 0:
        return InvalidRecords(
            ErrorCode.INVALID_RECORD, "there must be at least one whole record batch"
        )
    return _refused(ErrorCode.CORRUPT_MESSAGE, batch_index, "it ends beyond the bytes sent")
