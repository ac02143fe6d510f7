"""One replica of a partition: who leads it, how far it is committed, who waits for that.

    offset    0 ............ 5 ............ 8 ........ 11
              |  readable    |  appended,   |  (next)
              |              |  not synced  |
              log start      high watermark log end offset

With one replica a record is committed as soon as it is in the log; where the topic asks for a sync
(`durability=fsync`, or `flush.messages` reached) it is committed when the sync is done, so that
nobody reads what a power loss could take away. Replication will hold the high watermark back
further, to the minimum over the maximal ISR; only `_advance_high_watermark` changes for that.

Invariants
- The high watermark never moves back while this replica leads, and never passes the log end.
- `when_committed` calls every callback exactly once, also when the replica resigns or closes.
- Watchers are told after the high watermark (or the leadership, or the log start) has changed and
  only note it: they never read within the call.

Deliberately absent: file work (data_plane.log), requests (data_plane.broker), clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from data_plane.log.log import AppendResult, Log
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import BatchHeader

Committed = Callable[[ErrorCode], None]


class Watcher(Protocol):
    """Somebody who wants to know that there may be something new to read here."""

    def partition_changed(self) -> None: ...


class Partition:
    """A leading replica. Create one per (topic, index) that this broker leads."""

    __slots__ = (
        "_request_sync",
        "_waiting",
        "high_watermark",
        "index",
        "is_sync_pending",
        "leader_epoch",
        "log",
        "resigned",
        "topic",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: Log,
        leader_epoch: int,
        request_sync: Callable[[Partition], None],
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        # The error that requests get once this replica does not lead any more; NONE while it does.
        self.resigned = ErrorCode.NONE
        self.is_sync_pending = False
        self.watchers: set[Watcher] = set()
        self._request_sync = request_sync
        self._waiting: deque[tuple[int, Committed]] = deque()
        # What recovery found in the log is committed, since this is the only replica; where the
        # topic asks for syncs, once it is synced: a crash may have come between write and sync.
        self.high_watermark: int = log.log_end_offset
        if self._needs_sync():
            self.high_watermark = max(log.recovery_point, log.log_start_offset)
            self.is_sync_pending = True
            request_sync(self)
        log.advance_high_watermark(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: before the first undecided transaction."""
        # The log knows the high watermark and does not go beyond it.
        return self.log.last_stable_offset

    def append_as_leader(
        self,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        *,
        now_ms: int,
        batches: list[BatchHeader] | None = None,
        origin: str = "client",
    ) -> AppendResult:
        """Append record batches; offsets and epoch are written into `buf` in place.

        Raises the log's AppendError, and then nothing is stored."""
        log = self.log
        result = log.append_as_leader(
            buf,
            start,
            end,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            batches=batches,
            origin=origin,
        )
        if not result.duplicate:
            if self.is_sync_pending or self._needs_sync():
                if not self.is_sync_pending:
                    self.is_sync_pending = True
                    self._request_sync(self)
            else:
                self._advance_high_watermark(log.log_end_offset)
        return result

    def when_committed(self, offset: int, callback: Committed) -> None:
        """Call `callback(NONE)` once `offset` is below the high watermark, at once if it already
        is; `callback(error)` if this replica stops leading first."""
        if self.resigned is not ErrorCode.NONE:
            callback(self.resigned)
        elif offset < self.high_watermark:
            callback(ErrorCode.NONE)
        else:
            # Appends come in offset order, so the queue is in order too, except for a duplicate
            # that waits for its original; it then waits a little longer than it must.
            self._waiting.append((offset, callback))

    def sync_finished(self, synced_offset: int) -> None:
        """A sync that was asked for has made everything below `synced_offset` durable."""
        assert self.is_sync_pending
        self.is_sync_pending = False
        if self._needs_sync():
            # Records came in while the sync ran.
            self.is_sync_pending = True
            self._advance_high_watermark(synced_offset)
            self._request_sync(self)
        else:
            self._advance_high_watermark(self.log.log_end_offset)

    def sync_failed(self, error: ErrorCode) -> None:
        """The disk is gone: what waits for it will never be durable here."""
        self.is_sync_pending = False
        self.resign(error)

    def set_leader_epoch(self, leader_epoch: int) -> None:
        """Lead in a new epoch: readers who name the old one must hear of it."""
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self._tell_watchers()

    def log_start_changed(self) -> None:
        """The log start moved (retention, DeleteRecords): readers below it must hear of it."""
        self._tell_watchers()

    def resign(self, error: ErrorCode) -> None:
        """Stop leading: fail what waits, and wake the readers, who will find the error."""
        self.resigned = error
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)
        self._tell_watchers()

    def _needs_sync(self) -> bool:
        log = self.log
        unsynced_count = log.log_end_offset - log.recovery_point
        if unsynced_count <= 0:
            return False
        return log.config.durability_fsync or unsynced_count >= log.config.flush_messages

    def _advance_high_watermark(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.log.advance_high_watermark(offset)
        waiting = self._waiting
        while waiting and waiting[0][0] < offset:
            waiting.popleft()[1](ErrorCode.NONE)
        if self.watchers:
            self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in self.watchers:
            watcher.partition_changed()
