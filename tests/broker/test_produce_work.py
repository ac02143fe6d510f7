"""Produce requests that a thread has to look at: what the loop does of it, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.produce.produce_checks import HERE_BYTES_MAX, HERE_UNPACKED_BYTES_MAX
from data_plane.broker.produce.produce_handler import (
    PARTITIONS_AT_ONCE_MAX,
    PARTITIONS_MAX,
)
from data_plane.broker.produce.produce_rights import UNANSWERED_WORK_MAX
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.fair_work import FairWork
from data_plane.broker.request.request_work import WORK_AT_ONCE_MAX
from data_plane.wire.compression import Compression, Unpacker
from data_plane.wire.errors import ErrorCode, MalformedFrame
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import NewRecord, build_batch, decode_batch
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NOW_MS, BrokerPlayer, Pending, make_batch
from tests.broker.doubles import FixedQuotas, QueueExecutor
from tests.wire.kernel_pairs import with_crc

BOMB = bytes(make_batch([bytes(20 << 20)], compression=Compression.ZSTD))
MANY_HEADERS = bytes(
    build_batch(
        [NewRecord(NOW_MS, None, b"v", ((b"", b""),) * 990_000)], compression=Compression.GZIP
    )
)
LARGE = bytes(make_batch([bytes(HERE_UNPACKED_BYTES_MAX)], compression=Compression.LZ4))


class CountingUnpacker(Unpacker):
    """What the loop unpacks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_count = 0
        self.bytes_count = 0

    def unpack_small(self, codec: int, data: Any, size_max: int) -> Any:
        self.calls_count += 1
        records = super().unpack_small(codec, data, size_max)
        self.bytes_count += size_max if records is None else len(records)
        return records


@pytest.fixture
def broker() -> BrokerPlayer:
    broker = BrokerPlayer()
    broker.create_topic("orders", 8)
    broker.services.unpacker = CountingUnpacker()
    return broker


def send(
    broker: BrokerPlayer,
    *batches: bytes | bytearray,
    acks: int = 1,
    connection: ConnectionInfo | None = None,
) -> Pending:
    """Each to a partition of its own."""
    pieces = [
        PartitionProduceData(index=index, records=bytes(batch))
        for index, batch in enumerate(batches)
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=pieces)],
    )
    return broker.send(ApiKey.PRODUCE, 9, request, connection=connection)


def errors(pending: Pending) -> list[int]:
    (topic,) = pending.response.responses
    return [part.error_code for part in topic.partition_responses]


def only(response: Any) -> Any:
    (topic,) = response.responses
    (answer,) = topic.partition_responses
    return answer


def ends(broker: BrokerPlayer) -> list[int]:
    return [broker.partition("orders", index).log.log_end_offset for index in range(8)]


@pytest.mark.parametrize("batch", [BOMB, MANY_HEADERS], ids=["zeros", "headers"])
def test_what_a_request_unpacks_on_the_loop_is_bounded(broker: BrokerPlayer, batch: bytes) -> None:
    assert len(batch) < 30_000
    unpacker = broker.services.unpacker
    assert isinstance(unpacker, CountingUnpacker)
    pending = send(broker, *[batch] * 8)
    assert not pending.is_answered
    broker.run_jobs()
    assert errors(pending) == [0] * 8
    assert unpacker.calls_count == 1
    assert unpacker.bytes_count <= HERE_UNPACKED_BYTES_MAX
    assert ends(broker) == [1] * 8


def test_small_requests_never_leave_the_loop(broker: BrokerPlayer) -> None:
    """Whose batches are those of an ordinary producer: there a hop to a thread would cost more."""
    plain = make_batch([bytes(1_000_000)])
    small = make_batch([bytes(HERE_UNPACKED_BYTES_MAX - 100)], compression=Compression.LZ4)
    pending = send(broker, plain, small)
    assert errors(pending) == [0, 0]
    assert not broker.executor.queue


def test_many_partitions_are_gone_through_in_parts(broker: BrokerPlayer) -> None:
    pieces = [
        PartitionProduceData(index=index, records=bytes(make_batch([b"a"])))
        for index in [*range(8), *range(PARTITIONS_MAX - 8)]
    ]

    def send_pieces() -> Pending:
        topic = TopicProduceData(name="orders", partition_data=pieces)
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[topic])
        return broker.send(ApiKey.PRODUCE, 9, request)

    pending = send_pieces()
    turns_count = 0
    while not pending.is_answered:
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
        turns_count += 1
    assert turns_count == PARTITIONS_MAX // PARTITIONS_AT_ONCE_MAX - 1
    assert errors(pending)[:17] == [0] * 16 + [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert ends(broker) == [2] * 8
    pieces.append(pieces[0])
    with pytest.raises(MalformedFrame, match="more than 10000 partitions"):
        send_pieces()


def test_many_plain_records_in_one_request(broker: BrokerPlayer) -> None:
    plain = make_batch([bytes(1_000_000)])
    pending = send(broker, *[plain] * (HERE_BYTES_MAX // 1_000_000 + 2))
    assert not pending.is_answered
    assert errors(broker.answered(pending)) == [0] * (HERE_BYTES_MAX // 1_000_000 + 2)


def test_refused_ones_too(broker: BrokerPlayer) -> None:
    unpacker = broker.services.unpacker
    assert isinstance(unpacker, CountingUnpacker)
    broken = bytearray(make_batch([bytes(200_000)], compression=Compression.GZIP))
    broken[-3] ^= 255  # In the size that ends it: all of it is unpacked before that is seen.
    batches = [with_crc(broken)] * 8
    pending = broker.answered(send(broker, *batches))
    assert errors(pending) == [int(ErrorCode.INVALID_RECORD)] * 8
    assert unpacker.bytes_count <= HERE_UNPACKED_BYTES_MAX


def test_few_are_under_way_at_a_time(broker: BrokerPlayer) -> None:
    pending = [send(broker, BOMB, connection=broker.connect()) for _ in range(40)]
    assert len(broker.executor.queue) == WORK_AT_ONCE_MAX
    assert len(broker.services.request_work) == 40
    while not all(one.is_answered for one in pending):
        assert len(broker.executor.queue) <= WORK_AT_ONCE_MAX
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
    assert [errors(one) for one in pending] == [[0]] * 40


def test_peers_take_turns() -> None:
    executor = QueueExecutor()
    work = FairWork(executor, WORK_AT_ONCE_MAX)
    done: list[str] = []

    def submit(tenant: str, peer: str, name: str) -> None:
        work.submit(tenant, peer, name.strip, lambda found, error: done.append(str(found)))

    for number in range(5):
        submit("acme", "many", f"many {number}")
    submit("acme", "few", "few 0")
    assert (len(work), work.count_of("acme"), len(executor.queue)) == (6, 6, WORK_AT_ONCE_MAX)
    while executor.queue:
        executor.run_one()
    assert done == ["many 0", "many 1", "many 2", "few 0", "many 3", "many 4"]
    assert (len(work), work.count_of("acme")) == (0, 0)


def test_tenants_take_turns_however_many_peers_they_have() -> None:
    executor = QueueExecutor()
    work = FairWork(executor, 1)
    done: list[str] = []

    def submit(tenant: str, peer: str) -> None:
        work.submit(tenant, peer, tenant.strip, lambda found, error: done.append(str(found)))

    for number in range(1_000):
        submit("acme", f"10.0.{number // 200}.{number % 200}")
    for _ in range(3):
        submit("globex", "10.9.9.9")
    while work.count_of("globex"):
        executor.run_one()
    assert done == ["acme", "acme", "globex", "acme", "globex", "acme", "globex"]


def test_what_a_thread_takes_counts_for_who_has_asked(broker: BrokerPlayer) -> None:
    quotas = FixedQuotas()
    broker.services.quotas = quotas
    pending = send(broker, BOMB)
    on_the_loop_ns = quotas.handled_ns
    broker.run_jobs()
    assert errors(pending) == [0]
    # The double's clock of threads goes on by a millisecond whenever it is read.
    assert quotas.handled_ns == on_the_loop_ns + 1_000_000
    peer = broker.connect(is_inter_broker=True)
    before_ns = quotas.handled_ns
    send(broker, BOMB, connection=peer)
    broker.run_jobs()
    assert quotas.handled_ns == before_ns


def test_other_partitions_of_the_request_are_appended_in_their_turn(broker: BrokerPlayer) -> None:
    small = make_batch([b"a"])
    pending = send(broker, small, LARGE, small, BOMB, b"", small)
    assert ends(broker)[:6] == [1, 0, 0, 0, 0, 0]
    broker.executor.run_one()
    assert ends(broker)[:6] == [1, 0, 0, 0, 0, 0]
    broker.services.wakes.run(broker.now_ms)
    assert ends(broker)[:6] == [1, 1, 1, 0, 0, 0]
    broker.run_jobs()
    assert errors(pending) == [0, 0, 0, 0, int(ErrorCode.INVALID_RECORD), 0]
    assert ends(broker)[:6] == [1, 1, 1, 1, 0, 1]


def test_threads_unpack_into_memory_that_they_have(broker: BrokerPlayer) -> None:
    """To clear as much anew costs more than to unpack it."""
    batch = make_batch([bytes(HERE_UNPACKED_BYTES_MAX * 2 // 3)], compression=Compression.LZ4)
    pool = broker.services.thread_unpackers
    assert errors(broker.answered(send(broker, *[batch] * 4))) == [0] * 4
    assert len(pool) == 1
    used = pool.take()
    pool.give_back(used)
    assert errors(broker.answered(send(broker, *[batch] * 4))) == [0] * 4
    assert pool.take() is used


def test_a_topic_that_is_deleted_meanwhile(broker: BrokerPlayer) -> None:
    topic_id = broker.services.image.topics_of("default")["orders"].topic_id
    pending = send(broker, LARGE, make_batch([b"a"]))
    broker.delete_topic(topic_id)
    assert set(errors(broker.answered(pending))) == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"cleanup_policy": "delete"}, {"cleanup_policy": "compact"}),
        ({"cleanup_policy": "compact"}, {"cleanup_policy": "compact"}),
    ],
    ids=["compacted meanwhile", "compacted"],
)
def test_what_the_topic_asks_for_holds_when_it_is_appended(
    broker: BrokerPlayer, before: dict[str, str], after: dict[str, str]
) -> None:
    broker.configure_topic("orders", **before)
    pending = send(broker, LARGE)
    broker.configure_topic("orders", **after)
    assert errors(broker.answered(pending)) == [int(ErrorCode.INVALID_RECORD)]
    assert ends(broker)[0] == 0


def test_what_is_compressed_anew_and_stamped(broker: BrokerPlayer) -> None:
    broker.configure_topic(
        "orders", compression_type="gzip", message_timestamp_type="LogAppendTime"
    )
    pending = send(broker, LARGE)
    broker.now_ms += 5
    answer = only(broker.answered(pending).response)
    assert (answer.error_code, answer.log_append_time_ms) == (0, NOW_MS + 5)
    part = broker.fetch({("orders", 0): 0}, max_wait_ms=0).response.responses[0].partitions[0]
    (record,) = decode_batch(bytes(part.records))
    assert (len(record.value or b""), record.timestamp) == (HERE_UNPACKED_BYTES_MAX, NOW_MS + 5)


@pytest.mark.parametrize(("days", "error"), [(0, ErrorCode.INVALID_TIMESTAMP), (30, 0)])
def test_timestamps_are_held_against_the_date(broker: BrokerPlayer, days: int, error: int) -> None:
    """Which is not the steady time by which requests wait."""
    day_ms = 86_400_000
    broker.services.wall_clock.observe(broker.now_ms, broker.now_ms + days * day_ms)
    late = build_batch(
        [NewRecord(NOW_MS + 30 * day_ms, None, bytes(HERE_UNPACKED_BYTES_MAX))],
        compression=Compression.ZSTD,
    )
    assert errors(broker.answered(send(broker, late))) == [int(error)]


def test_the_records_at_fault_are_named_by_the_thread(broker: BrokerPlayer) -> None:
    late = build_batch(
        [NewRecord(1 << 50, None, bytes(HERE_UNPACKED_BYTES_MAX))], compression=Compression.ZSTD
    )
    answer = only(broker.answered(send(broker, late)).response)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]


def test_without_acknowledgement(broker: BrokerPlayer) -> None:
    send(broker, LARGE, acks=0)
    send(broker, make_batch([b"a"], compression=Compression.ZSTD)[:-1], acks=1)
    broker.run_jobs()
    assert ends(broker)[0] == 1
    assert broker.close_reasons == []
    send(broker, LARGE, b"", acks=0)
    broker.run_jobs()
    assert ends(broker)[0] == 2
    (reason,) = broker.close_reasons
    assert "acks=0 failed: orders-1: INVALID_RECORD" in reason


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_the_client_is_gone_before_its_turn(broker: BrokerPlayer, acks: int) -> None:
    """Who wants no answer may close after sending; the others' requests are nobody's any more."""
    gone = broker.connect()
    send(broker, LARGE, acks=acks, connection=gone)
    gone.gate.close()
    broker.run_jobs()
    assert ends(broker)[0] == (1 if acks == 0 else 0)
    assert len(broker.services.request_work) == 0


def test_who_sends_and_goes_cannot_fill_the_queue(broker: BrokerPlayer) -> None:
    for _ in range(2 * UNANSWERED_WORK_MAX):
        gone = broker.connect()
        send(broker, LARGE, acks=0, connection=gone)
        gone.gate.close()
    broker.run_jobs()
    assert UNANSWERED_WORK_MAX <= ends(broker)[0] <= UNANSWERED_WORK_MAX + WORK_AT_ONCE_MAX


def test_a_bug_in_what_a_thread_does_closes_the_connection(broker: BrokerPlayer) -> None:
    pending = send(broker, LARGE)
    _, on_done = broker.executor.queue.popleft()
    on_done(None, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        broker.services.wakes.run(broker.now_ms)
    assert not pending.is_answered
    assert "a bug" in broker.close_reasons[0]


@pytest.mark.parametrize("has_looked", [False, True])
def test_what_waits_is_dropped_with_a_connection_whose_credential_was_revoked(
    broker: BrokerPlayer, has_looked: bool
) -> None:
    """Also where no answer is wanted, and a client that closes has what it has sent taken."""
    for is_revoked in (False, True):
        connection = broker.connect()
        send(broker, LARGE, acks=0, connection=connection)
        if has_looked:
            broker.executor.run_one()
        if is_revoked:
            connection.gate.revoke()
        connection.gate.close()
        broker.run_jobs()
        broker.services.wakes.run(broker.now_ms)
        assert ends(broker)[0] == 1
