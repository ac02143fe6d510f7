"""Loopback ports: is one free, and which one to take for metrics.

A port found free may be taken a moment later by somebody else; the broker then says so itself.
These checks come first because their message can name the option that helps.
"""

from __future__ import annotations

import errno
import socket

from stack.errors import StackError

PORT_MAX = 65_535
METRICS_PORT_DISTANCE = 1000
"""A broker's metrics stand this far above its own port, if that port is free."""


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


def metrics_port(port: int) -> int:
    """A port for the metrics beside `port`; 0 (any) when the usual one is taken."""
    usual = port + METRICS_PORT_DISTANCE
    return usual if port and usual <= PORT_MAX and is_free(usual) else 0
