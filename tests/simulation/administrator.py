"""A client that changes something about the cell now and then, until it is told to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.simulation.client import Client
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

PAUSE_MS_MIN = 20


class Administrator(Client, ABC):
    """Subclasses say what: `change`, every `interval_ms` on average."""

    interval_ms: int

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._is_stopped = False

    @property
    def is_settled(self) -> bool:
        """Whether its last word has been heard, and done."""
        return True

    def start(self) -> None:
        """Change things from now on."""
        self._wait()

    def _wait(self) -> None:
        delay_ms = self.random.expovariate(1 / self.interval_ms) + PAUSE_MS_MIN
        self.world.at(int(delay_ms * US_PER_MS), self._go_on)

    def stop(self) -> None:
        """Change nothing more."""
        self._is_stopped = True

    def _go_on(self) -> None:
        if not self._is_stopped:
            self._wait()
            self.change()

    @abstractmethod
    def change(self) -> None:
        """Change something."""
