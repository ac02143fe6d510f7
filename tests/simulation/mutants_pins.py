"""Planted bugs of folds that hold on to records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.replicas.due_openings import DueOpenings
from data_plane.log import disk_start, held_records, truncation
from data_plane.log.committed_needs import CommittedNeeds
from data_plane.log.compaction_writer import HeldWriter
from data_plane.log.log import Log
from data_plane.log.log_state import LogState
from data_plane.replica.partition import Partition
from tests.simulation import scenes, scenes_due
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

FORGETFUL = {"segment.ms": "200", "retention.ms": "500", "file.delete.delay.ms": "0"}
# Where replicas begin with nothing, again and again.
WIPED_PINS = Options(
    brokers=4,
    faults=frozenset({"wipe", "kill", "cut"}),
    admin=frozenset({"delete records", "reassignments"}),
    topics=(TopicPlan("data3", 2, 3, FORGETFUL),),
    extras=frozenset({"pins"}),
)
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


def _copies_begin_where_readers_do(patch: Patch) -> None:
    patch.set(Log, "copy_start_offset", property(lambda self: self.log_start_offset))


def _thinned_to_nothing(patch: Patch) -> None:
    patch.set(HeldWriter, "_kept", lambda self, data, header: None)


def _thinned_by_what_may_be_cut(patch: Patch) -> None:
    """Also of what is let go by records that are not committed."""
    patch.set(held_records, "_is_settled", lambda log, frozen: True)


def _early_in_sync(patch: Patch) -> None:
    """A replica that copies what is held counts as at the log start already, and is committed up to
    there."""
    original: Any = Partition.__dict__["follower_fetched"]

    def follower_fetched(
        self: Partition, node_id: int, broker_epoch: int, fetch_offset: int, *rest: Any
    ) -> Any:
        log = self.log
        if fetch_offset < log.log_start_offset:
            fetch_offset = log.log_end_offset
        return original(self, node_id, broker_epoch, fetch_offset, *rest)

    patch.set(Partition, "follower_fetched", follower_fetched)


PIN_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "copies begin where readers do",
        "a new replica lacks what is held below the log start, and outlives those that have it",
        _copies_begin_where_readers_do,
        options=WIPED_PINS,
        is_quick=True,
    ),
    Mutant(
        "thinned to nothing",
        "what a fold holds goes with what it does not",
        _thinned_to_nothing,
        options=PINS,
        is_quick=True,
    ),
    Mutant(
        "thinned by what may be cut",
        "what a fold lets go by a record that is truncated is gone",
        _thinned_by_what_may_be_cut,
        options=PINS,
    ),
    Mutant(
        "early in sync",
        "a replica counts as in sync while it copies what is held",
        _early_in_sync,
        options=WIPED_PINS,
        is_quick=True,
    ),
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
