"""Planted bugs of offsets that are far apart."""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.log import log_appends
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.leaps import TOPIC
from tests.simulation.mutant import Mutant, Patch

LEAPS = Options(
    brokers=3,
    faults=frozenset({"kill"}),
    admin=frozenset(),
    topics=(
        TopicPlan(
            TOPIC,
            1,
            3,
            {
                "cleanup.policy": "compact",
                "segment.ms": "150",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "300",
                "file.delete.delay.ms": "200",
            },
        ),
    ),
    extras=frozenset({"leaps"}),
)


def _gap_in_a_segment(patch: Patch) -> None:
    patch.set(log_appends, "INT32_MAX", 1 << 62)


LEAP_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "two billion offsets in a segment",
        "no segment is begun behind a hole that its index cannot hold",
        _gap_in_a_segment,
        options=LEAPS,
        is_quick=True,
    ),
)
