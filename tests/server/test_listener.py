"""The listener's bounds: how many connections, how idle, how long half a frame, how many logs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.broker.authentication.authentication import Authentication
from data_plane.broker.authentication.handshake_budget import BURST
from data_plane.broker.request.principal import (
    ANONYMOUS,
    ListenerSettings,
    SecurityProtocol,
    listener_settings,
)
from data_plane.server import listener as listener_module
from data_plane.server.client_tls import ListenerTls, make_context
from data_plane.server.close_log import CLOSE_LOGS_PER_SECOND_MAX, SOFTWARE_CHARACTERS_MAX
from data_plane.server.connection import Connection
from data_plane.server.listener import (
    AUTHENTICATION_MS_MAX,
    CLOSE_DEADLINE_MS,
    FRAME_BYTES_PER_MS_MIN,
    FRAME_DEADLINE_MS,
    PLAINTEXT_SETTINGS,
    SWEEP_INTERVAL_MS,
    TLS_HANDSHAKE_MS_MAX,
    Listener,
)
from data_plane.server.loop_share import LoopShare
from data_plane.server.receive_buffers import FRAME_BUFFER_BYTES_MIN
from data_plane.server.tls_connection import TlsConnection
from tests.broker.broker_player import BrokerPlayer
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.connection_player import FixedClock, MemoryTransport, feed, frame


class PeerTransport(MemoryTransport):
    """A transport that knows its peer, and whether it was aborted."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._peer = (host, port)
        self.is_aborted = False
        self.options: list[tuple[int, int, int]] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self
        return self._peer if name == "peername" else default

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)  # type: ignore[arg-type]

    def abort(self) -> None:
        super().abort()
        self.is_aborted = True


class GoneTransport(PeerTransport):
    """Its peer has gone."""

    def setsockopt(self, *option: int) -> None:
        raise OSError("it is closed")


class Harness:
    def __init__(
        self,
        *,
        is_inter_broker: bool = False,
        settings: ListenerSettings = PLAINTEXT_SETTINGS,
        **properties: str,
    ) -> None:
        self.settings = settings
        self.broker = BrokerPlayer(
            {name.replace("_", "."): value for name, value in properties.items()}
        )
        self.clock = FixedClock()
        self.clock.ms = 1_000_000
        self.listener = Listener(
            "tenants",
            self.broker.services,
            self.clock,  # type: ignore[arg-type]
            lambda now_ms: None,
            lambda: None,
            is_inter_broker=is_inter_broker,
        )
        # There is no loop, and so no end of its iterations.
        self.listener.share = LoopShare(self.listener.turns, lambda callback: None)
        self._port = 1000

    def connect(self, host: str = "10.0.0.1") -> tuple[Connection, PeerTransport]:
        self._port += 1
        connection = Connection(self.listener, self.settings)
        transport = PeerTransport(host, self._port)
        connection.connection_made(transport)
        return connection, transport

    def connect_tls(self, context: ssl.SSLContext) -> tuple[TlsConnection, PeerTransport]:
        self._port += 1
        connection = Connection(self.listener, self.settings)
        tls = TlsConnection(connection, self.listener, context)
        transport = PeerTransport("10.0.0.1", self._port)
        tls.connection_made(transport)
        return tls, transport

    def pass_time(self, ms: int) -> None:
        """Sweep as often as the broker's tick would."""
        end_ms = self.clock.ms + ms
        while self.clock.ms < end_ms:
            self.clock.ms = min(end_ms, self.clock.ms + 1000)
            self.listener.sweep(self.clock.ms)

    def reasons(self) -> list[str]:
        return [
            str(fields.get("reason"))
            for _, event, fields in self.broker.log.events
            if event == "connection_closed"
        ]


def lose(connection: Connection) -> None:
    connection.connection_lost(None)


def test_connections_beyond_the_maximum_are_turned_away() -> None:
    harness = Harness(max_connections="2")
    first, first_transport = harness.connect()
    _, second_transport = harness.connect()
    _, third_transport = harness.connect()
    assert (first_transport.is_aborted, second_transport.is_aborted) == (False, False)
    assert third_transport.is_aborted
    assert harness.reasons() == ["max.connections is reached"]
    lose(first)
    _, fourth_transport = harness.connect()
    assert not fourth_transport.is_aborted


def test_who_has_gone_before_he_is_connected_counts_for_nobody() -> None:
    harness = Harness(socket_receive_buffer_bytes="100000")
    connection = Connection(harness.listener, harness.settings)
    with pytest.raises(OSError, match="it is closed"):
        connection.connection_made(GoneTransport("10.0.0.1", 1))
    lose(connection)
    kept, _ = harness.connect()
    connections = harness.broker.services.connections
    assert (connections.used, connections.used_by()) == (1, {"default": 1})
    assert harness.listener.connections == {kept}


def test_connections_beyond_the_descriptors_are_turned_away() -> None:
    harness = Harness()
    harness.listener._sockets_max = 1
    harness.connect()
    assert harness.connect()[1].is_aborted
    assert "ulimit" in harness.reasons()[0]


def test_who_was_on_the_way_when_the_broker_stops_is_turned_away() -> None:
    """Between accepting a connection and making it, a TLS handshake may take seconds."""
    harness = Harness()
    _, before = harness.connect()
    harness.listener.stop_accepting()
    _, after = harness.connect()
    assert (before.is_aborted, after.is_aborted) == (False, True)
    assert len(harness.listener.connections) == 1
    assert harness.listener.closed_for_cause_count == 0


def test_other_brokers_are_no_clients() -> None:
    harness = Harness(is_inter_broker=True, max_connections="1", max_connections_per_ip="1")
    for _ in range(3):
        connection, transport = harness.connect()
        assert not transport.is_aborted
        assert connection.info is not None
        assert connection.info.is_inter_broker
    client, _ = Harness().connect()
    assert client.info is not None
    assert not client.info.is_inter_broker


def test_sockets_get_the_buffers_that_are_configured() -> None:
    _, transport = Harness(
        socket_receive_buffer_bytes="70000", socket_send_buffer_bytes="80000"
    ).connect()
    assert sorted(transport.options) == sorted(
        [
            (socket.SOL_SOCKET, socket.SO_RCVBUF, 70_000),
            (socket.SOL_SOCKET, socket.SO_SNDBUF, 80_000),
        ]
    )
    _, transport = Harness(
        socket_receive_buffer_bytes="-1", socket_send_buffer_bytes="-1"
    ).connect()
    assert transport.options == []


def test_an_address_is_taken_with_its_backlog_and_nobody_is_let_in_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    async def create_server(make: Any, host: Any, port: Any, **options: Any) -> Any:
        asked.append({"host": host, "port": port, **options})
        return SimpleNamespace(sockets=[SimpleNamespace(getsockname=lambda: ("::", 9092))])

    async def main() -> None:
        loop = SimpleNamespace(create_server=create_server)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
        listener = Harness(socket_listen_backlog_size="7").listener
        assert await listener.bind("", 0) == 9092

    with pytest.raises(StopIteration):
        main().send(None)
    (options,) = asked
    assert (options["host"], options["port"]) == (None, 0)
    assert (options["backlog"], options["start_serving"]) == (7, False)


class PlayedServer:
    """An address that was taken."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def start_serving(self) -> None:
        self.events.append("serves")

    def close(self) -> None:
        self.events.append("closed")


def test_all_addresses_are_served_and_given_up() -> None:
    listener = Harness().listener
    servers = [PlayedServer() for _ in range(3)]
    for server in servers:
        listener.adopt(server)  # type: ignore[arg-type]
    asyncio.run(listener.serve())
    assert [server.events for server in servers] == [["serves"]] * 3
    listener.stop_accepting()
    assert [server.events for server in servers] == [["serves", "closed"]] * 3


def test_one_address_does_not_take_all_connections() -> None:
    harness = Harness(max_connections_per_ip="1")
    first, _ = harness.connect("10.0.0.1")
    assert harness.connect("10.0.0.1")[1].is_aborted
    assert not harness.connect("10.0.0.2")[1].is_aborted
    lose(first)
    assert not harness.connect("10.0.0.1")[1].is_aborted


def test_single_addresses_have_limits_of_their_own() -> None:
    harness = Harness(
        max_connections_per_ip="1",
        max_connections_per_ip_overrides="10.0.0.2 : 2, [2001:DB8:0::1]:0,10.0.0.3:0,10.0.0.3:1",
    )
    may_connect = {"10.0.0.1": 1, "10.0.0.2": 2, "2001:db8::1": 0, "10.0.0.3": 1}
    for host, count in may_connect.items():
        taken = [not harness.connect(host)[1].is_aborted for _ in range(3)]
        assert taken == [index < count for index in range(3)], host


def test_idle_connections_are_closed_and_busy_ones_stay() -> None:
    harness = Harness(connections_max_idle_ms="20000")
    idle, idle_transport = harness.connect()
    busy, busy_transport = harness.connect()
    request = struct.pack(">hhih", 18, 0, 1, -1)
    for _ in range(4):
        harness.pass_time(10_000)
        feed(busy, frame(request))
    assert idle_transport.is_closed
    assert not busy_transport.is_closed
    lose(idle)
    assert len(harness.listener.connections) == 1


def test_idle_connections_may_stay_for_ever() -> None:
    harness = Harness(connections_max_idle_ms="-1")
    _, transport = harness.connect()
    harness.pass_time(3_600_000)
    assert not transport.is_closed


def test_who_waits_for_an_answer_is_not_idle() -> None:
    harness = Harness(connections_max_idle_ms="5000")
    harness.broker.create_topic("orders")
    connection, transport = harness.connect()
    assert connection.info is not None
    connection._outgoing.slots.append(object())  # type: ignore[arg-type]
    harness.pass_time(60_000)
    assert not transport.is_closed
    connection._outgoing.slots.clear()
    harness.pass_time(10_000)
    assert transport.is_closed


def test_who_takes_nothing_of_its_answers_is_closed_and_who_is_slow_is_not() -> None:
    harness = Harness(connections_max_idle_ms="20000")
    stuck, stuck_transport = harness.connect()
    slow, slow_transport = harness.connect()
    for connection, transport in ((stuck, stuck_transport), (slow, slow_transport)):
        transport.unsent = 900_000
        connection.pause_writing()
        # What it sent before it stopped to read waits, too.
        connection._received.keep_backlog(memoryview(bytes(9)))
    for _ in range(6):
        harness.pass_time(10_000)
        slow_transport.unsent -= 1_000
        # Answers that become ready are not its doing.
        stuck_transport.unsent += 1_000
    assert stuck_transport.is_closed
    assert not slow_transport.is_closed
    assert harness.reasons() == ["has taken nothing of its answers for 20000 ms"]
    harness.pass_time(40_000)
    assert slow_transport.is_closed


def test_half_a_frame_has_its_whole_time_once_it_is_read_again() -> None:
    harness = Harness()
    connection, transport = harness.connect()
    feed(connection, struct.pack(">i", 100))
    connection.pause_writing()
    harness.pass_time(2 * FRAME_DEADLINE_MS)
    connection.resume_writing()
    harness.pass_time(FRAME_DEADLINE_MS - SWEEP_INTERVAL_MS)
    assert not transport.is_closed
    harness.pass_time(3 * SWEEP_INTERVAL_MS)
    assert transport.is_closed


def test_an_answer_that_came_late_may_be_taken_late() -> None:
    harness = Harness(connections_max_idle_ms="20000")
    connection, transport = harness.connect()
    connection._outgoing.slots.append(object())  # type: ignore[arg-type]
    harness.pass_time(60_000)
    connection._outgoing.slots.clear()
    transport.unsent = 900_000
    connection.pause_writing()
    harness.pass_time(15_000)
    assert not transport.is_closed
    harness.pass_time(15_000)
    assert transport.is_closed


def test_who_has_taken_all_of_its_answers_may_take_the_next_late_again() -> None:
    harness = Harness(connections_max_idle_ms="20000")
    connection, transport = harness.connect()
    connection._outgoing.slots.append(object())  # type: ignore[arg-type]
    transport.unsent = 300_000
    connection.pause_writing()
    harness.pass_time(10_000)
    transport.unsent = 0
    connection.resume_writing()
    harness.pass_time(60_000)
    connection._outgoing.slots.clear()
    # More than at the last look does not mean that it took nothing since.
    transport.unsent = 900_000
    connection.pause_writing()
    harness.pass_time(15_000)
    assert not transport.is_closed
    harness.pass_time(15_000)
    assert transport.is_closed


@pytest.mark.parametrize("size", [100, 10_000_000])
def test_half_a_frame_has_a_deadline_that_grows_with_its_size(size: int) -> None:
    harness = Harness()
    connection, transport = harness.connect()
    feed(connection, struct.pack(">i", size))
    allowed_ms = FRAME_DEADLINE_MS + size // FRAME_BYTES_PER_MS_MIN
    harness.pass_time(allowed_ms - 1000)
    feed(connection, b"x")
    assert not transport.is_closed
    harness.pass_time(1000 + 2 * SWEEP_INTERVAL_MS)
    assert transport.is_closed
    assert f"5 of {size + 4} bytes" in harness.reasons()[0]


def test_a_connection_that_does_not_take_its_last_bytes_is_aborted() -> None:
    harness = Harness()
    connection, transport = harness.connect()
    connection.close("because")
    harness.pass_time(CLOSE_DEADLINE_MS)
    assert not transport.is_aborted
    harness.pass_time(2 * SWEEP_INTERVAL_MS)
    assert transport.is_aborted


def test_log_lines_about_closed_connections_are_bounded_and_the_rest_counted() -> None:
    harness = Harness()
    for _ in range(CLOSE_LOGS_PER_SECOND_MAX + 7):
        harness.connect()[0].close("hostile")
    assert len(harness.reasons()) == CLOSE_LOGS_PER_SECOND_MAX
    harness.clock.ms += 1000
    harness.connect()[0].close("hostile")
    assert len(harness.reasons()) == CLOSE_LOGS_PER_SECOND_MAX + 1
    harness.clock.ms += 1000
    harness.connect()[0].close("hostile")
    assert len(harness.reasons()) == CLOSE_LOGS_PER_SECOND_MAX + 2
    suppressed = [
        fields["count"]
        for _, event, fields in harness.broker.log.events
        if event == "connection_closed_logs_suppressed"
    ]
    assert suppressed == [7]
    assert harness.listener.closed_for_cause_count == CLOSE_LOGS_PER_SECOND_MAX + 9


def test_half_frames_of_strangers_leave_room_for_those_of_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_module, "STRANGERS_BYTES_MAX", 3 * FRAME_BUFFER_BYTES_MIN)
    harness = Harness(settings=STRANGERS)
    half = struct.pack(">i", 50_000) + b"x"
    user, users_transport = harness.connect()
    transports = []
    for _ in range(4):
        stranger, transport = harness.connect()
        feed(stranger, half)
        transports.append(transport)
    assert [transport.is_closed for transport in transports] == [False, False, False, True]
    assert harness.listener.memory.budget.of("default").used == 0
    assert user.info is not None
    user.info.authenticate(ANONYMOUS)
    feed(user, half)
    assert not users_transport.is_closed
    assert harness.listener.memory.budget.of("default").used == FRAME_BUFFER_BYTES_MIN
    assert harness.listener.connections_budget.of("default").used == 1


def test_strangers_do_not_hide_a_login_that_is_guessed_nor_a_user() -> None:
    harness = Harness(settings=STRANGERS)
    for _ in range(CLOSE_LOGS_PER_SECOND_MAX + 7):
        harness.connect()[0].close("hostile")
    for _ in range(CLOSE_LOGS_PER_SECOND_MAX + 3):
        guessing, _transport = harness.connect()
        assert guessing.info is not None
        guessing.info.sasl = object()
        guessing.close("guessed")
    user, _transport = harness.connect()
    assert user.info is not None
    user.info.authenticate(ANONYMOUS)
    user.info.client_software_name = "x" * 10_000
    user.close("for a cause")
    counts = Counter(harness.reasons())
    assert counts["hostile"] == counts["guessed"] == CLOSE_LOGS_PER_SECOND_MAX
    assert counts["for a cause"] == 1
    logged = [fields for _, event, fields in harness.broker.log.events if "closed" in event]
    assert len(logged[-1]["client_software"]) == SOFTWARE_CHARACTERS_MAX
    harness.clock.ms += 1_000
    harness.connect()[0].close("hostile")
    told = [
        (fields["of"], fields["count"])
        for _, event, fields in harness.broker.log.events
        if event == "connection_closed_logs_suppressed"
    ]
    assert told == [("strangers", 7), ("logins", 3)]


STRANGERS = listener_settings("USERS", SecurityProtocol.SASL_PLAINTEXT, ("PLAIN",))


def test_strangers_have_time_until_they_must_have_authenticated() -> None:
    harness = Harness(settings=STRANGERS)
    friend, friends_transport = harness.connect()
    stranger, strangers_transport = harness.connect()
    assert friend.info is not None
    assert friend.info.sasl_mechanisms == ("PLAIN",)
    friend.info.authenticate(ANONYMOUS)
    assert harness.listener.strangers_count == 1
    harness.pass_time(AUTHENTICATION_MS_MAX)
    assert not strangers_transport.is_closed
    # Whose session has ended is no stranger: it may authenticate anew while it is not idle.
    friend.info.gate.expire()
    harness.pass_time(SWEEP_INTERVAL_MS + 1000)
    assert strangers_transport.is_closed
    assert not friends_transport.is_closed
    lose(stranger)
    assert harness.listener.strangers_count == 0


def test_the_oldest_of_too_many_strangers_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "STRANGERS_MAX", 3)
    harness = Harness(settings=STRANGERS)
    transports = [harness.connect()[1] for _ in range(3)]
    friend, friends_transport = harness.connect()
    assert [transport.is_closed for transport in transports] == [True, False, False]
    assert friend.info is not None
    friend.info.authenticate(ANONYMOUS)
    for _ in range(4):
        transports.append(harness.connect()[1])
    assert [transport.is_closed for transport in transports] == [True] * 4 + [False] * 3
    assert not friends_transport.is_closed
    assert "too many connections are not authenticated" in harness.reasons()


@pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES or "available")
@pytest.mark.parametrize("protocol", [SecurityProtocol.SSL, SecurityProtocol.SASL_SSL])
def test_half_a_tls_handshake_is_a_stranger_with_little_time(
    tmp_path: Path, protocol: SecurityProtocol
) -> None:
    """Unless it waits for the broker: then as long as any stranger has."""
    keystore = Authority(tmp_path / "authority").keystore("broker")
    context = make_context(ListenerTls(keystore=str(keystore)), ())
    harness = Harness(settings=listener_settings("USERS", protocol, ("PLAIN",)))
    services = harness.broker.services
    services.authentication = Authentication(services, harness.clock.now_ms)
    _, silent = harness.connect_tls(context)
    _, another = harness.connect_tls(context)
    budget = services.authentication.budget
    for _ in range(BURST):
        budget.begin("10.0.0.9", lambda: True, lambda: None, harness.clock.ms)
    waits, waiting_transport = harness.connect_tls(context)
    feed_raw(waits, b"\x16\x03\x01")
    assert not waiting_transport.is_reading_now, "it waits for its turn"
    assert harness.listener.strangers_count == 3
    harness.pass_time(TLS_HANDSHAKE_MS_MAX)
    assert not silent.is_closed
    harness.pass_time(2 * SWEEP_INTERVAL_MS)
    assert (silent.is_closed, another.is_closed) == (True, True)
    assert not waiting_transport.is_closed
    assert all("half a TLS handshake" in reason for reason in harness.reasons())
    harness.pass_time(AUTHENTICATION_MS_MAX)
    assert waiting_transport.is_closed


def feed_raw(tls: TlsConnection, data: bytes) -> None:
    tls.get_buffer(-1)[: len(data)] = data
    tls.buffer_updated(len(data))


def test_strangers_keep_nobody_out() -> None:
    """Whatever limit is reached first."""
    harness = Harness(settings=STRANGERS, max_connections="3")
    transports = [harness.connect()[1] for _ in range(3)]
    friend, friends_transport = harness.connect()
    assert friend.info is not None
    friend.info.authenticate(ANONYMOUS)
    assert [transport.is_closed for transport in transports] == [True, False, False]
    for _ in range(5):
        harness.connect()
    assert not friends_transport.is_closed
    assert "too many connections are not authenticated" in harness.reasons()
    assert "max.connections is reached" not in harness.reasons()


def test_requests_of_strangers_are_small() -> None:
    harness = Harness(settings=STRANGERS, sasl_server_max_receive_size="2000")
    _, transport = connected = harness.connect()
    feed(connected[0], struct.pack(">i", 2001))
    assert transport.is_closed
    friend, friends_transport = harness.connect()
    assert friend.info is not None
    feed(friend, struct.pack(">i", 2000))
    assert not friends_transport.is_closed
    friend, friends_transport = harness.connect()
    assert friend.info is not None
    friend.info.authenticate(ANONYMOUS)
    feed(friend, struct.pack(">i", 2001))
    assert not friends_transport.is_closed
