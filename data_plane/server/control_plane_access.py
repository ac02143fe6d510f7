"""What a control plane reaches of a broker, put together: samples of use, and the gRPC services.

Where no `cell.admin.listener` is set there is none of it, and nothing of it is loaded: such a
broker starts faster, and is smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from data_plane.broker.services import Services
from data_plane.server.cell_calls import OnLoop
from data_plane.server.listener import Listener
from data_plane.server.ports import Ports
from data_plane.server.usage_sampler import make_usage_sampler

if TYPE_CHECKING:
    from data_plane.server.cell_admin_server import CellAdminServer
    from data_plane.server.configuration import BrokerConfig


class ControlPlaneAccess:
    """Of one broker. Made before its components start."""

    def __init__(
        self,
        services: Services,
        ports: Ports,
        settings: BrokerConfig,
        clients: Listener,
    ) -> None:
        self._services = services
        assert settings.cell_admin is not None, "nobody is to be admitted"
        self._settings = settings.cell_admin
        self._now_ms: Callable[[], int] = ports.now_ms
        self._server: CellAdminServer | None = None
        self._usage = make_usage_sampler(
            services,
            ports.fs,
            str(settings.data_directories[0]),
            ports.now_ms(),
            clients.connections_budget.used_by,
        )

    async def serve(self, on_loop: OnLoop) -> int:
        """The port. Raises OSError."""
        # It takes a while, and the broker serves its clients meanwhile.
        from data_plane.server.cell_admin_server import CellAdminServer

        services = self._services
        usage = None if self._usage is None else self._usage.spool
        self._server = CellAdminServer(
            services, self._settings, on_loop, services.log, self._now_ms, usage
        )
        return await self._server.start()

    async def close(self) -> None:
        """Answer no more calls."""
        if self._server is not None:
            await self._server.close()

    def finish(self) -> None:
        """Store what is left of use; blocks. For the end, when nothing runs any more."""
        if self._usage is not None:
            self._usage.finish(self._now_ms())
