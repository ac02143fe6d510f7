"""Connections to the other brokers of the cell: the `Peers` port over TCP, or mutual TLS.

    send ─► connected? ─► write                      response ─► on_response, in the receive buffer
              connecting ─► queued till then         closed, timed out ─► on_response(None) for all
              failed a moment ago ─► None

A connection that is cut without a word is noticed by the kernel, which probes an idle one and gives
up on unacknowledged bytes (KEEPALIVE, UNACKNOWLEDGED_MS_MAX), and at the latest by the oldest
request (replica.socket.timeout.ms). A peer that is merely slow, or stopped, keeps its connection
until then: to connect anew would not make it answer.

Invariants
- At most one connection to a peer, in use or being made.
- Answers come in the order of the requests; another correlation id ends the connection.
- `on_response` is called once for each `send`, never within `send` or `disconnect`; when it raises,
  that connection is closed and the others go on.

Every end of a connection that this broker did not want is logged with peer and reason, and so are
attempts that fail, ever more seldom.

Deliberately absent: what requests mean, and trying them again.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from data_plane.broker.request.api import Buffer
from data_plane.broker.request.peers import OnResponse
from data_plane.broker.services import Services
from data_plane.server.clock import Clock
from data_plane.server.peer_framing import FrameBuffer
from data_plane.server.peer_metrics import PeerCounts
from data_plane.wire.errors import MalformedFrame, WireError
from data_plane.wire.headers import request_header_version, response_header_version
from data_plane.wire.primitives import Reader

CONNECT_TIMEOUT_MS_MAX = 5_000
# As long as nothing works attempts are made after pauses that double, from the first to the second.
RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MS_MAX = 1_000
# After so much silence the kernel asks whether the peer is there, this often, so many times.
KEEPALIVE_IDLE_S = 3
KEEPALIVE_INTERVAL_S = 1
KEEPALIVE_PROBES = 3
UNACKNOWLEDGED_MS_MAX = 6_000
# Requests that wait for one peer. The fetcher has two at most; more is a caller gone wild.
OPEN_REQUESTS_MAX = 1_000

CLOSED_BY_PEER = "the peer has closed it"

_HEADER = struct.Struct(">ihhih")
_CORRELATION_ID = struct.Struct(">i")


class _Open(NamedTuple):
    """A request without an answer; `sent_s` by the loop's clock."""

    correlation_id: int
    has_tags: bool
    api_key: int
    sent_s: float
    on_response: OnResponse


class _Request(NamedTuple):
    """A request that waits for its connection."""

    api_key: int
    api_version: int
    body: Sequence[Buffer]
    on_response: OnResponse


class PeerConnections:
    """See the module. The server makes one for each purpose (`Ports.make_peers`), with its own
    end of a pass, and calls `close` when it stops. With `tls` all connections use it, and the peer
    must prove to be the host that its image names."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        end_pass: Callable[[int], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = services.config
        self.services = services
        self.clock = clock
        self.end_pass = end_pass
        self.tls = tls
        self.client_id = f"broker-{services.node_id}".encode()
        self.timeout_s = config.get_int("replica.socket.timeout.ms") / 1000
        self.frame_bytes_max = config.get_int("socket.request.max.bytes") + config.get_int(
            "replica.fetch.response.max.bytes"
        )
        # By node id; kept when a connection ends.
        self.counts: dict[int, PeerCounts] = {}
        self._peers: dict[int, _Peer] = {}

    def send(
        self,
        node_id: int,
        api_key: int,
        api_version: int,
        body: Sequence[Buffer],
        on_response: OnResponse,
    ) -> None:
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = _Peer(self, node_id)
        peer.send(_Request(api_key, api_version, body, on_response))

    def disconnect(self, node_id: int) -> None:
        peer = self._peers.pop(node_id, None)
        if peer is not None:
            peer.abandon()

    def close(self) -> None:
        """Let all connections go."""
        for node_id in list(self._peers):
            self.disconnect(node_id)

    @property
    def connected_count(self) -> int:
        return sum(peer.connection is not None for peer in self._peers.values())


class _Peer:
    """One other broker: its connection, or the attempt to make one, or the pause after it."""

    def __init__(self, owner: PeerConnections, node_id: int) -> None:
        self.owner = owner
        self.node_id = node_id
        self.counts = owner.counts.setdefault(node_id, PeerCounts())
        self.address = ""
        self.connection: _PeerConnection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._queue: list[_Request] = []
        self._failures_count = 0
        self._retry_at_ms = 0
        self._loop = asyncio.get_running_loop()

    def send(self, request: _Request) -> None:
        connection = self.connection
        if connection is not None:
            if connection.is_full:
                # Over another connection the peer would not answer sooner.
                self._fail_soon([request])
                return
            if connection.send(request):
                return
        if self._attempt is None:
            broker = self.owner.services.image.brokers.get(self.node_id)
            if broker is None or not broker.inter_broker_port or self._is_too_early():
                self._fail_soon([request])
                return
            host, port = broker.inter_broker_host, broker.inter_broker_port
            self.address = f"{host}:{port}"
            self._attempt = self._loop.create_task(self._connect(host, port))
        if len(self._queue) >= OPEN_REQUESTS_MAX:
            self._fail_soon([request])
            return
        self._queue.append(request)
        self.counts.in_flight_count += 1

    def _is_too_early(self) -> bool:
        return self._failures_count > 0 and self._now_ms() < self._retry_at_ms

    def _now_ms(self) -> int:
        """By the loop's clock. uvloop's counts milliseconds; their sums in seconds, as floats, are
        off in the last digit, and whoever waited for just as long as the pause came too early."""
        return round(self._loop.time() * 1000)

    async def _connect(self, host: str, port: int) -> None:
        owner = self.owner
        tls = owner.tls
        timeout_s = min(owner.timeout_s, CONNECT_TIMEOUT_MS_MAX / 1000)
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: _PeerConnection(self), host, port, ssl=tls
                )
        except TimeoutError:
            self._not_connected(f"no connection within {timeout_s * 1000:.0f} ms")
        except (OSError, ValueError) as error:
            self._not_connected(str(error))
        else:
            if connection.is_closed:
                self._not_connected("closed as soon as it was made")
            else:
                self._connected(connection)

    def _connected(self, connection: _PeerConnection) -> None:
        self._attempt = None
        self.connection = connection
        self.counts.connections_count += 1
        self.counts.connects_count += 1
        owner = self.owner
        owner.services.log.info("peer_connected", peer=self.node_id, address=self.address)
        for request in self._take_queue():
            if not connection.send(request):
                self._fail_soon([request])

    def answered(self) -> None:
        """The peer works: the next attempt to connect need not wait."""
        self._failures_count = 0

    def _not_connected(self, reason: str) -> None:
        self._attempt = None
        self.counts.failures_count += 1
        self._pause()
        count = self._failures_count
        if count & (count - 1) == 0:
            # The first, the second, the fourth …: a broker that is gone for long fills no disk.
            self._log("peer_connection_failed", reason)
        self._fail(self._take_queue())

    def _take_queue(self) -> list[_Request]:
        queue, self._queue = self._queue, []
        self.counts.in_flight_count -= len(queue)
        return queue

    def connection_lost(self, connection: _PeerConnection, reason: str) -> None:
        """Called once by a connection that has ended; the reason is for the log, "" for none."""
        if self.connection is not connection:
            return
        self.connection = None
        self.counts.connections_count -= 1
        self._pause()
        if reason:
            self._log("peer_connection_lost", reason)

    def _pause(self) -> None:
        self._failures_count += 1
        pause_ms = min(
            RECONNECT_BACKOFF_MS_MAX,
            RECONNECT_BACKOFF_MS << min(self._failures_count - 1, 10),
        )
        self._retry_at_ms = self._now_ms() + pause_ms

    def abandon(self) -> None:
        """Close what there is without another word."""
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self._fail_soon(self._take_queue())
        if self.connection is not None:
            self.connection.abort("")

    def _fail_soon(self, requests: Sequence[_Request | _Open]) -> None:
        if requests:
            self._loop.call_soon(self._fail, requests)

    def _fail(self, requests: Sequence[_Request | _Open]) -> None:
        """Nobody will answer these."""
        if not requests:
            return
        now_ms = self.owner.clock.now_ms()
        for request in requests:
            try:
                request.on_response(None, now_ms)
            except Exception as error:
                self._log("peer_response_failed", repr(error))
        self.owner.end_pass(now_ms)

    def fail_open(self, requests: Sequence[_Open]) -> None:
        self._fail(requests)

    def _log(self, event: str, reason: str) -> None:
        self.owner.services.log.warning(
            event, peer=self.node_id, address=self.address, reason=reason
        )


class _PeerConnection(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(self, peer: _Peer) -> None:
        owner = peer.owner
        self.is_closed = False
        self._peer = peer
        self._owner = owner
        self._counts = peer.counts
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(owner.frame_bytes_max)
        self._open: deque[_Open] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = CLOSED_BY_PEER

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport, not its class.
        self._transport = cast(asyncio.Transport, transport)
        _tune(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.free_view()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed:
            return
        self._counts.bytes_in += nbytes
        frames = self._frames
        if not frames.received(nbytes):
            return
        owner = self._owner
        now_ms = owner.clock.now_ms()
        has_answers = False
        turns = owner.services.turns
        turns.begin(self)
        try:
            try:
                while (frame := frames.next_frame()) is not None:
                    has_answers = True
                    self._take(frame, now_ms)
                    if self.is_closed:
                        break
            except WireError as error:
                self.abort(str(error))
            except Exception as error:
                self.abort(f"its answer was not handled: {error!r}")
            if has_answers:
                owner.end_pass(now_ms)
        finally:
            turns.end()

    def turn_name(self) -> str:
        """What a turn of the loop is called that the peer's answers have filled."""
        return f"answers of broker {self._peer.node_id}"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        reason = self._reason
        if exc is not None and reason:
            reason = str(exc) or repr(exc)
        if reason and self._frames.has_half_frame:
            reason += ", in the middle of an answer"
        open_requests = list(self._open)
        self._counts.in_flight_count -= len(open_requests)
        self._open.clear()
        if reason == CLOSED_BY_PEER and not open_requests:
            # Peers close what has been idle for long.
            reason = ""
        self._peer.connection_lost(self, reason)
        self._peer.fail_open(open_requests)

    # Requests and answers.

    @property
    def is_full(self) -> bool:
        """Whether it would take more if only some were answered."""
        return not self.is_closed and len(self._open) >= OPEN_REQUESTS_MAX

    def send(self, request: _Request) -> bool:
        """Whether the request is on its way; False when this connection is at its end."""
        transport = self._transport
        if self.is_closed or transport is None or transport.is_closing():
            return False
        owner = self._owner
        client_id = owner.client_id
        api_key, api_version = request.api_key, request.api_version
        is_flexible, has_answer_tags = _header_tags(api_key, api_version)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        size = 10 + len(client_id) + is_flexible + sum(map(len, request.body))
        head = _HEADER.pack(size, api_key, api_version, correlation_id, len(client_id)) + client_id
        if is_flexible:
            head += b"\x00"
        self._open.append(
            _Open(
                correlation_id,
                has_answer_tags,
                api_key,
                self._loop.time(),
                request.on_response,
            )
        )
        if self._timer is None:
            self._timer = self._loop.call_later(owner.timeout_s, self._check_timeout)
        counts = self._counts
        counts.in_flight_count += 1
        counts.bytes_out += 4 + size
        transport.writelines([head, *request.body])
        return True

    def _take(self, frame: memoryview, now_ms: int) -> None:
        if not self._open:
            raise MalformedFrame("an answer that nobody has asked for")
        request = self._open[0]
        if len(frame) < 4:
            raise MalformedFrame(f"an answer of {len(frame)} bytes has no header")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if correlation_id != request.correlation_id:
            raise MalformedFrame(
                f"an answer to request {correlation_id} instead of {request.correlation_id}"
            )
        position = 4
        if request.has_tags:
            if len(frame) > 4 and not frame[4]:
                position = 5
            else:
                reader = Reader(frame, 4)
                reader.skip_tagged_fields()
                position = reader.pos
        self._open.popleft()
        counts = self._counts
        counts.in_flight_count -= 1
        counts.responses_count += 1
        self._peer.answered()
        request.on_response(frame[position:], now_ms)

    def _check_timeout(self) -> None:
        """One timer for all requests: the oldest is the first to be late."""
        self._timer = None
        if self.is_closed or not self._open:
            return
        oldest = self._open[0]
        left_s = oldest.sent_s + self._owner.timeout_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_timeout)
            return
        self.abort(
            f"no answer to API {oldest.api_key} within {self._owner.timeout_s * 1000:.0f} ms"
        )

    def abort(self, reason: str) -> None:
        """Close at once; "" when that is what this broker wants."""
        if self.is_closed:
            return
        self.is_closed = True
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()


@functools.cache
def _header_tags(api_key: int, api_version: int) -> tuple[bool, bool]:
    """Whether the header of such a request has tagged fields, and that of its answer."""
    return (
        request_header_version(api_key, api_version) >= 2,
        response_header_version(api_key, api_version) >= 1,
    )


def _tune(sock: socket.socket) -> None:
    """No waiting for more to send, and a peer that has gone without a word is noticed."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS has only some of these, under other names; there the requests' timeout must do.
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS_MAX),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
