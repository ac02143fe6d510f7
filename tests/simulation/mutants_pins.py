"""Planted bugs of folds that hold on to records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.replicas.due_openings import DueOpenings
from data_plane.log import disk_start, truncation
from data_plane.log.committed_needs import CommittedNeeds
from data_plane.log.log_state import LogState
from tests.simulation import scenes, scenes_due
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

FORGETFUL = {"segment.ms": "200", "retention.ms": "500", "file.delete.delay.ms": "0"}
PINS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "pause"}),
    admin=frozenset({"delete records"}),
    topics=(TopicPlan("data3", 2, 3, FORGETFUL),),
    extras=frozenset({"pins"}),
)


def _retention_asks_no_fold(patch: Patch) -> None:
    patch.set(LogState, "needed_from", property(lambda self: None))


def _uncommitted_records_let_go(patch: Patch) -> None:
    patch.set(CommittedNeeds, "needed_from", lambda self, now_needed, end, committed: now_needed)


def _who_orders_is_obeyed_by_the_disk(patch: Patch) -> None:
    patch.set(disk_start, "start_for", lambda log, log_start_offset: log_start_offset)


def _due_partitions_wait(patch: Patch) -> None:
    patch.set(DueOpenings, "tick", lambda self, now_ms: None)
    patch.set(DueOpenings, "next_deadline_ms", lambda self: None)


def _folds_are_not_cut(patch: Patch) -> None:
    """Those of a feature; the broker's own are."""
    original: Any = truncation.become

    def become(log: LogState, remainder: Any) -> None:
        kept = log.folds[1:]
        original(log, remainder)
        log.set_folds([log.folds[0], *kept])

    patch.set(truncation, "become", become)


PIN_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "retention asks no fold",
        "what a feature still needs goes when it is old",
        _retention_asks_no_fold,
        options=PINS,
        is_quick=True,
    ),
    Mutant(
        "uncommitted records let go",
        "retention deletes what is needed again when the end of the log is truncated",
        _uncommitted_records_let_go,
        seeds=(6208,),
        options=Options(extras=frozenset({"pins"})),
        is_quick=True,
    ),
    Mutant(
        "the disk begins where readers do",
        "an order to delete records takes what a feature still needs",
        _who_orders_is_obeyed_by_the_disk,
        options=PINS,
        is_quick=True,
    ),
    Mutant(
        "what is due waits for a request",
        "a partition with something to do later is not opened at the start",
        _due_partitions_wait,
        options=scenes.options(scenes_due.quiet_start),
        is_quick=True,
    ),
    Mutant(
        "folds of features are not cut",
        "they go on with what was truncated",
        _folds_are_not_cut,
        options=PINS,
        is_quick=True,
    ),
)
