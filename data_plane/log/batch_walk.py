"""Walk the batches of a stored segment in bounded pieces, and find the bad ones.

`BatchWalk` stops at the first unsound byte: what recovery wants beyond the recovery point.
`find_bad_ranges` goes on behind it: what the scrubber and the first read want of bytes that were
once synced, where one flipped bit must not hide the rest.

What is checked: sizes, magic and CRC32C; and of base offset and leader epoch, which the CRC does
not cover, that they increase and fit to the neighbours. Where two batches overlap, the one that
goes on where the batch before ended is believed; where neither does, none.

Worked example: 10..11, 12..13 with a flipped bit that makes it 28..29, 14..15: the second one does
not go on at 12 and overlaps with 14, so it is the bad one.

What this cannot see: a last batch that lies by a gap which nothing follows, and an epoch of the
first or last batch that still is in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from data_plane.log.file_system import Buffer, File
from data_plane.wire.kernel import scan_batches
from data_plane.wire.records import BatchHeader

WALK_CHUNK_BYTES = 1 << 20
BATCH_HEADER_BYTES = 61
LENGTH = struct.Struct(">i")
OFFSET_AND_EPOCH = struct.Struct(">qii")
OFFSETS_END = (1 << 63) - 1
UNKNOWN_EPOCH = -1
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
    batches end and `problem` what comes there ("" for the end).

    Offsets lie in [next_offset, end_offset). `doubts_next`: the batch after the unsound one is not
    to be trusted either."""

    def __init__(
        self,
        file: File,
        start: int,
        end: int,
        *,
        check_crc: bool,
        next_offset: int = 0,
        end_offset: int = OFFSETS_END,
    ) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self._end_offset = end_offset
        self._epoch = UNKNOWN_EPOCH
        self.end_position = start
        self.next_offset = next_offset
        self.problem = ""
        self.doubts_next = False

    def __iter__(self) -> Iterator[Chunk]:
        chunk_bytes = WALK_CHUNK_BYTES
        while self.end_position < self._end and not self.problem:
            position = self.end_position
            data = self._file.read_at(position, min(chunk_bytes, self._end - position))
            headers, stop, problem = scan_batches(data, 0, len(data), check_crc=self._check_crc)
            count = self._count_credible(headers, position + stop)
            if count < len(headers):
                stop = headers[count].position
                del headers[count:]
            if headers:
                self.end_position = position + stop
                self.next_offset = headers[-1].next_offset
                yield Chunk(position, data, headers)
            chunk_bytes = WALK_CHUNK_BYTES
            if self.problem:
                return
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

    def resume_position(self) -> int | None:
        """Where the next batch to trust begins behind the problem; None without one."""
        found = find_sound_batch(self._file, self.end_position + 1, self._end)
        if found is not None and self.doubts_next:
            return batch_end(self._file, found, self._end)
        return found

    def _frame_at(self, position: int) -> tuple[int, int] | None:
        """(base offset, leader epoch) of the sound batch at `position`; None without one."""
        if not is_sound_batch(self._file, position, self._end):
            return None
        data = self._file.read_at(position, OFFSET_AND_EPOCH.size)
        base_offset, _, epoch = OFFSET_AND_EPOCH.unpack(data)
        return base_offset, epoch

    def _count_credible(self, headers: list[BatchHeader], position: int) -> int:
        """How many of `headers`, whose bytes end at `position`, have fitting offsets and epochs."""
        expected = self.next_offset
        last = len(headers) - 1
        for index, header in enumerate(headers):
            fits = header.base_offset == expected and header.next_offset <= self._end_offset
            if not fits or header.partition_leader_epoch != self._epoch:
                following: tuple[int, int] | None
                if index < last:
                    after = headers[index + 1]
                    following = (after.base_offset, after.partition_leader_epoch)
                else:
                    following = self._frame_at(position)
                if not fits:
                    self._judge_offsets(header, expected, following)
                self._judge_epoch(header, following)
            if self.problem:
                return index
            expected = header.next_offset
        return len(headers)

    def _judge_offsets(
        self, header: BatchHeader, expected: int, following: tuple[int, int] | None
    ) -> None:
        base_offset, next_offset = header.base_offset, header.next_offset
        if base_offset < expected:
            self.problem = f"the base offset {base_offset} is out of order"
        elif next_offset > self._end_offset:
            self.problem = f"its offsets reach beyond {self._end_offset}"
        elif (
            base_offset > expected
            and following is not None
            and expected <= following[0] < next_offset
        ):
            self.problem = f"the base offset {base_offset} overlaps with the next batch"
            # Where compaction has left gaps, the next one may be the one that lies.
            self.doubts_next = following[0] != expected + next_offset - base_offset

    def _judge_epoch(self, header: BatchHeader, following: tuple[int, int] | None) -> None:
        epoch = header.partition_leader_epoch
        if epoch in (self._epoch, UNKNOWN_EPOCH):
            return
        is_refuted = following is not None and max(self._epoch, 0) <= following[1] < epoch
        if epoch < self._epoch or epoch < 0 or is_refuted:
            self.problem = self.problem or f"the leader epoch {epoch} is out of order"
        else:
            self._epoch = epoch


def find_bad_ranges(
    file: File,
    end: int,
    base_offset: int,
    end_offset: int,
    boundary_above: Callable[[int], int | None],
    on_chunk: Callable[[Chunk], None] | None = None,
) -> list[BadRange]:
    """Check file[0:end], whose offsets lie in [base_offset, end_offset), and return what is bad.

    `boundary_above(position)` is the next batch start that an index knows: behind a broken batch
    length every byte up to there is tried. `on_chunk` sees every sound chunk.
    """
    bad: list[BadRange] = []
    position, next_offset = 0, base_offset
    while position < end:
        walk = BatchWalk(
            file,
            position,
            end,
            check_crc=True,
            next_offset=next_offset,
            end_offset=end_offset,
        )
        for chunk in walk:
            if on_chunk is not None:
                on_chunk(chunk)
        next_offset = walk.next_offset
        if not walk.problem:
            break
        start = walk.end_position
        position = _resume_position(file, start, end, boundary_above)
        bad.append(BadRange(start, position, walk.problem))
        if walk.doubts_next and position < end:
            start, position = position, batch_end(file, position, end)
            bad.append(BadRange(start, position, walk.problem))
    return bad


def pieces_around(
    bad_ranges: Sequence[BadRange] | None, position: int, end: int
) -> Iterator[tuple[int, int]]:
    """[start, end) of each piece of [position, end) between the bad ranges, which are in order. Who
    walked on through one that is known would believe what it says of its length and its records."""
    for bad in bad_ranges or ():
        if position < bad.start:
            yield position, min(bad.start, end)
        position = max(position, bad.end)
    if position < end:
        yield position, end


def batch_end(file: File, position: int, end: int) -> int:
    """Where the sound batch at `position` ends."""
    length: int = LENGTH.unpack_from(file.read_at(position, FRAME_BYTES), 8)[0]
    return min(position + FRAME_BYTES + length, end)


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
    while boundary is not None and boundary < end and not is_sound_batch(file, boundary, end):
        boundary = boundary_above(boundary)
    limit = end if boundary is None else min(boundary, end)
    found = find_sound_batch(file, start + 1, limit)
    return limit if found is None else found


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

    Only taken where a length field is damaged; reads in chunks that overlap by a header, so that
    memory stays bounded.
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
