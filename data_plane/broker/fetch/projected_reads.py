"""How a fetch reads a projected partition: it scans the source and keeps what is shown.

    offset     0 ........ 40 ........ 55 ........ 70 ........ 90
               fetch      shown:      shown:      scanned     readable end
               offset     40..44      55          up to here

- The scan goes on where it stopped for as long as the fetch waits, and where the client goes on
  next time, so nothing is looked at twice. What the projection knows not to be shown is not read.
- What is in memory, plain and short is scanned at once. The rest is scanned by a thread, a slice of
  each partition at a time (a *turn*); when it is back the fetch is looked at again.
- A batch of which all is shown goes out as it is stored, any other one is written anew: the base
  offset stays, the last offset is that of its last record (some clients crawl through a gap at
  the tail), the codec and the producer's fields stay, length and CRC are new.
- When nothing is shown by the time of the answer, and offsets were scanned, the answer has one
  control batch at the last of them. Clients go on behind it (control_batches.py).
- Control batches go out behind the first batch with records. Before it they would tell of nothing,
  and a fetch would be answered for them alone. The list of aborted transactions begins at that
  batch, so a producer whose marker lies before it is not in the list either.

Invariants
- A batch whose bytes are not those of its CRC is neither passed over nor written anew: its client
  could not see the damage, and would lose or take for true what it did to the records. The log
  hears of it, and has it repaired: what this process has written nobody else checks for days.
- No record below the fetch offset comes from a batch that was written anew, or a client would go
  back to it.
- A scan is forgotten when its projection has ended, when the fetch begins elsewhere or may not read
  as far as it has scanned, and when the log has been truncated below its position.

Deliberately absent: which records are shown (projection.py), when the fetch is answered
(fetch_poll.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from data_plane.broker.fetch.projection import (
    ProjectedPartition,
    Projection,
    SourceBatch,
    find_candidates,
)
from data_plane.log.errors import LogError
from data_plane.wire.control_batches import skip_batch
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import list_keys
from data_plane.wire.kernel_types import CODEC_MASK
from data_plane.wire.records import (
    BatchHeader,
    Buffer,
    filter_batch,
    is_crc_valid,
    iter_batch_headers,
    read_batch_header,
)

if TYPE_CHECKING:
    from data_plane.log.log import Log

# What one evaluation of a fetch scans on the loop: some 500 records, half a millisecond of Python.
LOOP_SCAN_BYTES_MAX = 32 << 10
# What a turn reads of one partition, and unpacks of it (with one batch more).
SLICE_BYTES_MAX = 1 << 20
SLICE_UNPACKED_BYTES_MAX = 16 << 20
# Between what is known not to be shown: pieces that a turn reads of one partition.
SLICE_READS_MAX = 64
# Partitions in one turn; the others are in the next ones.
TURN_PARTITIONS_MAX = 16
# More buffers than this are copied into one.
BUFFERS_MAX = 8


class UnreadableBatch(LogError):
    """A stored batch is damaged, or cannot be unpacked."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class DamagedBatch(UnreadableBatch):
    """The bytes of the batch at `offset` are not those of its CRC."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the batch at {offset} has another CRC")
        self.offset = offset


class ShownBatch(NamedTuple):
    """A batch, or what is shown of it; a reader goes on at `next_offset`."""

    buffer: Buffer
    base_offset: int
    next_offset: int


class Slice(NamedTuple):
    """What came of scanning: everything from its start to `position` is scanned.

    `last`: the last batch that was scanned. `is_full`: there is more to show at `position` than was
    asked for. `error`: why scanning cannot go on there."""

    shown: list[ShownBatch]
    position: int
    last: BatchHeader | None = None
    is_full: bool = False
    error: BaseException | None = None
    unpacked_bytes: int = 0


class Scan:
    """How far a fetch has scanned a projected partition, and what it has found."""

    __slots__ = (
        "error",
        "fetch_offset",
        "is_full",
        "is_running",
        "position",
        "projected",
        "seen_epoch",
        "seen_offset",
        "shown",
        "size",
        "turns_count",
    )

    def __init__(self, projected: ProjectedPartition, fetch_offset: int) -> None:
        self.projected = projected
        # What is shown from here up to `position` is `shown`, and nothing else.
        self.fetch_offset = fetch_offset
        self.position = fetch_offset
        # The last offset that was scanned, and the leader epoch in which it was written.
        self.seen_offset = -1
        self.seen_epoch = -1
        self.shown: list[ShownBatch] = []
        self.size = 0
        self.is_full = False
        self.error: BaseException | None = None
        # A thread is scanning on; and how often one has.
        self.is_running = False
        self.turns_count = 0

    def goes_on(
        self, projected: ProjectedPartition, fetch_offset: int, limit: int, log: Log
    ) -> bool:
        """Whether it holds for a fetch from `fetch_offset` up to `limit`, which it takes over
        then."""
        if (
            self.projected is not projected
            or not self.fetch_offset <= fetch_offset <= self.position <= limit
        ):
            return False
        if fetch_offset != self.fetch_offset:
            if self.shown or self.is_running:
                return False
            self.fetch_offset = fetch_offset
        # What comes in the place of a batch that was truncated is of a later leader epoch.
        return (
            self.position == fetch_offset
            or log.epoch_for_offset(self.seen_offset) == self.seen_epoch
        )

    def take(self, found: Slice, log: Log, bytes_max: int) -> None:
        """Add what was found from `position` on; it is asked for `bytes_max` in all."""
        self.shown += found.shown
        self.size += sum(len(shown.buffer) for shown in found.shown)
        self.is_full = found.is_full or self.size >= bytes_max
        self.error = found.error
        self.move_to(found.position, log)
        last = found.last
        if (
            last is not None
            and last.partition_leader_epoch >= 0
            and last.next_offset == found.position
        ):
            # That of the batch that was looked at: the log may have been truncated since.
            self.seen_offset, self.seen_epoch = last.last_offset, last.partition_leader_epoch

    def move_to(self, position: int, log: Log) -> None:
        """Nothing more is shown before `position`."""
        if position > self.position:
            self._set_position(position, log)

    def _set_position(self, position: int, log: Log) -> None:
        self.position = position
        self.seen_offset = position - 1
        self.seen_epoch = log.epoch_for_offset(self.seen_offset)

    def fitting(self, bytes_max: int) -> list[ShownBatch]:
        """What was found and is no more than `bytes_max`."""
        if self.size <= bytes_max:
            return self.shown
        size = 0
        for index, shown in enumerate(self.shown):
            size += len(shown.buffer)
            if size > bytes_max:
                return self.shown[:index]
        return self.shown

    def sent(self, batches: Sequence[ShownBatch], log: Log) -> None:
        """These are in an answer. What else was found is not kept: it is found again."""
        if batches:
            self.fetch_offset = batches[-1].next_offset
        if len(batches) < len(self.shown):
            # Up to the first one that was not sent nothing else is shown.
            next_base_offset = self.shown[len(batches)].base_offset
            self._set_position(max(self.fetch_offset, next_base_offset), log)
        self.shown = []
        self.size = 0
        self.is_full = False
        self.error = None


class SliceScan:
    """The next slice of a scan, to be scanned by a thread. `buffers` None: it is to be read from
    the disk."""

    __slots__ = (
        "_buffers",
        "_bytes_max",
        "_has_shown",
        "_limit",
        "_limit_epoch",
        "_log",
        "_next_offset",
        "_position",
        "scan",
    )

    def __init__(
        self,
        scan: Scan,
        log: Log,
        limit: int,
        bytes_max: int,
        buffers: Sequence[Buffer] | None,
        next_offset: int,
    ) -> None:
        """`bytes_max` is what may be found in all; `buffers` are followed by `next_offset`."""
        self.scan = scan
        self._has_shown = bool(scan.shown)
        self._log = log
        self._limit = limit
        # What is skipped is skipped by what the log was up to there.
        self._limit_epoch = log.epoch_for_offset(limit - 1)
        self._bytes_max = bytes_max
        self._buffers = buffers
        self._next_offset = next_offset
        # The scan's own may be another one by the time a thread gets here.
        self._position = scan.position

    @property
    def is_cold(self) -> bool:
        return self._buffers is None

    def run(self) -> Slice:
        """In a worker thread."""
        done = Slice([], self._position)
        read_bytes = unpacked_bytes = 0
        try:
            for _ in range(SLICE_READS_MAX):
                has_shown = self._has_shown or bool(done.shown)
                buffers, next_offset = self._next_piece(done, read_bytes, has_shown=has_shown)
                found = self._scan(buffers, next_offset, done, has_shown=has_shown)
                read_bytes += sum(map(len, buffers))
                unpacked_bytes += found.unpacked_bytes
                done = found._replace(
                    shown=[*done.shown, *found.shown], last=found.last or done.last
                )
                if (
                    done.is_full
                    or done.error is not None
                    or done.position >= self._limit
                    or read_bytes >= SLICE_BYTES_MAX
                    or unpacked_bytes >= SLICE_UNPACKED_BYTES_MAX
                ):
                    break
            if isinstance(done.error, DamagedBatch):
                self._log.find_damage(done.error.offset)
        except Exception as error:
            return done._replace(error=error)
        return done

    def run_at_once(self) -> Slice:
        """On the loop, where there is little to do: what was read, and no more."""
        assert self._buffers is not None
        done = Slice([], self._position)
        try:
            done = self._scan(self._buffers, self._next_offset, done, has_shown=self._has_shown)
            if isinstance(done.error, DamagedBatch):
                # Whoever asks next reads from the disk, which finds the place.
                self._log.doubt(done.error.offset)
            return done
        except Exception as error:
            return done._replace(error=error)

    def _next_piece(
        self, done: Slice, read_bytes: int, *, has_shown: bool
    ) -> tuple[Sequence[Buffer], int]:
        """What is to be scanned behind what was `done`, and where the log goes on behind it."""
        log, limit = self._log, self._limit
        start, stop = find_candidates(
            self.scan.projected.projection, log, done.position, limit, has_shown=has_shown
        )
        if start >= limit:
            return (), limit
        if self._buffers is not None and start == self._position:
            return self._buffers, self._next_offset
        cold = log.read_cold(
            start,
            max(SLICE_BYTES_MAX - read_bytes, 1),
            max_offset=stop,
            at_least_one_batch=True,
        )
        return cold.buffers, max(cold.next_offset, start)

    def _scan(
        self, buffers: Sequence[Buffer], next_offset: int, done: Slice, *, has_shown: bool
    ) -> Slice:
        size = sum(len(shown.buffer) for shown in done.shown)
        return scan_batches(
            self.scan.projected.projection,
            buffers,
            done.position,
            next_offset,
            self._bytes_max - self.scan.size - size,
            has_shown=has_shown,
        )

    def take(self, found: Slice) -> None:
        """Back on the loop."""
        try:
            if self._log.epoch_for_offset(self._limit - 1) != self._limit_epoch:
                # The log was cut, and goes on otherwise.
                return
            self.scan.take(found, self._log, self._bytes_max)
        except LogError as error:
            # The log has been lost since.
            self.scan.error = error


def scan_batches(
    projection: Projection,
    buffers: Sequence[Buffer],
    position: int,
    next_offset: int,
    bytes_max: int,
    *,
    has_shown: bool = False,
) -> Slice:
    """What is shown of the whole batches in `buffers` from offset `position` on, up to `bytes_max`
    and, unless it `has_shown` something before, at least one batch. `next_offset` is where the log
    goes on behind them."""
    shown: list[ShownBatch] = []
    size = unpacked_bytes = 0
    last: BatchHeader | None = None
    for buffer in buffers:
        for header in iter_batch_headers(buffer, 0, len(buffer)):
            batch = SourceBatch(buffer, header)
            piece: ShownBatch | None = None
            if not is_crc_valid(buffer, header):
                return Slice(shown, position, last, error=DamagedBatch(header.base_offset))
            if header.next_offset > position and (has_shown or not header.is_control):
                try:
                    piece = shown_part(projection, batch, position)
                except InvalidRecords as problem:
                    return Slice(shown, position, last, error=UnreadableBatch(str(problem)))
            if piece is not None:
                size += len(piece.buffer)
                if size > bytes_max and has_shown:
                    return Slice(shown, position, last, is_full=True)
                shown.append(piece)
                has_shown = True
            position = max(position, header.next_offset)
            last = header
            unpacked_bytes += batch.unpacked_bytes
            if unpacked_bytes >= SLICE_UNPACKED_BYTES_MAX:
                return Slice(shown, position, last, unpacked_bytes=unpacked_bytes)
    return Slice(shown, max(position, next_offset), last, unpacked_bytes=unpacked_bytes)


def shown_part(projection: Projection, batch: SourceBatch, offset_min: int) -> ShownBatch | None:
    """What is shown of a batch that ends at or behind `offset_min`; None when nothing is shown from
    there on. Raises InvalidRecords."""
    header = batch.header
    selection: bytes | bytearray | bool = True
    if not header.is_control:
        selection = projection.select(batch)
        if selection is False:
            return None
    if header.base_offset < offset_min and not header.is_control:
        selection = _from_offset(batch, selection, offset_min)
    if selection is True:
        whole = memoryview(batch.buffer)[header.position : header.end_position]
        return ShownBatch(whole, header.base_offset, header.next_offset)
    assert not isinstance(selection, bool)
    part = filter_batch(
        batch.buffer, header.position, selection, shrink=True, records=batch.records()
    )
    if part is None:
        return None
    return ShownBatch(part, header.base_offset, read_batch_header(part, 0).next_offset)


def _from_offset(
    batch: SourceBatch, selection: bytes | bytearray | bool, offset_min: int
) -> bytes | bytearray | bool:
    """The selection, without what lies below `offset_min` where the batch is not shown as it is."""
    header = batch.header
    records, start, end = batch.records()
    deltas = [key[0] for key in list_keys(records, start, end, header.record_count)]
    delta_min = offset_min - header.base_offset
    if selection is True:
        if deltas[-1] >= delta_min:
            return True
        return bytes(header.record_count)
    assert not isinstance(selection, bool)
    return bytes(
        1 if selected and delta >= delta_min else 0
        for selected, delta in zip(selection, deltas, strict=True)
    )


def is_scanned_at_once(buffers: Sequence[Buffer], bytes_max: int) -> bool:
    """Whether these batches are no longer than that in all, and none of them is packed."""
    return sum(map(len, buffers)) <= bytes_max and not any(
        header.attributes & CODEC_MASK
        for buffer in buffers
        for header in iter_batch_headers(buffer, 0, len(buffer))
    )


def joined(batches: Sequence[ShownBatch]) -> Sequence[Buffer]:
    """Their bytes, in not too many buffers."""
    buffers = [shown.buffer for shown in batches]
    return buffers if len(buffers) <= BUFFERS_MAX else [b"".join(buffers)]


def closing_batch(scan: Scan) -> bytes:
    """The control batch that moves a client to the scan's position."""
    return skip_batch(scan.position - 1)
