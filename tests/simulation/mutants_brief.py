"""Planted bugs of what is compacted and forgets, too: retention while a cleaner works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.log import retention
from data_plane.log.compaction import CompactionJob
from data_plane.log.log import Log
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where retention is faster than the cleaner, and most segments fit into one group.
BRIEF = Options(
    brokers=3,
    faults=frozenset({"kill", "pause", "slow network"}),
    admin=frozenset(),
    topics=(
        TopicPlan(
            "tablebrief",
            1,
            3,
            {
                "cleanup.policy": "compact,delete",
                "segment.ms": "150",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "200",
                "file.delete.delay.ms": "0",
                "retention.ms": "700",
            },
        ),
    ),
    extras=frozenset({"brief tables"}),
)


def _clean_without_rewriting(patch: Patch) -> None:
    original: Any = CompactionJob.__dict__["_swap_in"]

    def swap_in(self: CompactionJob) -> tuple[int, bool]:
        _, is_whole = original(self)
        return min(self._end_offset, self.log.log_end_offset), is_whole

    patch.set(CompactionJob, "_swap_in", swap_in)


def _compact_alone(patch: Patch) -> None:
    original: Any = retention.count_due_segments

    def count_due_segments(log: Log, *arguments: Any, **options: Any) -> int:
        return 0 if log.config.compact else original(log, *arguments, **options)

    patch.set(retention, "count_due_segments", count_due_segments)


BRIEF_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "clean without rewriting",
        "a group that retention has changed while it was rewritten counts as clean",
        _clean_without_rewriting,
        seeds=(12,),
        options=BRIEF,
        is_quick=True,
    ),
    Mutant(
        "compact,delete is compact",
        "what is compacted is never too old and never too much",
        _compact_alone,
        seeds=(3,),
        options=BRIEF,
        is_quick=True,
    ),
)
