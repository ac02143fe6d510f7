"""Mutual TLS over real sockets: certificates that are registered, revoked, and run out."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.cell.credentials import certificate_login
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.kept_port import KeptPort
from tests.server.control_plane import settings
from tests.server.test_cell_admin import apply, channel

pytestmark = pytest.mark.skipif(
    bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available"
)
SECONDS_MAX = 30


class MutualBroker:
    """A broker that knows clients by their certificates, and its control plane."""

    def __init__(
        self, process: BrokerProcess, cell: CellAdminStub, port: int, authority: Authority
    ) -> None:
        self.process = process
        self.port = port
        self.authority = authority
        self._cell = cell
        self._generation = 0
        pem = Path(authority.certificate).read_text()
        self._fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def register(self, principal: str, *, is_disabled: bool = False) -> None:
        """The certificate of a principal of the tenant acme."""
        self._generation += 1
        resources = [
            messages.Resource(
                resource_id="tenant_acme",
                generation=1,
                tenant="acme",
                tenant_spec=messages.Tenant(
                    cluster_id="acme-cluster-00000000", super_users=["User:billing"]
                ),
            ),
            messages.Resource(
                resource_id=f"credential_{principal}",
                generation=self._generation,
                tenant="acme",
                name=certificate_login(self._fingerprint, f"DNS:{principal}.acme.example"),
                credential=messages.Credential(principal=principal, is_disabled=is_disabled),
            ),
        ]
        for resource in resources:
            (result,) = apply(self._cell, resource)
            assert not result.message, result

    def connect(self, keystore: Path | None) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if keystore is not None:
            context.load_cert_chain(keystore)
        return self.connect_with(context)

    def connect_with(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX)
        return context.wrap_socket(plain, server_hostname="127.0.0.1", session=session)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutualBroker]:
    folder = tmp_path_factory.mktemp("mutual")
    clients, operators = Authority(folder / "clients"), Authority(folder / "operators")
    kept = KeptPort()
    properties = {
        **settings(operators.issue("broker", "IP:127.0.0.1")),
        "ssl.keystore.location": str(clients.keystore("broker")),
        "ssl.truststore.location": clients.certificate,
        "ssl.client.auth": "required",
    }
    process = BrokerProcess(folder, set=properties, more_listeners=f"SSL://127.0.0.1:{kept.port}")
    with process, channel(process, operators.issue("control-plane", "DNS:c")) as opened:
        yield MutualBroker(process, CellAdminStub(opened), kept.port, clients)


def is_answered(connection: ssl.SSLSocket) -> bool:
    """Whether Metadata is, which strangers may not ask; False when the connection is closed."""
    try:
        connection.sendall(struct.pack(">ihhih", 14, 3, 1, 7, -1) + struct.pack(">i", -1))
        return len(connection.recv(4)) == 4
    except (ssl.SSLError, ConnectionError):
        return False


def is_closed_soon(connection: ssl.SSLSocket) -> bool:
    connection.settimeout(SECONDS_MAX)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except (ssl.SSLError, ConnectionError):
        pass
    return True


def test_a_registered_certificate_is_a_principal_of_its_tenant(broker: MutualBroker) -> None:
    broker.register("billing")
    keystore = broker.authority.keystore("billing", "DNS:billing.acme.example")
    client: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SSL",
        "ssl.ca.location": broker.authority.certificate,
        "ssl.certificate.location": str(keystore),
        "ssl.key.location": str(keystore),
    }
    admin = AdminClient(client)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(SECONDS_MAX)
    producer = Producer(client)
    producer.produce("orders", b"first")
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.value() == b"first"
    consumer.close()
    # It is the tenant's topic, and nobody else's.
    others = AdminClient({"bootstrap.servers": broker.process.bootstrap})
    assert "orders" not in others.list_topics(timeout=SECONDS_MAX).topics


def test_nobody_else_is_let_in(broker: MutualBroker, tmp_path: Path) -> None:
    stranger = broker.authority.keystore("stranger", "DNS:stranger.example")
    with broker.connect(stranger) as connection:
        assert not is_answered(connection)
    forged = Authority(tmp_path / "forged").keystore("billing", "DNS:billing.acme.example")
    for keystore in (None, forged):
        with contextlib.suppress(ssl.SSLError, ConnectionError), broker.connect(keystore) as one:
            assert not is_answered(one)


def test_connections_end_with_the_registration(broker: MutualBroker) -> None:
    broker.register("short")
    keystore = broker.authority.keystore("short", "DNS:short.acme.example")
    with broker.connect(keystore) as connection:
        assert is_answered(connection)
        broker.register("short", is_disabled=True)
        assert is_closed_soon(connection)


def test_a_connection_ends_with_its_certificate(broker: MutualBroker) -> None:
    broker.register("brief")
    keystore = broker.authority.keystore("brief", "DNS:brief.acme.example", seconds=3)
    with broker.connect(keystore) as connection:
        # Speaking all the time does not keep it.
        deadline_s = time.monotonic() + SECONDS_MAX
        while is_answered(connection):
            assert time.monotonic() < deadline_s
            connection.recv(65_536)
    assert "its certificate has expired" in broker.process.log_text()


def test_a_client_may_resume_its_session_of_tls_1_2(broker: MutualBroker) -> None:
    broker.register("resumed")
    context = ssl.create_default_context(cafile=broker.authority.certificate)
    context.load_cert_chain(broker.authority.keystore("resumed", "DNS:resumed.acme.example"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with broker.connect_with(context) as first:
        assert is_answered(first)
        with broker.connect_with(context, first.session) as second:
            assert second.session_reused
            assert is_answered(second)
            broker.register("resumed", is_disabled=True)
            assert is_closed_soon(second)
