"""One Fetch request from its first evaluation to its answer.

An evaluation walks the dirty partitions of the poll (fetch_sessions.py) in order and collects
results until the byte limits are met:

- the first partition with records gives at least one batch, however large; the others stay within
  partition_max_bytes and what is left of max_bytes;
- partitions that gave records go to the end of the session's order, so that a partition with much
  to say does not silence the others for ever;
- a partition with nothing to say leaves the dirty set and is not looked at again until it changes.

- at most LOOKED_AT_MAX partitions are looked at without a break. When more are dirty an incremental
  answer is about those at the front as soon as there is anything to say about one of them, and
  they go to the end of the order; otherwise the next ones are looked at after a pause.

The poll is answered when it has min_bytes, an error, or waited max_wait; until then it is parked,
and each pass in which one of its partitions changed evaluates it once more. Records that are not in
memory are read by the executor; the poll is answered when they are there.

Deliberately absent: who may read what (fetch_rights.py), what is told of a partition
(fetch_results.py), sessions and their epochs (fetch.py), the answer's bytes (fetch_response.py).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from itertools import islice

from data_plane.broker.api import Buffer, Deferred, RequestContext
from data_plane.broker.cold_reads import ColdRead
from data_plane.broker.fetch_response import (
    PartitionResult,
    encode_fetch_response,
    encode_full_response,
)
from data_plane.broker.fetch_results import (
    failed_result,
    lost_result,
    partition_result,
    result_without_records,
)
from data_plane.broker.fetch_rights import FetchRights
from data_plane.broker.fetch_sessions import NO_SESSION_ID, FetchPartition, FetchSet
from data_plane.broker.large_requests import pause
from data_plane.broker.open_fetches import PART, OpenFetches
from data_plane.broker.partition_errors import UNKNOWN_PARTITION_CODES, check_leader_epoch
from data_plane.broker.replica_selector import NO_PREFERRED_REPLICA
from data_plane.broker.services import Services
from data_plane.broker.timers import Timer
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView
from data_plane.wire.registry import ApiKey

# Longer requests are handled in slices (large_fetches.py). At 16 to 33 bytes for a partition this
# is some 20 ms at the most.
LARGE_FETCH_BYTES = 64 << 10
LOOKED_AT_MAX = LARGE_FETCH_BYTES // 16

_NONE = int(ErrorCode.NONE)


class Poll:
    """One Fetch request from its first evaluation to its answer."""

    __slots__ = (
        "_available",
        "_bytes_max",
        "_bytes_min",
        "_bytes_wanted",
        "_cold",
        "_cold_bytes",
        "_cold_bytes_max",
        "_cold_reads",
        "_context",
        "_fetch_set",
        "_is_full",
        "_is_pausing",
        "_is_session_opening",
        "_left_count",
        "_news",
        "_now_ms",
        "_results",
        "_rights",
        "_services",
        "_size",
        "_timer",
        "deferred",
        "must_answer",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        view: FetchRequestView,
        fetch_set: FetchSet,
        is_full: bool,
        now_ms: int,
    ) -> None:
        self._services = services
        self._now_ms = now_ms
        fetches: OpenFetches = services.parts[PART]
        self._rights: FetchRights = fetches.rights.of(context, view)
        self._cold_reads = fetches.cold_reads
        self._context = context
        self._fetch_set = fetch_set
        self._is_full = is_full
        self._is_session_opening = is_full and fetch_set.session_id != NO_SESSION_ID
        self._bytes_wanted = max(0, min(view.max_bytes, services.config.get_int("fetch.max.bytes")))
        self._bytes_max = self._bytes_wanted
        self._bytes_min = view.min_bytes
        self._results: list[PartitionResult] = []
        self._cold: list[ColdRead] = []
        # What these may bring, and what they may bring at most once one is found.
        self._cold_bytes = 0
        self._cold_bytes_max = 0
        # Partitions whose high watermark or log start moved, without records to send.
        self._news: dict[FetchPartition, None] = {}
        # Bytes in the results, and what counts towards `min_bytes`: that and what is there but
        # would be more than the limits allow.
        self._size = 0
        self._available = 0
        # Of very many dirty partitions: those not looked at yet, and whether that goes on soon.
        self._left_count = 0
        self._is_pausing = False
        self._timer: Timer | None = None
        self.deferred: Deferred[list[Buffer]] | None = None
        self.must_answer = False

    def begin(self, max_wait_ms: int, now_ms: int) -> list[Buffer] | Deferred[list[Buffer]]:
        """The answer, now or after at most `max_wait_ms`."""
        if self.evaluate() or max_wait_ms <= 0 or not self._fetch_set.partitions_count:
            return self.answer()
        return self.park(now_ms + max_wait_ms)

    def evaluate(self) -> bool:
        """Collect what can be sent now. True when the answer should not wait any longer."""
        self._start_over()
        dirty = self._fetch_set.dirty
        if len(dirty) > LOOKED_AT_MAX and not self._is_full:
            return self._look_at_some()
        self._look_at(list(dirty))
        return self.must_answer or self._available >= self._bytes_min

    def _start_over(self) -> None:
        self._results = []
        self._cold = []
        self._cold_bytes = 0
        self._size = 0
        self._available = 0
        self.must_answer = False
        if not self._rights.is_follower:
            self._bytes_max = min(self._bytes_wanted, self._cold_reads.answer_bytes_max())
        self._bytes_min = min(self._bytes_min, self._bytes_max)

    def _look_at(self, targets: Sequence[FetchPartition]) -> None:
        for target in targets:
            try:
                result = self._read(target)
            except LogError as error:
                # Any question to a log may have to load it first.
                result = self._read_failed(target, error)
            if result is not None:
                self._results.append(result)

    def _look_at_some(self) -> bool:
        """An incremental poll's share of very many dirty partitions."""
        dirty = self._fetch_set.dirty
        if self._left_count <= 0:
            self._left_count = len(dirty)
        self._left_count -= LOOKED_AT_MAX
        targets = list(islice(dirty, LOOKED_AT_MAX))
        self._look_at(targets)
        if self._results:
            return True
        self._to_the_end(targets)
        if self._left_count > 0 and not self._is_pausing:
            self._is_pausing = True
            pause(self._services, self._context, self._go_on)
        return self._bytes_min <= 0

    def _go_on(self, _: object, error: BaseException | None) -> None:
        self._is_pausing = False
        if self._fetch_set.parked is self:
            self.wake()

    def _to_the_end(self, targets: Iterable[FetchPartition]) -> None:
        """Of the session's order: the others are served first next time."""
        dirty = self._fetch_set.dirty
        for target in targets:
            if target in dirty:
                del dirty[target]
                dirty[target] = None

    def _read(self, target: FetchPartition) -> PartitionResult | None:
        """The result of a dirty partition; None when it has nothing to send."""
        partition = target.partition
        rights = self._rights
        if partition is None or (
            partition.resigned is not ErrorCode.NONE and not rights.may_read(partition)
        ):
            partition = self._resolve(target)
            if partition is None:
                error = rights.error(target, self._fetch_set.uses_topic_ids)
                result = self._error(target, error)
                if error in UNKNOWN_PARTITION_CODES:
                    # As Kafka has it, whatever the isolation level.
                    result.aborted = ()
                return result
        wanted = target.wanted
        epoch = wanted.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            return self._error(target, check_leader_epoch(partition.leader_epoch, epoch))
        log = partition.log
        offset = wanted.fetch_offset
        last_epoch = wanted.last_fetched_epoch
        # Nothing that ends with a batch of this leader's own epoch has diverged. And what a
        # follower has reported in this epoch stays true: this log only grows.
        is_to_compare = (
            last_epoch >= 0
            and (last_epoch != partition.leader_epoch or not partition.is_leader)
            and (target.is_reporting or not rights.is_follower or epoch < 0)
        )
        if is_to_compare or offset < log.log_start_offset or offset > log.log_end_offset:
            place = partition.locate_fetch(offset, last_epoch)
            if place is not ErrorCode.NONE:
                self.must_answer = True
                return lost_result(rights, target, partition, place)
        if target.is_reporting:
            error = rights.report(target, partition, self._now_ms)
            if error is not ErrorCode.NONE:
                return self._error(target, error)
        if rights.is_follower:
            limit = log.log_end_offset
            if (
                rights.throttle is not None
                and offset < limit
                and rights.is_held_back(target, partition, self._now_ms)
            ):
                limit = offset
        elif rights.is_read_committed:
            limit = partition.last_stable_offset
        else:
            limit = partition.high_watermark
        if rights.rack_id:
            preferred_replica = rights.preferred_replica(target, partition)
            if preferred_replica != NO_PREFERRED_REPLICA:
                result = result_without_records(rights, target, partition)
                result.preferred_read_replica = preferred_replica
                self.must_answer = True
                return result
        if offset >= limit:
            del self._fetch_set.dirty[target]
            if (
                target.sent_high_watermark != partition.high_watermark
                or target.sent_log_start_offset != log.log_start_offset
            ):
                self._news[target] = None
            return None
        bytes_left = self._bytes_max - self._size
        is_first = self._size == 0
        if bytes_left <= 0 and not is_first:
            return None
        return self._read_records(target, partition, limit, bytes_left, is_first)

    def _read_records(
        self,
        target: FetchPartition,
        partition: Partition,
        limit: int,
        bytes_left: int,
        is_first: bool,
    ) -> PartitionResult | None:
        offset = target.wanted.fetch_offset
        bytes_max = min(target.wanted.partition_max_bytes, bytes_left)
        result = partition_result(self._rights, target, partition)
        read = partition.log.read(offset, bytes_max, max_offset=limit, at_least_one_batch=is_first)
        if read.is_cold:
            bytes_max = self._take_cold_bytes(bytes_max)
            if bytes_max <= 0 and not is_first:
                return None
            self._cold.append(ColdRead(partition, result, bytes_max, limit, is_first))
            self._size += max(1, bytes_max)
            self.must_answer = True
            return result
        if read.size == 0:
            return None
        result.buffers = read.buffers
        result.size = read.size
        self._size += read.size
        if read.next_offset >= limit:
            self._available += read.size
        elif partition.log.is_sealed_at(offset):
            # A whole segment is worth an answer, as in Kafka, and only its rest has been read.
            self.must_answer = True
        else:
            # What is left is not sent by halves, but it is there.
            self._available += max(read.size, bytes_max)
        if self._rights.is_read_committed:
            result.aborted = partition.log.aborted_transactions(offset, read.next_offset)
        return result

    def _take_cold_bytes(self, bytes_max: int) -> int:
        """How many of the bytes a cold read may bring."""
        if self._rights.is_follower:
            return bytes_max
        if not self._cold:
            self._cold_bytes_max = self._cold_reads.bytes_max()
        bytes_max = max(0, min(bytes_max, self._cold_bytes_max - self._cold_bytes))
        self._cold_bytes += bytes_max
        return bytes_max

    def _error(self, target: FetchPartition, error: ErrorCode) -> PartitionResult:
        self.must_answer = True
        return PartitionResult(target, int(error))

    def _read_failed(self, target: FetchPartition, error: BaseException) -> PartitionResult:
        self.must_answer = True
        return failed_result(self._services, target, error)

    def _resolve(self, target: FetchPartition) -> Partition | None:
        target.unwatch()
        partition = self._rights.find(target, self._fetch_set.uses_topic_ids)
        if partition is None:
            return None
        if self._fetch_set.is_kept or self.deferred is not None:
            target.watch(partition)
        else:
            target.partition = partition
        return partition

    # Parking and answering.

    def park(self, deadline_ms: int) -> Deferred[list[Buffer]]:
        """Wait for changes until the deadline."""
        self.deferred = Deferred()
        self._results = []
        fetch_set = self._fetch_set
        if not fetch_set.is_kept:
            for target in fetch_set.partitions():
                if target.partition is not None:
                    target.watch(target.partition)
        fetch_set.parked = self
        self._services.parts[PART].parked[self] = None
        self._timer = self._services.timers.schedule(deadline_ms, self._timed_out)
        self._context.connection.on_close[self._abandon] = None
        return self.deferred

    def wake(self) -> None:
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Called once per pass in which something changed."""
        if self._fetch_set.parked is not self:
            return
        self._now_ms = now_ms
        try:
            if self.evaluate():
                self._finish_parked()
        except Exception as error:
            # This runs at the end of somebody else's pass, whom a bug here must not hurt.
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._services.log.error(
            "request_failed",
            api_key=int(ApiKey.FETCH),
            peer=self._context.connection.peer,
            error=repr(error),
            traceback="".join(traceback.format_exception(error)),
        )
        self._abandon()
        self._context.connection.close(f"request failed: {error!r}")

    def finish_early(self) -> None:
        """Answer with what there is: the session's next request has come, or the broker stops."""
        try:
            self.evaluate()
            self._finish_parked()
        except Exception as error:
            # As above: neither that request nor the stop must suffer.
            self._fail(error)

    def _timed_out(self, now_ms: int) -> None:
        self.finish_early()

    def _finish_parked(self) -> None:
        deferred = self.deferred
        assert deferred is not None
        self._unpark()
        answer = self.answer()
        if isinstance(answer, Deferred):
            answer.when_complete(deferred.complete)
        else:
            deferred.complete(answer)

    def _unpark(self) -> None:
        if self._fetch_set.parked is self:
            self._fetch_set.parked = None
        self._services.parts[PART].parked.pop(self, None)
        self._services.wakes.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        self._context.connection.on_close.pop(self._abandon, None)

    def _abandon(self) -> None:
        """The client is gone: forget the poll. Its session stays for a reconnect."""
        self._unpark()
        if not self._fetch_set.is_kept:
            self._fetch_set.close()

    def answer(self) -> list[Buffer] | Deferred[list[Buffer]]:
        """The frame of the last evaluation, or a Deferred of it when records are cold."""
        if not self._cold:
            return self._encode()
        deferred: Deferred[list[Buffer]] = Deferred()
        cold = self._cold
        self._cold = []
        # What is asked meanwhile is asked of another set, or this answer would be about that.
        self._fetch_set.is_being_read = True

        def done(outcomes: list[object] | None, error: BaseException | None) -> None:
            self._fetch_set.is_being_read = False
            try:
                for number, read in enumerate(cold):
                    self._take_cold(read, error if outcomes is None else outcomes[number])
                frame = self._encode()
            except Exception as failure:
                self._fail(failure)
                return
            deferred.complete(frame)

        self._cold_reads.run(cold, self._cold_bytes, done)
        return deferred

    def _take_cold(self, read: ColdRead, outcome: object) -> None:
        failure = read.take(outcome, self._rights.is_read_committed)
        if failure is not None:
            read.result.fail(self._read_failed(read.result.target, failure).error_code)

    def _encode(self) -> list[Buffer]:
        fetch_set = self._fetch_set
        results = self._results
        self._results = []
        if self._news and not self._is_full:
            self._add_news(results)
        if results:
            self._note_sent(results)
        if self._is_full:
            frame = encode_full_response(
                self._services,
                self._context,
                fetch_set,
                {result.target: result for result in results},
                self._rights.is_read_committed,
                is_opening=self._is_session_opening,
            )
        else:
            frame = encode_fetch_response(
                self._services, self._context, results, _NONE, fetch_set.session_id
            )
        if not fetch_set.is_kept:
            fetch_set.close()
        return frame

    def _add_news(self, results: list[PartitionResult]) -> None:
        dirty = self._fetch_set.dirty
        for number, target in enumerate(self._news):
            if target.partition is None or target in dirty:
                continue
            if number >= LOOKED_AT_MAX:
                # For another answer.
                dirty[target] = None
                continue
            try:
                results.append(partition_result(self._rights, target, target.partition))
            except LogError as error:
                results.append(self._read_failed(target, error))

    def _note_sent(self, results: Sequence[PartitionResult]) -> None:
        if self._rights.throttle is not None:
            self._rights.count_sent(results, self._now_ms)
        dirty = self._fetch_set.dirty
        are_many = len(dirty) > LOOKED_AT_MAX
        counters = self._services.counters
        for result in results:
            target = result.target
            target.sent_high_watermark = result.high_watermark
            target.sent_log_start_offset = result.log_start_offset
            counters.fetched_bytes += result.size
            if (result.size or are_many) and target in dirty:
                # To the end of the order: the others are served first next time.
                del dirty[target]
                dirty[target] = None
