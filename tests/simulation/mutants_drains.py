"""Planted bugs of brokers that drain: nothing leaves them, they drain for ever, something comes."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from data_plane.cell import controller, evacuation, placement
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.moves import Mover
from data_plane.cell.placement import may_get_replicas
from tests.simulation.mutant import DRAINED, Mutant, Patch


def _nothing_leaves(patch: Patch) -> None:
    original = evacuation.evacuate

    def evacuate(mover: Mover, leaving: AbstractSet[int]) -> None:
        lost = {one for one in leaving if mover.placer.is_fenced(one)}
        original(mover, lost)

    patch.set(controller, "evacuate", evacuate)


def _drains_for_ever(patch: Patch) -> None:
    original: Any = controller.decide_broker

    def decide_broker(broker: BrokerImage, *rest: Any) -> BrokerImage:
        new: BrokerImage = original(broker, *rest)
        if not broker.is_draining or new.is_draining:
            return new
        kept = replace(new, is_draining=True)
        return broker if kept == broker else kept

    patch.set(controller, "decide_broker", decide_broker)


def _given_new_ones(patch: Patch) -> None:
    def may(broker: BrokerImage) -> bool:
        return broker.is_draining or may_get_replicas(broker)

    patch.set(placement, "may_get_replicas", may)


DRAIN_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "nothing leaves",
        "replicas leave a draining broker only once it is dead",
        _nothing_leaves,
        seeds=(2,),
        options=DRAINED,
        is_quick=True,
    ),
    Mutant(
        "drains for ever",
        "a broker that is taken back goes on draining",
        _drains_for_ever,
        options=DRAINED,
        is_quick=True,
    ),
    Mutant(
        "given new replicas",
        "the partitions of a new topic come on brokers that drain, too",
        _given_new_ones,
        seeds=(4,),
        options=DRAINED,
        is_quick=True,
    ),
)
