"""Request and response headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.errors import MalformedFrame
from data_plane.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

api_keys = st.sampled_from(sorted(API_BY_KEY))
correlation_ids = st.integers(-(1 << 31), (1 << 31) - 1)
client_ids = st.none() | st.text(st.characters(codec="utf-8"), max_size=100)


@given(api_keys, st.integers(-(1 << 15), (1 << 15) - 1), correlation_ids, client_ids)
def test_request_headers_are_read_back(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    header = RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    writer = Writer()
    encode_request_header(writer, header)
    reader = Reader(bytes(writer.buf) + b"body")
    assert decode_request_header(reader) == header
    assert reader.remaining == 4


@given(api_keys, st.integers(0, 20), correlation_ids)
def test_response_headers_are_read_back(
    api_key: int, api_version: int, correlation_id: int
) -> None:
    writer = Writer()
    encode_response_header(writer, api_key, api_version, correlation_id)
    reader = Reader(bytes(writer.buf) + b"body")
    assert decode_response_header(reader, api_key, api_version) == correlation_id
    assert reader.remaining == 4


@pytest.mark.parametrize(
    ("api_key", "api_version", "request_version", "response_version"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.FETCH, 11, 1, 0),
        (ApiKey.FETCH, 12, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 2, 1),
    ],
)
def test_header_versions(
    api_key: int, api_version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(api_key, api_version) == request_version
    assert response_header_version(api_key, api_version) == response_version


def test_the_bytes_of_a_flexible_request_header() -> None:
    """The client id keeps its two-byte length where everything else is compact."""
    header = RequestHeader(api_key=1, api_version=12, correlation_id=5, client_id="ab")
    writer = Writer()
    encode_request_header(writer, header)
    assert bytes(writer.buf) == b"\0\1\0\x0c\0\0\0\5\0\2ab\0"


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    reader = Reader(b"\0\1\0\x0c\0\0\0\5\0\2ab\1\0\3xyzrest")
    assert decode_request_header(reader).client_id == "ab"
    assert reader.remaining == 4


@pytest.mark.parametrize("api_key", [-1, 4, 7, 999])
def test_an_unknown_api_is_malformed(api_key: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + bytes(8)
    with pytest.raises(MalformedFrame, match=f"unknown API key {api_key}"):
        decode_request_header(Reader(frame))


@pytest.mark.parametrize("size", range(12))
def test_a_cut_header_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame):
        decode_request_header(Reader(b"\0\1\0\x0c\0\0\0\5\0\2ab\0"[:size]))
