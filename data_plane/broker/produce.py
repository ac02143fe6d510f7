"""Produce, versions 3 to 13: records in the receive buffer become records in the log.

The request is parsed in place. For each partition: find it, check its batches, let the log write
offsets and leader epoch into the receive buffer and store it with one write, note the answer.
Records of one partition that are refused do not touch the other partitions of the request.

Every record is looked at once, here, compressed ones too: a consumer that meets malformed records
behind a right checksum gets no further, and nobody can repair what is stored (docs/adr/0013). The
header's highest timestamp is put right where it is not that of the records.

When the answer leaves:
- acks=0: never. An error closes the connection, the only way to tell (as Kafka does).
- acks=1: when this leader has the records, synced where the topic asks for that.
- acks=all: when they are committed: every in-sync replica has them, and these are enough. A
  partition whose ISR is below the effective min ISR is refused before the append
  (NOT_ENOUGH_REPLICAS). One that falls below it afterwards waits: nothing is committed then
  (KIP-966), so NOT_ENOUGH_REPLICAS_AFTER_APPEND, Kafka's word for committed by too few, has no
  case left.
- A duplicate of an idempotent producer waits like its original, which may not be committed yet.
- What is not there at the request's timeout is a REQUEST_TIMED_OUT; what a leader that is replaced
  still owes a NOT_LEADER_OR_FOLLOWER, with the new leader where the version has room (KIP-951).

Refused as Kafka refuses it: more or less than one batch per partition, control batches, internal
topics, acks other than -1, 0, 1, old message formats. Transactional batches get INVALID_TXN_STATE,
or without a transactional id TRANSACTIONAL_ID_AUTHORIZATION_FAILED: no transaction can be open,
since the transaction APIs are not advertised.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from data_plane.broker.api import Buffer, CloseConnection, Deferred, HandlerTable, RequestContext
from data_plane.broker.produce_response import PartitionAnswer, encode_produce_response
from data_plane.broker.services import Services
from data_plane.broker.timers import Timer
from data_plane.broker.topic_partitions import UNKNOWN_PARTITION_CODES
from data_plane.log.errors import AppendError, LogDirFailure
from data_plane.replica.partition import Partition
from data_plane.replica.waiters import Waiter
from data_plane.wire.compression import DECOMPRESSED_BYTES_MAX, TooLarge
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel import check_batches, parse_produce, too_many_parts, walk_records
from data_plane.wire.kernel_types import (
    CODEC_MASK,
    CONTROL_FLAG,
    MAX_TIMESTAMP_POSITION,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    ProducePartition,
    ProduceTopic,
)
from data_plane.wire.records import read_batch_header, set_max_timestamp, unpacked_records
from data_plane.wire.registry import ApiKey

MIN_VERSION = 3
# As in Kafka, which closes the connection of who uses a version below 3, too. librdkafka before
# 2.12 does not compress with gzip, snappy or lz4 where version 0 is not offered (KAFKA-18659).
ADVERTISED_MIN_VERSION = 0
MAX_VERSION = 13
TOPIC_IDS_VERSION = 13
ZSTD_VERSION = 7

ACKS_ALL = -1
ACKS_NONE = 0
VALID_ACKS = (ACKS_ALL, ACKS_NONE, 1)
RECORD_ERRORS_VERSION = 8
# To name the records at fault their batch is unpacked once more, and each looked at in Python.
RECORDS_OUTLINED_MAX = 1_000
# Records and headers of a batch. A consumer, and now and then the broker, has to make objects of
# all of them, and a compressed megabyte has room for 18 million.
BATCH_PARTS_MAX = 1_000_000
# What all batches of a request together may unpack to: this, and so many times its size.
UNPACKED_BYTES_MAX = 256 << 20
UNPACKED_RATIO_MAX = 32
# Of zstd; the other codecs end far below.
CODEC_RATIO_MAX = 33_000
SPECIAL_BATCH_BITS = TRANSACTIONAL_FLAG | CONTROL_FLAG

Answers = list[tuple[ProduceTopic, list[PartitionAnswer]]]

_NONE = int(ErrorCode.NONE)
_INT64 = struct.Struct(">q")


class _WaitingProduce:
    """A produce whose records are appended and not all as safe yet as it asked."""

    __slots__ = ("_answers", "_context", "_open", "_services", "_timer", "_waiters", "deferred")

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        answers: Answers,
        waiting: list[tuple[Partition, PartitionAnswer, int]],
        deadline_ms: int,
        needs_all: bool,
    ) -> None:
        self._services = services
        self._context = context
        self._answers = answers
        self._open: dict[int, PartitionAnswer] = {}
        self._timer: Timer | None = None
        self._waiters: list[Waiter] = []
        self.deferred: Deferred[list[Buffer]] = Deferred()
        for number, (_, answer, _) in enumerate(waiting):
            self._open[number] = answer
        for number, (partition, _, offset) in enumerate(waiting):
            done = functools.partial(self._done, number)
            if needs_all:
                waiter = partition.when_committed(offset, done)
            else:
                waiter = partition.when_appended(offset, done)
            if waiter is not None:
                self._waiters.append(waiter)
        if self._open:
            self._timer = services.timers.schedule(deadline_ms, self._timed_out)
            # The client chooses the deadline, and may be gone long before.
            context.connection.on_close[self._abandon] = None

    def _done(self, number: int, error: ErrorCode) -> None:
        answer = self._open.pop(number, None)
        if answer is None:
            return
        if error is not ErrorCode.NONE:
            # The offsets stay, as in Kafka: that is where the records are, if they are anywhere.
            answer.error_code = int(error)
        if not self._open:
            if self._timer is not None:
                self._timer.cancel()
            self._finish()

    def _timed_out(self, now_ms: int) -> None:
        for answer in self._open.values():
            answer.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        self._stop_waiting()
        self._finish()

    def _abandon(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._open.clear()
        for waiter in self._waiters:
            waiter.cancel()

    def _finish(self) -> None:
        self._context.connection.on_close.pop(self._abandon, None)
        self.deferred.complete(
            encode_produce_response(self._services, self._context, self._answers)
        )


class _Appender:
    """Appends the pieces of one request, and remembers what to wait for: (partition, answer, last
    offset)."""

    __slots__ = (
        "_buf",
        "_has_transactional_id",
        "_needs_all",
        "_now_ms",
        "_outlined_max",
        "_services",
        "_unpacked_bytes_left",
        "_version",
        "waiting",
    )

    def __init__(
        self,
        services: Services,
        version: int,
        buf: bytearray | memoryview,
        has_transactional_id: bool,
        acks: int,
        now_ms: int,
        request_bytes: int,
    ) -> None:
        self._services = services
        self._version = version
        self._buf = buf
        self._has_transactional_id = has_transactional_id
        self._now_ms = now_ms
        self._needs_all = acks == ACKS_ALL
        tells_records = version >= RECORD_ERRORS_VERSION and acks != ACKS_NONE
        self._outlined_max = RECORDS_OUTLINED_MAX if tells_records else 0
        self._unpacked_bytes_left = UNPACKED_BYTES_MAX + UNPACKED_RATIO_MAX * request_bytes
        self.waiting: list[tuple[Partition, PartitionAnswer, int]] = []

    def append(self, topic: ProduceTopic, piece: ProducePartition, answer: PartitionAnswer) -> None:
        """Append one partition's records and fill in its answer."""
        partition = self._find(topic, piece, answer)
        if partition is None:
            return
        start, end = piece.records_start, piece.records_end
        buf = self._buf
        try:
            batches = check_batches(
                buf,
                start,
                end,
                batch_bytes_max=partition.log.config.max_message_bytes,
                zstd_allowed=self._version >= ZSTD_VERSION,
                walk=True,
                parts_max=BATCH_PARTS_MAX,
            )
            batch = batches[0]
            if batch.attributes & SPECIAL_BATCH_BITS:
                self._refuse_special_batch(batch.is_control, partition, answer)
                return
            if batch.attributes & CODEC_MASK:
                batches = [self._unpacked_and_walked(batch)]
            if (
                batches[0].max_timestamp
                != _INT64.unpack_from(buf, start + MAX_TIMESTAMP_POSITION)[0]
            ):
                set_max_timestamp(buf, start, batches[0].max_timestamp)
                batches = [read_batch_header(buf, start)]
            result = partition.append_as_leader(
                buf, start, end, now_ms=self._now_ms, batches=batches
            )
        except LogDirFailure as error:
            answer.fail(error.error_code)
            return
        except (AppendError, InvalidRecords) as error:
            self._refuse(error, partition, answer)
            return
        counters = self._services.counters
        counters.produced_batches += 1
        counters.produced_records += batch.record_count
        counters.produced_bytes += end - start
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        reached = partition.high_watermark if self._needs_all else partition.own_end_offset
        if result.last_offset >= reached:
            self.waiting.append((partition, answer, result.last_offset))

    def _unpacked_and_walked(self, batch: BatchHeader) -> BatchHeader:
        """The header with the highest timestamp of its compressed records, which are as they must
        be when this returns; raises InvalidRecords."""
        if batch.record_count > BATCH_PARTS_MAX:
            raise too_many_parts(BATCH_PARTS_MAX)
        size_max = min(self._unpacked_bytes_left, DECOMPRESSED_BYTES_MAX)
        if size_max <= 0:
            raise TooLarge(
                ErrorCode.MESSAGE_TOO_LARGE,
                "the batches before it in the request unpack to all that a request may",
            )
        try:
            records, start, end = unpacked_records(
                self._buf, batch, size_max, self._services.unpacker
            )
        except InvalidRecords:
            # How far it got nobody knows; no codec gets further than this.
            packed_bytes = batch.end_position - batch.records_position
            self._unpacked_bytes_left -= min(size_max, packed_bytes * CODEC_RATIO_MAX)
            raise
        self._unpacked_bytes_left -= end - start
        summary = walk_records(
            records,
            start,
            end,
            batch.record_count,
            batch.base_timestamp,
            parts_max=BATCH_PARTS_MAX,
        )
        return batch._replace(max_timestamp=summary.max_timestamp)

    def _find(
        self, topic: ProduceTopic, piece: ProducePartition, answer: PartitionAnswer
    ) -> Partition | None:
        """The partition to append to, or None when the answer says why not."""
        partitions = self._services.partitions
        index = piece.partition_index
        has_names = self._version < TOPIC_IDS_VERSION
        if has_names:
            partition = partitions.get_by_name(topic.name, index)
        else:
            partition = partitions.get(topic.topic_id, index)
        if partition is None or partition.resigned is not ErrorCode.NONE:
            answer.fail(self._why_not_here(topic, index))
            return None
        if partition.topic in partitions.internal_topics:
            answer.fail(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot append to internal topic {partition.topic}",
            )
            return None
        if piece.records_start < 0 or piece.records_start == piece.records_end:
            answer.fail(
                ErrorCode.INVALID_RECORD,
                "Produce requests must have at least one record batch per partition",
            )
            return None
        if self._needs_all and partition.leadership is not None and partition.is_under_min_isr:
            answer.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            answer.log_start_offset = partition.log.log_start_offset
            return None
        return partition

    def refuse_acks(
        self, topic: ProduceTopic, piece: ProducePartition, answer: PartitionAnswer
    ) -> None:
        """Of acks that there are not. Who names an unknown partition hears of that, as in Kafka."""
        error = self._why_not_here(topic, piece.partition_index)
        answer.fail(error if error in UNKNOWN_PARTITION_CODES else ErrorCode.INVALID_REQUIRED_ACKS)

    def _why_not_here(self, topic: ProduceTopic, index: int) -> ErrorCode:
        partitions = self._services.partitions
        if self._version < TOPIC_IDS_VERSION:
            return partitions.error_by_name(topic.name, index)
        return partitions.error(topic.topic_id, index)

    def _refuse(
        self,
        error: AppendError | InvalidRecords,
        partition: Partition,
        answer: PartitionAnswer,
    ) -> None:
        self._services.counters.refused_batches += 1
        if isinstance(error, AppendError):
            named: Sequence[tuple[int, str]] = ()
            if error.record_count <= self._outlined_max:
                self._outlined_max -= error.record_count
                named = error.name_records()
            answer.fail(error.error_code, error.message, named)
            answer.log_start_offset = partition.log.log_start_offset
            return
        code = error.error_code
        if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            # What Kafka answers in Produce; elsewhere old formats have the other code.
            code = ErrorCode.INVALID_RECORD
        answer.fail(code, str(error))

    def _refuse_special_batch(
        self, is_control: bool, partition: Partition, answer: PartitionAnswer
    ) -> None:
        self._services.counters.refused_batches += 1
        if is_control:
            answer.fail(
                ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records"
            )
            answer.log_start_offset = partition.log.log_start_offset
        elif self._has_transactional_id:
            answer.fail(
                ErrorCode.INVALID_TXN_STATE,
                "Transactional records need an open transaction; this broker serves none",
            )
        else:
            answer.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def handle_produce(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> list[Buffer] | Deferred[list[Buffer]] | None:
    """The raw handler of Produce."""
    version = context.api_version
    view = parse_produce(buf, position, end, version)
    acks = view.acks
    has_transactional_id = view.transactional_id is not None
    needs_all = acks == ACKS_ALL
    appender = _Appender(services, version, buf, has_transactional_id, acks, now_ms, end - position)
    answers: Answers = []
    has_error = False
    for topic in view.topics:
        partition_answers = []
        for piece in topic.partitions:
            answer = PartitionAnswer(piece.partition_index)
            partition_answers.append(answer)
            if acks in VALID_ACKS:
                appender.append(topic, piece, answer)
            else:
                appender.refuse_acks(topic, piece, answer)
            if answer.error_code != _NONE:
                has_error = True
        answers.append((topic, partition_answers))
    if acks == ACKS_NONE:
        if has_error:
            raise CloseConnection(f"produce with acks=0 failed: {_describe(answers)}")
        return None
    if not appender.waiting:
        return encode_produce_response(services, context, answers)
    deadline_ms = now_ms + max(0, view.timeout_ms)
    return _WaitingProduce(
        services, context, answers, appender.waiting, deadline_ms, needs_all
    ).deferred


def _describe(answers: Answers) -> str:
    failed = [
        f"{topic.name or topic.topic_id.hex()}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic, partition_answers in answers
        for answer in partition_answers
        if answer.error_code != _NONE
    ]
    return ", ".join(failed[:5])


def register(table: HandlerTable) -> None:
    table.register_raw(
        ApiKey.PRODUCE,
        MIN_VERSION,
        MAX_VERSION,
        handle_produce,
        advertised_min_version=ADVERTISED_MIN_VERSION,
    )
