"""Batches that no client writes, with a right checksum: nothing is stored that stops a consumer.

Apache Kafka 4.3.1 refuses them too, most with INVALID_RECORD, some with UNKNOWN_SERVER_ERROR. What
it does store stands in STORED_BY_KAFKA and is only expected of it: it reads compressed records over
without looking whether their fields fill their sizes, numbers uncompressed records anew, and reads
nothing behind the first gzip member or lz4 frame.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

import cramjam
import pytest
from confluent_kafka import Consumer, TopicPartition
from crc32c import crc32c

from data_plane.wire.compression import Compression, compress
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import BATCH_HEADER, BatchHeader
from data_plane.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.registry import ApiKey
from tests.conformance.raw_client import RawClient

NameMaker = Callable[[str], str]
IS_KAFKA = "TIDEWHEEL_CONFORMANCE_BOOTSTRAP" in os.environ
BASE_MS = 1_700_000_000_000
REFUSED = {ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR}
NO_LEADER_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
PACKED = tuple(codec for codec in Compression if codec is not Compression.NONE)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def record(
    delta: int, *, key: bytes | None = b"k", body: bytes | None = None, size: int = 0
) -> bytes:
    """One record; `body` replaces what follows its offset, `size` is added to its stated size."""
    if body is None:
        named = varint(-1) if key is None else varint(len(key)) + key
        body = named + varint(5) + b"value" + varint(0)
    body = b"\0" + varint(delta) + varint(delta) + body
    return varint(len(body) + size) + body


GOOD = record(0) + record(1) + record(2)
HALF = len(record(0)) + 3
FIRST_TWO = record(0) + record(1)
DAMAGED_RECORDS = {
    "none": b"",
    "too few": FIRST_TWO,
    "too many": GOOD + record(3),
    "a byte behind": GOOD + b"\0",
    "offsets with a gap": FIRST_TWO + record(5),
    "offsets that repeat": record(0) * 3,
    "offsets that fall": record(2) + record(1) + record(0),
    "size too small": FIRST_TWO + record(2, size=-2),
    "size too large": FIRST_TWO + record(2, size=90),
    "size of the next": record(0) + record(1, size=3) + record(2),
    "size negative": FIRST_TWO + record(2, size=-40),
    "key beyond its record": FIRST_TWO + record(2, body=varint(99) + b"kkk"),
    "value beyond its record": FIRST_TWO + record(2, body=varint(1) + b"k" + varint(99) + b"v\0"),
    "bytes in no field": FIRST_TWO + record(2, body=varint(-1) + varint(-1) + varint(0) + b"zz"),
    "headers missing": FIRST_TWO + record(2, body=varint(-1) + varint(-1) + varint(5)),
    "headers negative": FIRST_TWO + record(2, body=varint(-1) + varint(-1) + varint(-1)),
    "header without key": FIRST_TWO + record(2, body=varint(-1) + varint(-1) + varint(1) + b"\1\1"),
    "a varint without end": FIRST_TWO + b"\xff" * 12,
}
DAMAGED_PACKING: dict[str, Callable[[int], bytes]] = {
    "cut off": lambda codec: compress(codec, GOOD)[:-3],
    "empty": lambda codec: b"",
    "noise": lambda codec: b"\xff\xfe\xfdnothing of the sort",
    "not compressed": lambda codec: GOOD,
    "another codec": lambda codec: compress(codec % 4 + 1, GOOD),
    "bytes behind": lambda codec: compress(codec, GOOD) + b"more",
}
STORED_BY_KAFKA = {
    *((name, Compression.NONE) for name in DAMAGED_RECORDS if name.startswith("offsets")),
    *((name, codec) for name in DAMAGED_RECORDS if name.startswith("size") for codec in PACKED),
    ("bytes behind", Compression.GZIP),
    ("bytes behind", Compression.LZ4),
}


def batch(codec: int, packed: bytes, *, max_timestamp: int = BASE_MS + 2) -> bytes:
    header = BatchHeader(
        0, 0, 49 + len(packed), -1, 2, 0, codec, 2, BASE_MS, max_timestamp, -1, -1, -1, 3
    )
    out = bytearray(BATCH_HEADER.pack(*header[1:])) + packed
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as raw:
        yield raw


def create(client: RawClient, topic: str, **configs: str) -> None:
    config_list = [
        CreatableTopicConfig(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    # In a cell it shall be led by the broker that is asked.
    here = CreatableReplicaAssignment(partition_index=0, broker_ids=[client.broker_id()])
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[here],
        configs=config_list,
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=20_000)
    assert client.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0


def produce(client: RawClient, topic: str, records: bytes) -> ErrorCode:
    """The error code, asked for again while a new topic has no leader yet."""
    piece = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1,
        timeout_ms=20_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[piece])],
    )
    for _ in range(200):
        answer = client.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        if code not in NO_LEADER_YET:
            return code
    raise AssertionError(f"{topic} has no leader")


def read_all(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """(offset, timestamp) of everything, as a consumer gets it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        got.append((message.offset() or 0, message.timestamp()[1]))
    consumer.close()
    assert message is not None
    return got


@pytest.mark.parametrize("codec", list(Compression))
def test_damaged_records_are_not_stored(
    bootstrap: str, client: RawClient, name: NameMaker, codec: Compression
) -> None:
    topic = name("damaged")
    create(client, topic)
    assert produce(client, topic, batch(codec, compress(codec, GOOD))) is ErrorCode.NONE
    for case, records in DAMAGED_RECORDS.items():
        if IS_KAFKA and (case, codec) in STORED_BY_KAFKA:
            continue
        assert produce(client, topic, batch(codec, compress(codec, records))) in REFUSED, case
    assert produce(client, topic, batch(codec, compress(codec, GOOD))) is ErrorCode.NONE
    assert [offset for offset, _ in read_all(bootstrap, topic)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("codec", PACKED)
def test_what_does_not_unpack_is_not_stored(
    bootstrap: str, client: RawClient, name: NameMaker, codec: Compression
) -> None:
    topic = name("packed")
    create(client, topic)
    for case, pack in DAMAGED_PACKING.items():
        if IS_KAFKA and (case, codec) in STORED_BY_KAFKA:
            continue
        assert produce(client, topic, batch(codec, pack(codec))) in REFUSED, case
    assert produce(client, topic, batch(codec, compress(codec, GOOD))) is ErrorCode.NONE
    assert [offset for offset, _ in read_all(bootstrap, topic)] == [0, 1, 2]


def test_lz4_that_java_does_not_read_is_not_stored(client: RawClient, name: NameMaker) -> None:
    topic = name("lz4")
    create(client, topic)
    linked = bytes(cramjam.lz4.compress(GOOD))
    pieces = [compress(Compression.LZ4, piece) for piece in (GOOD[:HALF], GOOD[HALF:])]
    for packed in (linked, b"".join(pieces)):
        assert produce(client, topic, batch(Compression.LZ4, packed)) in REFUSED


def test_several_members_are_one_payload(
    bootstrap: str, client: RawClient, name: NameMaker
) -> None:
    topic = name("members")
    create(client, topic)
    # Of gzip Java reads all of them, librdkafka the first only: it is stored and not read here.
    for codec in (Compression.ZSTD, Compression.GZIP):
        packed = compress(codec, GOOD[:HALF]) + compress(codec, GOOD[HALF:])
        assert produce(client, topic, batch(codec, packed)) is ErrorCode.NONE
        if codec is Compression.ZSTD:
            assert len(read_all(bootstrap, topic)) == 3


@pytest.mark.parametrize("codec", list(Compression))
def test_the_highest_timestamp_is_that_of_the_records(
    bootstrap: str, client: RawClient, name: NameMaker, codec: Compression
) -> None:
    topic = name("time")
    create(client, topic)
    packed = compress(codec, GOOD)
    for lie in (BASE_MS, BASE_MS + 99, BASE_MS + 10**12, -1):
        code = produce(client, topic, batch(codec, packed, max_timestamp=lie))
        assert code is ErrorCode.NONE
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    for wanted, offset in ((BASE_MS + 2, 2), (BASE_MS + 3, -1)):
        asked = TopicPartition(topic, 0, wanted)
        assert consumer.offsets_for_times([asked], 20)[0].offset == offset
    consumer.close()
    assert [time - BASE_MS for _, time in read_all(bootstrap, topic)] == [0, 1, 2] * 4


@pytest.mark.parametrize("codec", list(Compression))
def test_a_record_of_the_future_is_found_behind_a_modest_header(
    client: RawClient, name: NameMaker, codec: Compression
) -> None:
    topic = name("future")
    create(client, topic)
    far = b"\0" + varint(10**12) + varint(2) + varint(-1) + varint(-1) + varint(0)
    packed = compress(codec, FIRST_TWO + varint(len(far)) + far)
    assert produce(client, topic, batch(codec, packed)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", list(Compression))
def test_a_compacted_topic_wants_keys(
    client: RawClient, name: NameMaker, codec: Compression
) -> None:
    topic = name("compacted")
    create(client, topic, cleanup_policy="compact")
    keyless = compress(codec, FIRST_TWO + record(2, key=None))
    assert produce(client, topic, batch(codec, keyless)) is ErrorCode.INVALID_RECORD
    assert produce(client, topic, batch(codec, compress(codec, GOOD))) is ErrorCode.NONE
