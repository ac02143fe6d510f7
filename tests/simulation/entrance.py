"""A broker's way into its cell: processes that try, until one of them is a member.

As the server does it (server/broker_process.py): a process that the store does not answer waits and
tries again under the same incarnation id, with what it has seen of the store; any other error ends
it, and somebody starts the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from data_plane.cell.metadata_store import StoreError, StoreUnavailable
from data_plane.log.errors import LogError
from data_plane.log.sim_file_system import PowerLoss
from data_plane.server.entry import (
    Addresses,
    Entry,
    NodeIdTaken,
    enter_cell,
    new_incarnation_id,
)
from data_plane.server.ports import Ports
from tests.simulation.client import CLIENT_PORT, INTER_BROKER_PORT
from tests.simulation.fiber import Fiber

if TYPE_CHECKING:
    from tests.simulation.node import Node

# How long it takes until somebody tries again.
RETRY_US = 200_000
# What may go wrong at a start. NodeIdTaken: a heartbeat of the former life that comes late looks
# like somebody else's.
EXPECTED = (StoreError, LogError, PowerLoss, NodeIdTaken, OSError)


class Entrance:
    """Of one life of a node. `on_entered` gets the process's ports and what it has entered with."""

    def __init__(
        self,
        node: Node,
        make_ports: Callable[[Random], Ports],
        on_entered: Callable[[Ports, Entry], None],
    ) -> None:
        self._node = node
        self._make_ports = make_ports
        self._on_entered = on_entered
        self._processes_count = 0
        self._fiber: Fiber | None = None

    def begin(self) -> None:
        """Start the first process, or the next one."""
        node = self._node
        number = "" if not self._processes_count else f"/{self._processes_count + 1}"
        self._processes_count += 1
        ports = self._make_ports(node.world.stream(f"{node.name}/{node.life}{number}"))
        self._try(ports, new_incarnation_id(ports))

    def _try(self, ports: Ports, incarnation_id: str) -> None:
        node = self._node
        addresses = Addresses(node.name, CLIENT_PORT, node.name, INTER_BROKER_PORT)

        def ended(entry: Entry | None, error: BaseException | None) -> None:
            self._fiber = None
            if entry is not None:
                self._on_entered(ports, entry)
                return
            node.note(f"cannot start: {error!r}")
            if not isinstance(error, EXPECTED):
                node.cell.suspect(f"{node.name} cannot start: {error!r}")
            if isinstance(error, StoreUnavailable):
                node.world.count("starts that wait for the store")
                node.at(RETRY_US, self._try, ports, incarnation_id)
            else:
                node.at(RETRY_US, self.begin)

        self._fiber = Fiber(
            lambda: enter_cell(node.settings, ports, addresses, incarnation_id), self._sleep, ended
        )
        self._fiber.resume()

    def _sleep(self, us: int) -> None:
        assert self._fiber is not None
        self._node.at(us, self._fiber.resume)

    def block(self, us: int) -> bool:
        """Let the code that enters wait for so long; False where it is not that which asks."""
        if self._fiber is None or not self._fiber.is_running_here():
            return False
        self._fiber.sleep(us)
        return True

    def end(self) -> None:
        """The process is gone."""
        if self._fiber is not None:
            self._fiber.kill()
            self._fiber = None
