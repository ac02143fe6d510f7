"""Accepting connections and keeping them in bounds: how many, how idle, how long half a frame.

Bounds and their effect
- max.connections, max.connections.per.ip, and how many a tenant may have where nobody asks who
  speaks: a client's connection beyond is closed at once;
- connections.max.idle.ms: closed when nothing came for so long and nothing is to be answered, or
  when the client has taken nothing of its answers for so long;
- a frame must be complete FRAME_DEADLINE_MS after its first byte, plus the time its size takes at
  FRAME_BYTES_PER_MS_MIN;
- a connection that is not authenticated AUTHENTICATION_MS_MAX after it was opened is closed, and
  the oldest of those when there are more than STRANGERS_MAX;
- a client that leaves a TLS handshake unfinished for TLS_HANDSHAKE_MS_MAX is closed;
- a closing connection that does not take its last bytes is aborted after CLOSE_DEADLINE_MS.

Every close that the client did not ask for is logged with peer and reason (close_log.py).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from itertools import count

from data_plane.broker.authentication.certificates import log_in
from data_plane.broker.config.listener_definitions import connection_limits
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.budget import Budget
from data_plane.broker.request.dispatch import Dispatcher
from data_plane.broker.request.principal import (
    ANONYMOUS,
    AcceptedPeer,
    ListenerSettings,
    SecurityProtocol,
    listener_settings,
)
from data_plane.broker.request.request_gate import RequestGate
from data_plane.broker.services import Logger, Services
from data_plane.server.clock import Clock
from data_plane.server.close_log import CloseLog
from data_plane.server.connection import Connection
from data_plane.server.loop_share import LoopShare
from data_plane.server.peer_certificates import PeerCertificates, UnknownSession
from data_plane.server.receive_buffers import ReceiveMemory
from data_plane.server.tls_connection import TlsConnection

FRAME_DEADLINE_MS = 60_000
FRAME_BYTES_PER_MS_MIN = 100
AUTHENTICATION_MS_MAX = 30_000
# Connections that are not authenticated, at a time. Whoever wants to keep others out has to open so
# many within the time that one of theirs needs to authenticate.
STRANGERS_MAX = 10_000
# Without what it waits for the broker itself.
TLS_HANDSHAKE_MS_MAX = 10_000
# What they take is counted with nobody's namespace, and bounded: half frames of theirs leave room
# for those of users.
STRANGERS = ""
STRANGERS_BYTES_MAX = 64 << 20
CLOSE_DEADLINE_MS = 10_000
SWEEP_INTERVAL_MS = 5_000
PLAINTEXT_SETTINGS = listener_settings("PLAINTEXT", SecurityProtocol.PLAINTEXT)


async def take_address(
    host: str,
    port: int,
    backlog: int,
    make_connection: Callable[[], asyncio.BaseProtocol],
    tls: ssl.SSLContext | None = None,
) -> tuple[asyncio.Server, int]:
    """Bind an address; an empty host is every interface. Returns the port, too, which the system
    chose when `port` is 0. Nobody is served, or even let wait, yet. Raises OSError."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        make_connection,
        host or None,
        port,
        backlog=backlog,
        start_serving=False,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else TLS_HANDSHAKE_MS_MAX / 1000,
    )
    bound_port: int = server.sockets[0].getsockname()[1]
    return server, bound_port


class Listener:
    """The listening addresses of one kind of client, and their connections."""

    def __init__(
        self,
        name: str,
        services: Services,
        clock: Clock,
        end_pass: Callable[[int], None],
        end_pass_soon: Callable[[], None],
        *,
        sockets_max: int = 1 << 20,
        is_inter_broker: bool = False,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """`dispatcher` is given where several listeners share one, and so their passes' ends."""
        self.name = name
        self.clock = clock
        self.end_pass = end_pass
        self.end_pass_soon = end_pass_soon
        self.log: Logger = services.log
        self.turns = services.turns
        self.timers = services.timers
        self.dispatcher = dispatcher or Dispatcher(services)
        self.memory = ReceiveMemory()
        if not is_inter_broker:
            services.share_out(self.memory.budget)
        self._strangers_memory = self.memory.budget.of(STRANGERS)
        self._strangers_memory.share_max = STRANGERS_BYTES_MAX
        # Other brokers have their own, so that they wait for no client.
        self.share = LoopShare(self.turns, self.call_soon)
        self.connections: set[Connection] = set()
        self.bytes_in = 0
        self.bytes_out = 0
        # What clients that do not keep up have left unread, and how many there are.
        self.unsent = Budget() if is_inter_broker else services.unsent
        self.connections_budget = Budget() if is_inter_broker else services.connections
        self.accepted_count = 0
        self.closed_for_cause_count = 0
        # Of TLS.
        self.handshakes_count = 0
        self.failed_handshakes_count = 0
        self._services = services
        config = services.config
        self.frame_bytes_max = config.get_int("socket.request.max.bytes")
        # Of clients that are not authenticated.
        self.strange_frame_bytes_max = min(
            self.frame_bytes_max, config.get_int("sasl.server.max.receive.size")
        )
        # In the order in which they were opened.
        self._strangers: dict[Connection, None] = {}
        self._config = config
        self._sockets_max = sockets_max
        self._is_inter_broker = is_inter_broker
        self._ids = count(1)
        self._per_ip: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []
        self._is_stopping = False
        self._next_sweep_ms = 0
        self._certificates = PeerCertificates()
        self._close_log = CloseLog(services.log, name)

    async def bind(
        self, host: str, port: int, settings: ListenerSettings = PLAINTEXT_SETTINGS
    ) -> int:
        """Take one more address; an empty host is every interface. Returns the port, which the
        system chose when `port` is 0. Nobody is served before `serve`. Raises OSError."""
        backlog = self._config.get_int("socket.listen.backlog.size")
        server, bound_port = await take_address(
            host, port, backlog, lambda: Connection(self, settings)
        )
        self.adopt(server)
        return bound_port

    def adopt(self, server: asyncio.Server) -> None:
        """Take over an address that was taken before, whose connections are this listener's."""
        self._servers.append(server)

    async def serve(self) -> None:
        """Accept connections on all addresses from now on."""
        for server in self._servers:
            await server.start_serving()

    def stop_accepting(self) -> None:
        """Who was accepted, and is not connected yet (TLS handshakes take long), is too late."""
        self._is_stopping = True
        for server in self._servers:
            server.close()

    def connection_opened(
        self, connection: Connection, transport: asyncio.Transport
    ) -> ConnectionInfo | None:
        """Register an accepted connection, or turn it away (None)."""
        self.accepted_count += 1
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        host, port = str(peer[0]), int(peer[1])
        settings = connection.settings
        principal = None
        if not settings.security_protocol.has_tls:
            principal = settings.build_principal(AcceptedPeer(host, port))
        info = ConnectionInfo(
            connection_id=next(self._ids),
            peer=f"{host}:{port}",
            listener=settings.name,
            host=host,
            port=port,
            principal=ANONYMOUS if principal is None else principal,
            gate=RequestGate(is_authenticated=principal is not None),
            # Where there are no quotas nobody asks after its first answer.
            waits_with_tenant=principal is not None and not self._services.quotas.is_active,
            is_inter_broker=self._is_inter_broker,
            sasl_mechanisms=settings.sasl_mechanisms,
        )
        refused = None
        if self._is_stopping:
            refused = "the broker stops"
        elif self._is_inter_broker:
            # Limits are for clients; the cell's own brokers are few.
            pass
        elif len(self.connections) >= self._config.get_int("max.connections"):
            refused = self._refused_unless_a_stranger_goes("max.connections is reached")
        elif len(self.connections) >= self._sockets_max:
            refused = self._refused_unless_a_stranger_goes(
                "the process may not open more descriptors (ulimit -n)"
            )
        elif self._per_ip[host] >= self._connections_max(host):
            refused = "max.connections.per.ip is reached"
        if refused is None and principal is not None and not self._is_inter_broker:
            refused = self._services.quotas.why_no_connection(info.namespace) or None
        if refused is None:
            # This fails for who has gone already, and nobody gives back what he counted for.
            self._size_buffers(transport)
            refused = connection.join(STRANGERS if principal is None else info.namespace)
        if refused is not None:
            self.log_close(info, refused, is_expected=self._is_stopping)
            transport.abort()
            return None
        self._per_ip[host] += 1
        self.connections.add(connection)
        connection.opened_ms = connection.last_active_ms = self.clock.now_ms()
        if principal is None:
            self._welcome(connection)
        return info

    def begin_handshake(
        self,
        connection: Connection,
        is_wanted: Callable[[], bool],
        start: Callable[[], None],
        cost: int,
    ) -> bool:
        """See HandshakeBudget.begin."""
        info = connection.info
        assert info is not None
        budget = self._services.authentication.budget
        return budget.begin(info.host, is_wanted, start, self.clock.now_ms(), cost)

    def secured(self, connection: Connection, tls: ssl.SSLObject) -> None:
        """Its TLS handshake is done."""
        info = connection.info
        assert info is not None
        settings = connection.settings
        try:
            certificate = None if settings.sasl_mechanisms else self._certificates.of(tls)
        except UnknownSession:
            connection.close("its TLS session is not remembered; its next one will be")
            return
        if certificate is not None:
            authentication = self._services.authentication
            refused = log_in(authentication, info, certificate, self.clock.now_ms())
            if refused:
                connection.close(refused)
            return
        principal = settings.build_principal(AcceptedPeer(info.host, info.port))
        if principal is not None:
            refused = self._services.quotas.why_no_connection(info.namespace)
            if refused:
                connection.close(refused)
                return
            info.waits_with_tenant = not self._services.quotas.is_active
            info.authenticate(principal)

    @property
    def strangers_count(self) -> int:
        """Connections that are not authenticated yet."""
        return len(self._strangers)

    def _welcome(self, connection: Connection) -> None:
        if len(self._strangers) >= STRANGERS_MAX:
            self._close_oldest_stranger()
        self._strangers[connection] = None

    def _refused_unless_a_stranger_goes(self, reason: str) -> str | None:
        """Who has not authenticated keeps nobody out, however many they are."""
        if not self._strangers:
            return reason
        self._close_oldest_stranger()
        return None

    def _close_oldest_stranger(self) -> None:
        """It has had the longest time to authenticate."""
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        oldest.close("too many connections are not authenticated")

    def no_longer_strange(self, connection: Connection) -> None:
        """It is authenticated."""
        self._strangers.pop(connection, None)

    def _connections_max(self, host: str) -> int:
        limits = connection_limits(self._config.get_str("max.connections.per.ip.overrides"))
        return limits.get(host, self._config.get_int("max.connections.per.ip"))

    def _size_buffers(self, transport: asyncio.Transport) -> None:
        for option, name in (
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
            (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
        ):
            size_bytes = self._config.get_int(name)
            if size_bytes >= 0:
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, size_bytes)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in the loop's next turn, after the other connections' turns."""
        asyncio.get_running_loop().call_soon(callback)

    def connection_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._strangers.pop(connection, None)
        info = connection.info
        if info is not None:
            self._per_ip[info.host] -= 1
            if self._per_ip[info.host] <= 0:
                del self._per_ip[info.host]

    def log_close(self, info: ConnectionInfo, reason: str, *, is_expected: bool = False) -> None:
        if is_expected:
            self.log.debug("connection_closed", peer=info.peer, reason=reason)
            return
        self.closed_for_cause_count += 1
        self._close_log.write(info, reason, self.clock.now_ms())

    def sweep(self, now_ms: int) -> None:
        """Close what is over its time. Cheap; called with every tick."""
        if now_ms < self._next_sweep_ms:
            return
        idle_ms_max = self._config.get_int("connections.max.idle.ms")
        self._next_sweep_ms = now_ms + min(SWEEP_INTERVAL_MS, max(idle_ms_max, 0) + 1)
        for connection in list(self.connections):
            if connection.closing_since_ms is not None:
                if now_ms - connection.closing_since_ms > CLOSE_DEADLINE_MS:
                    assert connection.transport is not None
                    connection.transport.abort()
                continue
            if connection in self._strangers:
                too_slow = _why_too_slow(connection, now_ms)
                if too_slow:
                    connection.close(too_slow)
                    continue
            half = connection.half_frame
            if half is not None:
                allowed_ms = FRAME_DEADLINE_MS + half.total // FRAME_BYTES_PER_MS_MIN
                if now_ms - half.started_ms > allowed_ms:
                    connection.close(
                        f"half a frame for {now_ms - half.started_ms} ms:"
                        f" {half.received} of {half.total} bytes"
                    )
                continue
            connection.note_progress(now_ms)
            if idle_ms_max < 0 or now_ms - connection.last_active_ms <= idle_ms_max:
                continue
            if connection.has_unread_answers:
                connection.close(f"has taken nothing of its answers for {idle_ms_max} ms")
            elif connection.is_idle:
                connection.close(f"idle for more than {idle_ms_max} ms", is_expected=True)


def _why_too_slow(connection: Connection, now_ms: int) -> str:
    """Why a stranger has had its time; "" when it has not."""
    transport = connection.transport
    if isinstance(transport, TlsConnection):
        since_ms = transport.waiting_since_ms
        if since_ms is not None and now_ms - since_ms > TLS_HANDSHAKE_MS_MAX:
            return f"half a TLS handshake for {now_ms - since_ms} ms"
    if now_ms - connection.opened_ms > AUTHENTICATION_MS_MAX:
        return f"not authenticated after {now_ms - connection.opened_ms} ms"
    return ""
