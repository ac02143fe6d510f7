"""Ids are forgotten when their window is over, and what is on the disk is merged, by threads; on
leaders and followers alike.

Invariants
- Nothing is forgotten while the date is in doubt, nor before the window and SLACK_MS are over: the
  next leader's clock may be behind.

Deliberately absent: what is to be done (remembered_ids.py), and the threads (fold_upkeep.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from data_plane.broker.services import Services
from data_plane.log.log import Log
from data_plane.wire.kernel_types import IDS_FLAG
from features.dedup.fold import MessageIds, fold_of
from features.dedup.remembered_ids import RememberedIds
from features.dedup.snapshot import runs_named_in
from features.fold_upkeep import Job, Upkeep

SWEEP_INTERVAL_MS: Final = 2_000
SWEPT_PER_TICK_MAX: Final = 500
# Ids stay for so long after their window: clocks of leaders may differ.
SLACK_MS: Final = 60_000
# Before it nothing is: the date is in doubt.
NEVER_MS: Final = 0


class _Upkept(NamedTuple):
    """The ids of a log, and before when they are to be forgotten."""

    ids: RememberedIds
    before_ms: Callable[[], int]

    @property
    def wants_upkeep(self) -> bool:
        return self.ids.wants_upkeep

    def upkeep_job(self) -> tuple[Job, Callable[[], None]] | None:
        job = self.ids.upkeep_job(runs_named_in, self.before_ms())
        return None if job is None else (job, lambda: self.ids.finish(job))


class Forgetting:
    """One per broker, a component."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._upkeep = Upkeep(services)
        self._to_sweep: list[Log] = []
        self._sweep_ms = 0
        self._now_ms = 0
        self.is_stopped = False

    def start(self, now_ms: int) -> None:
        self._sweep_ms = self._now_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        return self._now_ms if self._to_sweep else self._sweep_ms

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + SWEEP_INTERVAL_MS
            self._to_sweep = [
                log for log in self._services.logs.logs() if log.fold_flags & IDS_FLAG
            ]
        swept = self._to_sweep[-SWEPT_PER_TICK_MAX:]
        del self._to_sweep[-SWEPT_PER_TICK_MAX:]
        for log in swept:
            fold = fold_of(log)
            if fold is not None and len(fold) and not log.is_closed:
                fold.ids.forget(self._before_ms(log))
                self.upkeep(log, fold)

    def stop(self, now_ms: int) -> None:
        self.is_stopped = True
        self._to_sweep.clear()

    def _before_ms(self, log: Log) -> int:
        """What is older is forgotten."""
        services = self._services
        if services.deletion_permit.why_not_by_date:
            return NEVER_MS
        rules = log.config.record_rules
        window_ms = 0 if rules is None else rules.dedup_window_ms
        return services.wall_clock.wall_ms(self._now_ms) - window_ms - SLACK_MS

    def upkeep(self, log: Log, fold: MessageIds) -> None:
        """Have done what the fold wants. Where too much is under way nothing begins: the sweep
        looks again."""

        def look_again() -> None:
            if fold_of(log) is fold:
                self.upkeep(log, fold)

        if not self.is_stopped:
            self._upkeep.look(log, _Upkept(fold.ids, lambda: self._before_ms(log)), look_again)
