"""A connection without a network: a transport that remembers, a listener around a scripted
dispatcher. Bytes are fed as the event loop would, through get_buffer and buffer_updated."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

from data_plane.broker.authentication.handshake_budget import HandshakeBudget
from data_plane.broker.request.api import Buffer, ConnectionInfo, Deferred
from data_plane.broker.request.budget import Budget
from data_plane.broker.request.principal import ANONYMOUS
from data_plane.broker.request.request_gate import RequestGate
from data_plane.broker.request.timers import TimerQueue
from data_plane.broker.request.turns import Turns
from data_plane.server.connection import Connection
from data_plane.server.listener import PLAINTEXT_SETTINGS
from data_plane.server.loop_share import LoopShare
from data_plane.server.loop_watch import LoopWatch
from data_plane.server.receive_buffers import ReceiveMemory


class MemoryTransport(asyncio.Transport):
    """Takes everything at once; `unsent` can be set to play a client that does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_reading_now = True
        self.is_closed = False
        self.unsent = 0
        # What a transport calls while it is written to when it cannot send all.
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        self.sent += data
        self.on_write()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.sent += data
        self.on_write()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class FixedClock:
    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def now_ns(self) -> int:
        return self.now_ms() * 1_000_000


def watch_of(clock: FixedClock) -> LoopWatch:
    """Counts how long turns take, and says nothing of it."""
    nobody: Any = None
    return LoopWatch(nobody, held_ns=1 << 62, now_ns=clock.now_ns, processor_ns=clock.now_ns)


Script = Callable[[bytes], Sequence[Buffer] | Deferred[Any] | None]


class ScriptedDispatcher:
    """Answers by `script`, which gets the frame's bytes."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.frames: list[bytes] = []
        self.last_api_key = -1

    def dispatch(
        self, info: ConnectionInfo, buf: bytearray, position: int, end: int, now_ms: int
    ) -> Any:
        frame = bytes(buf[position:end])
        self.frames.append(frame)
        return self._script(frame)


class PlayedListener:
    """What a Connection uses of its listener."""

    def __init__(
        self,
        script: Script,
        frame_bytes_max: int = 10_000_000,
        *,
        is_authenticated: bool = True,
        clock: FixedClock | None = None,
    ) -> None:
        self._is_authenticated = is_authenticated
        self.memory = ReceiveMemory()
        self.log: Any = None
        self.timers = TimerQueue()
        self.clock = FixedClock() if clock is None else clock
        self.turns: Turns = watch_of(self.clock)
        self.dispatcher = ScriptedDispatcher(script)
        self.frame_bytes_max = frame_bytes_max
        self.strange_frame_bytes_max = frame_bytes_max
        self.bytes_in = 0
        self.bytes_out = 0
        self.unsent = Budget()
        self.connections_budget = Budget()
        self.reasons: list[str] = []
        self.closed: list[Connection] = []
        self.passes = 0
        self.soon: list[Callable[[], None]] = []
        self.share = LoopShare(self.turns, self.call_soon)
        self.handshakes = HandshakeBudget(self.timers.schedule)
        self.handshakes_count = 0
        self.failed_handshakes_count = 0

    def connection_opened(self, connection: Connection, transport: Any) -> ConnectionInfo:
        assert connection.join("default") is None
        gate = RequestGate(is_authenticated=self._is_authenticated)
        return ConnectionInfo(1, "peer:1", "tenants", "peer", 1, gate=gate)

    def connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)

    def log_close(self, info: ConnectionInfo, reason: str, *, is_expected: bool = False) -> None:
        self.reasons.append(reason)

    def no_longer_strange(self, connection: Connection) -> None:
        pass

    def begin_handshake(
        self,
        connection: Connection,
        is_wanted: Callable[[], bool],
        start: Callable[[], None],
        cost: int,
    ) -> bool:
        return self.handshakes.begin("peer", is_wanted, start, self.clock.now_ms(), cost)

    def secured(self, connection: Connection, tls: Any) -> None:
        assert connection.info is not None
        connection.info.authenticate(ANONYMOUS)

    def end_pass(self, now_ms: int) -> None:
        self.passes += 1

    def end_pass_soon(self) -> None:
        self.passes += 1

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def take_turn(self) -> None:
        """What the loop does in its next turn."""
        due, self.soon = self.soon, []
        for callback in due:
            callback()


def connect(listener: PlayedListener) -> tuple[Connection, MemoryTransport]:
    connection = Connection(listener, PLAINTEXT_SETTINGS)  # type: ignore[arg-type]
    transport = MemoryTransport()
    connection.connection_made(transport)
    return connection, transport


def feed(connection: Connection, data: bytes) -> None:
    """Deliver `data` as the loop would: as much as each buffer takes, while reading is on."""
    transport = connection.transport
    assert isinstance(transport, MemoryTransport)
    position = 0
    while position < len(data) and transport.is_reading_now and not transport.is_closed:
        view = connection.get_buffer(-1)
        assert len(view) > 0
        count = min(len(view), len(data) - position)
        view[:count] = data[position : position + count]
        connection.buffer_updated(count)
        position += count


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
