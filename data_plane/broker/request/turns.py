"""What the broker's loop does now, told to somebody who times it.

A *turn* is what runs on the loop without a break: a read with its requests, a tick, finished file
work. It has *steps*: a timer's callback, a component's tick, a listener to images. The server times
turns (loop_watch.py) and says what has held the loop; this is all that the broker knows of that.

Deliberately absent: clocks. A broker in the simulator is not watched.
"""

from __future__ import annotations

from typing import Protocol


class Turns(Protocol):
    """`what` is named only when it took long: a callable, an object with `turn_name`, or a str.

    `busy_ns` is how long all turns that are over took."""

    busy_ns: int

    def begin(self, what: object) -> None:
        """A turn begins, with its first step."""

    def step(self, what: object) -> None:
        """The turn's last step is over, and the next one begins."""

    def end(self) -> None:
        """The turn is over."""


class UnwatchedTurns:
    """Nobody wants to know."""

    busy_ns = 0

    def begin(self, what: object) -> None:
        pass

    def step(self, what: object) -> None:
        pass

    def end(self) -> None:
        pass
