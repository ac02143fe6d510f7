"""The kernel's part for followers: the answer to a Fetch, walked where it was received.

Written once, run interpreted or compiled, as `kernel_batches.py` explains. The generated codec in
`messages/` reads the same bytes; tests hold the two against each other.

Invariants
- Records are neither copied nor looked at: the walk tells where they stand.
- No byte outside the given range is read. Malformed bytes raise MalformedFrame, which names the
  byte, and nothing else; nothing is returned then, so that half an answer is never acted upon.
- An array's count is checked against the bytes that remain before anything is built.

Versions 13 to 18, which name topics by their ids; others raise UnsupportedVersion. What followers
have no use for is passed over: the last stable offset, aborted transactions, preferred replicas,
snapshots, addresses. Bytes behind the last field are ignored, as Kafka does.
"""

from __future__ import annotations

from typing import Any, Final

from data_plane.wire.errors import MalformedFrame, UnsupportedVersion
from data_plane.wire.kernel_types import FetchedPartition, FetchResponseView

try:
    # The compiler needs to see this very line; when interpreted the module is seldom there.
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from data_plane.wire import kernel_shim as cython

if not cython.compiled:
    from data_plane.wire.kernel_leaves import (
        acquire,
        length,
        load_int16,
        load_int32,
        load_int64,
        pointer,
        read_uvarint,
        release,
        take_bytes,
    )

_new: Final = tuple.__new__
"""Builds the named tuples here: their own constructors cost three times as much."""


def parse_fetch_response(buf: Any, pos: int, end: int, version: int) -> FetchResponseView:
    """The body of a Fetch response, `buf[pos:end]` without the response header."""
    if version < 13 or version > 18:
        raise UnsupportedVersion(f"followers do not read version {version} of FetchResponse")
    view = acquire(buf)
    try:
        if pos < 0 or end < pos or end > length(view):
            raise ValueError(f"no range [{pos}, {end}) in {length(view)} bytes")
        return _parse(pointer(view), pos, end)
    finally:
        release(view)


def _parse(p: Any, pos: int, end: int) -> FetchResponseView:
    _need(pos, 10, end)
    throttle_time_ms = load_int32(p, pos)
    error_code = load_int16(p, pos + 4)
    session_id = load_int32(p, pos + 6)
    partitions: list[FetchedPartition] = []
    # A topic takes 18 bytes and more, one of its partitions 37.
    topic_count, pos = _read_count(p, pos + 10, end, 18)
    while topic_count > 0:
        topic_count -= 1
        _need(pos, 16, end)
        topic_id = take_bytes(p, pos, pos + 16)
        count, pos = _read_count(p, pos + 16, end, 37)
        while count > 0:
            count -= 1
            pos = _parse_partition(p, pos, end, topic_id, partitions)
        pos = _skip_tags(p, pos, end)
    _skip_tags(p, pos, end)
    return _new(FetchResponseView, (throttle_time_ms, error_code, session_id, partitions))


def _parse_partition(
    p: Any, pos: int, end: int, topic_id: bytes, partitions: list[FetchedPartition]
) -> int:
    """Appends the partition at `pos`; the position behind it."""
    _need(pos, 30, end)
    index = load_int32(p, pos)
    error_code = load_int16(p, pos + 4)
    high_watermark = load_int64(p, pos + 6)
    log_start_offset = load_int64(p, pos + 22)
    count, pos = _read_uvarint(p, pos + 30, end)
    # Aborted transactions, one more than there are; 0 stands for null.
    while count > 1:
        count -= 1
        _need(pos, 16, end)
        pos = _skip_tags(p, pos + 16, end)
    _need(pos, 4, end)
    # Behind the preferred replica the records' size, counted likewise.
    size, pos = _read_uvarint(p, pos + 4, end)
    if size > 0:
        size -= 1
    _need(pos, size, end)
    records_start = pos
    records_end = pos + size
    diverging_epoch = None
    current_leader = None
    count, pos = _read_uvarint(p, records_end, end)
    while count > 0:
        count -= 1
        tag, pos = _read_uvarint(p, pos, end)
        size, pos = _read_uvarint(p, pos, end)
        _need(pos, size, end)
        tag_end = pos + size
        if tag == 0:
            _need(pos, 12, tag_end)
            diverging_epoch = (load_int32(p, pos), load_int64(p, pos + 4))
            _check_tag_end(_skip_tags(p, pos + 12, tag_end), tag_end)
        elif tag == 1:
            _need(pos, 8, tag_end)
            current_leader = (load_int32(p, pos), load_int32(p, pos + 4))
            _check_tag_end(_skip_tags(p, pos + 8, tag_end), tag_end)
        pos = tag_end
    partitions.append(
        _new(
            FetchedPartition,
            (
                topic_id,
                index,
                error_code,
                high_watermark,
                log_start_offset,
                records_start,
                records_end,
                diverging_epoch,
                current_leader,
            ),
        )
    )
    return pos


def _need(pos: int, count: int, end: int) -> int:
    if count > end - pos:
        raise MalformedFrame(f"{count} bytes are missing at byte {pos}, where {end - pos} are left")
    return 0


def _check_tag_end(found: int, stated: int) -> int:
    if found != stated:
        raise MalformedFrame(f"a tagged field ends at byte {found} where it states {stated}")
    return 0


def _read_uvarint(p: Any, pos: int, end: int) -> tuple[int, int]:
    value, after = read_uvarint(p, pos, end)
    if after < 0:
        raise MalformedFrame(f"a broken varint at byte {pos}")
    return value, after


def _skip_tags(p: Any, pos: int, end: int) -> int:
    if pos < end and p[pos] == 0:
        return pos + 1
    count, pos = _read_uvarint(p, pos, end)
    while count > 0:
        count -= 1
        _, pos = _read_uvarint(p, pos, end)
        size, pos = _read_uvarint(p, pos, end)
        _need(pos, size, end)
        pos += size
    return pos


def _read_count(p: Any, pos: int, end: int, min_item_bytes: int) -> tuple[int, int]:
    """(items of the array at `pos`, position of the first)."""
    count, pos = _read_uvarint(p, pos, end)
    count -= 1
    if count < 0:
        raise MalformedFrame(f"an array that may not be null is, at byte {pos}")
    if count > (end - pos) // min_item_bytes:
        raise MalformedFrame(f"an array claims {count} items where {end - pos} bytes are left")
    return count, pos
