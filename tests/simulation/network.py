"""The simulated network: connections between named hosts that carry whole frames.

What it does to them
- Each frame takes its own time; those of one direction of one connection stay in order, as TCP
  keeps them, those of different connections overtake each other.
- A cut (one-way or two-way) holds what is under way. After healing it arrives, late, as TCP's
  retransmissions do, unless somebody has given the connection up meanwhile.
- A connection may break at any time: what is under way in either direction is lost, and both ends
  learn of it, each at its own time. Whether the other end has acted on a lost request is open.
- A process that dies resets its connections (behind what it had sent); a machine that loses power
  says nothing until it is back.
- One direction of one connection may hang for itself, while others between the same hosts go on: a
  packet was lost, and is sent again with longer and longer pauses.

Duplicates come from above: a client that gave up waiting sends again over another connection, and
the first request may still arrive. Deliberately absent: half frames and back-pressure, which are
the server's (tests/server).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from data_plane.cell.metadata import MetadataImage
from tests.simulation.world import World

DELAY_US_MIN = 50
DELAY_US_MEAN = 300
SLOW_DELAY_US = 40_000
# Frames that hit congestion take much longer.
SLOW_CHANCE = 0.01


class Acceptor(Protocol):
    """A host that takes connections."""

    def accept(self, end: End, port: int) -> bool:
        """Take a connection by setting `end.on_frame` and `end.on_close`; False refuses it."""


class End:
    """One end of a connection."""

    __slots__ = (
        "connection",
        "host",
        "is_open",
        "on_close",
        "on_frame",
        "other",
        "pipe",
        "sent_by",
    )

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_open = True
        self.on_frame: Callable[[bytes], None] = _ignore_frame
        self.on_close: Callable[[], None] = _ignore_close
        self.other: End = self
        self.connection: Connection | None = None
        self.pipe = _Pipe()
        # Of a client that asks for it: by which image each frame on its way here was sent.
        self.sent_by: deque[MetadataImage] | None = None

    def send(self, frame: bytes) -> None:
        """Send a frame to the other end; nothing happens when the connection is gone."""
        if self.connection is not None and self.is_open:
            self.connection.send(self, frame)

    def close(self) -> None:
        """Close from this end; the other learns of it behind what was sent."""
        if self.connection is not None and self.is_open:
            self.is_open = False
            self.connection.send(self, None)

    def vanish(self) -> None:
        """This end is gone without a word."""
        self.is_open = False


def _ignore_frame(frame: bytes) -> None:
    """Nobody listens yet."""


def _ignore_close() -> None:
    """Nobody listens yet."""


class _Pipe:
    """One direction: frames under way, in order. None is the end of the connection."""

    __slots__ = ("arrival_us", "frames", "is_moving")

    def __init__(self) -> None:
        self.frames: deque[tuple[int, bytes | None]] = deque()
        self.arrival_us = 0
        self.is_moving = False


class Connection:
    """Two ends and two pipes."""

    __slots__ = ("_network", "client", "is_broken", "server")

    def __init__(self, network: Network, client: str, server: str) -> None:
        self._network = network
        self.is_broken = False
        self.client = End(client)
        self.server = End(server)
        self.client.other = self.server
        self.server.other = self.client
        self.client.connection = self.server.connection = self

    def send(self, end: End, frame: bytes | None) -> None:
        if self.is_broken:
            return
        pipe = end.pipe
        arrival_us = self._network.arrival_us(end.host, end.other.host)
        pipe.arrival_us = max(arrival_us, pipe.arrival_us)
        pipe.frames.append((pipe.arrival_us, frame))
        self._move(end)

    def _move(self, end: End) -> None:
        pipe = end.pipe
        if pipe.is_moving or not pipe.frames:
            return
        pipe.is_moving = True
        world = self._network.world
        world.at(pipe.frames[0][0] - world.now_us, self.arrive, end)

    def arrive(self, end: End) -> None:
        """The first frame of the pipe gets to the other end, or waits behind a cut."""
        pipe = end.pipe
        pipe.is_moving = False
        if not pipe.frames:
            return
        if self._network.is_cut(end.host, end.other.host) or self._network.hangs(end):
            self._network.hold(self, end)
            return
        _, frame = pipe.frames.popleft()
        other = end.other
        if frame is None:
            pipe.frames.clear()
            if other.is_open:
                other.is_open = False
                other.on_close()
            return
        if other.is_open:
            self._network.world.saw(frame)
            other.on_frame(frame)
        elif end.is_open and not self._network.is_silent(other.host):
            # Nobody is there: a reset comes back.
            self._network.reset(self, end)
        self._move(end)

    def resume(self, end: End) -> None:
        """The cut is healed; what was held goes on with a new delay."""
        pipe = end.pipe
        if pipe.frames:
            arrival_us = self._network.arrival_us(end.host, end.other.host)
            pipe.arrival_us = max(pipe.arrival_us, arrival_us)
            pipe.frames[0] = (arrival_us, pipe.frames[0][1])
            self._move(end)

    def close_end(self, end: End) -> None:
        """That end learns that the connection is gone."""
        end.pipe.frames.clear()
        if end.is_open:
            end.is_open = False
            end.on_close()


class Network:
    """All hosts, connections and cuts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.stream("network")
        self._acceptors: dict[str, Acceptor] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._held: list[tuple[Connection, End]] = []
        self._hanging: dict[End, None] = {}
        self._silent: dict[str, None] = {}
        self.connections: dict[Connection, None] = {}
        self.delay_factor = 1.0

    def listen(self, host: str, acceptor: Acceptor) -> None:
        self._acceptors[host] = acceptor

    def connect(self, client: str, server: str, port: int) -> End:
        """Open a connection; returns the client's end. A refused one is closed after a while."""
        self._sweep()
        connection = Connection(self, client, server)
        self.connections[connection] = None
        acceptor = self._acceptors.get(server)
        is_accepted = (
            acceptor is not None
            and not self.is_cut(client, server)
            and not self.is_cut(server, client)
            and not self.is_silent(server)
            and acceptor.accept(connection.server, port)
        )
        if not is_accepted:
            connection.server.vanish()
            self.reset(connection, connection.client)
        return connection.client

    def _sweep(self) -> None:
        # Connections are few; the closed ones go when there are as many again.
        if len(self.connections) > 256:
            for connection in list(self.connections):
                if not connection.client.is_open and not connection.server.is_open:
                    del self.connections[connection]

    def arrival_us(self, source: str, target: str) -> int:
        rng = self._random
        if rng.random() < SLOW_CHANCE:
            delay = rng.random() * SLOW_DELAY_US
        else:
            delay = DELAY_US_MIN + rng.expovariate(1.0 / DELAY_US_MEAN)
        return self.world.now_us + int(delay * self.delay_factor)

    def reset(self, connection: Connection, end: End) -> None:
        """`end` learns after a while that nobody is there."""
        delay_us = self.arrival_us(end.other.host, end.host) - self.world.now_us
        self.world.at(delay_us, connection.close_end, end)

    # Faults

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def is_silent(self, host: str) -> bool:
        """Whether the machine is off: nothing comes back from it, not even a reset."""
        return host in self._silent

    @property
    def has_cuts(self) -> bool:
        return bool(self._cuts)

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more."""
        self._cuts[(source, target)] = None

    def hangs(self, end: End) -> bool:
        """Whether what this end sends gets nowhere."""
        return end in self._hanging

    def hang(self, source: str, target: str) -> list[End]:
        """What `source` has sent to `target` on the connections it has opened, and what it sends
        there, waits for the healing. Those opened later are well. Returns its ends of them."""
        ends = [
            one.client
            for one in self.connections
            if one.client.host == source and one.server.host == target and one.server.is_open
        ]
        self._hanging.update(dict.fromkeys(ends))
        return ends

    def heal(self) -> None:
        """Take all cuts away."""
        self._cuts.clear()
        self._hanging.clear()
        self._release()

    def join(self, one: str, other: str) -> None:
        """Take away what is cut, or hangs, between these two."""
        pair = {one, other}
        self._cuts.pop((one, other), None)
        self._cuts.pop((other, one), None)
        for end in [end for end in self._hanging if {end.host, end.other.host} == pair]:
            del self._hanging[end]
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for connection, end in held:
            connection.resume(end)

    def hold(self, connection: Connection, end: End) -> None:
        self._held.append((connection, end))

    def break_one(self, rng_value: float) -> None:
        """Break one of the open connections: what is under way in both directions is lost."""
        open_ones = [one for one in self.connections if one.client.is_open and one.server.is_open]
        if open_ones:
            connection = open_ones[int(rng_value * len(open_ones))]
            self.world.count("broken connections")
            connection.is_broken = True
            for end in (connection.client, connection.server):
                end.pipe.frames.clear()
                self.reset(connection, end)

    def host_gone(self, host: str, *, says_so: bool) -> None:
        """A process died (its connections are reset), or its machine did (nobody is told yet)."""
        if not says_so:
            self._silent[host] = None
        for connection in list(self.connections):
            for end in (connection.client, connection.server):
                if end.host == host:
                    if says_so:
                        end.close()
                    end.vanish()

    def host_back(self, host: str) -> None:
        """A machine is up again and resets what its last life had open."""
        self._silent.pop(host, None)
        for connection in list(self.connections):
            for end in (connection.client, connection.server):
                is_left = end.host == host and not end.is_open and end.other.is_open
                if is_left and end not in self._hanging:
                    self.reset(connection, end.other)
