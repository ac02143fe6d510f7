"""Planted bugs of starts, and of what is open: what a process takes for granted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.coordinators.coordinator_log import CoordinatorLog
from data_plane.broker.request.wall_clock import WallClock
from data_plane.log import loading, recovery, retention
from data_plane.log.fold import Fold
from data_plane.log.maintenance import _TrackedJob
from data_plane.log.segment import Segment
from data_plane.log.segment_checks import largest_timestamp
from tests.simulation import scenes
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import RESTARTS, Mutant, Patch
from tests.simulation.undated import UNDATED

# Where coordinators change while commits are under way.
COORDINATORS = Options(
    brokers=3,
    faults=frozenset({"kill", "cut", "pause", "slow network"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
)
# Where disks are worn, and descriptors run out.
WORN = Options(
    brokers=4,
    faults=frozenset({"kill"}),
    admin=frozenset({"reassignments"}),
    topics=(
        TopicPlan("data3", 2, 3, {"segment.ms": "200", "retention.bytes": "4000"}),
        TopicPlan(
            "table3",
            1,
            3,
            {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"},
        ),
    ),
    properties={"log.cleaner.enable": "true"},
    extras=frozenset({"worn disks"}),
)
# Where records are undated, and kept for an hour.
UNDATED_TOPIC = Options(
    brokers=3,
    faults=frozenset({"kill", "stop"}),
    admin=frozenset(),
    topics=(TopicPlan(UNDATED, 1, 3, {"segment.ms": "200", "retention.ms": "3600000"}),),
    extras=frozenset({"undated"}),
)


def _mark_ignored(patch: Patch) -> None:
    """A start believes the checkpoint, although the log was cut since."""
    original: Any = recovery._read_mark

    def read_mark(*arguments: Any) -> tuple[int, bool]:
        return 1 << 62, original(*arguments)[1]

    patch.set(recovery, "_read_mark", read_mark)


def _uncommitted_loaded(patch: Patch) -> None:
    def load_when_committed(self: Any, partition: int, epoch: int) -> None:
        self._to_load.append((partition, epoch))
        self._services.wakes.wake(self)

    patch.set(CoordinatorLog, "_load_when_committed", load_when_committed)


def _job_lost(patch: Patch) -> None:
    """A job that has failed counts as in flight for ever."""
    original: Any = _TrackedJob.__dict__["run"]
    finish: Any = _TrackedJob.__dict__["finish"]
    failed: set[int] = set()

    def run(self: Any) -> None:
        try:
            original(self)
        except BaseException:
            failed.add(id(self))
            raise

    def finish_sound(self: Any) -> None:
        if id(self) in failed:
            failed.discard(id(self))
            self.job.finish()
        else:
            finish(self)

    patch.set(_TrackedJob, "run", run)
    patch.set(_TrackedJob, "finish", finish_sound)


def _undated_is_ancient(patch: Patch) -> None:
    def newest_ms(segment: Segment) -> int:
        return largest_timestamp(segment)

    patch.set(retention, "newest_ms", newest_ms)


def _undated_by_the_wall_clock(patch: Patch) -> None:
    """An append is noted by the date that the broker's clock shows, however wrong."""
    patch.set(WallClock, "vouched_offset_ms", property(lambda self: self._offset_ms))


def _folds_not_brought_on(patch: Patch) -> None:
    original: Any = loading.apply_to_folds

    def apply_to_folds(folds: list[Fold], starts: list[int], *rest: Any) -> None:
        original(folds[:1], starts[:1], *rest)

    patch.set(loading, "apply_to_folds", apply_to_folds)


START_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "folds of features not brought on",
        "a start replays what snapshots lack for the producer state only",
        _folds_not_brought_on,
        options=RESTARTS,
        is_quick=True,
    ),
    Mutant(
        "truncation mark ignored",
        "a start takes the checkpoint's word for what was cut and written anew since",
        _mark_ignored,
        options=scenes.options(scenes.cut_then_dark),
        is_quick=True,
    ),
    Mutant(
        "uncommitted offsets loaded",
        "a new coordinator tells offsets that may still be lost",
        _uncommitted_loaded,
        options=COORDINATORS,
        is_quick=True,
    ),
    Mutant(
        "failed job stays in flight",
        "after an error that kind of maintenance is never done again",
        _job_lost,
        options=WORN,
        is_quick=True,
    ),
    Mutant(
        "undated records are ancient",
        "what has no timestamp is too old at once",
        _undated_is_ancient,
        options=UNDATED_TOPIC,
        is_quick=True,
    ),
    Mutant(
        "undated by a date in doubt",
        "records without timestamps count from a date that nobody vouched for",
        _undated_by_the_wall_clock,
        options=replace(UNDATED_TOPIC, extras=frozenset({"undated", "clock errors"})),
    ),
)
