"""One connection to a broker for administrative requests that no client library offers.

Blocking, one request at a time, in the product's own codecs. Where librdkafka has a call, the SDK
and its command line use that instead.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Final

from data_plane.wire.errors import WireError
from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from stack.errors import EXIT_USAGE, StackError
from stack.hints import PROGRAM
from stack.ports import DEFAULT_PORT, PORT_MAX

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
CLIENT_ID: Final = "tidewheel-stack"
API_VERSIONS_VERSION: Final = 0
"""Every broker of any age answers this one."""


class AdminConnection:
    """Requests to the first broker of a list that answers. Use it as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap` is `host:port,host:port`. Raises StackError when nobody answers."""
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        problems = []
        for address, place in _parse(bootstrap):
            try:
                self._open(place)
                return
            except OSError as error:
                problems.append(f"{address}: {error.strerror or error}")
            except StackError as error:
                problems.append(f"{address}: {error}")
        raise StackError(
            f"No broker can be reached ({'; '.join(problems) or 'no address'}). Check that the "
            f"stack runs (`{PROGRAM} status`, with the --data that `up` was given), and that "
            "--url or TIDEWHEEL_URL is right."
        )

    def _open(self, place: tuple[str, int]) -> None:
        """Connect, and hear that somebody is there: a process that hangs takes connections, too.
        Raises OSError or StackError."""
        self._socket = socket.create_connection(place, CONNECT_TIMEOUT_S)
        try:
            answer = self._exchange(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, ApiVersionsRequest())
        except StackError:
            self._socket.close()
            raise
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        for api in answer.api_keys:
            self._versions[api.api_key] = (api.min_version, api.max_version)

    def __enter__(self) -> AdminConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def request(self, api: ApiKey, message: Any) -> Any:
        """The answer to a request, in the newest version that both sides know.

        Raises StackError when the broker does not know the API or the connection fails."""
        spec = API_BY_KEY[api]
        lowest, highest = self._versions.get(api, (0, -1))
        version = min(highest, spec.max_version)
        if version < max(lowest, spec.min_version):
            raise StackError(f"The broker does not know {spec.name}. It may be too old for this.")
        return self._exchange(api, version, message)

    def _exchange(self, api: ApiKey, version: int, message: Any) -> Any:
        self._correlation_id += 1
        writer = Writer()
        header = RequestHeader(
            api_key=int(api),
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        )
        encode_request_header(writer, header)
        API_BY_KEY[api].encode_request(writer, message, version)
        try:
            self._socket.sendall(struct.pack(">i", len(writer.buf)) + writer.buf)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise StackError(f"The broker's answer would have {size} bytes: no Kafka broker?")
            reader = Reader(self._receive(size))
        except OSError as error:
            raise StackError(f"The connection to the broker failed: {error}.") from error
        try:
            decode_response_header(reader, api, version)
            return API_BY_KEY[api].decode_response(reader, version)
        except WireError as error:
            raise StackError(f"The broker's answer cannot be read: {error}.") from error

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise StackError("The broker closed the connection.")
            data += piece
        return bytes(data)


def _parse(bootstrap: str) -> list[tuple[str, tuple[str, int]]]:
    """Each address with its host and port, 9092 where none is given. Raises StackError."""
    found = []
    for address in filter(None, (part.strip() for part in bootstrap.split(","))):
        place = address.removeprefix("tidewheel://").rstrip("/")
        host, colon, port = place.rpartition(":")
        if not colon or place.endswith("]"):
            host, port = place, str(DEFAULT_PORT)
        is_port = port.isascii() and port.isdigit() and int(port) <= PORT_MAX
        if not host or not is_port:
            raise StackError(f"{address} is not HOST:PORT.", EXIT_USAGE)
        found.append((address, (host.strip("[]"), int(port))))
    return found
