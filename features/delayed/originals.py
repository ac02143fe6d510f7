"""Hidden originals, read from the log; in a worker thread.

Deliberately absent: which of them are pending.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from data_plane.log.file_system import Buffer
from data_plane.log.log import Log
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import (
    BatchHeader,
    Record,
    decode_batch,
    decode_chosen,
    read_batch_header,
)
from features.delayed.times import DELIVER_AT_HEADER

# Batches that are unpacked at a time.
BATCHES_KEPT_MAX: Final = 16
# What a header takes in memory, whatever it says: compressed, a million take next to nothing.
HEADER_BYTES: Final = 64


class Originals:
    """Reads records, and keeps the last batches. With `wanted` only these are asked for, and kept;
    they ascend."""

    def __init__(self, log: Log, end_offset: int, wanted: Sequence[int] | None = None) -> None:
        self._log = log
        self._end_offset = end_offset
        self._wanted = wanted
        # By its base offset: where each ends, and its records if they are of a flagged batch.
        self._kept: dict[int, tuple[int, dict[int, Record]]] = {}
        self.compression = 0

    def find(self, offset: int) -> Record | None:
        """The record of a flagged batch, hidden or not. Raises LogError and InvalidRecords."""
        for base_offset, (next_offset, records) in self._kept.items():
            if base_offset <= offset < next_offset:
                return records.get(offset)
        read = self._log.read_held(offset, max_offset=self._end_offset)
        data: Buffer = read.buffers[0] if len(read.buffers) == 1 else b"".join(read.buffers)
        if not data:
            return None
        header = read_batch_header(data, 0)
        records = {}
        if header.attributes & HIDDEN_FLAG:
            self.compression = header.compression
            records = {record.offset: record for record in self._decoded(data, header)}
        if len(self._kept) >= BATCHES_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[header.base_offset] = header.next_offset, records
        return records.get(offset)

    def _decoded(self, data: Buffer, header: BatchHeader) -> list[Record]:
        if self._wanted is None:
            return decode_batch(data, 0)
        first = bisect_left(self._wanted, header.base_offset)
        end = bisect_left(self._wanted, header.next_offset)
        return decode_chosen(data, header, self._wanted[first:end])

    def find_message(self, offset: int) -> Record | None:
        """The delayed message at `offset`, pending or not. Raises as `find`."""
        record = self.find(offset)
        if record is None or all(key != DELIVER_AT_HEADER for key, _ in record.headers):
            return None
        return record


def size_of(record: Record) -> int:
    """The bytes of its key, value and headers, in memory."""
    headers = sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
