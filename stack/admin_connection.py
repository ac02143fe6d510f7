"""One connection to a broker for administrative requests that no client library offers.

Blocking, one request at a time, in the product's own codecs. Where librdkafka has a call, the SDK
and its command line use that instead.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Any, Final

from tidewheel.access import Access, access_from_env, parse_access
from tidewheel.errors import ConfigurationError
from tidewheel.sasl import PLAIN, NotTrusted, ScramClient, plain_message

from data_plane.wire.errors import WireError
from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from stack.errors import EXIT_USAGE, StackError
from stack.hints import PROGRAM

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 60.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
CLIENT_ID: Final = "tidewheel-stack"
API_VERSIONS_VERSION: Final = 0
"""Every broker of any age answers this one."""
SASL_HANDSHAKE_VERSION: Final = 1
SASL_AUTHENTICATE_VERSION: Final = 2


class NotTaken(StackError):
    """The broker does not take this user."""


class AdminConnection:
    """Requests to the first broker of a list that answers. Use it as a context manager."""

    def __init__(self, address: str | Access | None) -> None:
        """`address` is one of `tidewheel.access`, read or not; None takes the environment's or a
        profile's. Raises StackError when nobody answers, or the user is not taken."""
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        problems = []
        try:
            if isinstance(address, str):
                address = parse_access(address)
            self.access = access_from_env() if address is None else address
        except ConfigurationError as error:
            raise StackError(str(error), EXIT_USAGE) from error
        for shown in self.access.bootstrap.split(","):
            try:
                self._open(shown)
                return
            except NotTaken:
                raise
            except OSError as error:
                problems.append(f"{shown}: {error.strerror or error}")
            except StackError as error:
                problems.append(f"{shown}: {error}")
        raise StackError(
            f"No broker can be reached ({'; '.join(problems) or 'no address'}). Check that the "
            f"stack runs (`{PROGRAM} status`, with the --data that `up` was given), and that "
            "--url or TIDEWHEEL_URL is right."
        )

    def _open(self, address: str) -> None:
        """Connect, and hear that somebody is there: a process that hangs takes connections, too.
        Raises OSError or StackError."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self._socket = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
        try:
            if self.access.tls:
                context = ssl.create_default_context(cafile=self.access.ca)
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            answer = self._exchange(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, ApiVersionsRequest())
            if self.access.user is not None:
                self._authenticate(self.access.user)
        except (StackError, OSError):
            self._socket.close()
            raise
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        for api in answer.api_keys:
            self._versions[api.api_key] = (api.min_version, api.max_version)

    def _authenticate(self, user: str) -> None:
        """Raises NotTaken."""
        access = self.access
        handshake = SaslHandshakeRequest(mechanism=access.mechanism)
        answer = self._exchange(ApiKey.SASL_HANDSHAKE, SASL_HANDSHAKE_VERSION, handshake)
        if answer.error_code:
            known = ", ".join(answer.mechanisms)
            raise NotTaken(f"The broker does not take {access.mechanism} there, but {known}.")
        if access.mechanism == PLAIN:
            self._tell(user, plain_message(user, access.password))
            return
        client = ScramClient(access.mechanism, user, access.password)
        try:
            final = client.final(self._tell(user, client.first()))
            client.check(self._tell(user, final))
        except (NotTrusted, ValueError) as error:
            raise NotTaken(f"Not authenticated as {user}: {error}.") from error

    def _tell(self, user: str, message: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = self._exchange(ApiKey.SASL_AUTHENTICATE, SASL_AUTHENTICATE_VERSION, request)
        if answer.error_code:
            raise NotTaken(
                f"The broker does not take user {user} with this password: "
                f"{answer.error_message or answer.error_code}"
            )
        return bytes(answer.auth_bytes)

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
