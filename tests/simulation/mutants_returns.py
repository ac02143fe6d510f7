"""Planted bugs of coming back: lives that have ended, disks that have lost something, old images,
and answers that nobody has heard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.replicas.isr_changes import IsrManager
from data_plane.cell import controller, election, registration
from data_plane.cell.changes import InvalidChange
from data_plane.cell.metadata import PartitionImage
from data_plane.log import loading, recovery
from data_plane.log.manager import LogManager
from data_plane.log.producer_state import ProducerStates
from data_plane.replica.follower_fetch import FollowerFetch
from data_plane.replica.leadership import Leadership
from tests.simulation import scenes
from tests.simulation.mutant import RESTARTS, Mutant, Patch


def _former_life_counts(patch: Patch) -> None:
    original: Any = FollowerFetch.__dict__["__init__"]

    def init(self: FollowerFetch, *args: Any) -> None:
        original(self, *args)
        self._is_stale = False

    patch.set(FollowerFetch, "__init__", init)


def _elr_kept(patch: Patch) -> None:
    def without(partition: PartitionImage, node_id: int, *rest: Any) -> PartitionImage:
        isr = tuple(other for other in partition.isr if other != node_id)
        return partition if isr == partition.isr else replace(partition, isr=isr)

    patch.set(registration, "_without", without)


def _killed_broker_begins_alone(patch: Patch) -> None:
    """With its image, which may be a second old. That alone does no harm: a leader that begins with
    the image of its disk waits for all replicas. Nor does the lack of that guard where the image
    was written at the end of a clean stop, but for what such a leader has never heard of (the
    mutant after this one). So this is both."""
    patch.set(LogManager, "was_stopped_cleanly", lambda self: True)
    _old_image_trusted(patch)


def _old_image_trusted(patch: Patch) -> None:
    def maximal_isr(self: Leadership) -> frozenset[int]:
        return frozenset(self.committed_isr) | frozenset(self.proposed_isr or ())

    patch.set(Leadership, "maximal_isr", maximal_isr)


def _unknown_is_refused(patch: Patch) -> None:
    """The first call without an answer ends it, and the leader withdraws what it has asked for."""

    def retry(self: MetadataWriter, commit: Any, error: BaseException, again: Any) -> None:
        self._conclude(commit.wanted, error)

    original: Any = IsrManager.__dict__["_finish"]

    def finish(self: IsrManager, asked: Any, error: BaseException | None) -> None:
        if error is None or isinstance(error, InvalidChange):
            original(self, asked, error)
            return
        for one in asked:
            one.partition.isr_refused(one.proposal.partition_epoch, self._now_ms)

    patch.set(MetadataWriter, "_retry", retry)
    patch.set(IsrManager, "_finish", finish)


def _snapshot_alone(patch: Patch) -> None:
    original: Any = loading.apply_to_folds

    def apply_to_folds(folds: Any, starts: list[int], header: Any, data: Any) -> None:
        wanted = [
            (fold, start)
            for fold, start in zip(folds, starts, strict=True)
            if not (isinstance(fold, ProducerStates) and start >= 0)
        ]
        original([fold for fold, _ in wanted], [start for _, start in wanted], header, data)

    for module in (loading, recovery):
        if "apply_to_folds" in vars(module):
            patch.set(module, "apply_to_folds", apply_to_folds)


def _last_known_leader_elected(patch: Patch) -> None:
    """As in Apache Kafka."""

    def longest(partition: PartitionImage, candidates: Any) -> Any:
        ends = (end for end in partition.log_ends if end.node_id in candidates)
        last_known = [end for end in ends if end.node_id == partition.last_known_leader]
        return last_known[0] if last_known else None

    patch.set(election, "_longest", longest)
    patch.set(election, "_outdoes_enough", lambda partition, longest, min_isr: True)


def _election_before_enough_reports(patch: Patch) -> None:
    original: Any = election.without_brokers

    def without_brokers(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "is_overdue": True})

    patch.set(controller, "without_brokers", without_brokers)
    patch.set(election, "_outdoes_enough", lambda partition, longest, min_isr: True)


def _last_known_elr_forgotten(patch: Patch) -> None:
    """As in Apache Kafka, where it is good enough, since nobody compares logs."""
    original: Any = election.__dict__["_lead_alone"]

    def lead_alone(partition: PartitionImage, node_id: int, min_isr: int) -> PartitionImage:
        alone: PartitionImage = original(partition, node_id, min_isr)
        return replace(alone, last_known_elr=())

    patch.set(election, "_lead_alone", lead_alone)


RETURN_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "fetch of a former life counts",
        "a leader takes note of what an incarnation fetched that is no more (KIP-903)",
        _former_life_counts,
        options=scenes.options(scenes.former_life),
        is_quick=True,
    ),
    Mutant(
        "ELR kept after a lost disk",
        "a broker that registers without the right mark stays in the ELR (KIP-966)",
        _elr_kept,
        options=scenes.options(scenes.eligible_without_disk),
        is_quick=True,
    ),
    Mutant(
        "killed broker begins alone",
        "while the store is away a killed broker leads by the ISR in the image on its disk",
        _killed_broker_begins_alone,
        options=scenes.options(scenes.lonely_start),
        is_quick=True,
    ),
    Mutant(
        "old image's ISR is believed",
        "a leader that begins with an old image waits only for the ISR in it",
        _old_image_trusted,
        options=scenes.options(scenes.unheard_expansion),
        is_quick=True,
    ),
    Mutant(
        "unknown is refused",
        "an ISR change without an answer is withdrawn, as if the store had refused it",
        _unknown_is_refused,
        options=scenes.options(scenes.lost_answer),
        is_quick=True,
    ),
    Mutant(
        "last known leader elected",
        "after a power loss of all the last leader leads, though others have more",
        _last_known_leader_elected,
        options=scenes.options(scenes.power_cut),
        is_quick=True,
    ),
    Mutant(
        "election before enough reports",
        "after a power loss of all the first that is back leads",
        _election_before_enough_reports,
        options=scenes.options(scenes.power_cut),
        is_quick=True,
    ),
    Mutant(
        "last known ELR forgotten",
        "after a power loss of all the new leader is the only one that will be asked next time",
        _last_known_elr_forgotten,
        options=scenes.options(scenes.power_cut),
        is_quick=True,
    ),
    Mutant(
        "producers of the snapshot alone",
        "a start does not bring producer states from their snapshot to the log end",
        _snapshot_alone,
        options=RESTARTS,
        is_quick=True,
    ),
)
