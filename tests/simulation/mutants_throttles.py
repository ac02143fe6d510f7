"""Planted bugs of throttled replication: who is limited that must not be, or for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data_plane.broker.leader_throttle import LeaderThrottle
from data_plane.broker.replication import ReplicationManager
from data_plane.cell.metadata import PartitionImage
from data_plane.replica.partition import Partition
from tests.simulation.mutant import THROTTLED, Mutant, Patch


def _in_sync_throttled(patch: Patch) -> None:
    """The leader's throttle does not ask who is in the ISR."""
    original: Any = LeaderThrottle.__dict__["_is_throttled"]

    def is_throttled(self: LeaderThrottle, node_id: int, partition: Partition) -> bool:
        leadership = partition.leadership
        if leadership is None:
            return False
        isr, leadership.committed_isr = leadership.committed_isr, ()
        try:
            limited: bool = original(self, node_id, partition)
        finally:
            leadership.committed_isr = isr
        return limited

    patch.set(LeaderThrottle, "_is_throttled", is_throttled)


def _held_for_ever(patch: Patch) -> None:
    """A fetch that was held is not looked at again when there is room."""

    def release(self: LeaderThrottle) -> None:
        self._timer = None
        self._held.clear()

    patch.set(LeaderThrottle, "_release", release)


def _added_throttled_for_good(patch: Patch) -> None:
    """A replica that was added stays throttled when it has joined the ISR."""

    def is_throttled(self: ReplicationManager, image: PartitionImage) -> bool:
        return True

    patch.set(ReplicationManager, "_is_throttled", is_throttled)


THROTTLE_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "in sync throttled",
        "a leader limits followers in the ISR, too",
        _in_sync_throttled,
        options=THROTTLED,
        is_quick=True,
    ),
    Mutant(
        "held for ever",
        "a follower that was held back is not served when there is room again",
        _held_for_ever,
        seeds=(7,),
        options=THROTTLED,
        is_quick=True,
    ),
    Mutant(
        "throttled for good",
        "a follower limits what it fetches also when it is in the ISR",
        _added_throttled_for_good,
        options=THROTTLED,
        is_quick=True,
    ),
)
