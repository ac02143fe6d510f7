"""Produce, versions 3 to 13: records in the receive buffer become records in the log.

The request is parsed in place. For each partition: find it, check its batches, let the log write
offsets and leader epoch into the receive buffer and store it with one write, note the answer.
Records of one partition that are refused do not touch the other partitions of the request.

Every record is looked at once, here, compressed ones too (docs/adr/0013). The header's highest
timestamp is put right where it is not that of the records. A batch that takes long is looked at by
a thread (produce_checks.py), and so is one that may have duplicates (duplicates.py); nothing of the
connection overtakes it. Who was allowed to append is asked again then (produce_rights.py).

When all is appended the answer leaves, or waits until the records are as safe as the request asks
(produce_waits.py). With acks=0 there is none; an error closes the connection, as in Kafka. With
acks=all a partition whose ISR is below the effective min ISR is refused before the append.

What is produced to a virtual topic becomes another batch (taken_batches.py). Refused as in Kafka:
more or less than one batch per partition, control batches, transactions, internal topics, acks
other than -1, 0, 1, old message formats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from data_plane.broker.produce.duplicates import look_for_duplicates, tell_duplicates
from data_plane.broker.produce.hiding import hiding_terms
from data_plane.broker.produce.judging import Found, Judged, Judgement, settled, work_left
from data_plane.broker.produce.produce_checks import (
    SPECIAL_BATCH_BITS,
    Checked,
    Nothing,
    ProduceChecks,
    Refusal,
)
from data_plane.broker.produce.produce_response import (
    TOPIC_IDS_VERSION,
    ZSTD_VERSION,
    Answers,
    PartitionAnswer,
    answer_nobody,
    encode_produce_response,
)
from data_plane.broker.produce.produce_rights import (
    is_abandoned,
    may_still_append,
    may_write,
    refuse_special_batch,
)
from data_plane.broker.produce.produce_targets import ProduceTargets, count_stored
from data_plane.broker.produce.produce_waits import Waiting, WaitingProduce, verdict_waits
from data_plane.broker.produce.taken_batches import TakenBatches, Wait, nothing_stored
from data_plane.broker.produce.takers import TakenPartition, taken_partition
from data_plane.broker.request.api import (
    Buffer,
    CloseConnection,
    Deferred,
    HandlerTable,
    KeptRequest,
    RequestContext,
)
from data_plane.broker.services import Services
from data_plane.log.config import LogConfig
from data_plane.log.errors import AppendError, LogDirFailure
from data_plane.log.log import CLIENT, TAKEN, AppendResult
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode, InvalidRecords, MalformedFrame
from data_plane.wire.kernel import parse_produce
from data_plane.wire.kernel_types import HIDDEN_FLAG, BatchHeader, ProducePartition, ProduceTopic
from data_plane.wire.registry import ApiKey

MIN_VERSION = 3
# librdkafka before 2.12 does not compress with gzip, snappy or lz4 where version 0 is not offered
# (KAFKA-18659). As in Kafka, the connection of who uses a version below 3 is closed.
ADVERTISED_MIN_VERSION = 0
MAX_VERSION = 13

ACKS_ALL = -1
ACKS_NONE = 0
VALID_ACKS = (ACKS_ALL, ACKS_NONE, 1)
RECORD_ERRORS_VERSION = 8
PARTITIONS_MAX = 10_000
PARTITIONS_AT_ONCE_MAX = 1_000  # Then the other connections get their turn.
_NONE = int(ErrorCode.NONE)


class _Produce:
    """One request, whose partitions are gone through one after the other. Where a thread looks at a
    batch, request and connection wait; what was found is taken up when the pass ends."""

    _next = 0
    _kept: KeptRequest | None = None
    _found: Found = Nothing.ABANDONED
    _failure: BaseException | None = None
    _deferred: Deferred[list[Buffer]] | None = None
    _taken: TakenBatches | None = None

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        buf: bytearray | memoryview,
        position: int,
        end: int,
        now_ms: int,
    ) -> None:
        version = context.api_version
        self._view = view = parse_produce(buf, position, end, version)
        self._services = services
        self._context = context
        self._tenant, self._version = context.names.tenant, version
        self._buf = buf
        self._position = position
        self._end = end
        self._needs_all = view.acks == ACKS_ALL
        self._targets = ProduceTargets(services, context, needs_all=self._needs_all)
        tells_records = version >= RECORD_ERRORS_VERSION and view.acks != ACKS_NONE
        self._checks = ProduceChecks(
            end - position, tells_records, services.loop_bounds.unpacked_bytes_max
        )
        self._began_ms = now_ms
        self._answers: Answers = []
        self._todo: list[tuple[ProduceTopic, bytes, ProducePartition, PartitionAnswer]] = []
        names = context.names
        topics, is_open = names.topics, names.rights.is_open
        policy_refusal = names.refused_by_state or names.storage_refusal
        self._message_bytes_max = names.message_bytes_max
        refused_count = 0
        for topic in view.topics:
            topic_id = topic.topic_id
            if version < TOPIC_IDS_VERSION:
                topic_id = topics.id_of(topic.name)
            partition_answers = []
            is_allowed = is_open or may_write(context, topic)
            for piece in topic.partitions:
                answer = PartitionAnswer(piece.partition_index)
                partition_answers.append(answer)
                if not is_allowed:
                    answer.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif policy_refusal:
                    answer.fail(ErrorCode.POLICY_VIOLATION, policy_refusal)
                else:
                    self._todo.append((topic, topic_id, piece, answer))
                    continue
                refused_count += 1
            self._answers.append((topic, partition_answers))
        if len(self._todo) + refused_count > PARTITIONS_MAX:
            raise MalformedFrame(f"a Produce request of more than {PARTITIONS_MAX} partitions")
        self._waiting: list[Waiting] = []

    def append_rest(self, now_ms: int) -> bool:
        """Append what is left to append. False when it goes on later: a thread has to look at the
        next batch, or this has taken long enough."""
        todo = self._todo
        is_valid = self._view.acks in VALID_ACKS
        pause_at = self._next + PARTITIONS_AT_ONCE_MAX
        for at in range(self._next, len(todo)):
            if at == pause_at:
                self._next = at
                self._work_elsewhere(lambda: Nothing.PAUSED)
                return False
            topic, topic_id, piece, answer = todo[at]
            if self._kept is not None and not may_still_append(self._context, topic, answer):
                self._leave_turn()
                continue
            if not is_valid:
                self._targets.refuse_acks(topic_id, piece.partition_index, answer)
            elif not self._append(topic_id, piece, answer, now_ms):
                self._next = at
                return False
            self._leave_turn()
        return True

    def _append(
        self, topic_id: bytes, piece: ProducePartition, answer: PartitionAnswer, now_ms: int
    ) -> bool:
        """Append one partition's records and fill in its answer. False when a thread is asked."""
        index = piece.partition_index
        taken = taken_partition(self._services, self._context, topic_id, index)
        if taken is None:
            partition = self._targets.find(topic_id, piece, answer)
        else:
            partition = self._targets.find_taken(taken, piece, answer)
            index = taken.own_index
        if partition is None:
            return not self._awaits_load(topic_id, index, answer)
        start, end = piece.records_start, piece.records_end
        if end - start > self._message_bytes_max:
            answer.fail_as_too_large(end - start, self._message_bytes_max)
            return True
        if taken is not None:
            self._keep()
        if self._kept is not None:
            start, end = start - self._kept.shift, end - self._kept.shift
        if taken is not None:
            return self._take(taken, partition, start, end, answer, now_ms)
        try:
            batches = self._checks.check_here(
                self._buf,
                start,
                end,
                partition.log.config,
                self._services.unpacker,
                self._version >= ZSTD_VERSION,
            )
        except (AppendError, InvalidRecords) as error:
            self._targets.refuse(self._checks.refusal(error), partition, answer)
            return True
        if batches is None:
            self._look_elsewhere(partition, piece, now_ms)
            return False
        self._store(partition, answer, self._buf, start, end, batches, now_ms)
        return True

    def _store(
        self,
        partition: Partition,
        answer: PartitionAnswer,
        buf: bytearray | memoryview,
        start: int,
        end: int,
        batches: list[BatchHeader],
        now_ms: int,
        prepared_for: LogConfig | None = None,
        origin: str = CLIENT,
    ) -> AppendResult | None:
        if batches[0].attributes & SPECIAL_BATCH_BITS:
            self._services.counters.refused_batches += 1
            transactional_id = self._view.transactional_id
            refuse_special_batch(self._context, transactional_id, batches[0], partition, answer)
            return None
        try:
            result = partition.append_as_leader(
                buf,
                start,
                end,
                now_ms=now_ms,
                batches=batches,
                origin=origin,
                prepared_for=prepared_for,
            )
        except LogDirFailure as error:
            answer.fail(error.error_code, str(error))
            return None
        except (AppendError, InvalidRecords) as error:
            is_small = prepared_for is None
            self._targets.refuse(self._checks.refusal(error, is_small=is_small), partition, answer)
            return None
        count_stored(self._services, partition, batches[0].record_count, end - start)
        self._settle(partition, result, answer)
        return result

    def _settle(self, partition: Partition, result: AppendResult, answer: PartitionAnswer) -> None:
        """Say where the records are, now or when they are as safe as is asked for."""
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        reached = partition.high_watermark if self._needs_all else partition.own_copy.end_offset
        if result.last_offset >= reached:
            self._waiting.append((partition, answer, result.last_offset))

    def _take(
        self,
        taken: TakenPartition,
        partition: Partition,
        start: int,
        end: int,
        answer: PartitionAnswer,
        now_ms: int,
    ) -> bool:
        """Have one batch taken. False when that goes on later."""
        batches = self._taken
        if batches is None:
            come = functools.partial(self._looked, Nothing.PAUSED, None)
            batches = TakenBatches(self._services, self._context, self._checks, come)
            self._taken = batches
        begun = batches.begin(taken, partition, self._buf, start, end, now_ms)
        match begun:
            case AppendResult():
                self._settle(partition, begun, answer)
            case BatchHeader():
                transactional_id = self._view.transactional_id
                refuse_special_batch(self._context, transactional_id, begun, partition, answer)
            case Refusal():
                self._targets.refuse(begun, partition, answer)
            case _:
                if not isinstance(begun, Wait):
                    self._work_elsewhere(begun)
                return False
        return True

    def _take_up_taken(
        self, partition: Partition, found: Checked | Refusal, answer: PartitionAnswer, now_ms: int
    ) -> None:
        assert self._taken is not None
        found = self._taken.settled(found, needs_all=self._needs_all)
        if isinstance(found, Refusal):
            self._targets.refuse(found, partition, answer)
            self._waiting += self._taken.verdict_waits(answer)
        elif not found.batches:
            self._settle(partition, nothing_stored(partition), answer)
        else:
            self._store(partition, answer, *found[:4], now_ms, found.prepared_for, TAKEN)
            self._services.hidden_appended(partition)

    def _leave_turn(self) -> None:
        if self._taken is not None:
            self._taken.leave()

    def _look_elsewhere(self, partition: Partition, piece: ProducePartition, now_ms: int) -> None:
        """Have a thread look at the batch. Raises CloseConnection when there is no memory."""
        kept = self._keep()
        work = functools.partial(
            self._checks.check_in_thread,
            kept.buf,
            piece.records_start - kept.shift,
            piece.records_end - kept.shift,
            partition.log.config,
            self._services.thread_unpackers,
            zstd_allowed=self._version >= ZSTD_VERSION,
            wall_ms=self._services.wall_clock.wall_ms(now_ms),
            terms=hiding_terms(self._services, now_ms),
            name=f"{partition.topic}-{partition.index}",
            duplicates=look_for_duplicates(self._services, partition, now_ms),
        )
        self._work_elsewhere(work)

    def _keep(self) -> KeptRequest:
        kept = self._kept
        if kept is None:
            kept = self._context.connection.keep(self._buf, self._position, self._end)
            self._kept, self._buf = kept, kept.buf
        return kept

    def _work_elsewhere(
        self, work: Callable[[], Found], judgement: Judgement | None = None
    ) -> None:
        """Go on with what `work` finds in a thread, which may be that of a judgement."""
        self._keep()

        def look() -> Found:
            return Nothing.ABANDONED if self._is_abandoned() else work()

        def looked(found: Found | None, error: BaseException | None) -> None:
            if judgement is not None:
                judgement.judged()
            self._looked(found, error)

        self._services.request_work.submit(self._context, look, looked)

    def _is_abandoned(self) -> bool:
        return is_abandoned(self._services, self._context, self._view.acks != ACKS_NONE)

    def _looked(self, found: Found | None, error: BaseException | None) -> None:
        self._found, self._failure = found or Nothing.ABANDONED, error
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Take up what a thread has found, and go on."""
        found, self._found = self._found, Nothing.ABANDONED
        is_over = True
        try:
            if self._failure is not None:
                raise self._failure
            if found is not Nothing.ABANDONED and not self._is_abandoned():
                is_over = self._go_on(found, now_ms)
                if is_over:
                    self._complete()
        except CloseConnection as close:
            self._context.connection.close(str(close))
        except Exception as failure:
            self._context.connection.close(f"request failed: {failure!r}")
            raise
        finally:
            if is_over:
                self.end()

    def _go_on(self, found: Found, now_ms: int) -> bool:
        if not isinstance(found, Nothing):
            if not self._take_up(found, now_ms):
                return False
            self._leave_turn()
            self._next += 1
        return self.append_rest(now_ms)

    def _awaits_load(self, topic_id: bytes, index: int, answer: PartitionAnswer) -> bool:
        """Whether a thread is loading the log: this goes on when it has ended. To have the client
        send it again would let its next requests overtake it."""
        loaded = functools.partial(self._looked, Nothing.PAUSED, None)
        if not self._targets.awaits_load(topic_id, index, loaded):
            return False
        answer.error_code, answer.error_message = _NONE, None
        self._keep()
        return True

    def _take_up(self, found: Checked | Refusal | Judged, now_ms: int) -> bool:
        """Store it, or say why not. False when a thread has to judge it, first or once more."""
        topic, topic_id, piece, answer = self._todo[self._next]
        if not may_still_append(self._context, topic, answer):
            return True
        taken = None if self._taken is None else self._taken.partition
        if taken is not None:
            assert not isinstance(found, Judged)
            self._take_up_taken(taken, found, answer, now_ms)
            return True
        # It may lead no longer, or be gone.
        partition = self._targets.find(topic_id, piece, answer)
        if partition is None:
            return True
        found, judgement = settled(found, partition)
        if isinstance(found, Refusal):
            self._targets.refuse(found, partition, answer)
            self._waiting += verdict_waits(judgement, partition, answer)
            return True
        left = work_left(self._services, self._checks, partition, found, now_ms)
        if left is not None:
            self._work_elsewhere(*left)
            return False
        look, result = found.duplicates, None
        if look is None or not look.stores_nothing:
            result = self._store(partition, answer, *found[:4], now_ms, found.prepared_for)
        if look is not None and answer.error_code == _NONE:
            self._waiting += tell_duplicates(look, result, partition, answer)
        if found.batches[0].attributes & HIDDEN_FLAG:
            if judgement is not None and answer.error_code == _NONE:
                judgement.stored()
            self._services.hidden_appended(partition)
        return True

    def end(self) -> None:
        """Give back what others wait for: the turn, and the connection."""
        self._leave_turn()
        if self._kept is not None:
            self._kept.release()

    def _complete(self) -> None:
        answer, deferred = self.answer(), self._deferred
        if deferred is None:
            assert answer is None
        elif isinstance(answer, Deferred):
            answer.when_complete(deferred.complete)
        else:
            assert answer is not None
            deferred.complete(answer)

    # The end

    def answer_later(self) -> Deferred[list[Buffer]] | None:
        """When something is left to append, as `append_rest` said."""
        if self._view.acks != ACKS_NONE:
            self._deferred = Deferred()
        return self._deferred

    def answer(self) -> list[Buffer] | Deferred[list[Buffer]] | None:
        """When all is appended. Raises CloseConnection."""
        answers = self._answers
        request_bytes = self._end - self._position
        if self._view.acks == ACKS_NONE:
            answer_nobody(self._services, self._context, answers, request_bytes)
            return None
        if not self._waiting:
            return encode_produce_response(self._services, self._context, answers, request_bytes)
        return WaitingProduce(
            self._services,
            self._context,
            answers,
            self._waiting,
            self._began_ms + max(0, self._view.timeout_ms),
            request_bytes,
            self._needs_all,
        ).deferred


def handle_produce(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> list[Buffer] | Deferred[list[Buffer]] | None:
    """The raw handler of Produce."""
    produce = _Produce(services, context, buf, position, end, now_ms)
    is_over = True
    try:
        is_over = produce.append_rest(now_ms)
    finally:
        if is_over:
            produce.end()
    return produce.answer() if is_over else produce.answer_later()


def register(table: HandlerTable) -> None:
    table.register_raw(
        ApiKey.PRODUCE,
        MIN_VERSION,
        MAX_VERSION,
        handle_produce,
        advertised_min_version=ADVERTISED_MIN_VERSION,
    )
