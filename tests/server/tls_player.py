"""A TLS connection without a network: a socket with as much room as a test gives it, and a client
that speaks TLS out of memory."""

from __future__ import annotations

import _ssl
import contextlib
import ctypes
import ssl
from collections.abc import Callable
from typing import Any

from data_plane.server.connection import Connection
from data_plane.server.listener import PLAINTEXT_SETTINGS
from data_plane.server.tls_connection import TlsConnection
from tests.server.connection_player import MemoryTransport, PlayedListener


def _find_key_update() -> Any:
    """What `ssl` has no way to: a client's change of its keys. None where it is not to be found."""
    path = getattr(_ssl, "__file__", None)
    try:
        function = ctypes.CDLL(path).SSL_key_update
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return function


KEY_UPDATE = _find_key_update()
# Of `_ssl._SSLSocket`: after an object's header comes the socket, then OpenSSL's own.
_SSL_OFFSET = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)


class RoomTransport(MemoryTransport):
    """Its socket takes `room` bytes; what is beyond is unsent until there is more room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = 1 << 40
        self.waiting = bytearray()
        self.most_waiting = 0
        self.most_at_once = 0
        self.protocol: Any = None
        self._high, self._low = 0, 0
        self._is_full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: Any) -> None:
        assert not self.is_closed, "written after the end"
        self.most_at_once = max(self.most_at_once, len(data))
        self.waiting += data
        self._move()

    def give_room(self, room: int) -> None:
        self.room += room
        self._move()

    def _move(self) -> None:
        taken = self.waiting[: self.room]
        self.room -= len(taken)
        self.sent += taken
        del self.waiting[: len(taken)]
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        if not self._is_full and len(self.waiting) > self._high:
            self._is_full = True
            self.protocol.pause_writing()
        elif self._is_full and len(self.waiting) <= self._low:
            self._is_full = False
            self.protocol.resume_writing()


class TlsPlayer:
    """The client, and the connection that it speaks to."""

    def __init__(
        self,
        listener: PlayedListener,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        next_size: Callable[[], int] = lambda: 1 << 20,
    ) -> None:
        """`next_size` says how much arrives in one go."""
        self.listener = listener
        self.connection = Connection(listener, PLAINTEXT_SETTINGS)  # type: ignore[arg-type]
        self.tls = TlsConnection(self.connection, listener, server)  # type: ignore[arg-type]
        self.transport = RoomTransport()
        self.transport.protocol = self.tls
        self.tls.connection_made(self.transport)
        self.received = bytearray()
        self.has_ended = False
        self._next_size = next_size
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = client.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._to_send = bytearray()

    def shake_hands(self) -> None:
        """As far as both sides can go."""
        for _ in range(10):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._client.do_handshake()
                self.exchange()
                return
            self.exchange()

    def send(self, data: bytes) -> None:
        self._client.write(data)
        self.exchange()

    def change_keys(self, times: int) -> None:
        """Without a word to go with it, and without having it arrive."""
        address = id(self._client._sslobj) + _SSL_OFFSET  # type: ignore[attr-defined]
        connection = ctypes.c_void_p.from_address(address).value
        for _ in range(times):
            assert KEY_UPDATE(connection, 0) == 1
            self._client.do_handshake()

    def exchange(self) -> None:
        """Have arrive what was sent, in both directions, until nothing does."""
        while True:
            self._to_send += self._outgoing.read()
            arrived = self._arrive()
            sent = bytes(self.transport.sent)
            self.transport.sent.clear()
            self._incoming.write(sent)
            self._read()
            has_turns = bool(self.listener.soon)
            self.listener.take_turn()
            if not (arrived or sent or has_turns):
                return

    def _arrive(self) -> int:
        arrived = 0
        transport = self.transport
        while self._to_send and transport.is_reading_now and not transport.is_closed:
            view = self.tls.get_buffer(-1)
            size = max(1, min(self._next_size(), len(view), len(self._to_send)))
            view[:size] = self._to_send[:size]
            del self._to_send[:size]
            self.tls.buffer_updated(size)
            arrived += size
        return arrived

    def _read(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while self._client.version() is not None:
                data = self._client.read(1 << 20)
                if not data:
                    self.has_ended = True
                    return
                self.received += data
