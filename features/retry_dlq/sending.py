"""Produce to another broker of the cell, or to this one itself, on the brokers' own listener.

Deliberately absent: what is sent, and when once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from data_plane.broker.produce.produce_handler import handle_produce
from data_plane.broker.request.api import Buffer, ConnectionInfo, Deferred, RequestContext
from data_plane.broker.services import Services
from data_plane.cell.metadata import TopicImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode, WireError
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

TIMEOUT_MS: Final = 30_000
VERSION: Final = 13
# Of an answer that has not left: its size, correlation id, and no tagged fields.
_ANSWER_HEAD_BYTES: Final = 9


def request_for(topic: TopicImage, index: int, batch: bytearray) -> bytearray:
    """The body of a Produce with acks=all to the partition, as clients number them."""
    data = PartitionProduceData(index=index, records=bytes(batch))
    named = TopicProduceData(topic_id=topic.topic_id, partition_data=[data])
    request = ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[named]
    )
    writer = Writer()
    API_BY_KEY[ApiKey.PRODUCE].encode_request(writer, request, VERSION)
    return writer.buf


# Called on the loop, once, with the answer's body, or None when there is none.
OnAnswer = Callable[[memoryview | None, int], None]


def produce_to(
    services: Services, leader: int, body: bytearray, on_answer: OnAnswer, now_ms: int
) -> None:
    """Send it to a broker, which may be this one."""
    if leader != services.node_id:
        peers = services.feature_peers
        assert peers is not None, "who has other brokers reaches them"
        peers.send(leader, ApiKey.PRODUCE, VERSION, [body], on_answer)
        return
    connection = ConnectionInfo(0, "itself", "", "", 0, is_inter_broker=True)
    names = services.namespaces.names[DEFAULT_TENANT]
    context = RequestContext(ApiKey.PRODUCE, VERSION, 0, None, connection, names)
    answer = handle_produce(services, context, body, 0, len(body), now_ms)

    def taken(frames: list[Buffer]) -> None:
        data = memoryview(b"".join(bytes(part) for part in frames))
        services.timers.schedule(
            now_ms, lambda told_ms: on_answer(data[_ANSWER_HEAD_BYTES:], told_ms)
        )

    if isinstance(answer, Deferred):
        answer.when_complete(taken)
    else:
        assert answer is not None
        taken(answer)


# What a leader says of a batch that is too large for it, and may take in parts: what arrives twice
# so is known as ever.
TOO_LARGE: Final = frozenset({ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE})


def error_in(body: memoryview | None) -> ErrorCode:
    """What such an answer says."""
    if body is None:
        return ErrorCode.NETWORK_EXCEPTION
    try:
        answer = API_BY_KEY[ApiKey.PRODUCE].decode_response(Reader(body), VERSION)
    except WireError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    ((part,),) = (one.partition_responses for one in answer.responses)
    return ErrorCode(part.error_code)
