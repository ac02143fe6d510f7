"""The kernel's third part: the answers to Produce and Fetch as whole frames.

Written once, run interpreted or compiled, as `kernel_batches.py` explains. The generated codecs in
`messages/` write the same bytes; tests hold the two against each other.

Invariants
- Records are not copied: a Fetch answer is a list of buffers to be sent one after the other, small
  ones made here and, between them, the caller's own.
- `head` is the front of the frame: four bytes for its size, which are overwritten, and the response
  header. It is copied, never changed.

Versions: Produce 3 to 13, Fetch 4 to 18; a field that a version does not have is left out. Values
that the wire cannot hold are the caller's mistake and raise whatever they raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_plane.wire.errors import InvalidMessage, UnsupportedVersion
from data_plane.wire.kernel_types import Buffer, NodeEndpoint
from data_plane.wire.primitives import STRING_BYTES_MAX

try:
    # The compiler needs to see this very line; when interpreted the module is seldom there.
    import cython  # type: ignore[import-untyped]
except ModuleNotFoundError:
    from data_plane.wire import kernel_shim as cython

if not cython.compiled:
    from data_plane.wire.kernel_leaves import (
        append_data,
        append_int8,
        append_int16,
        append_int32,
        append_int64,
        append_partition,
        append_uvarint,
        as_tuple,
        store_int32,
    )


def encode_produce_response(
    head: bytes,
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[Any, ...]]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytearray:
    """The frame that answers a Produce: `topics` are (name, 16 bytes of id, results), a result is a
    `ProducePartitionResult` or a plain tuple of its fields."""
    if version < 3 or version > 13:
        raise UnsupportedVersion(f"ProduceResponse has no version {version}")
    flexible = version >= 9
    out = bytearray(head)
    _append_count(out, len(topics), flexible)
    for name, topic_id, results in topics:
        _append_topic(out, name, topic_id, flexible, version >= 13)
        _append_count(out, len(results), flexible)
        for result in results:
            _append_produce_result(out, version, as_tuple(result))
        if flexible:
            append_int8(out, 0)
    append_int32(out, throttle_time_ms)
    if flexible:
        _append_node_endpoints(out, node_endpoints if version >= 10 else ())
    store_int32(out, 0, len(out) - 4)
    return out


def encode_fetch_response(
    head: bytes,
    version: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[Any, ...]]]],
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The frame that answers a Fetch, in the buffers to send one after the other. `topics` as for
    Produce, of `FetchPartitionResult`s or plain tuples of their fields."""
    if version < 4 or version > 18:
        raise UnsupportedVersion(f"FetchResponse has no version {version}")
    flexible = version >= 12
    first = bytearray(head)
    out = first
    buffers: list[Buffer] = [out]
    size = -4
    append_int32(out, throttle_time_ms)
    if version >= 7:
        append_int16(out, error_code)
        append_int32(out, session_id)
    _append_count(out, len(topics), flexible)
    for name, topic_id, results in topics:
        _append_topic(out, name, topic_id, flexible, version >= 13)
        _append_count(out, len(results), flexible)
        for item in results:
            result = as_tuple(item)
            records_bytes = _append_fetch_result(out, version, result)
            if records_bytes > 0:
                size += records_bytes + len(out)
                buffers.extend(result[7] or ())
                out = bytearray()
                buffers.append(out)
            if flexible:
                _append_fetch_tags(out, result)
        if flexible:
            append_int8(out, 0)
    if flexible:
        _append_node_endpoints(out, node_endpoints if version >= 16 else ())
    size += len(out)
    if len(out) == 0:
        del buffers[-1]
    store_int32(first, 0, size)
    return buffers


def _append_produce_result(out: bytearray, version: int, result: Any) -> None:
    append_partition(out, result[0], result[1], result[2], result[3], result[4], version >= 5)
    if version < 8:
        return
    flexible = version >= 9
    record_errors = result[5]
    if flexible and not record_errors and result[6] is None and result[7] == -1 == result[8]:
        append_data(out, b"\x01\x00\x00")  # No errors, no message, no tagged fields.
        return
    _append_count(out, len(record_errors), flexible)
    for batch_index, message in record_errors:
        append_int32(out, batch_index)
        _append_nullable_text(out, message, flexible)
        if flexible:
            append_int8(out, 0)
    _append_nullable_text(out, result[6], flexible)
    if flexible:
        if version >= 10 and (result[7] != -1 or result[8] != -1):
            append_data(out, b"\x01\x00\x09")  # One tagged field, number 0, of nine bytes.
            append_int32(out, result[7])
            append_int32(out, result[8])
        append_int8(out, 0)


def _append_fetch_result(out: bytearray, version: int, result: Any) -> int:
    """Everything up to the size of the records; returns that size, 0 for null."""
    append_partition(out, result[0], result[1], result[2], result[3], result[4], version >= 5)
    flexible = version >= 12
    aborted = result[5]
    if aborted is None and flexible:
        append_int8(out, 0)
    elif aborted is None:
        _append_count(out, -1, flexible)
    else:
        _append_count(out, len(aborted), flexible)
        for producer_id, first_offset in aborted:
            append_int64(out, producer_id)
            append_int64(out, first_offset)
            if flexible:
                append_int8(out, 0)
    if version >= 11:
        append_int32(out, result[6])
    records = result[7]
    if records is None:
        _append_count(out, -1, flexible)
        return 0
    size = 0
    for buffer in records:
        size += len(buffer)
    _append_count(out, size, flexible)
    return size


def _append_fetch_tags(out: bytearray, result: Any) -> None:
    diverging_epoch, current_leader, snapshot_id = result[8], result[9], result[10]
    count = 0
    if diverging_epoch is not None:
        count += 1
    if current_leader is not None:
        count += 1
    if snapshot_id is not None:
        count += 1
    append_int8(out, count)
    # Each: its number, its size, two integers, and no tagged fields of its own.
    if diverging_epoch is not None:
        append_data(out, b"\x00\x0d")
        append_int32(out, diverging_epoch[0])
        append_int64(out, diverging_epoch[1])
        append_int8(out, 0)
    if current_leader is not None:
        append_data(out, b"\x01\x09")
        append_int32(out, current_leader[0])
        append_int32(out, current_leader[1])
        append_int8(out, 0)
    if snapshot_id is not None:
        append_data(out, b"\x02\x0d")
        append_int64(out, snapshot_id[0])
        append_int32(out, snapshot_id[1])
        append_int8(out, 0)


def _append_node_endpoints(out: bytearray, node_endpoints: Any) -> None:
    """The response's own tagged fields: number 0 with the leaders' addresses, or none."""
    if not node_endpoints:
        append_int8(out, 0)
        return
    inner = bytearray()
    append_uvarint(inner, len(node_endpoints) + 1)
    for node_id, host, port, rack in node_endpoints:
        append_int32(inner, node_id)
        _append_nullable_text(inner, host, True)
        append_int32(inner, port)
        _append_nullable_text(inner, rack, True)
        append_int8(inner, 0)
    append_data(out, b"\x01\x00")
    append_uvarint(out, len(inner))
    out += inner


def _append_topic(out: bytearray, name: str, topic_id: bytes, flexible: bool, has_id: bool) -> None:
    if has_id:
        append_data(out, topic_id)
    else:
        _append_nullable_text(out, name, flexible)


def _append_count(out: bytearray, count: int, flexible: bool) -> None:
    """Of an array's items or of bytes; -1 for null."""
    if flexible:
        append_uvarint(out, count + 1)
    else:
        append_int32(out, count)


def _append_nullable_text(out: bytearray, text: str | None, flexible: bool) -> None:
    if text is None:
        if flexible:
            append_int8(out, 0)
        else:
            append_int16(out, -1)
        return
    data = text.encode("utf-8")
    if len(data) > STRING_BYTES_MAX:
        raise InvalidMessage(f"a string of {len(data)} bytes, more than {STRING_BYTES_MAX}")
    if flexible:
        append_uvarint(out, len(data) + 1)
    else:
        append_int16(out, len(data))
    append_data(out, data)
