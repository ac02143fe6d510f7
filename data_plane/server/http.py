"""/metrics and /healthz over HTTP, on a listener of their own.

Just enough HTTP/1.1 for a scraper and a probe: one GET per connection, answered and closed.

Bounds: HTTP_CONNECTIONS_MAX at once, REQUEST_BYTES_MAX per request, REQUEST_DEADLINE_S to send it.
Deliberately absent: keep-alive, bodies, TLS; nothing here changes anything in the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from data_plane.broker.turns import Turns, UnwatchedTurns

HTTP_CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 8192
REQUEST_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status such as "200 OK", a media type, and the body."""

    status: str
    content_type: str
    body: bytes


Page = Callable[[], HttpResponse]


class HttpListener:
    """Serves `pages` by exact path."""

    def __init__(self, pages: dict[str, Page], turns: Turns | None = None) -> None:
        self.pages = pages
        self.turns: Turns = turns or UnwatchedTurns()
        self.open_count = 0
        self._server: asyncio.Server | None = None

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
                response = page()
        head = (
            f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
            f"Content-Length: {len(response.body)}\r\nConnection: close\r\n\r\n"
        ).encode("latin-1")
        return head if words[0] == b"HEAD" else head + response.body


class _HttpConnection(asyncio.Protocol):
    __slots__ = ("_deadline", "_is_counted", "_listener", "_received", "_transport")

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._received = b""
        self._is_counted = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if self._listener.open_count >= HTTP_CONNECTIONS_MAX:
            transport.abort()
            return
        self._is_counted = True
        self._listener.open_count += 1
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(REQUEST_DEADLINE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            turns = self._listener.turns
            turns.begin(self._listener.respond)
            try:
                transport.write(self._listener.respond(self._received))
            finally:
                turns.end()
            transport.close()
        elif len(self._received) > REQUEST_BYTES_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._is_counted:
            self._listener.open_count -= 1


def _text(status: str, text: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", (text + "\n").encode())
