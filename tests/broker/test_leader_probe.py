"""What an answer to the question of a damaged copy shows: that the leader has what is to be cut."""

from __future__ import annotations

import pytest

from data_plane.broker.replicas.leader_probe import is_served
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import make_batch

FETCH = API_BY_KEY[ApiKey.FETCH]
OFFSET = 5


def answer(*parts: PartitionData, error: ErrorCode = ErrorCode.NONE) -> memoryview:
    topic = FetchableTopicResponse(partitions=list(parts))
    writer = Writer()
    response = FetchResponse(error_code=int(error), responses=[topic])
    FETCH.encode_response(writer, response, 18)
    return memoryview(bytes(writer.buf))


def part(
    error: ErrorCode = ErrorCode.NONE, high_watermark: int = OFFSET, records: bytes = b""
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=int(error),
        high_watermark=high_watermark,
        records=records,
    )


def test_a_sound_batch_shows_it() -> None:
    batch = bytes(make_batch([b"a"]))
    assert is_served(answer(part(high_watermark=6, records=batch)), OFFSET)
    batch = batch[:-1] + bytes([batch[-1] ^ 1])
    assert not is_served(answer(part(high_watermark=6, records=batch)), OFFSET)
    assert not is_served(answer(part(high_watermark=6, records=batch[:-1])), OFFSET)


@pytest.mark.parametrize("high_watermark", [0, OFFSET])
def test_where_nothing_is_committed_nothing_is_to_be_shown(high_watermark: int) -> None:
    assert is_served(answer(part(high_watermark=high_watermark)), OFFSET)


def test_a_leader_that_gives_nothing_of_what_is_committed_shows_nothing() -> None:
    """A throttle holds it back, or its own copy cannot be read there."""
    assert not is_served(answer(part(high_watermark=OFFSET + 1)), OFFSET)


def test_a_log_that_begins_later_or_ends_before_has_nothing_there() -> None:
    assert is_served(answer(part(ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1)), OFFSET)
    diverging = part(high_watermark=9)
    diverging.diverging_epoch = EpochEndOffset(epoch=1, end_offset=3)
    assert is_served(answer(diverging), OFFSET)


@pytest.mark.parametrize(
    "body",
    [
        answer(part(ErrorCode.CORRUPT_MESSAGE, high_watermark=-1)),
        answer(part(ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1)),
        answer(part(ErrorCode.FENCED_LEADER_EPOCH, high_watermark=-1)),
        answer(part(), error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        answer(),
        answer(part(), part()),
        memoryview(b"\x00" * 5),
    ],
)
def test_anything_else_shows_nothing(body: memoryview) -> None:
    assert not is_served(body, OFFSET)
