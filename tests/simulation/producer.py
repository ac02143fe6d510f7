"""A producer: idempotent with acks=all as librdkafka and the Java client do it, or plain.

Idempotent: each partition's batches get consecutive sequences when they are first sent and keep
them on every retry. At most MAX_IN_FLIGHT are under way for a partition; after an error everything
of that partition comes home first and is then sent again in order. A batch that is not settled in
time is given up, its outcome unknown; what comes after it could never be accepted, so the producer
asks for a new id, gives up all that was ever sent under the old one and goes on with the rest.

Plain (acks 0 or 1): no ids, no promises; it makes the logs of replicas differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import Compression, NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.simulation.client import Client
from tests.simulation.large_states import codec_of
from tests.simulation.tagged import TAGGED, TAGGED_TOPICS, tags_of, with_tags
from tests.simulation.world import EPOCH_MS, US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

ACKS_ALL = -1
MAX_IN_FLIGHT = 5
BATCH_RECORDS_MAX = 3
QUEUED_MAX = 12
RETRY_MS = 40
PRODUCE_TIMEOUT_MS = 1000
DELIVERY_TIMEOUT_MS = 12_000
PADDING_BYTES_MAX = 200
DATED_BACK_MS_MAX = 1500
# How often a producer leaves out some sequences, to be refused.
GAP_CHANCE = 0.02
# A leader that has not heard of its last election yet may find a sequence wrong, for a while.
OUT_OF_ORDER_RETRIES_MAX = 60

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(slots=True, eq=False)
class Outgoing:
    """A batch on its way."""

    topic: str
    index: int
    first_number: int
    count: int
    created_us: int
    sequence: int = -1
    # How many batches of the lane were sent before it for the first time.
    ordinal: int = -1
    tries: int = 0
    wrong_order: int = 0
    # The connection that it was last sent on.
    link_number: int = 0


class Lane:
    """What goes to one partition, in order."""

    __slots__ = (
        "index",
        "is_acknowledged",
        "is_draining",
        "next_ordinal",
        "next_sequence",
        "queue",
        "retry_at_us",
        "sent",
        "topic",
    )

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        # Not under way: to be sent (again), by sequence.
        self.queue: deque[Outgoing] = deque()
        self.sent: list[Outgoing] = []
        self.next_sequence = 0
        self.next_ordinal = 0
        self.is_draining = False
        # Something of it was acknowledged under the present producer id.
        self.is_acknowledged = False
        self.retry_at_us = 0

    def may_send(self) -> bool:
        """Brokers remember five batches: none may be sent that pushes an unsettled one out."""
        if not self.queue or len(self.sent) >= MAX_IN_FLIGHT:
            return False
        head = self.queue[0]
        ordinal = self.next_ordinal if head.ordinal < 0 else head.ordinal
        oldest = min((batch.ordinal for batch in self.sent), default=ordinal)
        return ordinal < min(oldest, ordinal) + MAX_IN_FLIGHT


class Producer(Client):
    """See the module."""

    def __init__(
        self, cell: Cell, name: str, *, acks: int, interval_ms: int, wants: Callable[[str], bool]
    ) -> None:
        super().__init__(cell, name)
        self.acks = acks
        self.is_idempotent = acks == ACKS_ALL
        self._interval_ms = interval_ms
        self._has_large_states = "large states" in cell.extras
        self._wants = wants
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._next_number = 0
        self.producer_id = -1
        self.producer_epoch = -1
        self._is_asking_id = False
        self._must_renew = False
        self.is_stopped = False

    def start(self) -> None:
        self.refresh_metadata()
        self._next_tick()

    def stop(self) -> None:
        """Make nothing new; what is there is still delivered."""
        self.is_stopped = True

    @property
    def unsettled_count(self) -> int:
        return sum(len(lane.queue) + len(lane.sent) for lane in self._lanes.values())

    def _next_tick(self) -> None:
        self.world.at(
            int(self.random.expovariate(1 / self._interval_ms) * US_PER_MS) + 100, self._tick
        )

    def _tick(self) -> None:
        if not self.is_stopped:
            self._make_batch()
            if self.is_idempotent and self.random.random() < GAP_CHANCE:
                self._try_gap()
        self._give_up_old()
        self._pump()
        if not self.is_stopped or self.unsettled_count:
            self._next_tick()

    def metadata_changed(self) -> None:
        self._pump()

    def _make_batch(self) -> None:
        targets = [
            (topic, index)
            for topic, info in self.topics.items()
            if self._wants(topic)
            for index in info.partitions
        ]
        if not targets:
            self.refresh_metadata()
            return
        topic, index = self.random.choice(sorted(targets))
        lane = self._lanes.get((topic, index))
        if lane is None:
            lane = self._lanes[(topic, index)] = Lane(topic, index)
        if len(lane.queue) < QUEUED_MAX:
            count = self.random.randint(1, BATCH_RECORDS_MAX)
            lane.queue.append(Outgoing(topic, index, self._next_number, count, self.world.now_us))
            self._next_number += count

    def _try_gap(self) -> None:
        """Leave out some sequences. A leader that acknowledges that would lose records in silence
        when a producer loses a request."""
        lanes = [
            one
            for one in self._lanes.values()
            # Not where a leader may have forgotten the producer, and may take any sequence.
            if one.is_acknowledged and one.topic in ("data3", "datasync")
        ]
        if not lanes or self._must_renew:
            return
        lane = self.random.choice(lanes)
        info = self.leader(lane.topic, lane.index)
        if info is None or info.leader < 0:
            return
        gap = Outgoing(lane.topic, lane.index, 1 << 40, 1, self.world.now_us)
        gap.sequence = lane.next_sequence + 1000
        request = self._request(lane, gap)
        self.ask(
            info.leader, ApiKey.PRODUCE, request, lambda answer: self._gap_answered(lane, answer)
        )

    def _gap_answered(self, lane: Lane, response: Any) -> None:
        if response is None:
            return
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.cell.promises.gap_accepted(self, lane.topic, lane.index)

    # Giving up

    def _give_up_old(self) -> None:
        limit_us = self.world.now_us - DELIVERY_TIMEOUT_MS * US_PER_MS
        for lane in self._lanes.values():
            # Of a topic that is gone nothing is waited for in the end.
            is_gone = self.is_stopped and lane.topic not in self.topics
            if not lane.queue or lane.sent:
                continue
            if is_gone or lane.queue[0].created_us < limit_us:
                given_up = lane.queue.popleft()
                self.world.count("batches given up")
                self.cell.promises.given_up(self, given_up)
                if given_up.sequence >= 0:
                    self._must_renew = True
        if self._must_renew and not any(lane.sent for lane in self._lanes.values()):
            self._renew()

    def _renew(self) -> None:
        """A new id: what was sent under the old one will never be asked about again."""
        self._must_renew = False
        self.world.count("producer ids renewed")
        self.producer_id = -1
        for lane in self._lanes.values():
            while lane.queue and lane.queue[0].sequence >= 0:
                self.cell.promises.given_up(self, lane.queue.popleft())
            lane.next_sequence = 0
            lane.is_draining = False
            lane.is_acknowledged = False

    def _ask_id(self) -> None:
        if not self._is_asking_id:
            self._is_asking_id = True
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            self.ask(self.any_node(), ApiKey.INIT_PRODUCER_ID, request, self._took_id)

    def _took_id(self, response: Any) -> None:
        self._is_asking_id = False
        if response is None or response.error_code:
            return
        self.producer_id = response.producer_id
        self.producer_epoch = response.producer_epoch
        self.cell.promises.producer_id_given(self, response.producer_id)
        self._pump()

    # Sending

    def _pump(self) -> None:
        if self.is_idempotent and self.producer_id < 0:
            self._ask_id()
            return
        if self._must_renew:
            return
        ready = []
        for lane in self._lanes.values():
            if lane.is_draining:
                if lane.sent or self.world.now_us < lane.retry_at_us:
                    continue
                lane.is_draining = False
            ready.append(lane)
        self._send_from(ready)

    def _send_from(self, lanes: list[Lane]) -> None:
        for lane in lanes:
            while lane.may_send() and self._send(lane):
                pass

    def _send(self, lane: Lane) -> bool:
        info = self.leader(lane.topic, lane.index)
        if info is None or info.leader < 0:
            self.refresh_metadata()
            return False
        batch = self._take(lane)
        batch.link_number = self.link(info.leader).number
        request = self._request(lane, batch)
        if self.acks == 0:
            self.link(info.leader).send_unanswered(ApiKey.PRODUCE, request)
            return True
        lane.sent.append(batch)
        self.ask(
            info.leader,
            ApiKey.PRODUCE,
            request,
            lambda response: self._answered(lane, batch, response),
        )
        return True

    def _take(self, lane: Lane) -> Outgoing:
        """The first of the queue, with its sequence, which it keeps."""
        batch = lane.queue.popleft()
        if batch.ordinal < 0:
            batch.ordinal = lane.next_ordinal
            lane.next_ordinal += 1
        if self.is_idempotent and batch.sequence < 0:
            batch.sequence = lane.next_sequence
            lane.next_sequence += batch.count
        if batch.tries:
            self.world.count("produce retries")
        batch.tries += 1
        return batch

    def _request(self, lane: Lane, batch: Outgoing) -> ProduceRequest:
        piece = PartitionProduceData(index=lane.index, records=self._encode(batch))
        return ProduceRequest(
            transactional_id=None,
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=lane.topic, partition_data=[piece])],
        )

    def _encode(self, batch: Outgoing) -> bytes:
        records = self._records(batch)
        is_tagged = batch.topic in TAGGED_TOPICS
        compression = Compression.NONE
        if self._has_large_states or is_tagged:
            compression = codec_of(batch.first_number)
        if self.is_idempotent:
            encoded = build_batch(
                records,
                compression=compression,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=batch.sequence,
            )
        else:
            encoded = build_batch(records, compression=compression)
        if is_tagged:
            self.cell.sent_batches.sent(encoded, records)
        return bytes(encoded)

    def _records(self, batch: Outgoing) -> list[NewRecord]:
        """The same on each try: a retried batch has the same bytes."""
        numbers = range(batch.first_number, batch.first_number + batch.count)
        padding = b"." * (batch.first_number * 37 % PADDING_BYTES_MAX)
        timestamp = self.world.now_ms
        if self.acks == 0 and self._has_large_states:
            # Never sent again, so that what one connection brings is in order (audit.py).
            padding = b"%d/" % batch.link_number + padding
        if self.is_idempotent:
            # As applications date their records: not in the order in which they are appended.
            back_ms = batch.first_number * 7919 % (DATED_BACK_MS_MAX + 1)
            timestamp = EPOCH_MS + batch.created_us // US_PER_MS - back_ms
        records = [
            NewRecord(timestamp, None, b"%s/%d/%s" % (self.name.encode(), number, padding))
            for number in numbers
        ]
        if batch.topic == TAGGED:
            records = [
                with_tags(record, tags_of(number))
                for number, record in zip(numbers, records, strict=True)
            ]
        return records

    def _answered(self, lane: Lane, batch: Outgoing, response: Any) -> None:
        answer = None if response is None else response.responses[0].partition_responses[0]
        self._settle(lane, batch, answer)

    def _settle(self, lane: Lane, batch: Outgoing, answer: Any) -> None:
        """What one partition was told; None when nobody has answered."""
        lane.sent.remove(batch)
        if answer is None:
            self._retry(lane, batch)
            return
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self.world.count(f"acks={self.acks} acknowledged")
            lane.is_acknowledged = True
            self.cell.promises.acknowledged(self, batch, answer.base_offset)
        elif error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.world.count("duplicate sequence answers")
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._out_of_order(lane, batch)
        elif error in RETRIABLE:
            self.world.count(f"produce {error.name}")
            self._retry(lane, batch)
        else:
            self.cell.promises.refused(self, batch, error)
            self._must_renew = self.is_idempotent

    def _out_of_order(self, lane: Lane, batch: Outgoing) -> None:
        """Expected behind a batch that failed. For the first in line it means that the leader
        lacks what another one acknowledged: at best it is one that does not know it is deposed."""
        is_first = not any(other.sequence < batch.sequence for other in lane.sent) and not any(
            0 <= other.sequence < batch.sequence for other in lane.queue
        )
        if is_first:
            batch.wrong_order += 1
            self.world.count("out of order at the first in line")
            if batch.wrong_order > OUT_OF_ORDER_RETRIES_MAX:
                self.cell.promises.out_of_order(self, batch)
                self.cell.promises.given_up(self, batch)
                self._must_renew = True
                return
        self._retry(lane, batch)

    def _retry(self, lane: Lane, batch: Outgoing) -> None:
        """Home again: into its place in the queue."""
        lane.is_draining = True
        lane.retry_at_us = self.world.now_us + RETRY_MS * US_PER_MS
        position = 0
        while position < len(lane.queue) and 0 <= lane.queue[position].sequence < batch.sequence:
            position += 1
        if not self.is_idempotent:
            position = 0
        lane.queue.insert(position, batch)
        self.refresh_metadata()
