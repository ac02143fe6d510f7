"""Planted bugs of incremental fetch sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.fetch.fetch_reads import FetchReads
from data_plane.broker.fetch.fetch_sessions import FetchPartition, FetchSet
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


def _errors_are_the_last_word(patch: Patch) -> None:
    """Of a partition that had an error, a session speaks no more."""
    original: Any = FetchReads.__dict__["_error"]

    def error(self: Any, target: FetchPartition, code: Any) -> Any:
        if self._fetch_set.session_id:
            self._fetch_set.dirty.pop(target, None)
        return original(self, target, code)

    patch.set(FetchReads, "_error", error)


def _forgotten_stays(patch: Patch) -> None:
    """What a consumer reads elsewhere now stays in its session."""
    patch.set(FetchSet, "forget", lambda *_: None)


SESSION_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "last word of a session",
        "a partition of a session that had an error counts as told",
        _errors_are_the_last_word,
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
