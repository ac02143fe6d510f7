"""STALLS, a part of the fault model (faults.py): a broker's loop is held for up to a second or two.

What holds it (a long piece of work, a full processor, a page that has to be read) does not hold the
threads beside it: syncs end, compactions run on, heartbeats are sent; their outcomes, requests and
timers pile up, and all come at once when the loop is free again, with clocks that have moved on:

    loop       ▓▓▓▓▓▓▓▓▓▓ held ▓▓▓▓▓▓▓▓▓▓  answers, timers, outcomes of work, in order
    threads    sync ─ done   compaction ─ done

A pause (SIGSTOP) stops both, a slow disk the threads alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

INTERVAL_MS = 500
# Sessions of brokers end after 600 ms.
STALL_MS_CHOICES = (30, 150, 150, 400, 1500)


class Stalls:
    """Draws which broker's loop is held, and for how long."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._random = cell.world.stream("stalls")
        self._is_on = False

    def start(self) -> None:
        self._is_on = True
        self._next()

    def stop(self) -> None:
        """All loops are free."""
        self._is_on = False
        for node in self._cell.nodes.values():
            if node.is_stalled:
                node.free_loop()

    def _next(self) -> None:
        delay_ms = self._random.expovariate(1 / INTERVAL_MS) + 20
        self._world.at(int(delay_ms * US_PER_MS), self._strike)

    def _strike(self) -> None:
        if not self._is_on:
            return
        nodes = [node for node in self._cell.nodes.values() if node.is_up and not node.is_stalled]
        if nodes:
            node = self._random.choice(nodes)
            stall_ms = self._random.choice(STALL_MS_CHOICES)
            self._world.count("stalls")
            if stall_ms > 1000:
                self._world.count("stalls longer than a session")
            node.hold_loop()
            self._world.at(stall_ms * US_PER_MS, self._free, node, node.life)
        self._next()

    def _free(self, node: Node, life: int) -> None:
        if node.life == life and node.is_stalled:
            node.free_loop()
