"""CellAdmin on a thread and an event loop of its own, beside the broker's.

gRPC's work (TLS, HTTP/2, messages) takes none of the broker's loop; what must be decided there goes
through `on_loop`. Some 25 MB of memory, and a dozen threads that sleep.

Bounds: CALLS_MAX at once, MESSAGE_BYTES_MAX each, GRACE_S for calls in progress at the stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

import grpc
import grpc.aio

from data_plane.broker.services import Logger, Services
from data_plane.contract.cell_admin_pb2_grpc import add_CellAdminServicer_to_server
from data_plane.contract.cell_operations_pb2_grpc import add_CellOperationsServicer_to_server
from data_plane.server.cell_admin_service import CellAdminService
from data_plane.server.cell_admin_settings import CellAdminSettings
from data_plane.server.cell_admin_tls import Credentials
from data_plane.server.cell_calls import Calls, OnLoop
from data_plane.server.cell_operations_service import CellOperationsService
from data_plane.server.change_feed import ChangeFeed
from data_plane.server.usage_spool import UsageSpool

CALLS_MAX: Final = 32
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
GRACE_S: Final = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", CALLS_MAX),
    # One broker for one address: a second one must not take half of the calls.
    ("grpc.so_reuseport", 0),
)


class CellAdminServer:
    """`start` listens, `close` ends it; both are called from the broker's thread."""

    def __init__(
        self,
        services: Services,
        settings: CellAdminSettings,
        on_loop: OnLoop,
        log: Logger,
        now_ms: Callable[[], int],
        usage: UsageSpool | None = None,
    ) -> None:
        """Raises OSError when a file of TLS cannot be read."""
        self._credentials = Credentials(settings.files, log)
        self._calls = Calls(services, on_loop, log, now_ms)
        self._usage = usage
        self._address = f"{settings.host}:{settings.port}"
        self._started: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="cell-admin", daemon=True)

    async def start(self) -> int:
        """Listen; returns the port. Raises OSError when the address cannot be had."""
        self._thread.start()
        return await asyncio.wrap_future(self._started)

    async def close(self) -> None:
        """Let calls in progress end within GRACE_S, and wait for the thread."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            loop.call_soon_threadsafe(stopping.set)
        await asyncio.to_thread(self._thread.join, GRACE_S + 5.0)

    def _run(self) -> None:
        # Not the broker's kind of loop: gRPC brings a poller of its own.
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        calls = self._calls
        feed = ChangeFeed(calls)
        add_CellAdminServicer_to_server(CellAdminService(calls), server)
        operations = CellOperationsService(calls, feed, self._usage)
        add_CellOperationsServicer_to_server(operations, server)
        try:
            port = server.add_secure_port(self._address, self._credentials.for_server())
        except RuntimeError as error:
            raise OSError(f"cell.admin.listener: {self._address}: {error}") from error
        await server.start()
        await feed.start()
        self._started.set_result(port)
        await self._stopping.wait()
        feed.stop()
        await server.stop(GRACE_S)
