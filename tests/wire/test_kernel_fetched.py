"""The kernel's walk over a Fetch response: both forms against the generated codec, on sound and on
hostile bytes."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.errors import MalformedFrame, UnsupportedVersion
from data_plane.wire.kernel_responses import encode_fetch_response
from data_plane.wire.kernel_types import FetchPartitionResult
from data_plane.wire.messages import fetch_response as fetch
from data_plane.wire.primitives import Reader, Writer
from tests.wire.kernel_pairs import (
    COMPILED,
    INTERPRETED,
    Implementation,
    both,
    mutate,
    needs_compiled,
    outcome,
)
from tests.wire.message_cases import RandomChooser, all_messages, build

SEEDS = st.integers(0, 2**32)
VERSIONS = st.integers(13, 18)
FETCH = all_messages()["fetch_response"]
ID = UUID(int=7).bytes


def encoded(seed: int, version: int) -> bytes:
    writer = Writer()
    message = build(FETCH, version, RandomChooser(random.Random(seed)))
    fetch.encode_fetch_response(writer, message, version)
    return bytes(writer.buf)


def pair(struct: Any, first: str, second: str) -> tuple[int, int] | None:
    values = getattr(struct, first), getattr(struct, second)
    return None if values == (-1, -1) else values


def generated(data: bytes | bytearray, version: int) -> Any:
    """What the generated codec reads, in the kernel's shape, records as bytes."""
    message = fetch.decode_fetch_response(Reader(data), version)
    return (
        message.throttle_time_ms,
        message.error_code,
        message.session_id,
        [
            (
                topic.topic_id.bytes,
                part.partition_index,
                part.error_code,
                part.high_watermark,
                part.log_start_offset,
                bytes(part.records or b""),
                pair(part.diverging_epoch, "epoch", "end_offset"),
                pair(part.current_leader, "leader_id", "leader_epoch"),
            )
            for topic in message.responses
            for part in topic.partitions
        ],
    )


def walked(implementation: Implementation, data: bytes | bytearray, version: int) -> Any:
    view = implementation.fetched.parse_fetch_response(data, 0, len(data), version)
    partitions = []
    for item in view.partitions:
        assert 0 <= item.records_start <= item.records_end <= len(data)
        records = bytes(data[item.records_start : item.records_end])
        # A pair of defaults may be sent all the same, and says nothing.
        pairs = [None if pair == (-1, -1) else pair for pair in item[7:]]
        partitions.append((*item[:5], records, *pairs))
    return (*view[:3], partitions)


@both
@given(SEEDS, VERSIONS)
def test_sound_responses(implementation: Implementation, seed: int, version: int) -> None:
    data = encoded(seed, version)
    assert walked(implementation, data, version) == generated(data, version)


@both
@given(SEEDS, VERSIONS)
def test_mutated_responses(implementation: Implementation, seed: int, version: int) -> None:
    data = mutate(random.Random(seed), encoded(seed, version))
    try:
        expected = generated(data, version)
    except MalformedFrame:
        # The walk passes over parts that the codec reads, so it may find nothing wrong.
        result = outcome(walked, implementation, data, version)
        assert len(result) == 4 or result[0] is MalformedFrame
    else:
        assert walked(implementation, data, version) == expected


@needs_compiled
@given(SEEDS, VERSIONS)
def test_both_forms_say_the_same(seed: int, version: int) -> None:
    assert COMPILED is not None
    rng = random.Random(seed)
    data = mutate(rng, encoded(seed, version), changes=4)
    start = rng.randint(0, len(data))
    end = rng.randint(start, len(data))
    ours, theirs = (
        outcome(form.fetched.parse_fetch_response, data, start, end, version)
        for form in (INTERPRETED, COMPILED)
    )
    assert ours == theirs


@both
@given(SEEDS, VERSIONS)
def test_every_cut_is_refused(implementation: Implementation, seed: int, version: int) -> None:
    data = encoded(seed, version)
    end = random.Random(seed).randrange(len(data))
    with pytest.raises(MalformedFrame):
        implementation.fetched.parse_fetch_response(data, 0, end, version)


@both
def test_records_of_the_kernels_own_answer(implementation: Implementation) -> None:
    results = [
        FetchPartitionResult(3, 0, 90, 80, 70, None, -1, [b"abc", memoryview(b"defg")]),
        FetchPartitionResult(4, 1, -1, records=None),
        FetchPartitionResult(5, 0, 9, diverging_epoch=(2, 8), current_leader=(1, 3)),
    ]
    frame = b"".join(encode_fetch_response(bytes(9), 17, [("", ID, results)], 0, 66))
    view = implementation.fetched.parse_fetch_response(memoryview(frame), 9, len(frame), 17)
    assert (view.throttle_time_ms, view.error_code, view.session_id) == (0, 0, 66)
    first, second, third = view.partitions
    assert first[:5] == (ID, 3, 0, 90, 70)
    assert frame[first.records_start : first.records_end] == b"abcdefg"
    assert second[:5] == (ID, 4, 1, -1, -1)
    assert second.records_start == second.records_end
    assert (first.diverging_epoch, first.current_leader) == (None, None)
    assert (third.diverging_epoch, third.current_leader) == ((2, 8), (1, 3))


@both
def test_claims_are_checked_before_anything_is_built(implementation: Implementation) -> None:
    parse = implementation.fetched.parse_fetch_response
    head = bytes(10)
    for body in (
        b"\xff\xff\xff\xff\x0f",  # 2^32 - 2 topics
        b"\x00",  # no array of topics
        b"\x02" + ID + b"\xff\xff\xff\xff\x0f",  # 2^32 - 2 partitions
        b"\x02" + ID + b"\x02" + bytes(30) + b"\xff\xff\xff\xff\x0f",  # aborted transactions
        b"\x02" + ID + b"\x02" + bytes(31) + bytes(4) + b"\xff\xff\xff\xff\x0f",  # records
        b"\x02" + ID + b"\x02" + bytes(36) + b"\xff\xff\xff\xff\x0f",  # tagged fields
        b"\x02" + ID + b"\x02" + bytes(36) + b"\x01\x00\x0c" + bytes(12),  # no tags in a tag
        b"\x02" + ID + b"\x02" + bytes(36) + b"\x01\x01\x0a" + bytes(10),  # a tag too long
    ):
        data = head + body + bytes(8)
        with pytest.raises(MalformedFrame):
            parse(data, 0, len(data), 17)


@both
def test_refusals(implementation: Implementation) -> None:
    parse = implementation.fetched.parse_fetch_response
    for version in (12, 19):
        with pytest.raises(UnsupportedVersion):
            parse(bytes(20), 0, 20, version)
    for start, end in ((-1, 5), (6, 5), (0, 21)):
        with pytest.raises(ValueError, match="no range"):
            parse(bytes(20), start, end, 17)
