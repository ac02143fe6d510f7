"""What a broker's process does because it is one of several: peers, watching the store, leaving.

A broker that is alone does not load this module, nor what stands behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from data_plane.broker.cell.controlled_shutdown import ControlledShutdown
from data_plane.broker.request.turns import Turns
from data_plane.broker.services import Services
from data_plane.cell.metadata_store import MetadataStore
from data_plane.server.clock import Clock
from data_plane.server.configuration import BrokerConfig
from data_plane.server.inter_broker_tls import TlsContexts, make_contexts
from data_plane.server.peer_connections import PeerConnections
from data_plane.server.peer_metrics import PeerCollector
from data_plane.server.shared_store import StoreWatch
from data_plane.server.thread_executor import ThreadExecutor

# A commit, a heartbeat, a look at the feed and a plan of the controller at a time.
STORE_THREADS = 4
# How long `ready` waits for the controller to let this broker in; it serves already.
ACTIVE_TIMEOUT_S = 10.0
POLL_S = 0.01


class CellMember:
    """Made before the services; `join` once they are there. `superseded` is why this process has
    to stop, "" as long as it has not."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerConfig,
        store: MetadataStore,
        clock: Clock,
        end_pass: Callable[[int], None],
        end_pass_now: Callable[[], None],
        request_stop: Callable[[], None],
        turns: Turns,
    ) -> None:
        """Raises OSError when the files of TLS cannot be read."""
        self.store = store
        self.tls: TlsContexts | None = None
        if settings.inter_broker_tls is not None:
            self.tls = make_contexts(settings.inter_broker_tls)
        self.store_executor = ThreadExecutor(loop, STORE_THREADS, "store", end_pass_now, turns)
        self.superseded = ""
        self._loop = loop
        self._clock = clock
        self._end_pass = end_pass
        self._end_pass_now = end_pass_now
        self._request_stop = request_stop
        self._peers: list[PeerConnections] = []
        self._watch: StoreWatch | None = None

    def make_peers(self, services: Services) -> PeerConnections:
        tls = None if self.tls is None else self.tls.client
        peers = PeerConnections(services, self._clock, self._end_pass, tls)
        self._peers.append(peers)
        return peers

    def join(self, services: Services) -> None:
        """Begin to watch the store. Heartbeats are the services'."""
        self._services = services
        services.metrics.register(PeerCollector(lambda: [peers.counts for peers in self._peers]))
        membership, follower = services.membership, services.metadata_follower
        assert membership is not None
        assert follower is not None
        self._membership = membership
        self._membership.on_superseded = self._stop_superseded
        watch = StoreWatch(
            self._loop, self.store, lambda: services.newest_image.version, follower.request_update
        )
        services.image_listeners.append(lambda old, new, now_ms: watch.image_changed())
        watch.start()
        self._watch = watch

    def _stop_superseded(self, reason: str) -> None:
        self.superseded = reason
        self._request_stop()

    async def until_active(self, stop_requested: asyncio.Event) -> None:
        """Wait until the controller has let this broker in, if there is a store to say so."""
        membership = self._membership
        deadline_s = time.monotonic() + ACTIVE_TIMEOUT_S
        # Polling is enough for a thing that happens once, when the process starts.
        while (  # noqa: ASYNC110
            membership.is_registered
            and not membership.is_active
            and not membership.is_store_lost
            and not stop_requested.is_set()
            and time.monotonic() < deadline_s
        ):
            await asyncio.sleep(POLL_S)

    async def leave(self) -> None:
        """Hand over what others can take, while this broker still serves."""
        left: asyncio.Future[str | None] = self._loop.create_future()
        shutdown = ControlledShutdown(self._services, self._membership, left.set_result)
        shutdown.begin(self._clock.now_ms())
        self._end_pass_now()
        failure = await left
        if failure is not None:
            self._services.log.warning("controlled_shutdown_incomplete", reason=failure)

    def disconnect(self) -> None:
        """Let go of peers, and of the store but for what it is doing; may block for that."""
        for peers in self._peers:
            peers.close()
        if self._watch is not None:
            self._watch.stop()
        self.store_executor.close()

    def close(self) -> None:
        """When the store is closed."""
        if self._watch is not None:
            self._watch.join()
