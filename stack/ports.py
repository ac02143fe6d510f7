"""Loopback ports: is one free, and which one to take for what.

A stack on BASE has its brokers on BASE, BASE + 1, …; a broker's metrics stand 1,000 above its own
port and its inter-broker listener 2,000 above it, Postgres 3,000 above BASE: as long as those are
free, else anywhere.

A port found free may be taken a moment later by somebody else; the broker then says so itself.
These checks come first because their message can name the option that helps.
"""

from __future__ import annotations

import errno
import socket

from stack.errors import StackError

PORT_MAX = 65_535
METRICS_PORT_DISTANCE = 1000
INTER_BROKER_PORT_DISTANCE = 2000
POSTGRES_PORT_DISTANCE = 3000


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a server that has just stopped do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def broker_ports(base: int, count: int) -> list[int]:
    """The ports of `count` brokers from `base` on (0: each chooses). Raises StackError."""
    if base == 0:
        return [0] * count
    ports = list(range(base, base + count))
    if not 0 < base <= PORT_MAX - count + 1:
        raise StackError(f"--port {base} is not a port number (0 to {PORT_MAX}).", 2)
    taken = [str(port) for port in ports if not is_free(port)]
    if taken:
        raise StackError(
            f"Port {', '.join(taken)} is in use by another program. Choose another one with "
            f"--port, for example --port {_suggest(base, count)}, or --port 0 for any."
        )
    return ports


def _suggest(base: int, count: int) -> int:
    for candidate in range(base + 100, PORT_MAX - count, 100):
        if all(is_free(port) for port in range(candidate, candidate + count)):
            return candidate
    return 0


def port_beside(port: int, distance: int) -> int:
    """The port `distance` above `port`; 0 (any) when that one is taken or `port` is 0."""
    usual = port + distance
    return usual if port and usual <= PORT_MAX and is_free(usual) else 0
