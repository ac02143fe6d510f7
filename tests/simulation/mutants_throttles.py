"""Planted bugs of throttled replication: who is limited that must not be, or for ever."""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.broker.fetch.leader_throttle import LeaderThrottle
from data_plane.broker.replicas.replication import ReplicationManager
from data_plane.cell.metadata import PartitionImage
from data_plane.replica.fetcher import ReplicaFetcher
from data_plane.replica.leadership import Leadership
from tests.simulation.mutant import THROTTLED, Mutant, Patch


def _in_sync_throttled(patch: Patch) -> None:
    """The leader's throttle does not ask who is in the ISR."""

    def counts(self: Leadership, node_id: int, log_end_offset: int) -> bool:
        return False

    patch.set(Leadership, "counts", counts)


def _held_for_ever(patch: Patch) -> None:
    """A fetch that was held is not looked at again when there is room."""

    def release(self: LeaderThrottle) -> None:
        self._timer = None
        self._held.clear()

    patch.set(LeaderThrottle, "_release", release)


def _added_throttled_for_good(patch: Patch) -> None:
    """A replica that was added stays throttled when it has joined the ISR, whatever it has."""

    def is_throttled(self: ReplicationManager, image: PartitionImage) -> bool:
        return True

    def pause_throttled(self: ReplicaFetcher, now_ms: int) -> None:
        wait_ms = self._throttled_ms(now_ms)
        for one in self._throttled:
            if wait_ms and one.paused_until_ms is None:
                self._pause(one, now_ms + wait_ms)

    patch.set(ReplicationManager, "_is_throttled", is_throttled)
    patch.set(ReplicaFetcher, "_pause_throttled", pause_throttled)


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
