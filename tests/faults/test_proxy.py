"""The fault proxy does what it says, seen from an echo server and its client."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import FaultProxy

SILENCE_S = 0.15
HEARD_SECONDS_MAX = 20.0


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while data := self.request.recv(4096):
                self.server.heard.append(data)  # type: ignore[attr-defined]
                self.request.sendall(data)
        except OSError:
            # The proxy resets connections on purpose.
            return


class _EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.heard: list[bytes] = []


@pytest.fixture
def server() -> Iterator[_EchoServer]:
    with _EchoServer() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: _EchoServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.server_address[1]) as made:
        yield made


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connect(proxy) as connection:
        assert echoed(connection, b"hello")
        yield connection


def connect(proxy: FaultProxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    connection.settimeout(5)
    return connection


def echoed(connection: socket.socket, data: bytes) -> bool:
    connection.sendall(data)
    return receive(connection, len(data)) == data


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            break
        data += piece
    return data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)
    return False


def test_a_cut_holds_back_and_a_heal_lets_go(
    proxy: FaultProxy, client: socket.socket, server: _EchoServer
) -> None:
    proxy.cut()
    client.sendall(b"lost?")
    assert is_silent(client)
    assert server.heard == [b"hello"]
    proxy.heal()
    assert receive(client, 5) == b"lost?"


def test_a_cut_of_answers_only(
    proxy: FaultProxy, client: socket.socket, server: _EchoServer
) -> None:
    proxy.cut(to_server=False)
    client.sendall(b"heard")
    deadline = time.monotonic() + HEARD_SECONDS_MAX
    while server.heard != [b"hello", b"heard"]:
        assert time.monotonic() < deadline, server.heard
        time.sleep(0.01)
    assert is_silent(client)
    proxy.heal()
    assert receive(client, 5) == b"heard"


def test_a_connection_during_a_cut_is_silent_until_it_heals(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.cut()
    with connect(proxy) as late:
        late.sendall(b"late")
        assert is_silent(late)
        proxy.heal()
        assert receive(late, 4) == b"late"
        assert proxy.connections == 2


def test_a_delay_delays(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.delay(60)
    began = time.monotonic()
    assert echoed(client, b"slow")
    assert time.monotonic() - began >= 0.12


def test_dropped_connections_end_and_new_ones_are_refused(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.drop()
    for connection in (client, connect(proxy)):
        with connection:
            try:
                assert connection.recv(1) == b""
            except ConnectionResetError:
                continue
    proxy.heal()
    with connect(proxy) as again:
        assert echoed(again, b"again")


def test_half_open_the_client_is_not_told(
    proxy: FaultProxy, client: socket.socket, server: _EchoServer
) -> None:
    proxy.half_open()
    client.sendall(b"anybody?")
    assert is_silent(client)
    assert server.heard == [b"hello"]
    with connect(proxy) as other:
        assert echoed(other, b"fine")


def test_half_open_a_client_that_leaves_holds_nothing_up(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        assert echoed(client, b"hello")
        proxy.half_open()
    with connect(proxy) as other:
        assert echoed(other, b"fine")
    proxy.heal()


def test_ends_pass_through(proxy: FaultProxy, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
