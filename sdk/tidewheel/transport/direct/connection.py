"""One connection to one broker: TLS, login, and requests whose answers come in their order.

It goes by librdkafka's own properties, so that it connects as the client's other connections do.
Requests may be under way at the same time.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from tidewheel.errors import (
    BrokerError,
    BrokerUnreachable,
    NotAuthenticated,
    TlsFailed,
    Unsupported,
)
from tidewheel.sasl import DIGESTS, PLAIN, NotTrusted, ScramClient, plain_message
from tidewheel.transport.direct import codec
from tidewheel.transport.direct.codec import ApiKey, Reader

ANSWER_BYTES_MAX: Final = 64 << 20
_UNSUPPORTED_VERSION: Final = 35

# What is understood of librdkafka's properties of these kinds; with others it would connect as
# somebody else, or to somebody else.
_UNDERSTOOD: Final = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)


class DirectConnection:
    """Made by `connect`."""

    def __init__(
        self, address: str, client_id: str, reader: asyncio.StreamReader, writer: Any
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._waiting: deque[tuple[ApiKey, int, asyncio.Future[Reader]]] = deque()
        self._versions: dict[ApiKey, tuple[int, int]] = {}
        self._broken: BrokerUnreachable | None = None
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_usable(self) -> bool:
        """Until the first thing goes wrong with it."""
        return self._broken is None

    def knows(self, api: ApiKey) -> bool:
        """Whether the broker answers this API as it is asked here."""
        lowest, highest = self._versions.get(api, (0, -1))
        return lowest <= codec.VERSIONS[api] <= highest

    async def request(self, api: ApiKey, body: bytes) -> Reader:
        """The answer's body. Raises BrokerUnreachable."""
        if self._broken is not None:
            raise self._broken
        self._correlation_id += 1
        frame = codec.request_header(api, self._correlation_id, self._client_id) + body
        answer: asyncio.Future[Reader] = asyncio.get_running_loop().create_future()
        self._waiting.append((api, self._correlation_id, answer))
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        return await answer

    async def _listen(self) -> None:
        why = "the broker has closed the connection"
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 0 <= size <= ANSWER_BYTES_MAX:
                    why = f"an answer would have {size} bytes"
                    break
                self._answer(Reader(await self._reader.readexactly(size)))
        except asyncio.IncompleteReadError:
            pass
        except (OSError, BrokerError) as error:
            why = str(error)
        finally:
            self._break(why)

    def _answer(self, reader: Reader) -> None:
        """Raises BrokerError."""
        if not self._waiting:
            raise BrokerError("an answer that nobody has asked for")
        api, correlation_id, answer = self._waiting.popleft()
        if codec.read_answer_header(api, reader) != correlation_id:
            self._waiting.appendleft((api, correlation_id, answer))
            raise BrokerError("an answer to another question")
        if not answer.done():
            answer.set_result(reader)

    def _break(self, why: str) -> None:
        if self._broken is not None:
            return
        self._broken = BrokerUnreachable(f"The connection to {self.address} has ended: {why}")
        self._writer.close()
        while self._waiting:
            _, _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(self._broken)

    async def close(self) -> None:
        """Who waits for an answer gets BrokerUnreachable."""
        self._listening.cancel()
        # A task that has not begun yet ends without having done anything.
        self._break("it was closed")
        with suppress(OSError):
            await self._writer.wait_closed()

    async def learn_versions(self) -> None:
        """Say who asks, and hear what the broker answers. Raises Unsupported."""
        body = codec.api_versions_request(version("tidewheel"))
        answer = await self.request(codec.API_VERSIONS, body)
        error_code, self._versions = codec.read_api_versions(answer)
        if error_code == _UNSUPPORTED_VERSION:
            raise Unsupported(f"The broker at {self.address} is too old")
        if error_code:
            raise BrokerError(f"The broker at {self.address} answers with error {error_code}")

    async def log_in(self, mechanism: str, user: str, password: str) -> None:
        """Raises NotAuthenticated."""
        request = codec.sasl_handshake_request(mechanism)
        answer = await self.request(codec.SASL_HANDSHAKE, request)
        error_code, known = codec.read_sasl_handshake(answer)
        if error_code:
            raise NotAuthenticated(f"The broker does not take {mechanism}, but {', '.join(known)}")
        if mechanism == PLAIN:
            await self._tell(user, plain_message(user, password))
            return
        client = ScramClient(mechanism, user, password)
        try:
            first = await self._tell(user, client.first())
            # It derives a key, on purpose slowly.
            final = await asyncio.to_thread(client.final, first)
            client.check(await self._tell(user, final))
        except (NotTrusted, ValueError) as error:
            raise NotAuthenticated(f"Not authenticated as {user}: {error}") from error

    async def _tell(self, user: str, message: bytes) -> bytes:
        request = codec.sasl_authenticate_request(message)
        answer = await self.request(codec.SASL_AUTHENTICATE, request)
        error_code, words, reply = codec.read_sasl_authenticate(answer)
        if error_code:
            raise NotAuthenticated(
                f"The broker does not take user {user} with this password: {words or error_code}"
            )
        return reply


async def connect(host: str, port: int, properties: Mapping[str, Any]) -> DirectConnection:
    """A connection as librdkafka's `properties` say. Raises BrokerUnreachable, TlsFailed,
    NotAuthenticated, Unsupported."""
    address = f"{host}:{port}"
    protocol = str(properties.get("security.protocol", "plaintext")).upper()
    context = _tls(properties) if protocol.endswith("SSL") else None
    login = _login(properties) if protocol.startswith("SASL") else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        raise TlsFailed(f"Connecting to {address} failed: {error}") from error
    except OSError as error:
        raise BrokerUnreachable(f"Connecting to {address} failed: {error}") from error
    connection = DirectConnection(address, str(properties.get("client.id", "")), reader, writer)
    try:
        await connection.learn_versions()
        if login is not None:
            await connection.log_in(*login)
    except BaseException:
        await connection.close()
        raise
    return connection


def _login(properties: Mapping[str, Any]) -> tuple[str, str, str]:
    """Mechanism, user and password. Raises Unsupported."""
    _check(properties, "sasl.")
    mechanism = str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")))
    if mechanism != PLAIN and mechanism not in DIGESTS:
        raise Unsupported(
            f"Commands about delayed messages cannot log in by {mechanism}",
            hint=f"Use {PLAIN} or one of {', '.join(DIGESTS)}",
        )
    return mechanism, str(properties.get("sasl.username")), str(properties.get("sasl.password"))


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """Raises Unsupported, TlsFailed."""
    _check(properties, "ssl.")
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
        certificate = properties.get("ssl.certificate.location")
        if certificate is not None:
            key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise TlsFailed(f"TLS cannot be set up: {error}") from error
    if properties.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context


def _check(properties: Mapping[str, Any], prefix: str) -> None:
    """Raises Unsupported."""
    strange = [key for key in properties if key.startswith(prefix) and key not in _UNDERSTOOD]
    if strange:
        raise Unsupported(
            f"Commands about delayed messages do not know librdkafka's {strange[0]}",
            hint="Use user and password, or certificates in PEM files",
        )
