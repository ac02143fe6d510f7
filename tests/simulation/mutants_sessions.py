"""Planted bugs of incremental fetch sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.fetch_sessions import FetchPartition, FetchSet
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where consumers with sessions go from one broker to another.
SESSIONS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "broken connection"}),
    admin=frozenset({"elections", "delete records"}),
    topics=(TopicPlan("data3", 3, 3),),
    extras=frozenset({"fetch sessions"}),
)


def _news_of_one_are_missed(patch: Patch) -> None:
    """What changes in a session's last partition is not noticed."""
    original: Any = FetchPartition.__dict__["partition_changed"]

    def partition_changed(self: FetchPartition) -> None:
        is_last = self.owner.session_id and self.index == 2
        if not is_last:
            original(self)

    patch.set(FetchPartition, "partition_changed", partition_changed)


def _forgotten_stays(patch: Patch) -> None:
    """What a consumer reads elsewhere now stays in its session."""
    patch.set(FetchSet, "forget", lambda *_: None)


SESSION_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "news missed by a session",
        "a partition of a session has records, and nobody looks",
        _news_of_one_are_missed,
        options=SESSIONS,
        is_quick=True,
    ),
    Mutant(
        "forgotten partition stays in its session",
        "a consumer is told of what it does not read there any more",
        _forgotten_stays,
        options=SESSIONS,
        is_quick=True,
    ),
)
