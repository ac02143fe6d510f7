"""What `status` says of the brokers' disks, by their own words."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from stack.folder import BrokerState
from stack.health import health_lines, healths
from stack.processes import ProcessIdentity

FAILED = {
    "status": "degraded",
    "offline_log_directories": [
        {"directory": "/disk1", "reason": "No space left on device", "what_to_do": "make room"}
    ],
}


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(FAILED).encode()
        self.send_response(503 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def broker(broker_id: int, metrics_port: int) -> BrokerState:
    return BrokerState(broker_id, ProcessIdentity(os.getpid(), "now"), 9092, metrics_port)


def test_each_broker_is_asked_also_when_others_hang(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stack.health.HEALTH_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = healths([broker(1, silent.getsockname()[1]), broker(2, port), broker(3, 0)])
    assert found == {1: None, 2: FAILED}


def test_a_broker_that_is_well_has_nothing_to_say() -> None:
    assert health_lines({"status": "ok"}) == []
    assert health_lines({"status": "starting or stopping"}) == []


def test_a_failed_disk_is_named_with_the_reason_and_what_to_do() -> None:
    assert health_lines(FAILED) == [
        "degraded: /disk1 is offline: No space left on device",
        "make room",
    ]


def test_silence_is_said() -> None:
    (line,) = health_lines(None)
    assert "no answer" in line
