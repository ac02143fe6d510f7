"""Loopback ports: is one free, and which one to take for what.

A stack on BASE has its brokers on BASE, BASE + 1, …; a broker's metrics stand 1,000 above its own
port and its inter-broker listener 2,000 above it, Postgres 3,000 above BASE, what it listens on
besides further above (listeners.py), the control plane and its Valkey 7,000 and 8,000 above BASE:
as long as those are free, else anywhere.

A port found free may be taken a moment later by somebody else; the broker then says so itself.
These checks come first because their message can name the option that helps.
"""

from __future__ import annotations

import errno
import itertools
import socket

from stack.errors import StackError

DEFAULT_PORT = 9092
PORT_MAX = 65_535
METRICS_PORT_DISTANCE = 1000
INTER_BROKER_PORT_DISTANCE = 2000
POSTGRES_PORT_DISTANCE = 3000
SASL_PORT_DISTANCE = 4000
TLS_PORT_DISTANCE = 5000
CELL_ADMIN_PORT_DISTANCE = 6000
CONTROL_PLANE_PORT_DISTANCE = 7000
VALKEY_PORT_DISTANCE = 8000
PORT_UNPRIVILEGED_MIN = 1024
BASE_STEP = 100


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    return _bind(port) == 0


def _bind(port: int) -> int:
    """0 when a server could have the port; else EADDRINUSE or EACCES."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a server that has just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return error.errno
            raise
    return 0


def any_free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def broker_ports(base: int, count: int) -> list[int]:
    """The ports of `count` brokers from `base` on (0: each chooses). Raises StackError."""
    if base == 0:
        return [0] * count
    ports = list(range(base, base + count))
    if not 0 < base <= PORT_MAX - count + 1:
        raise StackError(f"--port {base} is not a port number (0 to {PORT_MAX}).", 2)
    taken = [str(port) for port in ports if not is_free(port)]
    if taken:
        raise StackError(_why_taken(taken, base, count))
    return ports


def _why_taken(taken: list[str], base: int, count: int) -> str:
    which = f"Port {taken[0]} is" if len(taken) == 1 else f"Ports {', '.join(taken)} are"
    free = free_base(base, count)
    instead = "--port 0, for any" if free is None else f"--port {free}, or --port 0 for any"
    if not may_bind(int(taken[0])):
        return f"{which} for privileged users only. Choose another one: {instead}."
    return f"{which} in use by another program. Choose another one: {instead}."


def may_bind(port: int) -> bool:
    """Whether this user may listen on the port at all."""
    return _bind(port) != errno.EACCES


def stack_ports(base: int, count: int) -> list[int]:
    """All ports of a stack on `base`: of its brokers, what stands beside each, and Postgres."""
    distances = (0, METRICS_PORT_DISTANCE, INTER_BROKER_PORT_DISTANCE)
    brokers = [base + distance + i for distance in distances for i in range(count)]
    return [*brokers, base + POSTGRES_PORT_DISTANCE]


def free_base(base: int, count: int) -> int | None:
    """The first port from `base` on, in steps, of a stack that would find all its ports free; one
    below when there is none above, None when there is none at all."""
    above = range(base + BASE_STEP, PORT_MAX - POSTGRES_PORT_DISTANCE + 1, BASE_STEP)
    below = range(base - BASE_STEP, PORT_UNPRIVILEGED_MIN - 1, -BASE_STEP)
    for candidate in itertools.chain(above, below):
        ports = stack_ports(candidate, count)
        if min(ports) > 0 and max(ports) <= PORT_MAX and all(map(is_free, ports)):
            return candidate
    return None


def port_beside(port: int, distance: int) -> int:
    """The port `distance` above `port`; 0 (any) when that one is taken or `port` is 0."""
    usual = port + distance
    return usual if port and usual <= PORT_MAX and is_free(usual) else 0
