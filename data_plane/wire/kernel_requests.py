"""The kernel's part that knows requests: cut frames, read Produce and Fetch, write their answers.

Written once, run interpreted or compiled, as `kernel_batches.py` explains. The generated codecs in
`messages/` read and write the same bytes; tests hold the two against each other.

Invariants
- No byte outside the given range is read. Malformed bytes raise MalformedFrame, which names the
  byte, and nothing else.
- An array's count is checked against the bytes that remain and against the items one frame may
  hold before anything is built; strings are at most 32,767 bytes.
- Records are neither copied nor looked at: a request gives their place, an answer their buffers.

Versions: Produce 3 to 13, Fetch 4 to 18; ids replace topic names in 13 of both. Other versions
raise UnsupportedVersion. Bytes behind a body's last field are ignored, as Kafka does.
"""

from __future__ import annotations

from typing import Any, Final

from data_plane.wire.errors import MalformedFrame, UnsupportedVersion
from data_plane.wire.kernel_types import (
    FetchPartitionView,
    FetchRequestView,
    FetchTopicView,
    ForgottenTopicView,
    FrameSplit,
    ProducePartition,
    ProduceRequestView,
    ProduceTopic,
)
from data_plane.wire.primitives import ARRAY_ITEMS_MAX, STRING_BYTES_MAX

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
        pointer,
        read_uvarint,
        release,
        take_bytes,
        take_text,
    )

_NO_ID: Final = bytes(16)
_UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1
_new: Final = tuple.__new__
"""Builds the named tuples here: their own constructors cost three times as much."""


def split_frames(buf: Any, start: int, end: int, frame_bytes_max: int) -> FrameSplit:
    """The complete frames in buf[start:end], each a 4-byte size and as many bytes.

    Raises MalformedFrame when the first frame's size is not from 1 to `frame_bytes_max`. Good
    frames ahead of such a one are returned first, and the next call, which begins with it, raises.
    """
    frames: list[tuple[int, int]] = []
    view = acquire(buf)
    try:
        _check_range(start, end, length(view))
        p = pointer(view)
        pos = start
        while end - pos >= 4:
            size = load_int32(p, pos)
            if size < 1 or size > frame_bytes_max:
                if frames:
                    return _new(FrameSplit, (frames, pos, 4))
                raise MalformedFrame(f"a frame of {size} bytes, allowed are 1 to {frame_bytes_max}")
            if size > end - pos - 4:
                return _new(FrameSplit, (frames, pos, 4 + size))
            frames.append((pos + 4, pos + 4 + size))
            pos += 4 + size
        return _new(FrameSplit, (frames, pos, 4))
    finally:
        release(view)


def parse_produce(buf: Any, pos: int, end: int, version: int) -> ProduceRequestView:
    """The body of a Produce request, `buf[pos:end]` without the request header."""
    if version < 3 or version > 13:
        raise UnsupportedVersion(f"ProduceRequest has no version {version}")
    view = acquire(buf)
    try:
        _check_range(pos, end, length(view))
        return _parse_produce(pointer(view), pos, end, version)
    except UnicodeDecodeError as error:
        raise MalformedFrame("a string of a ProduceRequest is not UTF-8") from error
    finally:
        release(view)


def parse_fetch(buf: Any, pos: int, end: int, version: int) -> FetchRequestView:
    """The body of a Fetch request, `buf[pos:end]` without the request header."""
    if version < 4 or version > 18:
        raise UnsupportedVersion(f"FetchRequest has no version {version}")
    view = acquire(buf)
    try:
        _check_range(pos, end, length(view))
        return _parse_fetch(pointer(view), pos, end, version)
    except UnicodeDecodeError as error:
        raise MalformedFrame("a string of a FetchRequest is not UTF-8") from error
    finally:
        release(view)


def _parse_produce(p: Any, pos: int, end: int, version: int) -> ProduceRequestView:
    flexible = version >= 9
    transactional_id, pos = _take_nullable_text(p, pos, end, flexible)
    _need(pos, 6, end)
    acks = load_int16(p, pos)
    timeout_ms = load_int32(p, pos + 2)
    pos += 6
    topics: list[ProduceTopic] = []
    topic_count, pos = _read_count(p, pos, end, flexible, 3 if flexible else 6, ARRAY_ITEMS_MAX)
    room = ARRAY_ITEMS_MAX - topic_count
    while topic_count > 0:
        topic_count -= 1
        name, topic_id, pos = _take_topic(p, pos, end, flexible, version >= 13)
        count, pos = _read_count(p, pos, end, flexible, 6 if flexible else 8, room)
        room -= count
        partitions: list[ProducePartition] = []
        while count > 0:
            count -= 1
            _need(pos, 4, end)
            index = load_int32(p, pos)
            start, size, pos = _read_bytes(p, pos + 4, end, flexible)
            if size < 0:
                partitions.append(_new(ProducePartition, (index, -1, -1)))
            else:
                partitions.append(_new(ProducePartition, (index, start, start + size)))
            if flexible:
                pos = _skip_tags(p, pos, end)
        if flexible:
            pos = _skip_tags(p, pos, end)
        topics.append(_new(ProduceTopic, (name, topic_id, partitions)))
    if flexible:
        _skip_tags(p, pos, end)
    return _new(ProduceRequestView, (transactional_id, acks, timeout_ms, topics))


def _parse_fetch(p: Any, pos: int, end: int, version: int) -> FetchRequestView:
    flexible = version >= 12
    replica_id = -1
    replica_epoch = -1
    if version < 15:
        _need(pos, 4, end)
        replica_id = load_int32(p, pos)
        pos += 4
    _need(pos, 13, end)
    max_wait_ms = load_int32(p, pos)
    min_bytes = load_int32(p, pos + 4)
    max_bytes = load_int32(p, pos + 8)
    isolation_level = load_int8(p, pos + 12)
    pos += 13
    session_id = 0
    session_epoch = -1
    if version >= 7:
        _need(pos, 8, end)
        session_id = load_int32(p, pos)
        session_epoch = load_int32(p, pos + 4)
        pos += 8
    topics: list[FetchTopicView] = []
    topic_count, pos = _read_count(p, pos, end, flexible, 3 if flexible else 6, ARRAY_ITEMS_MAX)
    room = ARRAY_ITEMS_MAX - topic_count
    while topic_count > 0:
        topic_count -= 1
        name, topic_id, pos = _take_topic(p, pos, end, flexible, version >= 13)
        count, pos = _read_count(p, pos, end, flexible, 16, room)
        room -= count
        partitions: list[FetchPartitionView] = []
        while count > 0:
            count -= 1
            pos = _parse_fetch_partition(p, pos, end, version, partitions)
        if flexible:
            pos = _skip_tags(p, pos, end)
        topics.append(_new(FetchTopicView, (name, topic_id, partitions)))
    forgotten: list[ForgottenTopicView] = []
    if version >= 7:
        topic_count, pos = _read_count(p, pos, end, flexible, 3 if flexible else 6, room)
        room -= topic_count
        while topic_count > 0:
            topic_count -= 1
            name, topic_id, pos = _take_topic(p, pos, end, flexible, version >= 13)
            count, pos = _read_count(p, pos, end, flexible, 4, room)
            room -= count
            indexes: list[int] = []
            while count > 0:
                count -= 1
                indexes.append(load_int32(p, pos))
                pos += 4
            if flexible:
                pos = _skip_tags(p, pos, end)
            forgotten.append(_new(ForgottenTopicView, (name, topic_id, indexes)))
    rack_id = ""
    if version >= 11:
        rack_id, pos = _take_text(p, pos, end, flexible)
    cluster_id = None
    if flexible:
        tag_count, pos = _read_uvarint(p, pos, end)
        while tag_count > 0:
            tag_count -= 1
            tag, size, pos = _read_tag(p, pos, end)
            tag_end = pos + size
            if tag == 0:
                cluster_id, pos = _take_nullable_text(p, pos, tag_end, True)
                _check_tag_end(pos, tag_end)
            elif tag == 1 and version >= 15:
                _need(pos, 12, tag_end)
                replica_id = load_int32(p, pos)
                replica_epoch = load_int64(p, pos + 4)
                _check_tag_end(_skip_tags(p, pos + 12, tag_end), tag_end)
            pos = tag_end
    return _new(
        FetchRequestView,
        (
            cluster_id,
            replica_id,
            replica_epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
        ),
    )


def _parse_fetch_partition(
    p: Any, pos: int, end: int, version: int, partitions: list[FetchPartitionView]
) -> int:
    """Appends the partition at `pos`; the position behind it."""
    current_leader_epoch = -1
    last_fetched_epoch = -1
    log_start_offset = -1
    _need(pos, _fetch_partition_bytes(version), end)
    index = load_int32(p, pos)
    pos += 4
    if version >= 9:
        current_leader_epoch = load_int32(p, pos)
        pos += 4
    fetch_offset = load_int64(p, pos)
    pos += 8
    if version >= 12:
        last_fetched_epoch = load_int32(p, pos)
        pos += 4
    if version >= 5:
        log_start_offset = load_int64(p, pos)
        pos += 8
    partition_max_bytes = load_int32(p, pos)
    pos += 4
    directory_id = _NO_ID
    high_watermark = _UNKNOWN_HIGH_WATERMARK
    if version >= 12:
        tag_count, pos = _read_uvarint(p, pos, end)
        while tag_count > 0:
            tag_count -= 1
            tag, size, pos = _read_tag(p, pos, end)
            if tag == 0 and version >= 17:
                _check_tag_end(16, size)
                directory_id = take_bytes(p, pos, pos + 16)
            elif tag == 1 and version >= 18:
                _check_tag_end(8, size)
                high_watermark = load_int64(p, pos)
            pos += size
    partitions.append(
        _new(
            FetchPartitionView,
            (
                index,
                current_leader_epoch,
                fetch_offset,
                last_fetched_epoch,
                log_start_offset,
                partition_max_bytes,
                directory_id,
                high_watermark,
            ),
        )
    )
    return pos


def _fetch_partition_bytes(version: int) -> int:
    """Of its untagged fields."""
    if version >= 12:
        return 32
    if version >= 9:
        return 28
    return 24 if version >= 5 else 16


def _check_range(pos: int, end: int, size: int) -> None:
    if pos < 0 or end < pos or end > size:
        raise ValueError(f"no range [{pos}, {end}) in {size} bytes")


def _need(pos: int, count: int, end: int) -> int:
    if count > end - pos:
        raise MalformedFrame(f"{count} bytes are missing at byte {pos}, where {end - pos} are left")
    return 0


def _check_tag_end(found: int, stated: int) -> int:
    if found != stated:
        raise MalformedFrame(f"a tagged field takes {found} bytes where it states {stated}")
    return 0


def _read_uvarint(p: Any, pos: int, end: int) -> tuple[int, int]:
    value, after = read_uvarint(p, pos, end)
    if after < 0:
        raise MalformedFrame(f"a broken varint at byte {pos}")
    return value, after


def _read_tag(p: Any, pos: int, end: int) -> tuple[int, int, int]:
    """(tag, size, position of its content), all of which is there."""
    tag, pos = _read_uvarint(p, pos, end)
    size, pos = _read_uvarint(p, pos, end)
    _need(pos, size, end)
    return tag, size, pos


def _skip_tags(p: Any, pos: int, end: int) -> int:
    if pos < end and p[pos] == 0:
        return pos + 1
    count, pos = _read_uvarint(p, pos, end)
    while count > 0:
        count -= 1
        _, size, pos = _read_tag(p, pos, end)
        pos += size
    return pos


def _read_count(
    p: Any, pos: int, end: int, flexible: bool, min_item_bytes: int, room: int
) -> tuple[int, int]:
    """(items of the array at `pos`, position of the first)."""
    if flexible:
        count, pos = _read_uvarint(p, pos, end)
        count -= 1
    else:
        _need(pos, 4, end)
        count = load_int32(p, pos)
        pos += 4
    if count < 0:
        raise MalformedFrame(f"an array that may not be null has {count} items at byte {pos}")
    if count > (end - pos) // min_item_bytes:
        raise MalformedFrame(f"an array claims {count} items where {end - pos} bytes are left")
    if count > room:
        raise MalformedFrame(f"more than {ARRAY_ITEMS_MAX} array items")
    return count, pos


def _read_bytes(p: Any, pos: int, end: int, flexible: bool) -> tuple[int, int, int]:
    """(start, size or -1 for null, position behind) of nullable bytes."""
    if flexible:
        size, pos = _read_uvarint(p, pos, end)
        size -= 1
    else:
        _need(pos, 4, end)
        size = load_int32(p, pos)
        pos += 4
    if size < 0:
        if size < -1:
            raise MalformedFrame(f"bytes of size {size} at byte {pos}")
        return pos, -1, pos
    _need(pos, size, end)
    return pos, size, pos + size


def _read_string(p: Any, pos: int, end: int, flexible: bool) -> tuple[int, int, int]:
    """(start, size or -1 for null, position behind) of a nullable string."""
    if flexible:
        size, pos = _read_uvarint(p, pos, end)
        size -= 1
    else:
        _need(pos, 2, end)
        size = load_int16(p, pos)
        pos += 2
    if size < 0:
        if size < -1:
            raise MalformedFrame(f"a string of size {size} at byte {pos}")
        return pos, -1, pos
    if size > STRING_BYTES_MAX:
        raise MalformedFrame(f"a string of {size} bytes at byte {pos}")
    _need(pos, size, end)
    return pos, size, pos + size


def _take_nullable_text(p: Any, pos: int, end: int, flexible: bool) -> tuple[str | None, int]:
    start, size, after = _read_string(p, pos, end, flexible)
    if size < 0:
        return None, after
    return take_text(p, start, start + size), after


def _take_text(p: Any, pos: int, end: int, flexible: bool) -> tuple[str, int]:
    start, size, after = _read_string(p, pos, end, flexible)
    if size < 0:
        raise MalformedFrame(f"a string that may not be null is, at byte {pos}")
    return take_text(p, start, start + size), after


def _take_topic(p: Any, pos: int, end: int, flexible: bool, has_id: bool) -> tuple[str, bytes, int]:
    """(name or "", id or zeros, position behind)."""
    if has_id:
        _need(pos, 16, end)
        return "", take_bytes(p, pos, pos + 16), pos + 16
    name, pos = _take_text(p, pos, end, flexible)
    return name, _NO_ID, pos
