"""A fetch's reads of records that are not in memory, which must leave the loop.

Tenants take turns at the threads. When its turn has come, what a consumer's fetch may bring is
held, in its tenant's share: cold reads may take what is left when that is unread by clients as well
(request/budget.py). So one tenant that reads its whole past through thousands of connections leaves
the others memory and threads for theirs.

Invariants
- What waits for its turn holds nothing. COLD_READS_AT_ONCE_MAX fetches do at most, and what scans
  have found.
- What is held takes nothing from fetches of what is in memory.

Deliberately absent: what is done with what was read (fetch_poll.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

from data_plane.broker.fetch.fetch_response import PartitionResult
from data_plane.broker.request.api import Buffer, ConnectionInfo, RequestContext
from data_plane.broker.request.budget import Budget, Share
from data_plane.broker.request.fair_work import OnBegin, nothing_begins
from data_plane.broker.request.request_work import RequestWork
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition

# Answers that clients do not read fill memory (`Services.unsent`). The more of it is taken the less
# a fetch gets: half of what is left, and never less than this (or one batch).
ANSWER_BYTES_MIN = 64 << 10
# Fetches of consumers whose reads threads have, or have next: twice as many as there are threads
# for them, so that none is idle until the loop has looked. More would wait where nobody has turns.
COLD_READS_AT_ONCE_MAX = 16


T = TypeVar("T")
OnRead: TypeAlias = Callable[[T | None, BaseException | None], None]


class ColdRead:
    """Where it goes, and the result it completes."""

    __slots__ = (
        "at_least_one_batch",
        "bytes_max",
        "limit",
        "of_disk",
        "offset",
        "partition",
        "result",
    )

    def __init__(
        self,
        partition: Partition,
        result: PartitionResult,
        bytes_max: int,
        limit: int,
        at_least_one_batch: bool,
        of_disk: bool = False,
    ) -> None:
        self.partition = partition
        self.result = result
        # The target may be asked for something else before the read is done.
        self.offset = result.target.wanted.fetch_offset
        self.bytes_max = bytes_max
        self.limit = limit
        self.at_least_one_batch = at_least_one_batch
        self.of_disk = of_disk

    def run(self) -> object:
        """In a worker thread: (buffers, size in bytes, next offset), or the error."""
        try:
            cold = self.partition.log.read_cold(
                self.offset,
                self.bytes_max,
                max_offset=self.limit,
                at_least_one_batch=self.at_least_one_batch,
                of_disk=self.of_disk,
            )
        except Exception as error:
            return error
        return cold.buffers, cold.size, cold.next_offset

    def take(self, outcome: object, is_read_committed: bool) -> BaseException | None:
        """Complete the result with what `run` returned; the error when there is one."""
        if isinstance(outcome, BaseException):
            return outcome
        buffers, size, next_offset = cast("tuple[list[Buffer], int, int]", outcome)
        try:
            if is_read_committed:
                log = self.partition.log
                self.result.aborted = log.aborted_transactions(self.offset, next_offset)
        except LogError as error:
            # The log, or its list of them, has been lost since.
            return error
        self.result.buffers = buffers
        self.result.size = size
        return None


class ColdReads:
    """All that are under way, and the memory they take."""

    def __init__(self, services: Services) -> None:
        self._services = services
        # What consumers' reads may bring. Followers are few and read one answer each.
        self.held = Budget()
        self.work = RequestWork(
            services.read_executor, lambda: services.quotas, COLD_READS_AT_ONCE_MAX
        )

    def answer_bytes(self, connection: ConnectionInfo, wanted: int) -> int:
        """What the answer to a consumer may take of what it wants."""
        share = connection.unsent or self._unsent(connection)
        bytes_max = share.left() // 2
        return wanted if wanted <= bytes_max else min(wanted, max(ANSWER_BYTES_MIN, bytes_max))

    def _unsent(self, connection: ConnectionInfo) -> Share:
        return connection.unsent or self._services.unsent.of(connection.namespace)

    def bytes_max(self, connection: ConnectionInfo) -> int:
        """What all cold reads of a consumer's fetch together may take."""
        held = self.held
        own_bytes = held.use_of(connection.namespace)
        return max(ANSWER_BYTES_MIN, self._unsent(connection).left(own_bytes, held.used) // 2)

    def run(
        self,
        context: RequestContext,
        reads: list[ColdRead],
        consumers_bytes: int,
        done: Callable[[list[object] | None, BaseException | None], None],
    ) -> None:
        """Have a worker thread do the reads of one fetch, and its loop call `done` with their
        outcomes. `consumers_bytes` is what they may bring, if that is for a consumer."""
        connection = context.connection
        share = self.held.of(connection.namespace)

        def begin() -> None:
            if consumers_bytes:
                # Others may have taken much since it was asked for.
                share.add(_cut(reads, min(consumers_bytes, self.bytes_max(connection))))

        def read_all() -> list[object]:
            return [read.run() for read in reads]

        def read_done(outcomes: list[object] | None, error: BaseException | None) -> None:
            if consumers_bytes:
                share.give_back(sum(read.bytes_max for read in reads))
            done(outcomes, error)

        self.submit(context, read_all, read_done, begin)

    def submit(
        self,
        context: RequestContext,
        work: Callable[[], T],
        on_done: OnRead[T],
        on_begin: OnBegin = nothing_begins,
    ) -> None:
        """Have a thread read for a request. Other brokers wait for no client."""
        if context.connection.is_inter_broker:
            on_begin()
            self._services.executor.submit(work, on_done)
        else:
            self.work.submit(context, work, on_done, on_begin)


def _cut(reads: list[ColdRead], bytes_max: int) -> int:
    """Have reads take no more than that together; returns what they may take."""
    taken = 0
    for read in reads:
        read.bytes_max = max(1, min(read.bytes_max, bytes_max - taken))
        taken += read.bytes_max
    return taken
