"""Balance: replicas spread evenly over brokers, and leaders on their preferred replicas.

`plan_balance` looks at what the image will be when all reassignments under way are complete, and
says what to move so that no broker has two replicas more than another, as far as racks and hosts
allow: a move never brings replicas of one partition closer together. Then it changes orders of
preference, which moves no data, until no broker is preferred twice more than another one that could
be preferred instead. It is how a new broker gets its share. Only on request, or where
`auto.replica.rebalance.enable` is set: copying costs the cell something, and nobody should be
surprised by it. What follows a source moves with it (source_followers.py), and counts with it: a
source that weighs as much as two brokers are apart stays where it is.

`balance_leaders` moves leaders back to preferred replicas, when more than
`leader.imbalance.per.broker.percentage` of the partitions that prefer a broker are led elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from data_plane.cell.changes import Assignment
from data_plane.cell.election import elect_preferred
from data_plane.cell.metadata import NO_LEADER, MetadataImage
from data_plane.cell.moves import Mover
from data_plane.cell.partitions_draft import PartitionKey, PartitionsDraft, Place
from data_plane.cell.placement import Placer, is_ready
from data_plane.cell.reassignment import is_reassigning

# Among how many replicas that could move one is looked for that suits the leaders as well.
CANDIDATES_MAX = 100


class Move(NamedTuple):
    """A partition and the replicas that it should have."""

    place: Place
    target: Assignment


def plan_balance(image: MetadataImage) -> list[Move]:
    """What to reassign so that replicas and preferred leaders are spread evenly; empty when they
    are. Partitions that are being reassigned or have no leader are left alone."""
    plan = _Plan(PartitionsDraft(image), image)
    plan.balance_replicas()
    plan.balance_preferences()
    return plan.moves()


def balance_replicas(mover: Mover, image: MetadataImage) -> None:
    """Start the next round of the plan, when nothing is being reassigned any more: as many moves
    as the mover's bounds allow, or, when replicas are spread evenly, the new preferences."""
    if any(is_reassigning(partition) for _, partition in mover.draft.items()):
        return
    plan = _Plan(mover.draft, image)
    plan.balance_replicas(mover.moves_max * len(image.brokers))
    if not plan.moves():
        plan.balance_preferences()
    for place, target in plan.moves():
        if mover.draft.is_full:
            return
        receiving = set(target) - set(mover.draft.get(place).replicas)
        if mover.busy().isdisjoint(receiving):
            mover.move(place, target)


def balance_leaders(
    draft: PartitionsDraft, electable: AbstractSet[int], imbalance_percent_max: int
) -> None:
    """Move leaders to preferred replicas that can lead, for brokers out of balance."""
    preferred: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for _, partition in draft.items():
        preferred[partition.replicas[0]] += 1
        elsewhere[partition.replicas[0]] += partition.leader != partition.replicas[0]
    unbalanced = {
        node_id
        for node_id, count in preferred.items()
        if elsewhere[node_id] * 100 > count * imbalance_percent_max
    }
    if not unbalanced:
        return
    for place, partition in draft.items():
        if partition.replicas[0] not in unbalanced or is_reassigning(partition):
            continue
        if draft.is_follower(place):
            continue
        if draft.is_full:
            return
        elected = elect_preferred(partition, electable)
        if elected is not None:
            draft.put(place, elected)


class _Plan:
    """Targets of all partitions, changed step by step towards balance. Each step makes the
    difference between two brokers smaller, so there is an end."""

    def __init__(self, draft: PartitionsDraft, image: MetadataImage) -> None:
        self._placer = Placer(image.brokers.values(), image)
        self._brokers = [
            node_id for node_id, broker in sorted(image.brokers.items()) if is_ready(broker)
        ]
        self._places: dict[PartitionKey, Place] = {}
        self._targets: dict[PartitionKey, Assignment] = {}
        self._weights: dict[PartitionKey, int] = {}
        # Which of them have replicas on a broker, in order.
        self._on_broker: dict[int, dict[PartitionKey, None]] = {
            node_id: {} for node_id in self._brokers
        }
        # Those that prefer a broker for their leader, likewise.
        self._preferring: dict[int, dict[PartitionKey, None]] = {}
        for place, partition in draft.items():
            if is_reassigning(partition) or partition.leader == NO_LEADER:
                continue
            if draft.is_follower(place):
                continue
            self._places[place.key] = place
            self._targets[place.key] = partition.replicas
            self._weights[place.key] = 1 + len(draft.followers_of(place))
            for node_id in partition.replicas:
                if node_id in self._on_broker:
                    self._on_broker[node_id][place.key] = None
        self._original = dict(self._targets)

    def moves(self) -> list[Move]:
        return [
            Move(self._places[key], target)
            for key, target in self._targets.items()
            if target != self._original[key]
        ]

    def balance_replicas(self, steps_max: int | None = None) -> None:
        steps = 0
        while steps_max is None or steps < steps_max:
            if not self._balance_once(self._placer.replicas_count, self._move_replica):
                break
            steps += 1

    def balance_preferences(self) -> None:
        self._preferring = {node_id: {} for node_id in self._brokers}
        for key, target in self._targets.items():
            if target[0] in self._preferring:
                self._preferring[target[0]][key] = None
        while self._balance_once(self._placer.leaders_count, self._prefer):
            pass

    def _balance_once(self, counts: Counter[int], step: Callable[[int, int, int], bool]) -> bool:
        """Try the step for the pairs of brokers that are furthest apart first. It is told how far:
        what weighs as much would only change sides."""
        ascending = sorted(self._brokers, key=lambda node_id: (counts[node_id], node_id))
        for giver in reversed(ascending):
            for taker in ascending:
                difference = counts[giver] - counts[taker]
                if difference < 2:
                    break
                if step(giver, taker, difference):
                    return True
        return False

    def _move_replica(self, giver: int, taker: int, difference: int) -> bool:
        leaders = self._placer.leaders_count
        prefers_leader = leaders[giver] > leaders[taker]
        fallback: tuple[PartitionKey, Assignment] | None = None
        since_fallback = 0
        for key in self._on_broker[giver]:
            since_fallback += fallback is not None
            if since_fallback > CANDIDATES_MAX:
                break
            old = self._targets[key]
            if taker in old or self._weights[key] >= difference:
                continue
            new = tuple(taker if node_id == giver else node_id for node_id in old)
            if not self._is_as_spread(new, old):
                continue
            if (old[0] == giver) == prefers_leader:
                self._move(key, new, giver, taker)
                return True
            fallback = fallback or (key, new)
        if fallback is None:
            return False
        self._move(*fallback, giver, taker)
        return True

    def _prefer(self, giver: int, taker: int, difference: int) -> bool:
        for key in self._preferring[giver]:
            old = self._targets[key]
            if taker in old and self._weights[key] < difference:
                others = (node_id for node_id in old if node_id != taker)
                self._set(key, (taker, *others))
                del self._preferring[giver][key]
                self._preferring[taker][key] = None
                return True
        return False

    def _is_as_spread(self, new: Assignment, old: Assignment) -> bool:
        new_crowding, old_crowding = self._placer.crowding(new), self._placer.crowding(old)
        return all(now <= before for now, before in zip(new_crowding, old_crowding, strict=True))

    def _move(self, key: PartitionKey, target: Assignment, giver: int, taker: int) -> None:
        self._set(key, target)
        del self._on_broker[giver][key]
        self._on_broker[taker][key] = None

    def _set(self, key: PartitionKey, target: Assignment) -> None:
        weight = self._weights[key]
        self._placer.count(self._targets[key], -weight)
        self._placer.count(target, weight)
        self._targets[key] = target
