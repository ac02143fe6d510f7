"""Planted bugs of the cell room: registration, elections, liveness, the store and its feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from data_plane.broker.cell import broker_lifecycle, metadata_follower, metadata_writer
from data_plane.broker.cell.broker_lifecycle import Membership
from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.replicas import isr_changes, topic_partitions
from data_plane.broker.replicas.isr_changes import IsrManager
from data_plane.cell import controller, election, partition_state, reassignment, registration
from data_plane.cell.changes import ChangePartition, apply_changes
from data_plane.cell.liveness import LivenessTracker
from data_plane.cell.metadata import MetadataImage, PartitionImage
from data_plane.cell.metadata_store import CommitHistory, InMemoryMetadataStore
from data_plane.cell.postgres_schema import Lineage
from data_plane.server import entry
from tests.simulation import scenes
from tests.simulation.mutant import MOVES, OUTAGES, POWER, STAND_INS, STORE, Mutant, Patch


def _unclean_restart_keeps_isr(patch: Patch) -> None:
    original: Any = registration.decide_registration

    def decide_registration(
        image: MetadataImage, broker: Any, clean: int | None, *rest: Any
    ) -> Any:
        known = image.brokers.get(broker.node_id)
        return original(image, broker, None if known is None else known.broker_epoch, *rest)

    for module in (entry, broker_lifecycle):
        patch.set(module, "decide_registration", decide_registration)


def _registration_keeps_leadership(patch: Patch) -> None:
    original: Any = registration.decide_registration

    def decide_registration(image: MetadataImage, broker: Any, *rest: Any) -> Any:
        return original(image, broker, *rest)[:1]

    for module in (entry, broker_lifecycle):
        patch.set(module, "decide_registration", decide_registration)


def _stale_broker_epoch_joins(patch: Patch) -> None:
    def may_join_isr(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
        broker = image.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    for module in (isr_changes, topic_partitions, partition_state):
        patch.set(module, "may_join_isr", may_join_isr)


def _fenced_broker_joins(patch: Patch) -> None:
    def may_join_isr(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
        broker = image.brokers.get(node_id)
        return broker is not None and broker.broker_epoch == broker_epoch

    for module in (isr_changes, topic_partitions, partition_state):
        patch.set(module, "may_join_isr", may_join_isr)


def _isr_of_a_deposed_leader(patch: Patch) -> None:
    """A proposal is committed whoever leads by now."""

    def decide(self: IsrManager, image: MetadataImage, one: Any) -> Any:
        log, proposal = one.partition.log, one.proposal
        topic = image.topics_by_id.get(log.topic_id)
        if topic is None or log.partition >= len(topic.partitions):
            return None
        old = topic.partitions[log.partition]
        members = tuple(node_id for node_id in proposal.isr if node_id in old.replicas)
        if set(members) == set(old.isr) or old.leader not in members:
            return None
        state = replace(old, isr=members, elr=())
        new = partition_state.next_epochs(old, state)
        return ChangePartition(topic.topic_id, log.partition, new)

    patch.set(IsrManager, "_decide", decide)


def _election_from_anywhere(patch: Patch) -> None:
    original: Any = election.elect

    def elect(partition: PartitionImage, electable: Any, min_isr: int, **options: Any) -> Any:
        return original(partition, electable, min_isr, is_unclean_allowed=True)

    def without(partition: PartitionImage, *rest: Any, **options: Any) -> Any:
        options["is_unclean_allowed"] = True
        return original_without(partition, *rest, **options)

    original_without: Any = election.without_brokers
    patch.set(election, "elect", elect)
    patch.set(controller, "without_brokers", without)


def _election_of_the_first_replica(patch: Patch) -> None:
    def elect(partition: PartitionImage, electable: Any, min_isr: int, **options: Any) -> Any:
        for node_id in partition.replicas:
            if node_id in electable:
                members = tuple(dict.fromkeys((*partition.isr, node_id)))
                return partition_state.with_leader(replace(partition, isr=members), node_id)
        return None

    patch.set(election, "elect", elect)


def _elr_outlives_its_reason(patch: Patch) -> None:
    """Who left a small ISR stays eligible when others commit without it again."""
    original: Any = partition_state.with_isr

    def with_isr(
        partition: PartitionImage, members: Any, *rest: Any, **options: Any
    ) -> PartitionImage:
        new: PartitionImage = original(partition, members, *rest, **options)
        left = (*partition.elr, *partition.isr)
        gone = (*new.isr, *options.get("lost", ()))
        elr = tuple(dict.fromkeys(node for node in left if node not in gone))
        return replace(new, elr=elr)

    def with_settled_elr(partition: PartitionImage, min_isr: int) -> PartitionImage:
        return partition

    for module in (partition_state, election, isr_changes):
        patch.set(module, "with_isr", with_isr)
    patch.set(controller, "with_settled_elr", with_settled_elr)


def _lease_unchecked(patch: Patch) -> None:
    """The controller goes on after its lease, and tells the store no epoch."""
    original: Any = MetadataWriter.__dict__["write"]

    def patched(
        self: MetadataWriter, decide: Any, on_done: Any, *rest: Any, **options: Any
    ) -> None:
        options.pop("controller_epoch", None)
        original(self, decide, on_done, None, *rest[1:], **options)

    patch.set(MetadataWriter, "write", patched)
    patch.set(Membership, "_stand_down", lambda self, reason: None)


def _store_takes_old_epochs(patch: Patch) -> None:
    original: Any = InMemoryMetadataStore.__dict__["apply"]

    def apply(self: InMemoryMetadataStore, changes: Any, version: int, request: str, **epoch: Any):  # type: ignore[no-untyped-def]
        lease = self._controller
        saved = None if lease is None else lease.epoch
        if lease is not None and epoch.get("controller_epoch") is not None:
            lease.epoch = epoch["controller_epoch"]
        try:
            return original(self, changes, version, request, **epoch)
        finally:
            if lease is not None and saved is not None:
                lease.epoch = saved

    patch.set(InMemoryMetadataStore, "apply", apply)
    patch.set(Membership, "_stand_down", lambda self, reason: None)

    original_observe: Any = controller.Controller.__dict__["observe_heartbeat"]

    def observe_heartbeat(self: Any, heartbeat: Any, *rest: Any) -> None:
        before = self.lease
        if before is not None and before.is_ours:
            heartbeat = replace(heartbeat, controller=before)
        original_observe(self, heartbeat, *rest)

    patch.set(controller.Controller, "observe_heartbeat", observe_heartbeat)


def _mass_expiry(patch: Patch) -> None:
    """Time counts against brokers while nobody could reach the store."""
    patch.set(LivenessTracker, "_is_continuous", lambda self, timeout_ms, now_ms: True)
    patch.set(LivenessTracker, "restart", lambda self: None)


def _reply_applied_twice(patch: Patch) -> None:
    """A commit whose answer was lost is made again, on whatever the store has by then."""
    patch.set(CommitHistory, "knows", lambda self, request_id: False)
    original: Any = InMemoryMetadataStore.__dict__["apply"]

    def apply(self: InMemoryMetadataStore, changes: Any, version: int, *rest: Any, **epoch: Any):  # type: ignore[no-untyped-def]
        return original(self, changes, self.read().version, *rest, **epoch)

    patch.set(InMemoryMetadataStore, "apply", apply)


def _compare_without_set(patch: Patch) -> None:
    """The store takes changes that were decided on an older image."""
    original: Any = InMemoryMetadataStore.__dict__["apply"]

    def apply(self: InMemoryMetadataStore, changes: Any, version: int, *rest: Any, **epoch: Any):  # type: ignore[no-untyped-def]
        return original(self, changes, self.read().version, *rest, **epoch)

    patch.set(InMemoryMetadataStore, "apply", apply)


def _feed_out_of_order(patch: Patch) -> None:
    def apply_update(services: Any, news: Any, now_ms: int) -> None:
        if isinstance(news, MetadataImage):
            services.apply_image(news, now_ms)
            return
        for commit in sorted(news, key=lambda one: -one.version):
            image = services.image
            if commit.version > image.version:
                changed = apply_changes(image, commit.changes)
                services.apply_image(replace(changed, version=commit.version), now_ms)

    for module in (metadata_follower, metadata_writer):
        patch.set(module, "apply_update", apply_update)


def _feed_with_holes(patch: Patch) -> None:
    def apply_update(services: Any, news: Any, now_ms: int) -> None:
        if isinstance(news, MetadataImage):
            services.apply_image(news, now_ms)
            return
        for commit in news[-1:]:
            if commit.version > services.image.version:
                changed = apply_changes(services.image, commit.changes)
                services.apply_image(replace(changed, version=commit.version), now_ms)

    for module in (metadata_follower, metadata_writer):
        patch.set(module, "apply_update", apply_update)


def _dead_brokers_elected(patch: Patch) -> None:
    """Fenced and silent brokers may lead."""
    original: Any = controller.Standing.__dict__["of"].__func__

    def of(cls: Any, brokers: Mapping[int, Any], observed: Any) -> Any:
        standing = original(cls, brokers, observed)
        return cls(frozenset(brokers), standing.stopping, standing.present)

    patch.set(controller.Standing, "of", classmethod(of))


def _older_store_accepted(patch: Patch) -> None:
    patch.set(Lineage, "saw", lambda self, version, floor: None)


def _another_identity_accepted(patch: Patch) -> None:
    original: Any = Lineage.__dict__["accept"]

    def accept(self: Lineage, row: Any, floor: int) -> None:
        original(self, replace(row, ancestors=(*row.ancestors, self.identity)), floor)

    patch.set(Lineage, "accept", accept)


def _moved_too_early(patch: Patch) -> None:
    """A reassignment is over as soon as enough of the others are in sync."""
    original: Any = reassignment.complete

    def complete(old: PartitionImage, *rest: Any, **options: Any) -> PartitionImage:
        members = tuple(dict.fromkeys((*old.isr, *old.adding_replicas)))
        new: PartitionImage = original(replace(old, isr=members), *rest, **options)
        if new.adding_replicas or new.leader not in old.isr:
            return old
        isr = tuple(node_id for node_id in new.isr if node_id in old.isr)
        return replace(new, isr=isr) if isr else old

    patch.set(controller, "complete", complete)


def _mark_ignored_at_registration(patch: Patch) -> None:
    """Every stop counts as unclean, and nobody ever leads again where all were stopped."""
    patch.set(LivenessTracker, "is_current", lambda self, timeout_ms, now_ms: False)


CELL_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "unclean restart keeps ISR",
        "a broker that registers without the right mark stays in ISR and ELR",
        _unclean_restart_keeps_isr,
        options=scenes.options(scenes.eligible_without_disk),
        is_quick=True,
    ),
    Mutant(
        "registration keeps leadership",
        "a broker that starts anew goes on leading in its old epoch",
        _registration_keeps_leadership,
        options=POWER,
        is_quick=True,
    ),
    Mutant(
        "stale broker epoch joins",
        "a follower joins the ISR by what its last life had fetched (KIP-903)",
        _stale_broker_epoch_joins,
        options=scenes.options(scenes.quick_return),
        is_quick=True,
    ),
    Mutant(
        "fenced broker joins",
        "a fenced follower joins the ISR",
        _fenced_broker_joins,
        is_quick=True,
    ),
    Mutant(
        "ISR of a deposed leader",
        "an ISR change is committed whatever epoch it was proposed in",
        _isr_of_a_deposed_leader,
        options=scenes.options(scenes.late_isr),
        is_quick=True,
    ),
    Mutant(
        "election from anywhere",
        "unclean elections although no topic asks for them",
        _election_from_anywhere,
        is_quick=True,
    ),
    Mutant(
        "election of the first replica",
        "the first live replica leads, in sync or not",
        _election_of_the_first_replica,
        is_quick=True,
    ),
    Mutant(
        "ELR outlives its reason",
        "who left the ISR stays eligible when others commit without it",
        _elr_outlives_its_reason,
        is_quick=True,
    ),
    Mutant(
        "lease unchecked by the controller",
        "a controller goes on after its lease, without an epoch",
        _lease_unchecked,
        options=STORE,
        is_quick=True,
    ),
    Mutant(
        "store takes old controller epochs",
        "two controllers decide at the same time",
        _store_takes_old_epochs,
        options=STORE,
    ),
    Mutant(
        "mass expiry after a store outage",
        "after an outage of the store brokers are declared dead",
        _mass_expiry,
        seeds=(2,),
        options=OUTAGES,
        is_quick=True,
    ),
    Mutant(
        "lost reply applied twice",
        "a commit whose answer was lost is made a second time",
        _reply_applied_twice,
        options=STORE,
        is_quick=True,
    ),
    Mutant(
        "compare without set",
        "the store takes changes that were decided on an older image",
        _compare_without_set,
        options=STORE,
        is_quick=True,
    ),
    Mutant(
        "change feed out of order",
        "commits are applied newest first",
        _feed_out_of_order,
        is_quick=True,
    ),
    Mutant(
        "change feed with holes",
        "only the newest commit is applied",
        _feed_with_holes,
        is_quick=True,
    ),
    Mutant(
        "dead brokers elected",
        "nobody looks whether a leader lives",
        _dead_brokers_elected,
        is_quick=True,
    ),
    Mutant(
        "older store accepted",
        "a broker goes on with a store that has lost commits",
        _older_store_accepted,
        options=STORE,
        is_quick=True,
    ),
    Mutant(
        "another store's identity accepted",
        "a broker goes on with a store that is not its own",
        _another_identity_accepted,
        seeds=(5,),
        options=STAND_INS,
        is_quick=True,
    ),
    Mutant(
        "moved too early",
        "old replicas are dropped before the new ones have caught up",
        _moved_too_early,
        options=MOVES,
        is_quick=True,
    ),
    Mutant(
        "controller never decides",
        "the controller takes its last look for too old, always",
        _mark_ignored_at_registration,
        is_quick=True,
    ),
)
