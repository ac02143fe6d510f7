"""The kernel's answers to Produce and Fetch, both forms, byte for byte those of the generated
codecs."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.errors import InvalidMessage, UnsupportedVersion
from data_plane.wire.kernel_types import Buffer, FetchPartitionResult, ProducePartitionResult
from data_plane.wire.messages import fetch_response as fetch
from data_plane.wire.messages import produce_response as produce
from data_plane.wire.primitives import Reader, Writer
from tests.wire.kernel_pairs import Implementation, both
from tests.wire.message_cases import RandomChooser, all_messages, build

SEEDS = st.integers(0, 2**32)
HEAD = b"\xee\xee\xee\xee\x00\x00\x00\x07\x00"
PRODUCE, FETCH = all_messages()["produce_response"], all_messages()["fetch_response"]


def framed(encode: Any, message: Any, version: int) -> bytes:
    writer = Writer()
    encode(writer, message, version)
    return (len(HEAD) - 4 + len(writer.buf)).to_bytes(4, "big") + HEAD[4:] + bytes(writer.buf)


def endpoints(message: Any) -> list[tuple[int, str, int, str | None]]:
    return [(e.node_id, e.host, e.port, e.rack) for e in message.node_endpoints]


def pair(struct: Any, first: str, second: str) -> tuple[int, int] | None:
    values = getattr(struct, first), getattr(struct, second)
    return None if values == (-1, -1) else values


@both
@given(SEEDS, st.integers(3, 13))
def test_produce_responses(implementation: Implementation, seed: int, version: int) -> None:
    message = build(PRODUCE, version, RandomChooser(random.Random(seed)))
    topics = [
        (
            topic.name,
            topic.topic_id.bytes,
            [
                ProducePartitionResult(
                    part.index,
                    part.error_code,
                    part.base_offset,
                    part.log_append_time_ms,
                    part.log_start_offset,
                    [(e.batch_index, e.batch_index_error_message) for e in part.record_errors],
                    part.error_message,
                    part.current_leader.leader_id,
                    part.current_leader.leader_epoch,
                )
                for part in topic.partition_responses
            ],
        )
        for topic in message.responses
    ]
    frame = implementation.responses.encode_produce_response(
        HEAD, version, topics, message.throttle_time_ms, endpoints(message)
    )
    assert bytes(frame) == framed(produce.encode_produce_response, message, version)


@both
@given(SEEDS, st.integers(4, 18))
def test_fetch_responses(implementation: Implementation, seed: int, version: int) -> None:
    rng = random.Random(seed)
    message = build(FETCH, version, RandomChooser(rng))
    given_buffers: list[Buffer] = []
    topics = []
    for topic in message.responses:
        results = []
        for part in topic.partitions:
            records: list[Buffer] | None = None
            if part.records is not None:
                cut = rng.randrange(len(part.records) + 1)
                pieces = memoryview(part.records)[:cut], bytes(part.records[cut:])
                records = [piece for piece in pieces if len(piece)]
                given_buffers += records
            results.append(
                FetchPartitionResult(
                    part.partition_index,
                    part.error_code,
                    part.high_watermark,
                    part.last_stable_offset,
                    part.log_start_offset,
                    None
                    if part.aborted_transactions is None
                    else [(a.producer_id, a.first_offset) for a in part.aborted_transactions],
                    part.preferred_read_replica,
                    records,
                    pair(part.diverging_epoch, "epoch", "end_offset"),
                    pair(part.current_leader, "leader_id", "leader_epoch"),
                    pair(part.snapshot_id, "end_offset", "epoch"),
                )
            )
        topics.append((topic.topic, topic.topic_id.bytes, results))
    buffers = implementation.responses.encode_fetch_response(
        HEAD,
        version,
        topics,
        message.error_code,
        message.session_id,
        message.throttle_time_ms,
        endpoints(message),
    )
    assert b"".join(buffers) == framed(fetch.encode_fetch_response, message, version)
    assert all(any(given is sent for sent in buffers) for given in given_buffers)
    assert len(buffers[-1]) > 0


@both
def test_records_are_passed_on_not_copied(implementation: Implementation) -> None:
    records: list[Buffer] = [memoryview(bytes(1000)), bytes(24)]
    topics = [("t", UUID(int=5).bytes, [FetchPartitionResult(0, 0, 9, records=records)])]
    buffers = implementation.responses.encode_fetch_response(HEAD, 17, topics)
    assert [buffers[1], buffers[2]] == records
    assert buffers[1] is records[0]
    assert len(buffers) == 4
    frame = b"".join(buffers)
    message = fetch.decode_fetch_response(Reader(frame, len(HEAD)), 17)
    assert message.responses[0].partitions[0].records == bytes(1024)
    older = implementation.responses.encode_fetch_response(HEAD, 11, topics)
    assert len(older) == 3


@both
def test_refusals(implementation: Implementation) -> None:
    encoders = implementation.responses
    for version in (2, 14):
        with pytest.raises(UnsupportedVersion):
            encoders.encode_produce_response(HEAD, version, [])
    for version in (3, 19):
        with pytest.raises(UnsupportedVersion):
            encoders.encode_fetch_response(HEAD, version, [])
    for size, fits in ((32767, True), (32768, False)):
        result = ProducePartitionResult(0, 87, -1, error_message="x" * size)
        if fits:
            encoders.encode_produce_response(HEAD, 9, [("t", bytes(16), [result])])
        else:
            with pytest.raises(InvalidMessage):
                encoders.encode_produce_response(HEAD, 9, [("t", bytes(16), [result])])
