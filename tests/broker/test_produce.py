"""Produce, version by version and error by error."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from data_plane.broker.produce import produce_checks
from data_plane.broker.produce.produce_checks import BATCH_PARTS_MAX, RECORDS_OUTLINED_MAX
from data_plane.broker.request.api import CloseConnection
from data_plane.log import validation
from data_plane.wire.compression import Compression, compress
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import BATCH_HEADER
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import (
    BatchHeader,
    NewRecord,
    build_batch,
    is_crc_valid,
    iter_batch_headers,
    outline_batch,
    read_batch_header,
    recompress,
    set_max_timestamp,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, NOW_MS, BrokerPlayer, make_batch, values_of
from tests.wire.kernel_pairs import with_crc

VERSIONS = range(3, 14)


def malformed_records() -> bytearray:
    """A batch whose one record claims more bytes than there are, with the right checksum."""
    batch = make_batch([b"value"])
    batch[61] = 0x7E
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def only(response: Any) -> Any:
    """The one partition of a produce or fetch answer."""
    topics = response.responses
    assert len(topics) == 1
    parts = (
        topics[0].partition_responses
        if hasattr(topics[0], "partition_responses")
        else (topics[0].partitions)
    )
    assert len(parts) == 1
    return parts[0]


@pytest.fixture
def broker() -> BrokerPlayer:
    player = BrokerPlayer()
    player.create_topic("orders", 2)
    return player


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_stores_and_answers(broker: BrokerPlayer, version: int) -> None:
    broker.produce("orders", [b"zero"], index=1, version=version)
    answer = only(broker.produce("orders", [b"a", b"b"], index=1, version=version).response)
    assert (answer.index, answer.error_code, answer.base_offset) == (1, 0, 1)
    assert answer.log_append_time_ms == -1
    if version >= 5:
        assert answer.log_start_offset == 0
    if version >= 8:
        assert answer.record_errors == []
        assert answer.error_message is None
    fetched = only(broker.fetch({("orders", 1): 0}).response)
    assert values_of(fetched.records) == [(0, b"zero"), (1, b"a"), (2, b"b")]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic(broker: BrokerPlayer, version: int) -> None:
    answer = only(broker.produce("nowhere", [b"a"], version=version).response)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (answer.error_code, answer.base_offset) == (expected, -1)


def test_records_of_refused_batches_are_named_up_to_a_bound(broker: BrokerPlayer) -> None:
    # Naming takes Python's time for each record, and a small compressed batch may have millions.
    def sent(*record_counts: int) -> list[tuple[int, int]]:
        """(error code, records named) of each batch, sent to a partition of its own."""
        pieces = [
            PartitionProduceData(
                index=index, records=bytes(build_batch([late] * count, compression=4))
            )
            for index, count in enumerate(record_counts)
        ]
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="orders", partition_data=pieces)],
        )
        (topic,) = broker.send(ApiKey.PRODUCE, 9, request).response.responses
        return [(part.error_code, len(part.record_errors)) for part in topic.partition_responses]

    late = NewRecord(1 << 50, None, None)
    code = int(ErrorCode.INVALID_TIMESTAMP)
    assert sent(RECORDS_OUTLINED_MAX) == [(code, RECORDS_OUTLINED_MAX)]
    assert sent(RECORDS_OUTLINED_MAX + 1) == [(code, 0)]
    assert sent(RECORDS_OUTLINED_MAX - 5, 6) == [(code, RECORDS_OUTLINED_MAX - 5), (code, 0)]
    assert sent(RECORDS_OUTLINED_MAX + 1, 6) == [(code, 0), (code, 6)]


@pytest.mark.parametrize(
    ("version", "acks", "is_unpacked_again"),
    [(7, 1, False), (8, 0, False), (8, 1, True), (13, -1, True), (13, 0, False)],
)
def test_records_are_looked_for_where_the_answer_names_them(
    broker: BrokerPlayer,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    acks: int,
    is_unpacked_again: bool,
) -> None:
    outlined: list[BatchHeader] = []

    def outline(buf: bytearray, header: BatchHeader) -> list[tuple[int, bool]]:
        outlined.append(header)
        return outline_batch(buf, header)

    monkeypatch.setattr(validation, "outline_batch", outline)
    batch = build_batch([NewRecord(1 << 50, None, None)], compression=Compression.GZIP)
    with contextlib.suppress(CloseConnection):  # What acks=0 gets.
        answer = only(
            broker.produce("orders", [], version=version, acks=acks, batch=batch).response
        )
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert broker.services.counters.refused_batches == 1
    assert bool(outlined) is is_unpacked_again


def test_a_record_of_countless_headers_is_named_without_them(broker: BrokerPlayer) -> None:
    headers = ((b"", b""),) * 900_000
    batch = build_batch([NewRecord(1 << 50, None, None, headers)], compression=4)
    tracemalloc.start()
    try:
        answer = only(broker.answered(broker.produce("orders", [], batch=batch)).response)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]
    # Not a multiple of what two bytes a header unpack to.
    assert peak_bytes < 20_000_000


def test_records_without_keys_are_named(broker: BrokerPlayer) -> None:
    broker.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    batch = build_batch([NewRecord(NOW_MS, key, b"v") for key in (b"a", None, b"", None)])
    answer = only(broker.produce("compacted", [], batch=batch).response)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3]


def test_an_unknown_partition(broker: BrokerPlayer) -> None:
    answer = only(broker.produce("orders", [b"a"], index=2).response)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [-2, 2, 32767])
def test_unknown_acks_store_nothing(broker: BrokerPlayer, acks: int) -> None:
    answer = only(broker.produce("orders", [b"a"], acks=acks).response)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.partition("orders").log.log_end_offset == 0


@pytest.mark.parametrize("version", [3, 12])
def test_of_an_unknown_partition_acks_do_not_matter_as_with_apache_kafka(
    broker: BrokerPlayer, version: int
) -> None:
    answer = only(broker.produce("orders", [b"a"], index=2, acks=2, version=version).response)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_acks_0_is_not_answered(broker: BrokerPlayer) -> None:
    assert not broker.produce("orders", [b"a"], acks=0).is_answered
    assert broker.partition("orders").high_watermark == 1


def test_acks_0_with_an_error_closes_the_connection(broker: BrokerPlayer) -> None:
    with pytest.raises(CloseConnection, match="nowhere-0: UNKNOWN_TOPIC_OR_PARTITION"):
        broker.produce("nowhere", [b"a"], acks=0)


def test_one_bad_partition_does_not_touch_the_others(broker: BrokerPlayer) -> None:
    bad = make_batch([b"bad"])
    bad[-1] ^= 1
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(bad)),
                    PartitionProduceData(index=1, records=bytes(make_batch([b"good"]))),
                ],
            )
        ],
    )
    response = broker.send(ApiKey.PRODUCE, 9, request).response
    first, second = response.responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert first.error_message
    assert (second.error_code, second.base_offset) == (0, 0)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (make_batch([b"a"]) + make_batch([b"b"]), ErrorCode.INVALID_RECORD),
        (
            make_batch(
                [b"a"], is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
            ),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (malformed_records(), ErrorCode.INVALID_RECORD),
        (make_batch([bytes(1_100_000)]), ErrorCode.MESSAGE_TOO_LARGE),
        (make_batch([b"a"], timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (
            make_batch([b"a"], producer_id=5, producer_epoch=0, base_sequence=3),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ),
    ],
)
def test_refused_batches(broker: BrokerPlayer, batch: bytes, error: ErrorCode) -> None:
    broker.produce("orders", [b"first"])
    if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        broker.produce(
            "orders",
            [],
            batch=make_batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=0),
        )
    before = broker.partition("orders").log.log_end_offset
    answer = only(broker.produce("orders", [], batch=batch).response)
    assert ErrorCode(answer.error_code) is error
    assert answer.base_offset == -1
    assert broker.partition("orders").log.log_end_offset == before


def test_null_records(broker: BrokerPlayer) -> None:
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="orders", partition_data=[PartitionProduceData(index=0, records=None)]
            )
        ],
    )
    answer = only(broker.send(ApiKey.PRODUCE, 9, request).response)
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7(broker: BrokerPlayer) -> None:
    batch = make_batch([b"a" * 100], compression=Compression.ZSTD)
    answer = only(broker.produce("orders", [], batch=batch, version=6).response)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(broker.produce("orders", [], batch=batch, version=7).response).error_code == 0


def test_a_repeated_batch_is_acknowledged_with_its_first_offset(broker: BrokerPlayer) -> None:
    def send(sequence: int) -> Any:
        batch = make_batch([b"a", b"b"], producer_id=9, producer_epoch=0, base_sequence=sequence)
        return only(broker.produce("orders", [], batch=batch).response)

    assert send(0).base_offset == 0
    assert send(2).base_offset == 2
    again = send(0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert broker.partition("orders").log.log_end_offset == 4


def test_clients_do_not_write_to_internal_topics(broker: BrokerPlayer) -> None:
    broker.create_topic("__consumer_offsets")
    answer = only(broker.produce("__consumer_offsets", [b"a"]).response)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_log_append_time_is_in_the_answer(broker: BrokerPlayer) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    answer = only(broker.produce("stamped", [b"a"]).response)
    assert answer.log_append_time_ms == NOW_MS


def test_a_deleted_topic_is_unknown_at_once(broker: BrokerPlayer) -> None:
    topic_id = broker.create_topic("gone")
    broker.produce("gone", [b"a"])
    broker.delete_topic(topic_id)
    answer = only(broker.produce("gone", [b"a"]).response)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("gone")
    assert only(broker.produce("gone", [b"new"]).response).base_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_durable_topics_are_acknowledged_after_the_sync(broker: BrokerPlayer, acks: int) -> None:
    broker.create_topic("ledger", configs={"durability": "fsync"})
    first = broker.produce("ledger", [b"a"], acks=acks)
    second = broker.produce("ledger", [b"b"], acks=acks)
    assert not first.is_answered
    partition = broker.partition("ledger")
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    assert values_of(only(broker.fetch({("ledger", 0): 0}).response).records) == []
    broker.executor.run_one()
    # The first sync began before the second batch came.
    assert first.is_answered
    assert not second.is_answered
    assert partition.high_watermark == 1
    broker.run_jobs()
    assert only(second.response).base_offset == 1
    assert partition.high_watermark == 2


def test_flush_messages_syncs_every_so_many_records(broker: BrokerPlayer) -> None:
    broker.create_topic("flushed", configs={"flush.messages": "3"})
    assert broker.produce("flushed", [b"a", b"b"]).is_answered
    third = broker.produce("flushed", [b"c"])
    assert not third.is_answered
    broker.run_jobs()
    assert third.is_answered
    assert broker.produce("flushed", [b"d"]).is_answered


def test_a_sync_that_takes_too_long_times_out(broker: BrokerPlayer) -> None:
    broker.create_topic("ledger", configs={"durability": "fsync"})
    pending = broker.produce("ledger", [b"a"])
    broker.pass_time(29_999)
    assert not pending.is_answered
    broker.pass_time(1)
    assert only(pending.response).error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.run_jobs()


def test_a_topic_deleted_during_the_sync_fails_its_produce(broker: BrokerPlayer) -> None:
    topic_id = broker.create_topic("ledger", configs={"durability": "fsync"})
    pending = broker.produce("ledger", [b"a"])
    broker.delete_topic(topic_id)
    assert only(pending.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.run_jobs()


def test_the_leader_is_named_where_it_moved(broker: BrokerPlayer) -> None:
    from data_plane.cell.changes import CreateTopic

    services = broker.services
    topic_id = UUID(int=5)
    image = services.store.apply(
        (CreateTopic("default", "elsewhere", topic_id, ((NODE_ID + 1,),)),),
        services.image.version,
        "x",
    )
    services.apply_image(image, broker.now_ms)
    response = broker.produce("elsewhere", [b"a"], version=10).response
    answer = only(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == NODE_ID + 1
    assert answer.current_leader.leader_epoch == 0


@pytest.mark.parametrize("codec", list(Compression))
def test_records_are_looked_at_however_they_are_packed(
    broker: BrokerPlayer, codec: Compression
) -> None:
    def send(records: bytes, count: int, max_timestamp: int = NOW_MS + 1) -> Any:
        packed = compress(codec, records)
        good = read_batch_header(build_batch([NewRecord(NOW_MS, None, b"v", ())]), 0)
        header = good._replace(
            batch_length=49 + len(packed),
            attributes=int(codec),
            last_offset_delta=count - 1,
            max_timestamp=max_timestamp,
            record_count=count,
        )
        batch = bytearray(BATCH_HEADER.pack(*header[1:])) + packed
        set_max_timestamp(batch, 0, max_timestamp)  # Makes the checksum too.
        return only(broker.produce("orders", [], batch=bytes(batch)).response)

    def payload(count: int) -> bytes:
        records = [NewRecord(NOW_MS + delta, b"k", b"v", ()) for delta in range(count)]
        return bytes(build_batch(records)[61:])

    log = broker.partition("orders").log
    for records, count in ((payload(3), 2), (payload(2), 3), (payload(2) + b"\0", 2)):
        answer = send(records, count)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message
    assert log.log_end_offset == 0
    for lie in (0, NOW_MS + 1, NOW_MS + 10**10):
        assert send(payload(2), 2, lie).error_code == 0
    stored = only(broker.fetch({("orders", 0): 0}).response).records
    headers = list(iter_batch_headers(stored, 0, len(stored)))
    assert [header.max_timestamp for header in headers] == [NOW_MS + 1] * 3
    assert all(is_crc_valid(stored, header) for header in headers)


def test_a_bomb_is_refused(broker: BrokerPlayer) -> None:
    batch = build_batch([NewRecord(NOW_MS, None, bytes(200 << 20), ())], compression=4)
    assert len(batch) < 100_000
    answer = only(broker.answered(broker.produce("orders", [], batch=bytes(batch))).response)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "unpacks to more than" in answer.error_message


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("with_headers", [False, True])
def test_a_batch_of_countless_parts_is_refused(
    broker: BrokerPlayer, compression: Compression, with_headers: bool
) -> None:
    broker.create_topic("wide", configs={"max.message.bytes": str(100 << 20)})

    def send(parts_count: int) -> Any:
        headers_count = parts_count // 2 if with_headers else 0
        record = NewRecord(NOW_MS, None, None)
        records = [record] * (parts_count - headers_count)
        records[7] = record._replace(headers=((b"", b""),) * headers_count)
        batch = build_batch(records, compression=compression)
        return only(broker.answered(broker.produce("wide", [], batch=bytes(batch))).response)

    assert send(BATCH_PARTS_MAX).error_code == 0
    answer = send(BATCH_PARTS_MAX + 1)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "more than 1000000 records and headers" in answer.error_message
    assert broker.partition("wide").log.log_end_offset == (
        BATCH_PARTS_MAX // 2 if with_headers else BATCH_PARTS_MAX
    )


def test_a_batch_of_too_many_records_is_not_unpacked(broker: BrokerPlayer) -> None:
    batch = make_batch([b"value"], compression=Compression.ZSTD)
    batch[61:65] = bytes(4)  # Nothing that would unpack.
    batch[23:27] = BATCH_PARTS_MAX.to_bytes(4, "big")
    batch[57:61] = (BATCH_PARTS_MAX + 1).to_bytes(4, "big")
    answer = only(broker.produce("orders", [], batch=with_crc(batch)).response)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", ["uncompressed", "gzip"])
def test_what_is_beyond_the_bounds_is_not_compressed_anew(
    broker: BrokerPlayer, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setattr(produce_checks, "UNPACKED_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(produce_checks, "BATCH_PARTS_MAX", 10)
    broker.create_topic("rewritten", configs={"compression.type": codec})
    rewritten: list[int] = []

    def rewrite(buf: bytearray, position: int, *options: Any) -> bytearray:
        rewritten.append(position)
        return recompress(buf, position, *options)

    monkeypatch.setattr(validation, "recompress", rewrite)

    def send(values: list[bytes], headers_count: int = 0) -> int:
        headers = ((b"", b""),) * headers_count
        records = [NewRecord(NOW_MS, None, value, headers) for value in values]
        batch = build_batch(records, compression=Compression.ZSTD)
        return int(
            only(broker.answered(broker.produce("rewritten", [], batch=batch)).response).error_code
        )

    too_large = int(ErrorCode.MESSAGE_TOO_LARGE)
    assert send([bytes(1_100_000)]) == too_large
    assert send([b"v"] * 11) == too_large
    assert send([b"v"], 10) == too_large
    assert rewritten == []
    assert send([bytes(900_000)]) == send([b"v"] * 10) == send([b"v"], 9) == 0
    assert len(rewritten) == 3


def test_what_a_request_unpacks_to_is_bounded(
    broker: BrokerPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_checks, "UNPACKED_BYTES_MAX", 1_000_000)
    broker.create_topic("many", 4)

    def send(*batches: bytearray) -> list[int]:
        pieces = [
            PartitionProduceData(index=index, records=bytes(batch))
            for index, batch in enumerate(batches)
        ]
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="many", partition_data=pieces)],
        )
        (topic,) = broker.answered(broker.send(ApiKey.PRODUCE, 9, request)).response.responses
        return [part.error_code for part in topic.partition_responses]

    def packed(size: int, codec: Compression = Compression.ZSTD) -> bytearray:
        return make_batch([bytes(size)], compression=codec)

    too_large = int(ErrorCode.MESSAGE_TOO_LARGE)
    assert send(packed(450_000), packed(450_000)) == [0, 0]
    assert send(packed(450_000), packed(450_000), packed(450_000)) == [0, 0, too_large]
    # Plain records take part in nothing but the request's size, which allows for more.
    plain = make_batch([bytes(20_000)])
    assert send(plain, packed(450_000), packed(450_000), packed(450_000)) == [0, 0, 0, 0]
    # What breaks while it is unpacked has been unpacked, nobody knows how far, but a few bytes do
    # not get far.
    monkeypatch.setattr(produce_checks, "UNPACKED_BYTES_MAX", 4_000_000)
    broken = packed(10, Compression.GZIP)[:85]
    broken[8:12] = (len(broken) - 12).to_bytes(4, "big")
    broken = with_crc(broken)
    assert send(broken, broken, broken, packed(450_000)) == [int(ErrorCode.INVALID_RECORD)] * 3 + [
        0
    ]
    monkeypatch.setattr(produce_checks, "UNPACKED_BYTES_MAX", 1_000_000)
    broken = packed(900_000, Compression.GZIP)
    broken[-3] ^= 255  # In the size that ends it.
    broken = with_crc(broken)
    assert send(broken, packed(450_000)) == [int(ErrorCode.INVALID_RECORD), too_large]
