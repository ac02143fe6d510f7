"""Planted bugs of appends that take so long that the group, or its coordinator, has moved on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.groups.appends import Appends
from data_plane.groups.group import ClassicGroup
from data_plane.groups.rebalance import Rebalance
from data_plane.wire.errors import ErrorCode
from tests.simulation.mutant import SLOW, Mutant, Patch


def _late_assignment(patch: Patch) -> None:
    """What the last generation's leader has assigned is told in the next one."""
    original: Any = Rebalance.__dict__["_end_sync"]

    def end_sync(
        self: Rebalance,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        known = dict.fromkeys(group.members, b"") | assignments
        original(self, group, group.generation_id, known, error, now_ms)

    patch.set(Rebalance, "_end_sync", end_sync)


def _late_append_is_none(patch: Patch) -> None:
    """An append that is not done in time is taken for one that will never be."""
    original: Any = Appends.__dict__["_time_out"]

    def time_out(self: Appends, append_id: int, now_ms: int) -> None:
        in_flight = self._in_flight[append_id]
        on_settled, in_flight.on_settled = in_flight.on_settled, None
        if on_settled is not None:
            on_settled(ErrorCode.REQUEST_TIMED_OUT, now_ms)
        original(self, append_id, now_ms)

    patch.set(Appends, "_time_out", time_out)


SLOW_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "late assignment",
        "shares that are in the log when the next generation has begun are told there",
        _late_assignment,
        options=SLOW,
        is_quick=True,
    ),
    Mutant(
        "late append is none",
        "an append that is not done in time does not count when it is done",
        _late_append_is_none,
        options=SLOW,
        is_quick=True,
    ),
)
