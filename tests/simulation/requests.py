"""Requests as frames, and answers back to messages, through the real codecs."""

from __future__ import annotations

from typing import Any

from data_plane.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

# The versions that current clients use.
PRODUCE_VERSION = 12
FETCH_VERSION = 17
METADATA_VERSION = 12
VERSIONS = {
    ApiKey.PRODUCE: PRODUCE_VERSION,
    ApiKey.FETCH: FETCH_VERSION,
    ApiKey.METADATA: METADATA_VERSION,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 8,
    ApiKey.LIST_OFFSETS: 8,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.ELECT_LEADERS: 2,
}


def encode_request(
    api_key: ApiKey,
    message: Any,
    correlation_id: int,
    client_id: str,
    version: int | None = None,
) -> tuple[bytes, int]:
    """(frame without its size, version): the usual one, or that which is asked for."""
    if version is None:
        version = VERSIONS[api_key]
    writer = Writer()
    encode_request_header(
        writer,
        RequestHeader(
            api_key=int(api_key),
            api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    API_BY_KEY[api_key].encode_request(writer, message, version)
    return bytes(writer.buf), version


def decode_response(api_key: ApiKey, version: int, frame: bytes, correlation_id: int) -> Any:
    """The message in a response frame with its size."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    reader = Reader(frame, 4)
    assert decode_response_header(reader, api_key, version) == correlation_id, "answers in order"
    message = API_BY_KEY[api_key].decode_response(reader, version)
    assert reader.pos == len(frame), "bytes follow the response"
    return message
