"""Clients that authenticate, over a connection without a network and the real handlers.

The client's side of SCRAM is written down here once more, from RFC 5802, and shares nothing with
the broker's.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

from data_plane.broker.authentication import sasl_handlers
from data_plane.broker.authentication.authentication import Authentication
from data_plane.broker.authentication.scram import salted_password, verifier_of
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.cell.changes import Change
from data_plane.cell.credentials import Credential, DeleteCredential, PutCredential, login_of
from data_plane.cell.features import SUPPORTED_FEATURES, newest_levels
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.headers import RequestHeader, decode_response_header, encode_request_header
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import API_BY_KEY, ApiKey
from tests.broker.broker_player import BrokerPlayer
from tests.server.connection_player import (
    FixedClock,
    MemoryTransport,
    PlayedListener,
    connect,
    feed,
)

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ALL_MECHANISMS = ("PLAIN", SHA_256, SHA_512)
_HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
# Not encoded again by every test.
_SALT = b"a salt of twenty byt"


def credential(
    principal: str, password: str, *mechanisms: str, tenant: str = "default", **fields: Any
) -> Credential:
    """A login of a user of a tenant, with a verifier for each mechanism, both if none is named."""
    verifiers = {}
    for mechanism in mechanisms or (SHA_256, SHA_512):
        salted = salted_password(mechanism, password.encode(), _SALT, 4096)
        verifiers[mechanism] = verifier_of(mechanism, salted, _SALT, 4096)
    return Credential(login_of(tenant, principal), tenant, principal, verifiers, **fields)


class ScramClient:
    """One attempt of somebody who thinks that this is his password."""

    def __init__(
        self,
        mechanism: str,
        login: str,
        password: str,
        nonce: str = "fyko+d2lbbFgONR",
        before_nonces: str = "",
    ) -> None:
        """`before_nonces` stands before both in the last message."""
        self._hash = _HASHES[mechanism]
        self._password = password
        self._bare = f"n={login.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._nonce = nonce
        self._before_nonces = before_nonces
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        said = challenge.decode()
        nonce, salt, iterations = (part[2:] for part in said.split(","))
        assert nonce.startswith(self._nonce)
        assert len(nonce) > len(self._nonce)
        unsigned = f"c=biws,r={self._before_nonces}{nonce}"
        signed = f"{self._bare},{said},{unsigned}".encode()
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password.encode(), b64decode(salt), int(iterations)
        )
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{unsigned},p={b64encode(proof).decode()}".encode()

    def believes(self, last: bytes) -> bool:
        """Whether the server has proved that it knows the verifier."""
        return last == b"v=" + b64encode(self._signature)


class SaslBroker:
    """A broker with users, and a listener whose clients have to authenticate."""

    def __init__(
        self,
        *credentials: Credential,
        properties: dict[str, str] | None = None,
        mechanisms: tuple[str, ...] = ALL_MECHANISMS,
    ) -> None:
        image = MetadataImage(
            "cluster",
            features=newest_levels(SUPPORTED_FEATURES),
            credentials={one.login: one for one in credentials},
        )
        self.player = BrokerPlayer(properties, image=image)
        services = self.services = self.player.services
        services.authentication = Authentication(services, lambda: self.player.now_ms)
        sasl_handlers.register(services.handlers)
        self.authentication = services.authentication
        self.clock = FixedClock()
        self.clock.ms = self.player.now_ms
        self._mechanisms = mechanisms
        self._numbers = iter(range(1, 1_000_000))

    def connect(self, host: str = "10.0.0.1") -> SaslConnection:
        return SaslConnection(self, next(self._numbers), host, self._mechanisms)

    def pass_time(self, duration_ms: int) -> None:
        self.clock.ms = self.player.now_ms = self.player.now_ms + duration_ms
        self.services.timers.run_due(self.player.now_ms)

    def run_jobs(self) -> None:
        while self.player.executor.queue:
            self.player.executor.run_one()

    def commit(self, *changes: Change) -> None:
        """The image arrives in which these are made."""
        services = self.services
        image = services.store.apply(
            changes, services.image.version, f"commit {services.image.version}"
        )
        services.apply_image(image, self.player.now_ms)

    def revoke(self, login: str) -> None:
        self.commit(DeleteCredential(login))

    def restrict(self, login: str, *networks: str) -> None:
        known = self.services.image.credentials[login]
        self.commit(PutCredential(replace(known, networks=networks)))


class SaslConnection:
    """One client's connection. Answers are read off `transport.sent`, in order."""

    def __init__(
        self, broker: SaslBroker, number: int, host: str, mechanisms: tuple[str, ...]
    ) -> None:
        self.broker = broker
        self.listener = PlayedListener(
            lambda request: None, is_authenticated=False, clock=broker.clock
        )
        self.listener.dispatcher = Dispatcher(broker.services)  # type: ignore[assignment]
        self.listener.connections_budget = broker.services.connections
        connection, transport = connect(self.listener)
        self.connection = connection
        self.transport: MemoryTransport = transport
        assert connection.info is not None
        self.info = connection.info
        self.info.connection_id = number
        self.info.host = host
        self.info.sasl_mechanisms = mechanisms

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed

    def send(self, api_key: ApiKey, version: int, message: Any) -> None:
        writer = Writer()
        header = RequestHeader(
            api_key=int(api_key), api_version=version, correlation_id=5, client_id="c"
        )
        encode_request_header(writer, header)
        API_BY_KEY[api_key].encode_request(writer, message, version)
        self.send_bare(bytes(writer.buf))

    def send_bare(self, token: bytes) -> None:
        """A frame without a header."""
        # In a new turn of the loop.
        self.listener.take_turn()
        feed(self.connection, len(token).to_bytes(4, "big") + token)

    def receive_bare(self) -> bytes | None:
        """The oldest answer's frame; None when there is none yet."""
        sent = self.transport.sent
        if not sent:
            return None
        size = int.from_bytes(sent[:4], "big")
        frame = bytes(sent[4 : 4 + size])
        del sent[: 4 + size]
        return frame

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """The oldest answer, decoded; None when there is none yet."""
        frame = self.receive_bare()
        if frame is None:
            return None
        reader = Reader(frame, 0)
        assert decode_response_header(reader, api_key, version) == 5
        return API_BY_KEY[api_key].decode_response(reader, version)

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        self.send(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))
        return self.receive(ApiKey.SASL_HANDSHAKE, version)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        self.send(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))
        return self.receive(ApiKey.SASL_AUTHENTICATE, version)

    def log_in(self, mechanism: str, login: str, password: str) -> Any:
        """The last answer of a whole authentication."""
        assert self.handshake(mechanism).error_code == 0
        if mechanism == "PLAIN":
            answer = self.authenticate(f"\0{login}\0{password}".encode())
            self.broker.run_jobs()
            return answer or self.receive_later()
        client = ScramClient(mechanism, login, password)
        challenge = self.authenticate(client.first())
        if challenge is None or challenge.error_code:
            return challenge
        last = self.authenticate(client.final(challenge.auth_bytes))
        if last is not None and not last.error_code:
            assert client.believes(last.auth_bytes)
        return last

    def receive_later(self) -> Any:
        return self.receive(ApiKey.SASL_AUTHENTICATE, 2)
