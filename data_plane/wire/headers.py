"""Request and response headers.

A request header's version depends on the API and its version: 1, or 2 (with tagged fields) from
the API's first flexible version on. It is derived here also for versions beyond the newest that
we know, because a client's first ApiVersions request may be one of those and must still be
answered. A response header is version 0, or 1 (tagged fields) for flexible versions, except that
of ApiVersions, which is always version 0: its reader does not yet know what the server speaks.

The client id is never compact, not even in header version 2 (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from data_plane.wire.errors import MalformedFrame
from data_plane.wire.primitives import Message, Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

_FIXED: Final = Struct(">hhi")


class RequestHeader(Message):
    """The envelope of every request."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self,
        *,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id


def request_header_version(api_key: int, api_version: int) -> int:
    """1 or 2. Raises MalformedFrame for an API that is not known."""
    spec = API_BY_KEY.get(api_key)
    if spec is None:
        raise MalformedFrame(f"unknown API key {api_key}")
    return 2 if api_version >= spec.first_flexible_version else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """0 or 1. Raises MalformedFrame for an API that is not known."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return request_header_version(api_key, api_version) - 1


def decode_request_header(reader: Reader) -> RequestHeader:
    """Leaves the reader at the start of the request's body. Raises MalformedFrame, also for an
    API that is not known. Whether the version (of any sign) is one that we answer is the
    caller's to decide: an ApiVersions request of an unknown version gets an answer all the
    same."""
    api_key, api_version, correlation_id = reader.unpack(_FIXED)
    version = request_header_version(api_key, api_version)
    client_id = reader.read_nullable_string("client_id")
    if version >= 2:
        reader.skip_tagged_fields()
    return RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )


def encode_request_header(writer: Writer, header: RequestHeader) -> None:
    """Writes the header in the version that its API version calls for."""
    writer.buf += _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    writer.write_nullable_string(header.client_id, "client_id")
    if request_header_version(header.api_key, header.api_version) >= 2:
        writer.buf.append(0)


def encode_response_header(
    writer: Writer, api_key: int, api_version: int, correlation_id: int
) -> None:
    """Writes the header of the answer to a request of this API and version."""
    writer.write_int32(correlation_id)
    if response_header_version(api_key, api_version) >= 1:
        writer.buf.append(0)


def decode_response_header(reader: Reader, api_key: int, api_version: int) -> int:
    """The correlation id; leaves the reader at the start of the response's body."""
    correlation_id = reader.read_int32()
    if response_header_version(api_key, api_version) >= 1:
        reader.skip_tagged_fields()
    return correlation_id
