"""A TCP proxy on loopback that loses what a test wants to have lost.

One thread a direction and connection; everything ends with `close`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from urllib.parse import urlsplit

CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards connections to `port`.

    - `lose_next_reply`: the next bytes from the server are thrown away, and the connection with
      them, at both ends; what the client asked for has been done.
    - `is_silent`: nothing is forwarded any more, either way, and nothing is closed.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._audible = threading.Event()
        self._audible.set()
        self.lose_next_reply = False
        self.lost = 0
        self.connections = 0
        self._start(self._accept)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def dsn(self, dsn: str) -> str:
        """The address `dsn` by way of this proxy."""
        return dsn.replace(f":{urlsplit(dsn).port}/", f":{self.port}/")

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        self._audible.clear()
        try:
            yield
        finally:
            self._audible.set()

    def close(self) -> None:
        self._audible.set()
        for end in (self._listener, *self._sockets):
            _close(end)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(client)
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _close(client)
                continue
            self._sockets.append(server)
            self._start(self._forward, client, server, False)
            self._start(self._forward, server, client, True)

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        try:
            while data := source.recv(CHUNK_BYTES):
                self._audible.wait()
                if is_reply and self.lose_next_reply:
                    self.lose_next_reply = False
                    self.lost += 1
                    break
                target.sendall(data)
        except OSError:
            pass  # The other direction, or the test, has closed them.
        finally:
            _close(source)
            _close(target)


def _close(end: socket.socket) -> None:
    # Closing alone would not wake a thread that is in a call on it.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
