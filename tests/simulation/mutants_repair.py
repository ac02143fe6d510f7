"""Planted bugs of what is done about damaged copies (broker/replicas/replica_repair.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.replicas import replica_repair
from data_plane.broker.replicas.replica_repair import ReplicaRepair
from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.cell.partition_state import without_damaged
from data_plane.replica.partition import Partition
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where disks change bytes, and brokers die of it or not.
ROT = Options(
    brokers=3,
    faults=frozenset({"bit rot", "kill"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
)


def _cut_in_the_isr(patch: Patch) -> None:
    def may_cut(self: ReplicaRepair, state: PartitionImage, damaged: Any) -> bool:
        return state.leader not in (self._services.node_id, NO_LEADER)

    patch.set(ReplicaRepair, "_may_cut", may_cut)


def _damage_kept(patch: Patch) -> None:
    def drop_damaged(self: Partition, offset: int) -> bool:
        self._check_follower()
        return True

    patch.set(Partition, "drop_damaged", drop_damaged)


def _leads_on(patch: Patch) -> None:
    def only_followers(partition: PartitionImage, node_id: int, *rest: Any) -> PartitionImage:
        if partition.leader == node_id:
            return partition
        return without_damaged(partition, node_id, *rest)

    patch.set(replica_repair, "without_damaged", only_followers)


REPAIR_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "damaged follower stays in the ISR",
        "a copy is cut while the cell counts on it",
        _cut_in_the_isr,
        options=ROT,
        is_quick=True,
    ),
    Mutant(
        "repair keeps the damaged batch",
        "a copy comes back as it was",
        _damage_kept,
        options=ROT,
        is_quick=True,
    ),
    Mutant(
        "damaged leader goes on",
        "a leader with a damaged log does not hand over",
        _leads_on,
        seeds=(29,),
        budget=60,
        options=ROT,
    ),
)
