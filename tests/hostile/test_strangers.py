"""Clients that never authenticate, against a live broker with TLS and SASL.

While they leave handshakes half done, connect by the thousand, send what is too large, claim
mechanisms that there are not, or play back what a user has said, that user goes on to produce and
consume, and others log in.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from data_plane.server.listener import STRANGERS_MAX, SWEEP_INTERVAL_MS, TLS_HANDSHAKE_MS_MAX
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.registry import ApiKey
from tests.broker.sasl_player import ScramClient
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.conformance.raw_client import RawClient
from tests.hostile.test_live_broker import TOPIC, served_meanwhile
from tests.kept_port import KeptPort

pytestmark = [
    pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"),
    pytest.mark.timeout(300),
]
MECHANISM = "SCRAM-SHA-256"
STRANGERS = 300
# Of somebody who knows his password, on a machine that has other things to do.
LOGIN_SECONDS_MAX = 20
SECONDS_MAX = 30
# The first bytes of a ClientHello, whose record claims to have 512.
HALF_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(20)


class UsersBroker:
    """A broker with a listener for users, and one user, alice."""

    def __init__(self, process: BrokerProcess, port: int, authority: Authority) -> None:
        self.process = process
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self.tls = ssl.create_default_context(cafile=authority.certificate)
        self.security = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority.certificate,
            "sasl.mechanism": MECHANISM,
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS_MAX)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        upsertion = UserScramCredentialUpsertion("alice", info, b"secret")
        admin.alter_user_scram_credentials([upsertion])["alice"].result(SECONDS_MAX)

    @contextlib.contextmanager
    def served_meanwhile(self) -> Iterator[None]:
        """Alice is, and logs in anew at the end."""
        with served_meanwhile(self.process, 5, self.address, self.security):
            yield
            began_s = time.monotonic()
            with self.log_in():
                assert time.monotonic() - began_s < LOGIN_SECONDS_MAX

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX)

    def raw(self) -> RawClient:
        return RawClient(self.address, self.tls)

    def log_in(self, said: list[bytes] | None = None) -> RawClient:
        """As alice, who is let in; what she has said is added to `said`."""
        client = self.raw()
        scram = ScramClient(MECHANISM, "alice", "secret", nonce=os.urandom(9).hex())
        handshake(client)
        first = scram.first()
        final = scram.final(authenticate(client, first).auth_bytes)
        assert scram.believes(authenticate(client, final).auth_bytes)
        if said is not None:
            said += [first, final]
        assert client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[])).brokers
        return client


def handshake(client: RawClient, mechanism: str = MECHANISM) -> int:
    answer = client.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
    return int(answer.error_code)


def authenticate(client: RawClient, token: bytes) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return client.ask(ApiKey.SASL_AUTHENTICATE, 2, request)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[UsersBroker]:
    authority = Authority(tmp_path / "authority")
    kept = KeptPort()
    properties = {
        "auto.create.topics.enable": "false",
        "ssl.keystore.location": str(authority.keystore("broker")),
    }
    process = BrokerProcess(
        tmp_path, set=properties, more_listeners=f"SASL_SSL://127.0.0.1:{kept.port}"
    )
    with process:
        yield UsersBroker(process, kept.port, authority)


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker has ended it; what it has said before is passed over."""
    connection.settimeout(SECONDS_MAX)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize("first", [b"", b"\x16", HALF_HELLO], ids=["silent", "a byte", "a half"])
def test_half_tls_handshakes_end_in_time(broker: UsersBroker, first: bytes) -> None:
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(broker.connect()) for _ in range(STRANGERS)]
        began_s = time.monotonic()
        for connection in half:
            connection.sendall(first)
        with broker.served_meanwhile():
            assert all(is_closed(connection) for connection in half)
        allowed_ms = TLS_HANDSHAKE_MS_MAX + 2 * SWEEP_INTERVAL_MS
        assert time.monotonic() - began_s < allowed_ms / 1000 + LOGIN_SECONDS_MAX
    assert "half a TLS handshake" in broker.process.log_text()


def test_noise_instead_of_tls(broker: UsersBroker) -> None:
    noises = [b"GET / HTTP/1.1\r\n\r\n", bytes(4096), os.urandom(70_000), HALF_HELLO + bytes(9_999)]
    with broker.served_meanwhile():
        for number in range(STRANGERS):
            with broker.connect() as connection, contextlib.suppress(OSError):
                connection.sendall(noises[number % len(noises)])
                assert is_closed(connection)
    assert "the TLS handshake failed" in broker.process.log_text()


def _nothing(client: RawClient) -> None:
    pass


def _half_scram(client: RawClient) -> None:
    handshake(client)
    authenticate(client, ScramClient(MECHANISM, "alice", "guess").first())


@pytest.mark.parametrize("begin", [_nothing, handshake, _half_scram])
def test_half_sasl_handshakes_keep_nobody_out(
    broker: UsersBroker, begin: Callable[[RawClient], object]
) -> None:
    with contextlib.ExitStack() as stack, broker.served_meanwhile():
        for _ in range(STRANGERS // 3):
            begin(stack.enter_context(broker.raw()))


def test_connections_that_are_not_authenticated(broker: UsersBroker) -> None:
    """Half as many as there may be, or as the machine lets."""
    _open_strangers(broker, STRANGERS_MAX // 2)


@pytest.mark.nightly
def test_more_connections_that_are_not_authenticated_than_there_may_be(
    broker: UsersBroker,
) -> None:
    _open_strangers(broker, STRANGERS_MAX + 500)


def _open_strangers(broker: UsersBroker, count: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(count, soft - 500)
    with contextlib.ExitStack() as stack, broker.served_meanwhile():
        for _ in range(count):
            # Those that come first go when there are too many.
            stack.enter_context(broker.connect())


def test_tokens_that_are_too_large(broker: UsersBroker) -> None:
    with broker.served_meanwhile():
        for size in (20_000, 60_000):
            with broker.raw() as client:
                handshake(client)
                answer = authenticate(client, b"n" * size)
                assert answer.error_code == int(ErrorCode.SASL_AUTHENTICATION_FAILED)
                assert is_closed(client._socket)
        for size in (70_000, 5_000_000):
            with broker.raw() as client:
                handshake(client)
                with pytest.raises((ConnectionError, ssl.SSLError)):
                    authenticate(client, b"n" * size)
        with broker.raw() as client:
            client._socket.sendall(struct.pack(">i", 2**31 - 1) + bytes(100))
            assert is_closed(client._socket)


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "", "x" * 30_000])
def test_mechanisms_that_there_are_not(broker: UsersBroker, mechanism: str) -> None:
    with broker.served_meanwhile(), broker.raw() as client:
        assert handshake(client, mechanism) == int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        assert is_closed(client._socket)


def test_messages_that_are_played_back(broker: UsersBroker) -> None:
    said: list[bytes] = []
    with broker.log_in(said):
        pass
    first, final = said
    with broker.served_meanwhile():
        for tokens in ([first, final], [final], [first, first]):
            with broker.raw() as client:
                handshake(client)
                answers = [authenticate(client, token) for token in tokens]
                assert answers[-1].error_code == int(ErrorCode.SASL_AUTHENTICATION_FAILED)
                assert is_closed(client._socket)


def test_requests_before_authentication_close_the_connection(broker: UsersBroker) -> None:
    with broker.served_meanwhile(), broker.raw() as client, pytest.raises(ConnectionError):
        client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
