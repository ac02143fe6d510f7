"""A broker's log lines in the simulation: notes of the story, and the proof of a bug.

A line that reports an exception which no fault explains (an assertion, a wrong type, a missing key)
fails the run, however politely the broker survived it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.node import Node

BUGS = (
    "AssertionError",
    "TypeError",
    "KeyError",
    "AttributeError",
    "IndexError",
    "NameError",
    "UnboundLocalError",
    "ValueError",
    "InvalidChange",
    "ZeroDivisionError",
    "RecursionError",
    "BufferError",
)
BUG_EVENTS = frozenset({"request_failed", "tick_failed", "connection_failed"})


class NodeLog:
    """The Logger port."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def debug(self, event: str, **fields: Any) -> None:
        """Too much for a story."""

    def info(self, event: str, **fields: Any) -> None:
        self._take(event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._take(event, fields)

    def error(self, event: str, **fields: Any) -> None:
        node = self._node
        text = repr(fields)
        is_off = node.fs.power_loss_at is not None and (node.fs.operations >= node.fs.power_loss_at)
        if not is_off and (event in BUG_EVENTS or any(bug in text for bug in BUGS)):
            # The broker's own code may catch what is raised here, so it is raised later.
            traceback = fields.pop("traceback", "")
            node.cell.suspect(f"{node.name} logged {event}: {fields}\n{traceback}")
        self._take(event, fields)

    def _take(self, event: str, fields: dict[str, Any]) -> None:
        self._node.world.count(f"log {event}")
        values = " ".join(f"{key}={value}" for key, value in fields.items())
        self._node.note(f"{event} {values}")
