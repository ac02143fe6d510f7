"""A TCP proxy that can do to a connection what a bad network does.

    with FaultProxy("127.0.0.1", port) as proxy:
        connect("127.0.0.1", proxy.port)
        proxy.cut()            # nothing passes, nobody is told
        proxy.cut(to_server=False)   # only answers are lost
        proxy.heal()           # what waited arrives, as TCP would have sent it again
        proxy.delay(50)        # every chunk arrives 50 ms late
        proxy.drop()           # connections end, new ones are refused by closing them
        proxy.half_open()      # the server's side ends; the client is not told

A cut holds bytes back instead of throwing them away: TCP repeats what is lost, so a cut that heals
loses nothing; only a connection that somebody gave up in the meantime is gone. A connection made
during a cut is accepted and then silent, for which clients have their time-outs.

The proxy runs on an event loop in a thread of its own; its methods may be called from any thread
and return when they have taken effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

CHUNK_BYTES_MAX = 65_536
EFFECT_SECONDS_MAX = 10.0


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.is_half_open = False

    def abort(self) -> None:
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()


class FaultProxy:
    """Forwards to one address. See the module's text."""

    def __init__(self, host: str, port: int, *, listen_host: str = "127.0.0.1") -> None:
        self.port = 0
        self.listen_host = listen_host
        self._target = (host, port)
        self._delay_s = 0.0
        self._is_dropping = False
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._to_server = asyncio.Event()
        self._to_client = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing pass any more in these directions."""

        def act() -> None:
            if to_server:
                self._to_server.clear()
            if to_client:
                self._to_client.clear()

        self._do(act)

    def heal(self) -> None:
        """All passes again, at once, and new connections are taken."""

        def act() -> None:
            self._delay_s, self._is_dropping = 0.0, False
            self._to_server.set()
            self._to_client.set()

        self._do(act)

    def delay(self, milliseconds: int) -> None:
        """Everything arrives this much later, in both directions."""

        def act() -> None:
            self._delay_s = milliseconds / 1000

        self._do(act)

    def drop(self) -> None:
        """End all connections with a reset, and each new one as soon as it comes."""

        def act() -> None:
            self._is_dropping = True
            for link in list(self._links):
                link.abort()

        self._do(act)

    def half_open(self) -> None:
        """End the server's side of all connections; clients go on believing in theirs."""

        def act() -> None:
            for link in self._links:
                link.is_half_open = True
                if link.server is not None:
                    link.server.transport.abort()

        self._do(act)

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return len(self._links)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(EFFECT_SECONDS_MAX)

    def _do(self, act: Callable[[], None]) -> None:
        async def body() -> None:
            act()

        self._call(body())

    async def _open(self) -> None:
        self._to_server.set()
        self._to_client.set()
        self._server = await asyncio.start_server(self._accepted, self.listen_host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "the server runs this as a task"
        self._tasks.add(task)
        link = _Link(writer)
        self._links.add(link)
        try:
            await self._serve(link, reader)
        except (OSError, asyncio.CancelledError):
            # The server is not there, or the proxy ends: either way this connection does.
            pass
        finally:
            link.abort()
            self._links.discard(link)
            self._tasks.discard(task)

    async def _serve(self, link: _Link, reader: asyncio.StreamReader) -> None:
        if self._is_dropping:
            return
        # A connection is made by packets both ways.
        await self._to_server.wait()
        await self._to_client.wait()
        server_reader, link.server = await asyncio.open_connection(*self._target)
        up = asyncio.create_task(self._pump(link, reader, link.server, self._to_server))
        down = asyncio.create_task(self._pump(link, server_reader, link.client, self._to_client))
        try:
            await asyncio.gather(up, down)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _pump(
        self,
        link: _Link,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        is_passing: asyncio.Event,
    ) -> None:
        while True:
            try:
                chunk = await source.read(CHUNK_BYTES_MAX)
            except OSError:
                chunk = b""
            if not chunk and link.is_half_open and sink is link.client:
                # The client is not told.
                await asyncio.Event().wait()
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await is_passing.wait()
            if link.is_half_open and sink is link.server:
                if not chunk:
                    return
                continue
            if not chunk:
                with contextlib.suppress(OSError):
                    sink.write_eof()
                return
            sink.write(chunk)
            await sink.drain()
