"""Two brokers that replicate over mutual TLS, and who else may speak to them there."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import Producer

from data_plane.server.inter_broker_tls import TlsFiles
from tests.certificates import WHY_NO_CERTIFICATES, Authority, tls_settings
from tests.faults.cell import Cell

TOPIC = "orders"


def inter_broker_port(cell: Cell, broker_id: int) -> int:
    for line in cell.log_lines(broker_id):
        entry = json.loads(line)
        if entry["event"] == "ready":
            return int(entry["inter_broker_port"])
    raise AssertionError("it is not ready")


def is_listened_to(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether a request there is answered: ApiVersions, version 0."""
    frame = bytes.fromhex("0000000a 0012 0000 00000007 ffff".replace(" ", ""))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            if context is None:
                plain.sendall(frame)
                return bool(plain.recv(1))
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                secure.sendall(frame)
                return bool(secure.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


def client(files: TlsFiles, authority: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available")
def test_brokers_replicate_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    files = authority.issue("brokers", "IP:127.0.0.1")
    settings = dict(item.split("=", 1) for item in tls_settings(files))
    with Cell(tmp_path, brokers=2, settings=settings) as cell:
        cell.create_topic(TOPIC, 2, replicas=2)
        producer = Producer({"bootstrap.servers": cell.bootstrap, "acks": "all"})
        errors: list[object] = []
        for number in range(1000):
            producer.produce(
                TOPIC,
                b"%d" % number * 100,
                partition=number % 2,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(30) == 0
        assert errors == [None] * 1000
        port = inter_broker_port(cell, 1)
        stranger = Authority(tmp_path / "strangers").issue("stranger", "IP:127.0.0.1")
        assert is_listened_to(port, client(files, files.authority))
        assert not is_listened_to(port, client(stranger, files.authority))
        assert not is_listened_to(port, ssl.create_default_context(cafile=files.authority))
        assert not is_listened_to(port, None)
