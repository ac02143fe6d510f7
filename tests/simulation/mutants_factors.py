"""Planted bugs of replication factors that change: copies given up, or counted, too early."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.admin import reassignments
from data_plane.cell import controller, reassignment
from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.reassignment import is_reassigning, target_of
from tests.simulation.mutant import FACTORS, Mutant, Patch


def _lowered_below_min_isr(patch: Patch) -> None:
    original: Any = reassignment.complete

    def complete(old: PartitionImage, *rest: Any) -> PartitionImage:
        new: PartitionImage = original(old, *rest)
        gone = set(old.removing_replicas)
        isr = tuple(node_id for node_id in old.isr if node_id not in gone)
        may_end = is_reassigning(old) and set(old.adding_replicas) <= set(isr)
        if new is not old or not may_end or old.leader in (NO_LEADER, *gone):
            return new
        return replace(
            old,
            replicas=target_of(old),
            adding_replicas=(),
            removing_replicas=(),
            isr=isr,
            elr=tuple(node_id for node_id in old.elr if node_id not in gone),
            last_known_elr=tuple(one for one in old.last_known_elr if one not in gone),
        )

    patch.set(controller, "complete", complete)


def _cancelled_keeps_added(patch: Patch) -> None:
    def cancel(partition: PartitionImage) -> PartitionImage | None:
        if not is_reassigning(partition):
            return None
        return replace(partition, adding_replicas=(), removing_replicas=())

    patch.set(reassignments, "cancel", cancel)


FACTOR_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "lowered below min ISR",
        "a replica in sync is dropped although those that stay are too few",
        _lowered_below_min_isr,
        seeds=(7,),
        options=FACTORS,
        is_quick=True,
    ),
    Mutant(
        "cancelled keeps added",
        "a reassignment that is taken back leaves the replicas that it was adding",
        _cancelled_keeps_added,
        seeds=(5,),
        options=FACTORS,
        is_quick=True,
    ),
)
