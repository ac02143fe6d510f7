"""Single requests over one socket, for what no client library would send."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey

ANSWER_SECONDS_MAX = 40.0


class RawClient:
    """Asks and waits; ConnectionError when the broker closes the connection instead."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        host, port = bootstrap.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """The decoded answer."""
        self.send([(api_key, version, request)])
        return self.receive(api_key, version)

    def broker_id(self) -> int:
        """Which broker of its cell this is."""
        port = self._socket.getpeername()[1]
        brokers = self.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        (node_id,) = [broker.node_id for broker in brokers if broker.port == port]
        found: int = node_id
        return found

    def send(self, requests: Sequence[tuple[ApiKey, int, Any]]) -> None:
        """Send several requests, as (key, version, request), in one piece."""
        self._socket.sendall(b"".join(self._frame(*request) for request in requests))

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """The decoded answer to the oldest request without one."""
        reader = Reader(self._read(struct.unpack(">i", self._read(4))[0]))
        decode_response_header(reader, int(api_key), version)
        return API_BY_KEY[api_key].decode_response(reader, version)

    def _frame(self, api_key: ApiKey, version: int, request: Any) -> bytes:
        self._correlation_id += 1
        writer = Writer()
        header = RequestHeader(
            api_key=int(api_key),
            api_version=version,
            correlation_id=self._correlation_id,
            client_id="raw",
        )
        encode_request_header(writer, header)
        API_BY_KEY[api_key].encode_request(writer, request, version)
        return struct.pack(">i", len(writer.buf)) + writer.buf

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed by the broker")
            data += piece
        return bytes(data)
