"""Network namespaces of one test: a bridge here, and for each broker a namespace with its address.

    with Network(3) as network:
        network.address(1)              # 10.x.y.1, as seen by everybody
        network.prefix(1)               # a command's prefix that runs it in there
        network.cut(1, 2)               # packets between the two are thrown away, both ways
        network.cut(1, 2, both_ways=False)   # only those from 1 to 2
        network.slow_down(1, kbit_per_s=500)
        network.heal()

The host itself is node 0: clients and the database are there. Packets are thrown away by iptables
inside the receiver's namespace, so that nobody outside of the test notices; a slow link is a token
bucket (tbf) on what a node sends. Needs root; `why_unavailable` says what is missing.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import sys
from types import TracebackType

HOST = 0
PROGRAMS = ("ip", "iptables", "tc")


@functools.cache
def why_unavailable() -> str:
    """Why there can be no namespaces here, in a few words; "" when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} on this machine"
    name = f"tw-probe-{secrets.token_hex(3)}"
    if not _try("ip", "netns", "add", name):
        return "this machine allows no network namespaces"
    try:
        if not _try("ip", "netns", "exec", name, "iptables", "-A", "INPUT", "-j", "ACCEPT"):
            return "iptables does not work in a network namespace here"
    finally:
        _run("ip", "netns", "del", name)
    return ""


class Network:
    """Namespaces 1 … count on one bridge. See the module's text."""

    def __init__(self, count: int) -> None:
        self._tag = secrets.token_hex(3)
        self._subnet = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}"
        self._nodes = range(1, count + 1)
        self._slow: set[int] = set()

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, node: int) -> str:
        """The IPv4 address of a node; node 0 is the host."""
        return f"{self._subnet}.{node if node != HOST else 254}"

    def prefix(self, node: int) -> tuple[str, ...]:
        """What to put before a command to run it in the node's namespace (under the same pid)."""
        return ("ip", "netns", "exec", self._name(node))

    def cut(self, one: int, other: int, *, both_ways: bool = True) -> None:
        """Throw away packets from `one` to `other`, and the other way round."""
        self._throw_away(one, other)
        if both_ways:
            self._throw_away(other, one)

    def isolate(self, node: int) -> None:
        """Cut a node off from everybody."""
        for other in (HOST, *self._nodes):
            if other != node:
                self.cut(node, other)

    def slow_down(self, node: int, kbit_per_s: int) -> None:
        """Limit what a node sends."""
        limit = ("rate", f"{kbit_per_s}kbit", "burst", "32kbit", "latency", "500ms")
        self._inside(node, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limit)
        self._slow.add(node)

    def heal(self) -> None:
        """All packets pass, at full speed."""
        for node in self._nodes:
            for chain in ("INPUT", "OUTPUT"):
                self._inside(node, "iptables", "-F", chain)
        for node in self._slow:
            self._inside(node, "tc", "qdisc", "del", "dev", "eth0", "root")
        self._slow.clear()

    def _throw_away(self, source: int, target: int) -> None:
        if target != HOST:
            self._inside(
                target, "iptables", "-A", "INPUT", "-s", self.address(source), "-j", "DROP"
            )
        else:
            self._inside(source, "iptables", "-A", "OUTPUT", "-d", self.address(HOST), "-j", "DROP")

    def _name(self, node: int) -> str:
        return f"tw-{self._tag}-{node}"

    def _bridge(self) -> str:
        return f"tw-{self._tag}"

    def _make(self) -> None:
        bridge = self._bridge()
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.address(HOST)}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for node in self._nodes:
            name, outside = self._name(node), f"tw{self._tag}v{node}"
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "eth0", "netns", name)
            _run("ip", "link", "set", outside, "master", bridge, "up")
            self._inside(node, "ip", "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            self._inside(node, "ip", "link", "set", "eth0", "up")
            self._inside(node, "ip", "link", "set", "lo", "up")

    def _remove(self) -> None:
        for node in self._nodes:
            _try("ip", "netns", "del", self._name(node))
        _try("ip", "link", "del", self._bridge())

    def _inside(self, node: int, *command: str) -> None:
        _run(*self.prefix(node), *command)


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr.strip()}"


def _try(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def can_connect(network: Network, one: int, other: int) -> bool:
    """Whether a TCP connection from one node to another comes about within half a second."""
    server = subprocess.Popen(
        [*network.prefix(other), sys.executable, "-c", _ACCEPT, network.address(other)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        client = [*network.prefix(one), sys.executable, "-c", _CONNECT]
        try:
            return _try(*client, network.address(other), port)
        finally:
            server.kill()


_ACCEPT = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
server.accept()
"""
_CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5)
"""
