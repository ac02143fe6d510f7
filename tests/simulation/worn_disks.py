"""WORN DISKS, a part of the fault model (faults.py): what is read fails, and descriptors run out.

- worn: one read, look or change of one kind of file fails with EIO: a segment's, an index's, a
  snapshot's, a folder's. If that takes the directory offline, the broker is started anew later.
- no descriptors: for a while nothing can be opened or listed (EMFILE). That says nothing about the
  disk: when it is over, everything has to go on as if it had not been.

In these cells a broker keeps hardly any segment open, so that what it looks into it has to open,
and its indexes it has to read. `JobWatch` holds maintenance to this: whatever has failed, a job is
in flight only as long as a thread has it, or one waits for its outcome; otherwise that kind of work
would never be done again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from data_plane.log.sim_file_system import Fault
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

OPEN_SEGMENTS_MAX = 3
INTERVAL_MS = 400
REPLACED_MS_MAX = 1500
SCARCE_MS_MAX = 400
WORN_CHANCE = 0.5
OPERATIONS = ("read", "read", "open", "list", "stat", "unlink", "rename")
FILES = (".index", ".timeindex", ".log", ".snapshot", "Partition-", "Partition-")
# So many matching operations go well before one fails.
SKIP_MAX = 6


class WornDisks:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("worn disks")

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 20
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._cell.faults.is_on:
            return
        nodes = [one for one in self._cell.nodes.values() if one.is_up and not one.is_paused]
        if nodes:
            node = self._random.choice(nodes)
            if self._random.random() < WORN_CHANCE:
                self._wear(node)
            else:
                self._take_descriptors(node)
        self._next()

    def _wear(self, node: Node) -> None:
        operation = self._random.choice(OPERATIONS)
        part = self._random.choice(FILES)
        if operation == "list":
            part = "Partition-"
        self._world.count("worn disks")
        self._world.note(node.name, f"will fail to {operation} {part}")
        skip = self._random.randrange(SKIP_MAX)
        node.fs.faults.append(Fault(operation, part, errno.EIO, skip=skip))
        delay_ms = self._random.randint(100, REPLACED_MS_MAX)
        self._world.at(delay_ms * US_PER_MS, self._replace, node, node.life)

    def _replace(self, node: Node, life: int) -> None:
        """Somebody looks after a broker that has given its disk up."""
        if not self._cell.faults.is_on:
            return
        node.fs.faults.clear()
        if node.life == life and node.is_on and self._cell.has_failed_disk(node):
            self._world.count("worn disks given up")
            node.die(keeps_page_cache=True)
            node.start()

    def _take_descriptors(self, node: Node) -> None:
        self._world.count("wants of descriptors")
        self._world.note(node.name, "has no descriptors left")
        faults = [
            Fault(operation, "", errno.EMFILE, is_lasting=True) for operation in ("open", "list")
        ]
        node.fs.faults += faults
        delay_ms = self._random.randint(20, SCARCE_MS_MAX)
        self._world.at(delay_ms * US_PER_MS, self._give_back, node, faults)

    def _give_back(self, node: Node, faults: list[Fault]) -> None:
        self._world.note(node.name, "has descriptors again")
        node.fs.faults[:] = [one for one in node.fs.faults if one not in faults]


class JobWatch:
    """Whether maintenance still has all its jobs. See the module."""

    def __init__(self, cell: Cell) -> None:
        self._world = cell.world

    def look(self, node: Node) -> None:
        """At the end of a pass."""
        services = node.services
        if services is None:
            return
        in_flight = services.logs._maintenance._in_flight
        if in_flight and not node.is_stopping and not node.maintenance_count:
            lost = sorted(kind for kind, _ in in_flight)
            self._world.violate(f"{node.name} has lost jobs of maintenance: {lost}")
