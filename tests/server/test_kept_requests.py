"""Requests that are kept beyond their handler: nothing of their connection overtakes them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from data_plane.broker.produce.produce_checks import HERE_UNPACKED_BYTES_MAX
from data_plane.broker.request.api import Buffer, Deferred, KeptRequest
from data_plane.server.connection import Connection
from data_plane.wire.compression import Compression
from data_plane.wire.headers import RequestHeader, encode_request_header
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.primitives import Writer
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import NOW_MS, BrokerPlayer
from tests.server.connection_player import MemoryTransport, PlayedListener, connect, feed, frame


class Keeper:
    """Keeps requests that begin with `k`, answers the others at once."""

    def __init__(self, memory_bytes: int = 1 << 30) -> None:
        self.listener = PlayedListener(lambda request: [b""])
        self.listener.memory.budget.max = memory_bytes
        self.listener.dispatcher = self  # type: ignore[assignment]
        self.handled: list[bytes] = []
        self.kept: list[KeptRequest] = []
        self.answers: list[Deferred[list[Buffer]]] = []
        self.last_api_key = -1

    def dispatch(self, info: Any, buf: bytearray, position: int, end: int, now_ms: int) -> Any:
        request = bytes(buf[position:end])
        self.handled.append(request[:2])
        if not request.startswith(b"k"):
            return [request[:2]]
        kept = info.keep(buf, position, end)
        self.kept.append(kept)
        assert bytes(kept.buf[position - kept.shift : end - kept.shift]) == request
        self.answers.append(Deferred())
        return self.answers[-1]

    def finish(self) -> None:
        kept = self.kept.pop(0)
        self.answers.pop(0).complete([bytes(kept.buf[:0]) + b"k!"])
        kept.release()


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["in the shared buffer", "in its own"])
@pytest.mark.parametrize("cut", [1, 7, 100_000])
def test_what_follows_a_kept_request_waits(size: int, cut: int) -> None:
    keeper = Keeper()
    connection, transport = connect(keeper.listener)
    behind = frame(b"a3") + frame(b"k4") + frame(b"a5")
    data = frame(b"a1") + frame(b"k2" + bytes(size)) + behind
    at = len(data) - len(behind) - cut if cut < size else 5
    assert received(connection, data[:at]) == b""
    rest = received(connection, data[at:])
    assert keeper.handled == [b"a1", b"k2"]
    assert not transport.is_reading_now
    assert not connection.is_idle
    assert not connection.is_answered
    memory = keeper.listener.memory
    assert memory.half_frames_bytes + memory.waiting_bytes >= size
    keeper.finish()
    # Not within whatever released it.
    assert keeper.handled == [b"a1", b"k2"]
    keeper.listener.take_turn()
    rest = received(connection, rest)
    assert keeper.handled == [b"a1", b"k2", b"a3", b"k4"]
    keeper.finish()
    keeper.listener.take_turn()
    assert received(connection, rest) == b""
    assert keeper.handled == [b"a1", b"k2", b"a3", b"k4", b"a5"]
    assert transport.sent == b"a1k!a3k!a5"
    assert transport.is_reading_now
    assert (memory.half_frames_bytes, memory.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_kept_request_outlives_its_connection(size: int) -> None:
    """A thread may still read its bytes, so they must not be another frame's yet."""
    keeper = Keeper()
    connection, transport = connect(keeper.listener)
    feed(connection, frame(b"k1" + bytes(size)) + frame(b"a2"))
    memory = keeper.listener.memory
    connection.connection_lost(None)
    assert memory.half_frames_bytes + memory.waiting_bytes >= size
    keeper.finish()
    keeper.listener.take_turn()
    assert (memory.half_frames_bytes, memory.waiting_bytes) == (0, 0)
    assert keeper.handled == [b"k1"]
    assert transport.sent == b""


def test_there_is_a_bound_for_what_is_kept() -> None:
    keeper = Keeper(memory_bytes=5_000)
    closed = []
    for _ in range(8):
        connection, transport = connect(keeper.listener)
        feed(connection, frame(b"k1" + bytes(998)))
        closed.append(transport.is_closed)
    assert closed == [False] * 5 + [True] * 3
    assert set(keeper.listener.reasons) == {"no memory left for requests that wait"}


def produce_frame(batch: bytes | bytearray, number: int) -> bytes:
    writer = Writer()
    encode_request_header(
        writer,
        RequestHeader(
            api_key=int(ApiKey.PRODUCE), api_version=9, correlation_id=number, client_id="c"
        ),
    )
    piece = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=[piece])],
    )
    API_BY_KEY[ApiKey.PRODUCE].encode_request(writer, request, 9)
    return frame(bytes(writer.buf))


@pytest.mark.parametrize("seed", range(25))
def test_sequences_of_idempotent_producers_keep_their_order(seed: int) -> None:
    """Producers that send ahead, batches that a thread has to look at among those that it has not,
    frames cut anywhere, threads that are done in any order."""
    rng = random.Random(seed)
    broker = BrokerPlayer(seed=seed)
    broker.create_topic("orders")
    listener = PlayedListener(lambda request: None)
    listener.dispatcher = broker.dispatcher  # type: ignore[assignment]
    listener.clock.ms = NOW_MS
    producers: list[list[Any]] = []
    for producer_id in (1, 2, 3):
        data = b""
        for sequence in range(12):
            size = HERE_UNPACKED_BYTES_MAX if rng.random() < 0.4 else 10
            batch = build_batch(
                [NewRecord(NOW_MS, None, bytes(size))],
                compression=rng.choice([Compression.ZSTD, Compression.LZ4]),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            data += produce_frame(batch, sequence)
        connection, transport = connect(listener)
        producers.append([connection, transport, data])
    queue = broker.executor.queue
    for _ in range(10_000):
        if queue and rng.random() < 0.5:
            queue.rotate(rng.randrange(len(queue)))
            broker.executor.run_one()
            broker.services.wakes.run(broker.now_ms)
        listener.take_turn()
        producer = rng.choice(producers)
        connection, transport, data = producer
        count = rng.choice([1, 50, 500, 5000, 50_000])
        producer[2] = received(connection, data[:count]) + data[count:]
        if not queue and not any(data for _, _, data in producers):
            break
    listener.take_turn()
    broker.run_jobs()
    while listener.soon or queue:
        listener.take_turn()
        broker.run_jobs()
    assert not any(transport.is_closed for _, transport, _ in producers)
    log = broker.partition("orders").log
    assert log.log_end_offset == 36
    for _, transport, _ in producers:
        answers = bytes(transport.sent)
        numbers = []
        while answers:
            size = int.from_bytes(answers[:4], "big")
            numbers.append(int.from_bytes(answers[4:8], "big"))
            answers = answers[4 + size :]
        assert numbers == list(range(12))


def received(connection: Connection, data: bytes) -> bytes:
    """What is left of `data` when the connection is not read any more."""
    transport = connection.transport
    assert isinstance(transport, MemoryTransport)
    while data and transport.is_reading_now:
        view = connection.get_buffer(-1)
        count = min(len(view), len(data))
        view[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]
    return data
