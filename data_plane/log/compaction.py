"""Compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_plane.log.log import Log


class CompactionJob:
    """x"""

    def run(self) -> None: ...
    def finish(self) -> None: ...


def plan_compaction(log: Log, now_ms: int) -> CompactionJob | None:
    return None


def compaction_priority(log: Log, now_ms: int) -> float:
    return 0.0
