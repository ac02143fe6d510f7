"""Walk the batches of a stored segment in bounded pieces, and find the bad ones.

`BatchWalk` stops at the first unsound byte: what recovery wants beyond the recovery point.
`find_bad_ranges` goes on behind it: what the scrubber and the first read want of bytes that were
once synced, where one flipped bit must not hide the rest.

What is checked: sizes, magic, CRC32C, and that offsets increase and stay within the segment, since
the CRC does not cover the base offset. A flipped base offset shows as an overlap with a neighbour;
both are reported then, as nothing tells which of them lies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from data_plane.log.file_system import Buffer, File
from data_plane.wire.kernel import scan_batches
from data_plane.wire.records import BatchHeader

WALK_CHUNK_BYTES = 1 << 20
BATCH_HEADER_BYTES = 61
LENGTH = struct.Struct(">i")
FRAME_BYTES = 12
MAGIC_POSITION = 16
MAGIC = 2


class Chunk(NamedTuple):
    """Whole batches in memory: `headers[i].position` counts within `data`, which stands at byte
    `position` of the file."""

    position: int
    data: Buffer
    headers: list[BatchHeader]


class BadRange(NamedTuple):
    """Bytes [start, end) of a segment that are not served."""

    start: int
    end: int
    reason: str


class BatchWalk:
    """Iterates over the chunks of file[start:end]; afterwards `end_position` is where the sound
    batches end and `problem` what comes there ("" for the end)."""

    def __init__(
        self, file: File, start: int, end: int, *, check_crc: bool, next_offset: int = 0
    ) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self.end_position = start
        self.next_offset = next_offset
        self.problem = ""

    def __iter__(self) -> Iterator[Chunk]:
        chunk_bytes = WALK_CHUNK_BYTES
        while self.end_position < self._end and not self.problem:
            position = self.end_position
            data = self._file.read_at(position, min(chunk_bytes, self._end - position))
            headers, stop, problem = scan_batches(data, 0, len(data), check_crc=self._check_crc)
            if headers and headers[0].base_offset < self.next_offset:
                self.problem = f"the base offset {headers[0].base_offset} is out of order"
                return
            if headers:
                self.end_position = position + stop
                self.next_offset = headers[-1].next_offset
                yield Chunk(position, data, headers)
            chunk_bytes = WALK_CHUNK_BYTES
            if not problem:
                if not data:
                    self.problem = "incomplete"
                continue
            if problem != "incomplete" or position + len(data) >= self._end:
                self.problem = problem
            elif not headers:
                # One batch larger than the chunk: read it whole next time.
                chunk_bytes = FRAME_BYTES + LENGTH.unpack_from(data, 8)[0]
                if chunk_bytes > self._end - position:
                    self.problem = "incomplete"


def find_bad_ranges(
    file: File,
    end: int,
    base_offset: int,
    end_offset: int,
    boundary_above: Callable[[int], int | None],
    on_chunk: Callable[[Chunk], None] | None = None,
) -> list[BadRange]:
    """Check file[0:end], whose offsets lie in [base_offset, end_offset), and return what is bad.

    `boundary_above(position)` is the next batch start that an index knows, to go on from behind a
    broken batch length. `on_chunk` sees every sound chunk.
    """
    bad: list[BadRange] = []
    position, next_offset = 0, base_offset
    last_start = 0
    while position < end:
        walk = BatchWalk(file, position, end, check_crc=True, next_offset=next_offset)
        for chunk in walk:
            last_start = chunk.position + chunk.headers[-1].position
            if chunk.headers[-1].next_offset > end_offset:
                first = next(h for h in chunk.headers if h.next_offset > end_offset)
                start = chunk.position + first.position
                walk.problem = f"its offsets reach beyond the segment's end {end_offset}"
                walk.end_position, walk.next_offset = start, next_offset
                break
            if on_chunk is not None:
                on_chunk(chunk)
            next_offset = chunk.headers[-1].next_offset
        if not walk.problem:
            break
        start = walk.end_position
        resume = _resume_position(file, start, end, boundary_above)
        if "out of order" in walk.problem and start > 0:
            bad.append(BadRange(last_start, start, "its offsets overlap with the next batch"))
        bad.append(BadRange(start, resume, walk.problem))
        next_offset = max(next_offset, base_offset)
        position = resume
        if "out of order" in walk.problem:
            # The overlap may come from the batch before: take the next one at its word.
            next_offset = base_offset
    return bad


def _resume_position(
    file: File, start: int, end: int, boundary_above: Callable[[int], int | None]
) -> int:
    """Where a sound batch begins behind the bad one at `start`; `end` when there is none."""
    frame = file.read_at(start, FRAME_BYTES)
    if len(frame) == FRAME_BYTES:
        length: int = LENGTH.unpack_from(frame, 8)[0]
        candidate = start + FRAME_BYTES + length
        if length >= BATCH_HEADER_BYTES - FRAME_BYTES and candidate == end:
            return end
        if length > 0 and candidate < end and is_sound_batch(file, candidate, end):
            return candidate
    boundary = boundary_above(start)
    while boundary is not None and boundary < end:
        if is_sound_batch(file, boundary, end):
            return boundary
        boundary = boundary_above(boundary)
    found = find_sound_batch(file, start + 1, end)
    return end if found is None else found


def is_sound_batch(file: File, position: int, end: int) -> bool:
    """Whether a whole batch with a right CRC begins at `position`."""
    frame = file.read_at(position, BATCH_HEADER_BYTES)
    if len(frame) < BATCH_HEADER_BYTES or frame[MAGIC_POSITION] != MAGIC:
        return False
    length = LENGTH.unpack_from(frame, 8)[0]
    if length < BATCH_HEADER_BYTES - FRAME_BYTES or position + FRAME_BYTES + length > end:
        return False
    data = file.read_at(position, FRAME_BYTES + length)
    headers, _, problem = scan_batches(data, 0, len(data), check_crc=True)
    return len(headers) == 1 and not problem


def find_sound_batch(file: File, start: int, end: int) -> int | None:
    """The first position ≥ start where a sound batch begins, found by trying every byte.

    Only taken where a length field is damaged and no index helps; reads in chunks that overlap by
    a header, so that memory stays bounded.
    """
    position = start
    while position + BATCH_HEADER_BYTES <= end:
        data = bytes(file.read_at(position, min(WALK_CHUNK_BYTES, end - position)))
        at = data.find(MAGIC, MAGIC_POSITION)
        while at >= 0:
            candidate = at - MAGIC_POSITION
            if candidate + BATCH_HEADER_BYTES <= len(data):
                length = LENGTH.unpack_from(data, candidate + 8)[0]
                plausible = 49 <= length <= end - position - candidate - FRAME_BYTES
                if plausible and is_sound_batch(file, position + candidate, end):
                    return position + candidate
            at = data.find(MAGIC, at + 1)
        if len(data) <= BATCH_HEADER_BYTES:
            return None
        position += len(data) - BATCH_HEADER_BYTES + 1
    return None
