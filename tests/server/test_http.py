"""The HTTP listener's answers and bounds, without a network."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import uvloop

from data_plane.server import http
from data_plane.server.http import (
    HTTP_CONNECTIONS_MAX,
    PAGE_SHARE,
    PEER_CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    HttpListener,
    HttpResponse,
)

PAGES = {"/page": lambda: HttpResponse("200 OK", "text/plain", "grün\n".encode())}


def ask(request: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """(status line, headers, body) of the response."""
    head, _, body = HttpListener(dict(PAGES)).respond(request).partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    return status, dict(line.split(b": ", 1) for line in lines), body


def test_a_page_is_answered_with_its_size() -> None:
    for path in (b"/page", b"/page?name[]=x"):
        status, headers, body = ask(b"GET %s HTTP/1.1\r\n\r\n" % path)
        assert status == b"HTTP/1.1 200 OK"
        assert headers[b"Content-Type"] == b"text/plain"
        assert int(headers[b"Content-Length"]) == len(body) == len("grün\n".encode())
    status, headers, body = ask(b"HEAD /page HTTP/1.0\r\n\r\n")
    assert (status, int(headers[b"Content-Length"]), body) == (b"HTTP/1.1 200 OK", 6, b"")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /other HTTP/1.1", b"404 Not Found"),
        (b"POST /page HTTP/1.1", b"405 Method Not Allowed"),
        (b"GET /page", b"400 Bad Request"),
        (b"GET /page HTTP/2", b"400 Bad Request"),
        (b"\xff \xff \xff", b"400 Bad Request"),
    ],
)
def test_what_is_not_a_page(request_line: bytes, status: bytes) -> None:
    assert ask(request_line + b"\r\n\r\n")[0] == b"HTTP/1.1 " + status


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        listener = HttpListener(dict(PAGES))
        port = await listener.start("127.0.0.1", 0)
        clients: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            clients.append(writer)
            return reader, writer

        async def until_open(count: int) -> None:
            while listener.open_count != count:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

        async def play() -> None:
            # However long all this takes, nobody's time is over before the end of the test.
            monkeypatch.setattr(http, "REQUEST_DEADLINE_S", 60.0)
            # As many of one address as there may be: the oldest makes room for the next.
            silent = [await connect() for _ in range(PEER_CONNECTIONS_MAX)]
            await until_open(PEER_CONNECTIONS_MAX)
            late = await connect()
            assert await received(silent[0]) == b""
            assert listener.open_count == PEER_CONNECTIONS_MAX
            late[1].write(b"GET /page HTTP/1.1\r\n\r\n")
            assert (await received(late)).endswith("grün\n".encode())
            for _, writer in silent:
                writer.transport.abort()
            await until_open(0)
            monkeypatch.setattr(http, "REQUEST_DEADLINE_S", 0.1)
            assert await received(await connect()) == b""
            await until_open(0)
            monkeypatch.setattr(http, "REQUEST_DEADLINE_S", 60.0)
            talkative = await connect()
            await until_open(1)
            talkative[1].write(b"GET /" + bytes(REQUEST_BYTES_MAX - 5))
            await asyncio.sleep(0.02)
            assert listener.open_count == 1
            talkative[1].write(b"x")
            assert await received(talkative) == b""
            client = await connect()
            client[1].write(b"GET /page HTTP/1.1\r\n\r")
            await asyncio.sleep(0.02)
            # One request for each connection: the second is not answered.
            client[1].write(b"\nGET /page HTTP/1.1\r\n\r\n")
            answer = await received(client)
            assert answer.count(b"HTTP/1.1 200 OK") == 1
            assert answer.endswith("grün\n".encode())
            await until_open(0)

        try:
            await asyncio.wait_for(play(), 30)
        finally:
            listener.close()
            for writer in clients:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


class PlayedTransport(asyncio.Transport):
    """Another end at an address, which takes what is written and says when it was cut off."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 1)})
        self.sent = b""
        self.is_aborted = False
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


def connected(
    listener: HttpListener, host: str, request: bytes = b"G"
) -> tuple[http._HttpConnection, PlayedTransport]:
    connection, transport = http._HttpConnection(listener), PlayedTransport(host)
    connection.connection_made(transport)
    connection.data_received(request)
    return connection, transport


def test_a_probe_is_answered_whoever_holds_all_connections() -> None:
    """As in the attack that silenced a broker: more clients than there may be, who send their
    request byte by byte, from the probe's own address and from others."""

    async def main() -> None:
        listener = HttpListener(dict(PAGES))
        # One that has its answer, and takes its time to read it.
        reader, reading = connected(listener, "9.9.9.9", b"GET /page HTTP/1.1\r\n\r\n")
        slow = [connected(listener, f"10.0.0.{number % 9}")[1] for number in range(500)]
        slow += [connected(listener, "1.1.1.1")[1] for _ in range(500)]
        assert listener.open_count == HTTP_CONNECTIONS_MAX
        assert sum(not transport.is_aborted for transport in slow) == HTTP_CONNECTIONS_MAX - 1
        assert sum(not transport.is_aborted for transport in slow[500:]) == PEER_CONNECTIONS_MAX
        assert not reading.is_aborted
        for host in ("1.1.1.1", "2.2.2.2"):
            probe, transport = connected(listener, host, b"GET /page HTTP/1.1\r\n\r\n")
            assert transport.sent.startswith(b"HTTP/1.1 200 OK")
            probe.connection_lost(None)
        reader.connection_lost(None)
        assert listener.open_count == HTTP_CONNECTIONS_MAX - 2

    asyncio.run(main())


def test_making_pages_takes_a_bounded_share_of_the_time() -> None:
    now_s = 100.0
    made: list[float] = []

    def page() -> HttpResponse:
        nonlocal now_s
        now_s += 0.25
        made.append(now_s)
        return HttpResponse("200 OK", "text/plain", str(len(made)).encode())

    listener = HttpListener({"/page": page}, now_s=lambda: now_s)
    bodies = []
    for _ in range(4 * PAGE_SHARE + 4):
        bodies.append(listener.respond(b"GET /page HTTP/1.1\r\n\r\n").rsplit(b"\n")[-1])
        now_s += 0.25
    assert made[1] - made[0] == (PAGE_SHARE + 1) * 0.25
    assert bodies[: PAGE_SHARE + 1] == [b"1"] * PAGE_SHARE + [b"2"]


async def received(client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """All that comes until the other side closes."""
    with suppress(ConnectionResetError):
        return await client[0].read()
    return b""
