"""/metrics and /healthz over HTTP, on a listener of their own.

Just enough HTTP/1.1 for a scraper and a probe: one GET per connection, answered and closed.

A probe that is not answered gets a healthy broker killed, so a newcomer is always let in. Whoever
is honest sends its request at once and is answered in the same turn of the loop; so where there are
too many connections, in all or of one address, the oldest one is ended, first of those that have
not sent their request yet.

Bounds
- HTTP_CONNECTIONS_MAX at once, PEER_CONNECTIONS_MAX of one address;
- REQUEST_BYTES_MAX per request, REQUEST_DEADLINE_S to send it, ANSWER_DEADLINE_S to take the
  answer, however fast bytes come;
- making pages takes at most one part in PAGE_SHARE of the loop's time: a page is answered as it was
  for PAGE_SHARE times as long as it took to make.

Deliberately absent: keep-alive, bodies, TLS; nothing here changes anything in the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from data_plane.broker.request.turns import Turns, UnwatchedTurns

HTTP_CONNECTIONS_MAX = 64
PEER_CONNECTIONS_MAX = 32
REQUEST_BYTES_MAX = 8192
REQUEST_DEADLINE_S = 2.0
ANSWER_DEADLINE_S = 10.0
PAGE_SHARE = 10


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status such as "200 OK", a media type, and the body."""

    status: str
    content_type: str
    body: bytes


Page = Callable[[], HttpResponse]


class HttpListener:
    """Serves `pages` by exact path."""

    def __init__(
        self,
        pages: dict[str, Page],
        turns: Turns | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pages = pages
        self.turns: Turns = turns or UnwatchedTurns()
        self._now_s = now_s
        # In the order of their coming.
        self._connections: dict[_HttpConnection, None] = {}
        # What was made last for a path, and until when it is good enough.
        self._made: dict[str, tuple[float, HttpResponse]] = {}
        self._server: asyncio.Server | None = None

    @property
    def open_count(self) -> int:
        return len(self._connections)

    def admit(self, connection: _HttpConnection) -> None:
        """Count one more connection, at the cost of another where there are too many."""
        of_peer = [other for other in self._connections if other.peer == connection.peer]
        if len(of_peer) >= PEER_CONNECTIONS_MAX:
            self._end_one(of_peer)
        elif len(self._connections) >= HTTP_CONNECTIONS_MAX:
            self._end_one(list(self._connections))
        self._connections[connection] = None

    def _end_one(self, connections: list[_HttpConnection]) -> None:
        asking = [other for other in connections if not other.is_answered]
        oldest = (asking or connections)[0]
        self.forget(oldest)
        oldest.abort()

    def forget(self, connection: _HttpConnection) -> None:
        self._connections.pop(connection, None)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which the system chose when `port` is 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _HttpConnection(self), host or None, port)
        bound_port: int = self._server.sockets[0].getsockname()[1]
        return bound_port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def respond(self, request: bytes) -> bytes:
        """The whole response to a request whose head is complete."""
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            response = _text("400 Bad Request", "not an HTTP/1 request")
        elif words[0] not in (b"GET", b"HEAD"):
            response = _text("405 Method Not Allowed", "only GET and HEAD")
        else:
            path = words[1].split(b"?", 1)[0].decode("latin-1")
            page = self.pages.get(path)
            if page is None:
                response = _text("404 Not Found", "try " + " or ".join(sorted(self.pages)))
            else:
                response = self._make(path, page)
        head = (
            f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
            f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
        ).encode("latin-1")
        return head if words[0] == b"HEAD" else head + response.body

    def _make(self, path: str, page: Page) -> HttpResponse:
        began_s = self._now_s()
        until_s, response = self._made.get(path, (began_s, None))
        if response is None or began_s >= until_s:
            response = page()
            ended_s = self._now_s()
            self._made[path] = (ended_s + PAGE_SHARE * (ended_s - began_s), response)
        return response


class _HttpConnection(asyncio.Protocol):
    __slots__ = ("_deadline", "_listener", "_received", "_transport", "is_answered", "peer")

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_answered = False
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("unknown",))[0])
        self._listener.admit(self)
        self._abort_in(REQUEST_DEADLINE_S)

    def _abort_in(self, delay_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(delay_s, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            self.is_answered = True
            turns = self._listener.turns
            turns.begin(self._listener.respond)
            try:
                transport.write(self._listener.respond(self._received))
            finally:
                turns.end()
            transport.close()
            self._abort_in(ANSWER_DEADLINE_S)
        elif len(self._received) > REQUEST_BYTES_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._listener.forget(self)


def _text(status: str, text: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", (text + "\n").encode())
