"""Files that others keep beside a segment: what they have made of its first batches.

    00000000000000000000.tags.side      made of the first bytes of 00000000000000000000.log

Such a file is an aid that may be missing: whoever keeps it makes it anew from the batches. It says
of which bytes it was made, and goes when they go: with the segment, or when compaction rewrites it.

Invariants
- What is read is whole (a checksum) and was made of the very batches that the segment begins with.
  It names the last of them by its header. A log that was cut, and got other batches, has none with
  that header there: what comes in the place of another batch is of another leader epoch.
- Nothing is synced: after power loss a file may be torn, or old. Those of segments that may have
  lost something are removed by the recovery.

Deliberately absent: what the files say, and when they are written (whoever keeps them).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from data_plane.log.cold_files import cold_file
from data_plane.log.segment import SIDE_SUFFIX, Segment
from data_plane.wire.errors import InvalidRecords
from data_plane.wire.records import BATCH_HEADER_BYTES, read_batch_header

_MAGIC: Final = b"TWS1"
# Magic, size, next offset and last position of the prefix, and the header of its last batch.
_HEAD = struct.Struct(f">4sqqq{BATCH_HEADER_BYTES}s")
_CHECKSUM = struct.Struct(">I")


class Prefix(NamedTuple):
    """The first `size` bytes of a segment, whole batches up to `next_offset`. The last of them
    begins at `last_position` with the bytes `last_header`."""

    size: int
    next_offset: int
    last_position: int
    last_header: bytes


def read_side_file(segment: Segment, name: str) -> tuple[Prefix, memoryview] | None:
    """What the file says, and of which batches; None where it is missing or not of this segment.
    For a worker thread: raises Retired, OSError."""
    try:
        data = segment.directory.fs.read_file(_path(segment, name))
    except FileNotFoundError:
        return None
    end = len(data) - _CHECKSUM.size
    if end < _HEAD.size:
        return None
    content = memoryview(data)[:end]
    if _CHECKSUM.unpack_from(data, end)[0] != crc32c(content):
        return None
    magic, *fields = _HEAD.unpack_from(data)
    prefix = Prefix(*fields)
    if magic != _MAGIC or not _is_there(segment, prefix):
        return None
    return prefix, content[_HEAD.size :]


def _is_there(segment: Segment, prefix: Prefix) -> bool:
    if prefix.size > segment.size:
        return False
    with cold_file(segment) as file:
        data = bytes(file.read_at(prefix.last_position, BATCH_HEADER_BYTES))
    if data != prefix.last_header:
        return False
    try:
        header = read_batch_header(data, 0)
    except InvalidRecords:
        return False
    return (
        prefix.last_position + header.size == prefix.size
        and header.next_offset == prefix.next_offset
    )


def write_side_file(segment: Segment, name: str, prefix: Prefix, content: bytes) -> None:
    """Replace the file, in place: who reads it meanwhile finds that it is not whole. For a worker
    thread: raises OSError."""
    if segment.retired:
        return
    head = _HEAD.pack(_MAGIC, *prefix)
    checksum = _CHECKSUM.pack(crc32c(content, crc32c(head)))
    file = segment.directory.fs.open(_path(segment, name), create=True)
    try:
        file.truncate(0)
        file.write_at(0, head + content + checksum)
        if segment.retired:
            # Whoever removes the segment's files may have passed by. The name is left to him: he
            # may be about to remove it.
            file.truncate(0)
    finally:
        file.close()


def _path(segment: Segment, name: str) -> str:
    return segment.path(f".{name}{SIDE_SUFFIX}")
