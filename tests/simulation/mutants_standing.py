"""Planted bugs of what a broker may be: let in, taken into an ISR, waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.replicas import isr_changes, topic_partitions
from data_plane.cell import controller, election, partition_state
from data_plane.cell.liveness import LivenessTracker
from data_plane.cell.metadata import MetadataImage, PartitionImage
from tests.simulation import scenes
from tests.simulation.mutant import RESTARTS, Mutant, Patch


def _unclean_beside_the_elr(patch: Patch) -> None:
    """An empty ISR is hopeless, whoever is in the ELR."""
    original: Any = election.without_brokers

    def without(partition: PartitionImage, gone: Any, *rest: Any, **options: Any) -> Any:
        if not partition.isr:
            electable = rest[1]
            gone = gone | ({*partition.elr} - electable)
        return original(partition, gone, *rest, **options)

    patch.set(controller, "without_brokers", without)


def _first_look_lets_in(patch: Patch) -> None:
    """Whoever has a session is alive when a controller looks for the first time."""
    original: Any = LivenessTracker.__dict__["look"]

    def look(self: LivenessTracker, *rest: Any) -> Any:
        before = set(self._renewals)
        original(self, *rest)
        for incarnation in self._renewals.keys() - before:
            self._renewals[incarnation].is_seen_moving = True
        return self._observed(*rest[2:])

    patch.set(LivenessTracker, "look", look)


def _stopping_broker_let_in(patch: Patch) -> None:
    original: Any = controller.decide_broker

    def decide_broker(broker: Any, image: MetadataImage, observed: Any, notes: Any) -> Any:
        new = original(broker, image, observed, notes)
        return replace(new, is_fenced=False) if observed.is_alive(broker) else new

    patch.set(controller, "decide_broker", decide_broker)


def _stopping_broker_joins(patch: Patch) -> None:
    def may_join_isr(image: MetadataImage, node_id: int, broker_epoch: int) -> bool:
        broker = image.brokers.get(node_id)
        is_known = broker is not None and broker.broker_epoch == broker_epoch
        return is_known and not image.brokers[node_id].is_fenced

    for module in (isr_changes, topic_partitions, partition_state):
        patch.set(module, "may_join_isr", may_join_isr)


STANDING_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "unclean election beside the ELR",
        "where the ISR is empty nobody of the ELR is waited for",
        _unclean_beside_the_elr,
        options=scenes.options(scenes.unheard_elr),
        is_quick=True,
    ),
    Mutant(
        "first look lets in",
        "a controller lets in brokers that it has not seen to renew their sessions",
        _first_look_lets_in,
        is_quick=True,
    ),
    Mutant(
        "stopping broker let in",
        "the controller lets in a broker that has fenced itself to stop",
        _stopping_broker_let_in,
        options=RESTARTS,
        is_quick=True,
    ),
    Mutant(
        "stopping broker joins",
        "a follower that is about to stop joins the ISR (KIP-841)",
        _stopping_broker_joins,
        options=RESTARTS,
        is_quick=True,
    ),
)
