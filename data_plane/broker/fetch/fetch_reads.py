"""What a Fetch reads of its partitions: one look at each that may have something to say.

    look up     the replica, and whether it is read as it is or through a projection
    check       leader epoch, and whether the reader's log can be gone on with here
    report      of a follower: its replica takes note of where its log ends
    limit       high watermark, last stable offset or log end; or another replica to read at
    read        byte ranges of the log │ what a projection shows; not in memory: later, by a thread

- The first partition with records gives at least one batch, however large; the others stay within
  partition_max_bytes and what is left of max_bytes.
- A partition with nothing to say leaves the dirty set and is not looked at again until it changes;
  one that gave records goes to the end of the order, so that it does not silence the others.

A request looks as often as it wants to (`start_over`, `look_at`); what it was told last, `results`,
is what is sent.

Deliberately absent: which partitions are looked at, waiting (fetch_poll.py), the answer's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_plane.broker.fetch.cold_reads import ColdRead
from data_plane.broker.fetch.fetch_authorization import readable_of
from data_plane.broker.fetch.fetch_response import PartitionResult, encode_fetch_response
from data_plane.broker.fetch.fetch_results import (
    failed_result,
    lost_result,
    partition_result,
    result_without_records,
    shown_result,
    shown_whole_until,
)
from data_plane.broker.fetch.fetch_rights import FetchRights
from data_plane.broker.fetch.fetch_scans import FetchScans
from data_plane.broker.fetch.fetch_sessions import NO_SESSION_ID, FetchPartition, FetchSet
from data_plane.broker.fetch.projected_reads import closing_batch
from data_plane.broker.fetch.replica_selector import NO_PREFERRED_REPLICA
from data_plane.broker.request.api import Buffer, RequestContext
from data_plane.broker.request.partition_errors import UNKNOWN_PARTITION_CODES, check_leader_epoch
from data_plane.broker.request.throttling import throttle_fetch
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView

# Longer requests are handled in slices (large_fetches.py). At 16 to 33 bytes for a partition this
# is some 20 ms at the most.
LARGE_FETCH_BYTES = 64 << 10
LOOKED_AT_MAX = LARGE_FETCH_BYTES // 16


class FetchReads:
    """Of one request.

    - `results`: what was found since `start_over`; `must_answer`: not to be waited with.
    - `is_waiting`: what is found is watched from then on, whoever keeps the set.
    - `now_ms`: the time of this look."""

    __slots__ = (
        "_available",
        "_bytes_max",
        "_bytes_min",
        "_bytes_wanted",
        "_cold_bytes",
        "_cold_bytes_max",
        "_cold_reads",
        "_context",
        "_fetch_set",
        "_fetches",
        "_scans",
        "_services",
        "_size",
        "_untold",
        "cold",
        "is_waiting",
        "must_answer",
        "now_ms",
        "results",
        "rights",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        view: FetchRequestView,
        fetch_set: FetchSet,
        now_ms: int,
    ) -> None:
        fetches = self._fetches = services.fetches
        self._services = services
        self._context = context
        self._fetch_set = fetch_set
        self._cold_reads = fetches.cold_reads
        self.rights: FetchRights = fetches.rights.of(context, view)
        self.now_ms = now_ms
        self.is_waiting = False
        self._bytes_wanted = max(0, min(view.max_bytes, services.config.get_int("fetch.max.bytes")))
        self._bytes_max = self._bytes_wanted
        self._bytes_min = view.min_bytes
        self.results: list[PartitionResult] = []
        self.must_answer = False
        # Bytes in the results; with what is there and would be too much, they make `min_bytes`.
        self._size = 0
        self._available = 0
        self.cold: list[ColdRead] = []
        # What these may bring, and what they may bring at most once one is found.
        self._cold_bytes = 0
        self._cold_bytes_max = 0
        self._scans: FetchScans | None = None
        # Partitions whose high watermark or log start moved, without records to send.
        self._untold: dict[FetchPartition, None] = {}

    def start_over(self) -> None:
        """What was found is looked at again."""
        self.results = []
        self.cold = []
        self._cold_bytes = 0
        self._size = 0
        self._available = 0
        self.must_answer = False
        if self._scans is not None:
            self._scans.start_over()
        if not self.rights.is_follower:
            bytes_max = self._bytes_wanted
            self._bytes_max = self._cold_reads.answer_bytes(self._context.connection, bytes_max)
            quotas = self._services.quotas
            if quotas.is_active:
                self._bytes_max = min(self._bytes_max, quotas.fetch_bytes_max(self._context))
        if self._bytes_min > self._bytes_max:
            self._bytes_min = self._bytes_max

    def look_at(self, targets: Sequence[FetchPartition]) -> None:
        """Add what there is to say of these dirty partitions."""
        if not self._context.names.rights.is_open:
            targets, refused = readable_of(self._context, self._fetch_set, targets)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            self.results += [self._refused(target, code) for target in refused]
        for target in targets:
            try:
                result = self._read(target)
            except LogError as error:
                # Any question to a log may have to load it first.
                result = self._read_failed(target, error)
            if result is not None:
                self.results.append(result)

    @property
    def is_enough(self) -> bool:
        """Whether the reader need not wait for more."""
        return self.must_answer or self._available >= self._bytes_min

    # One partition

    def _read(self, target: FetchPartition) -> PartitionResult | None:
        """The result of a dirty partition; None when it has nothing to send."""
        partition = target.partition
        rights = self.rights
        if (
            partition is None
            or (partition.leader_error is not ErrorCode.NONE and not rights.may_read(partition))
            or target.is_outdated
        ):
            partition = self._look_up(target)
            if partition is None:
                return self._unknown(target)
        wanted = target.wanted
        offset = wanted.fetch_offset
        epoch = wanted.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            return self._error(target, check_leader_epoch(partition.leader_epoch, epoch))
        log = partition.log
        last_epoch = wanted.last_fetched_epoch
        # Nothing that ends with a batch of this leader's own epoch has diverged. And what a
        # follower has reported in this epoch stays true: this log only grows.
        is_to_compare = (
            last_epoch >= 0
            and (last_epoch != partition.leader_epoch or not partition.is_leader)
            and (target.is_reporting or not rights.is_follower or epoch < 0)
        )
        if is_to_compare or offset < log.log_start_offset or offset > log.log_end_offset:
            place = partition.locate_fetch(offset, last_epoch, is_replica=rights.is_follower)
            if place is not ErrorCode.NONE:
                self.must_answer = True
                return lost_result(rights, target, partition, place)
        if target.is_reporting:
            error = self._report(target, partition)
            if error is not ErrorCode.NONE:
                return self._error(target, error)
        if rights.is_plain:
            limit = partition.high_watermark
        elif rights.is_read_committed:
            limit = log.last_stable_offset
        else:
            limit = rights.readable_by_follower(target, partition, self.now_ms)
        if rights.rack_id:
            preferred_replica = rights.preferred_replica(target, partition)
            if preferred_replica != NO_PREFERRED_REPLICA:
                result = result_without_records(rights, target, partition)
                result.preferred_read_replica = preferred_replica
                self.must_answer = True
                return result
        if offset >= limit:
            self._nothing_new(target, partition)
            return None
        bytes_left = self._bytes_max - self._size
        is_first = self._size == 0
        if bytes_left <= 0 and not is_first:
            return None
        if target.projected is not None:
            return self._read_projected(target, partition, limit, bytes_left, is_first)
        return self._read_records(target, partition, limit, bytes_left, is_first)

    def _look_up(self, target: FetchPartition) -> Partition | None:
        target.unwatch()
        target.is_outdated = False
        projected = self.rights.projected(target)
        partition = self.rights.find(target, projected, self._fetch_set.uses_topic_ids)
        if partition is None:
            return None
        target.projected = projected
        if self._fetch_set.is_kept or self.is_waiting:
            target.watch(partition)
        else:
            target.partition = partition
        return partition

    def _unknown(self, target: FetchPartition) -> PartitionResult:
        rights = self.rights
        error = rights.error(target, rights.projected(target), self._fetch_set.uses_topic_ids)
        if error in UNKNOWN_PARTITION_CODES:
            return self._refused(target, error)
        return self._error(target, error)

    def _refused(self, target: FetchPartition, error: ErrorCode) -> PartitionResult:
        result = self._error(target, error)
        # As Kafka has it, whatever the isolation level.
        result.aborted = ()
        return result

    def _report(self, target: FetchPartition, partition: Partition) -> ErrorCode:
        """Have the replica take note of where the follower's log ends."""
        follower, wanted = self.rights.follower, target.wanted
        assert follower is not None, "only a follower's fetch reports"
        error = follower.report(
            partition,
            wanted.fetch_offset,
            wanted.log_start_offset,
            wanted.current_leader_epoch,
            self.now_ms,
        )
        if error is ErrorCode.NONE:
            target.is_reporting = False
        return error

    def _nothing_new(self, target: FetchPartition, partition: Partition) -> None:
        """It is not looked at again until it changes."""
        del self._fetch_set.dirty[target]
        if (
            target.sent_high_watermark != partition.high_watermark
            or target.sent_log_start_offset != partition.log.log_start_offset
        ):
            self._untold[target] = None

    def _error(self, target: FetchPartition, error: ErrorCode) -> PartitionResult:
        self.must_answer = True
        return PartitionResult(target, int(error))

    def _read_failed(self, target: FetchPartition, error: BaseException) -> PartitionResult:
        self.must_answer = True
        return failed_result(self._services, target, error)

    # Byte ranges of the log

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
        result = partition_result(self.rights, target, partition)
        of_disk = self.rights.is_follower
        read = partition.log.read(
            offset, bytes_max, max_offset=limit, at_least_one_batch=is_first, of_disk=of_disk
        )
        if read.is_cold:
            bytes_max = self._take_cold_bytes(bytes_max)
            if bytes_max <= 0 and not is_first:
                return None
            self.cold.append(ColdRead(partition, result, bytes_max, limit, is_first, of_disk))
            self._size += max(1, bytes_max)
            self.must_answer = True
            return result
        if read.size == 0:
            return None
        result.buffers = read.buffers
        result.size = read.size
        self._size += read.size
        if target.projected is not None and target.projected.on_sent is not None:
            end = read.next_offset
            target.projected.on_sent(offset, end, end - offset, self.now_ms)
        if read.next_offset >= limit:
            self._available += read.size
        elif partition.log.is_sealed_at(offset):
            # A whole segment is worth an answer, as in Kafka, and only its rest has been read.
            self.must_answer = True
        else:
            # What is left is not sent by halves, but it is there.
            self._available += max(read.size, bytes_max)
        if self.rights.is_read_committed:
            result.aborted = partition.log.aborted_transactions(offset, read.next_offset)
        return result

    def _take_cold_bytes(self, bytes_max: int) -> int:
        """How many of the bytes a cold read may bring."""
        if self.rights.is_follower:
            return bytes_max
        if not self.cold:
            self._cold_bytes_max = self._cold_reads.bytes_max(self._context.connection)
        bytes_max = max(0, min(bytes_max, self._cold_bytes_max - self._cold_bytes))
        self._cold_bytes += bytes_max
        return bytes_max

    def run_cold(
        self, done: Callable[[list[object] | None, BaseException | None], None]
    ) -> list[ColdRead]:
        """Have a thread read what is not in memory, and `done` called with what comes of each of
        the reads that are returned."""
        cold, self.cold = self.cold, []
        self._cold_reads.run(self._context, cold, self._cold_bytes, done)
        return cold

    def take_cold(self, read: ColdRead, outcome: object) -> None:
        """What a read has brought completes its result."""
        failure = read.take(outcome, self.rights.is_read_committed)
        if failure is not None:
            read.result.fail(self._read_failed(read.result.target, failure).error_code)

    # What a projection shows

    def _read_projected(
        self,
        target: FetchPartition,
        partition: Partition,
        limit: int,
        bytes_left: int,
        is_first: bool,
    ) -> PartitionResult | None:
        whole_end = shown_whole_until(target, partition, limit)
        if whole_end > target.wanted.fetch_offset:
            result = self._read_records(target, partition, whole_end, bytes_left, is_first)
            if result is not None or whole_end == limit:
                # Of what lies behind, more may be shown.
                self.must_answer |= whole_end < limit
                return result
        scans = self._scans or FetchScans(self._services, self._cold_reads, self._context)
        self._scans = scans
        bytes_max = min(target.wanted.partition_max_bytes, bytes_left)
        scan = scans.look_at(target, partition, limit, bytes_max)
        batches = scan.fitting(bytes_max)
        if not batches and is_first:
            batches = scan.shown[:1]
        if not batches:
            if scan.shown:
                return None
            if scan.error is not None:
                return self._read_failed(target, scan.error)
            if scan.position >= limit:
                self._nothing_new(target, partition)
            return None
        result = shown_result(self.rights, target, partition, batches, self.now_ms)
        scans.send(target, batches)
        self._size += result.size
        if scan.error is not None:
            self.must_answer = True
        elif scan.is_full or len(batches) < len(scan.shown):
            self._available += max(result.size, bytes_max)
        else:
            self._available += result.size
        return result

    @property
    def is_scanning(self) -> bool:
        """Whether a thread scans for this request; it is not answered before."""
        return self._scans is not None and self._scans.is_scanning

    def wants_turn(self, *, is_late: bool) -> bool:
        """Whether a thread is to scan before the answer: what is enough is not waited with, nor
        what is late, but for the first turn."""
        scans = self._scans
        if scans is None or not scans.wants_turn:
            return False
        return not scans.turns_count or not (is_late or self.is_enough)

    def begin_turn(self, on_done: Callable[[], None]) -> None:
        """Have a thread scan; `on_done` is called when it is time to look again."""
        assert self._scans is not None
        self._scans.begin_turn(on_done)

    def close_scans(self) -> None:
        """The answer is made. Partitions of which nothing is shown, but something was scanned, are
        said to go on behind that."""
        scans = self._scans
        if scans is None:
            return
        told = {result.target for result in self.results}
        for target, scan in scans.skipped():
            if target in told:
                continue
            assert target.partition is not None
            try:
                result = partition_result(self.rights, target, target.partition)
            except LogError as error:
                result = self._read_failed(target, error)
            else:
                result.buffers = (closing_batch(scan),)
                result.size = len(result.buffers[0])
                # A client that does not go on, because it seeks, is answered again.
                self._fetch_set.dirty[target] = None
            self.results.append(result)
        scans.close()

    def drop_scans(self) -> None:
        """There will be no answer."""
        if self._scans is not None:
            self._scans.close()

    # What a quota forbids

    def throttle_ms(self) -> int:
        """For how long the client has to wait before it gets what was found."""
        if not self._services.quotas.is_active:
            return 0
        answer_bytes = sum(result.size for result in self.results)
        return throttle_fetch(self._services, self._context, answer_bytes)

    def throttled_answer(self, throttle_ms: int, *, is_session_opening: bool) -> list[Buffer]:
        """Nothing of what was found, which is found again by the next request. As in Kafka a
        session that would have been opened is not: an empty first answer does not tell what is in
        it."""
        fetch_set = self._fetch_set
        self.results = []
        if is_session_opening:
            fetch_set.parked = None
            self._fetches.cache.remove(fetch_set.session_id)
            fetch_set.session_id = NO_SESSION_ID
        else:
            fetch_set.dirty.update(self._untold)
        session_id, no_error = fetch_set.session_id, int(ErrorCode.NONE)
        frame = encode_fetch_response(
            self._services, self._context, (), no_error, session_id, throttle_ms
        )
        if not fetch_set.is_kept:
            self._fetches.closing.close(fetch_set)
        return frame

    # What is told beside records

    def add_untold(self) -> None:
        """Of an answer that names only what has something to say: ends that have moved."""
        dirty = self._fetch_set.dirty
        for number, target in enumerate(self._untold):
            if target.partition is None or target in dirty:
                continue
            if number >= LOOKED_AT_MAX:
                # For another answer.
                dirty[target] = None
                continue
            try:
                result = partition_result(self.rights, target, target.partition)
            except LogError as error:
                result = self._read_failed(target, error)
            self.results.append(result)

    def note_sent(self, results: Sequence[PartitionResult]) -> None:
        """These are in the answer."""
        if self.rights.throttle is not None:
            self.rights.count_sent(results, self.now_ms)
        dirty = self._fetch_set.dirty
        are_many = len(dirty) > LOOKED_AT_MAX
        counters = self._services.counters
        for result in results:
            target = result.target
            target.sent_high_watermark = result.high_watermark
            target.sent_log_start_offset = result.log_start_offset
            counters.fetched_bytes += result.size
            if result.size and not self.rights.is_follower and target.partition is not None:
                target.partition.use.bytes_out += result.size
                target.partition.use.reads_out += 1
            if (result.size or are_many) and target in dirty:
                # To the end of the order: the others are served first next time.
                del dirty[target]
                dirty[target] = None
