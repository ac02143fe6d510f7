"""The `.snapshot` file: Kafka's producer snapshot, version 1, big-endian.

    version i16   crc u32 (CRC32C of all that follows)   count i32
    per row: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
             timestamp i64, coordinator epoch i32, first offset of the open transaction i64

Kafka writes one row a producer, with its last batch. This writes one for each cached batch, oldest
first, so that all five survive a restart; Kafka's reader takes the last row of a producer id and
so reads the file as if it had written it. The crc makes a torn file known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from data_plane.log.file_system import Buffer
from data_plane.log.fold import SnapshotFile

VERSION = 1
NO_OFFSET = -1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ROW = struct.Struct(">qhiqiqiq")
# Written at once; the interpreter is not held for long by any piece.
ROWS_PER_WRITE = 1000


class SnapshotRow(NamedTuple):
    """One cached batch of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_producer_snapshot(rows: Sequence[SnapshotRow]) -> bytes:
    """The file's bytes."""
    body = _COUNT.pack(len(rows)) + b"".join(_ROW.pack(*row) for row in rows)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def write_producer_snapshot(
    file: SnapshotFile, rows_count: int, pieces: Iterable[Sequence[SnapshotRow]]
) -> None:
    """As `encode_producer_snapshot`, into an empty file and without having all of it in memory."""
    data = _COUNT.pack(rows_count)
    crc, position = 0, _HEAD.size
    for rows in pieces:
        data += b"".join(_ROW.pack(*row) for row in rows)
        crc = crc32c(data, crc)
        file.write_at(position, data)
        position += len(data)
        data = b""
    if data:
        crc = crc32c(data, crc)
        file.write_at(position, data)
    # The head comes last: a file without it is not whole.
    file.write_at(0, _HEAD.pack(VERSION, crc))


def decode_producer_snapshot(data: bytes) -> list[SnapshotRow]:
    """The rows of a file; ValueError when it is not whole."""
    return list(read_producer_snapshot([data]))


def read_producer_snapshot(pieces: Iterable[Buffer]) -> Iterator[SnapshotRow]:
    """The rows of a file that comes in pieces. ValueError when it is not whole: that may be known
    only at its end, when all rows were given."""
    rest = b""
    rows_left = crc = wanted_crc = -1
    for piece in pieces:
        data = rest + bytes(piece) if rest else bytes(piece)
        position = 0
        if rows_left < 0:
            if len(data) < _HEAD.size + _COUNT.size:
                rest = data
                continue
            version, wanted_crc = _HEAD.unpack_from(data)
            if version != VERSION:
                raise ValueError(f"unknown producer snapshot version {version}")
            (rows_left,) = _COUNT.unpack_from(data, _HEAD.size)
            position = _HEAD.size + _COUNT.size
            crc = crc32c(data[_HEAD.size : position])
        end = len(data) - (len(data) - position) % _ROW.size
        rows = memoryview(data)[position:end]
        crc = crc32c(rows, crc)
        rows_left -= len(rows) // _ROW.size
        if rows_left < 0:
            raise ValueError("the producer snapshot has more rows than it says")
        for fields in _ROW.iter_unpack(rows):
            yield SnapshotRow(*fields)
        rest = data[end:]
    if rows_left or rest:
        raise ValueError("the producer snapshot ends before its last row")
    if crc != wanted_crc:
        raise ValueError("the producer snapshot's crc is not that of its bytes")
