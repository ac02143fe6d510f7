"""What one Fetch scans of its projected partitions, and the turn that a thread is at.

    look at a partition ─► short, plain, in memory: scanned at once
                        ─► anything else: a slice of the next turn ─► thread ─► look again

Invariants
- A fetch has one turn at a time, and is not answered while it runs, so what a turn has found is in
  the answer. Every fetch has at least one turn if it needs one, however little it may wait: whoever
  asks again and again gets on.
- What was found counts with the records that consumers' fetches read from disk (cold_reads.py)
  until it is sent or dropped.
- Nothing that was found outlives the answer; how far was scanned does.

Deliberately absent: scanning (projected_reads.py); whether to wait for more (fetch_poll.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from data_plane.broker.fetch.cold_reads import ColdReads
from data_plane.broker.fetch.fetch_sessions import FetchPartition
from data_plane.broker.fetch.projected_reads import (
    LOOP_SCAN_BYTES_MAX,
    SLICE_BYTES_MAX,
    TURN_PARTITIONS_MAX,
    Scan,
    ShownBatch,
    Slice,
    SliceScan,
    is_scanned_at_once,
)
from data_plane.broker.request.api import RequestContext
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.log.log import Log
from data_plane.replica.partition import Partition

# A read costs, however little it finds.
LOOP_READ_BYTES_MIN = LOOP_SCAN_BYTES_MAX // 16


class FetchScans:
    """See the module. `is_scanning`: a turn runs."""

    __slots__ = (
        "_cold_reads",
        "_context",
        "_held_bytes",
        "_is_over",
        "_loop_bytes_left",
        "_next_turn",
        "_scans",
        "_sent",
        "_services",
        "_share",
        "is_scanning",
        "turns_count",
    )

    def __init__(self, services: Services, cold_reads: ColdReads, context: RequestContext) -> None:
        self._services = services
        self._cold_reads = cold_reads
        self._context = context
        self._share = cold_reads.held.of(context.connection.namespace)
        self._scans: dict[FetchPartition, tuple[Scan, Log]] = {}
        self._next_turn: list[SliceScan] = []
        # What of the scans is in the results of this evaluation.
        self._sent: dict[FetchPartition, Sequence[ShownBatch]] = {}
        self._loop_bytes_left = LOOP_SCAN_BYTES_MAX
        self._held_bytes = 0
        self._is_over = False
        self.is_scanning = False
        self.turns_count = 0

    @property
    def wants_turn(self) -> bool:
        """Whether there is something to scan for a thread."""
        return bool(self._next_turn)

    def start_over(self) -> None:
        """Another evaluation begins."""
        self._next_turn = []
        self._sent = {}
        self._loop_bytes_left = LOOP_SCAN_BYTES_MAX

    def look_at(
        self, target: FetchPartition, partition: Partition, limit: int, bytes_max: int
    ) -> Scan:
        """The scan of a projected partition, gone on with up to offset `limit` as far as that is
        quickly done. Raises LogError where not even that much is known of the log."""
        projected, log = target.projected, partition.log
        assert projected is not None
        offset = target.wanted.fetch_offset
        scan = target.scan
        if scan is None or not scan.goes_on(projected, offset, limit, log):
            scan = target.scan = Scan(projected, offset)
        self._scans[target] = scan, log
        if not scan.is_running:
            held_bytes = scan.size
            try:
                cold_bytes_max = self._cold_reads.bytes_max(self._context.connection)
                self._scan_on(scan, log, limit, min(bytes_max, cold_bytes_max))
            except LogError as error:
                # Told once what was found before it is sent.
                scan.error = error
            self._hold(scan.size - held_bytes)
        return scan

    def _scan_on(self, scan: Scan, log: Log, limit: int, bytes_max: int) -> None:
        projection = scan.projected.projection
        while scan.position < limit and not scan.is_full and scan.error is None:
            start, stop = projection.candidates(
                log, scan.position, limit, has_shown=bool(scan.shown)
            )
            scan.move_to(start, log)
            if start >= limit:
                return
            read = log.read(start, SLICE_BYTES_MAX, max_offset=stop, at_least_one_batch=True)
            if not read.is_cold and not read.size:
                scan.move_to(read.next_offset, log)
                if read.next_offset <= start:
                    return
                continue
            buffers = None if read.is_cold else read.buffers
            part = SliceScan(scan, log, limit, bytes_max, buffers, read.next_offset)
            if buffers is None or not is_scanned_at_once(buffers, self._loop_bytes_left):
                self._next_turn.append(part)
                return
            self._loop_bytes_left -= max(read.size, LOOP_READ_BYTES_MIN)
            part.take(part.run_at_once())

    def begin_turn(self, on_done: Callable[[], None]) -> None:
        """Have a thread scan, and `on_done` called on the loop when what it has found is here."""
        # Those first that have had the fewest: of many no one waits for all that another has.
        self._next_turn.sort(key=lambda part: part.scan.turns_count)
        parts = self._next_turn[:TURN_PARTITIONS_MAX]
        self._next_turn = []
        self.is_scanning = True
        self.turns_count += 1
        for part in parts:
            part.scan.is_running = True
            part.scan.turns_count += 1

        def scan_all() -> list[Slice]:
            return [part.run() for part in parts]

        def done(found: list[Slice] | None, error: BaseException | None) -> None:
            self.is_scanning = False
            for number, part in enumerate(parts):
                part.scan.is_running = False
                if self._is_over:
                    continue
                if found is None:
                    part.scan.error = error
                    continue
                held_bytes = part.scan.size
                part.take(found[number])
                self._hold(part.scan.size - held_bytes)
            if not self._is_over:
                on_done()

        if any(part.is_cold for part in parts):
            self._cold_reads.submit(self._context, scan_all, done)
        else:
            self._services.request_work.submit(self._context, scan_all, done)

    def send(self, target: FetchPartition, batches: Sequence[ShownBatch]) -> None:
        """These are in the results, unless they are made anew."""
        self._sent[target] = batches

    def skipped(self) -> Iterator[tuple[FetchPartition, Scan]]:
        """Partitions that were scanned, and nothing was found."""
        for target, (scan, _) in self._scans.items():
            if (
                target.scan is scan
                and target.partition is not None
                and not scan.shown
                and scan.position > target.wanted.fetch_offset
            ):
                yield target, scan

    def close(self) -> None:
        """The fetch is answered, or will not be: nothing that was found is kept."""
        self._is_over = True
        for target, (scan, log) in self._scans.items():
            if scan.is_running:
                # Whoever asks next would wait for what is told to nobody.
                target.scan = None
                continue
            try:
                scan.sent(self._sent.get(target, ()), log)
            except LogError:
                # It is gone, or its disk is; whoever asks next is told.
                target.scan = None
        self._scans = {}
        self._hold(-self._held_bytes)

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self._share.add(more_bytes)
