"""The controller: the broker that holds the controller lease decides who is fenced, who leads and
where replicas are.

Every broker has a `Controller` and shows it the answer to each of its heartbeats, so that it knows
who lives when the lease becomes its own; it decides something only then. `tick` says what is to be
committed now. Whoever
commits hands `decide` to the metadata writer, which runs it on the newest image, and again when
another commit came first:

    controller.observe_heartbeat(heartbeat, image, now_ms)
    plan = controller.plan(image, now_ms)
    if plan is not None and controller.take(plan, plan.make()):
        metadata.write(controller.decide, on_done, controller_epoch=controller.epoch)

To decide takes some 25 µs for each partition that changes. So a plan on a large image
(`Plan.is_large`) is made in a thread, and what it holds of another image than its own is what is
still as it was (`decide`); the rest comes with the next plan.

What is decided follows from the image, from what is known of the brokers at this moment
(liveness.py) and from the settings: from states, never from events. So a commit that failed, was
cut short or was made by another controller needs no special care, and the next look makes up for
it. In one commit, in this order:

1. brokers: the dead are fenced, those seen alive unfenced, draining is switched on and off; for how
   long the dead have been so is noted (death_times.py);
2. partitions: dead and stopping brokers leave every ISR (into the ELR where KIP-966 says so),
   leaders are elected where there is none, complete reassignments end;
3. retry partitions follow their sources, now and whenever these move (source_followers.py);
4. replicas leave dead brokers after a delay, and draining ones (evacuation.py); internal topics
   get more of them when brokers come (growth.py);
5. replicas and leaders are balanced, where that is switched on (balance.py).

Invariants
- `decide` gives nothing on the image that its own changes lead to, unless they were cut short.
- A broker that fenced itself to stop stays fenced until it registers again.
- Where nothing has changed since the last look, a tick costs a few comparisons.

Deliberately absent: the lease and its renewal (membership), the fence by epoch (the store).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from data_plane.cell.balance import balance_leaders, balance_replicas
from data_plane.cell.changes import Change, ChangeBroker, ChangePartition
from data_plane.cell.death_times import DeathTimes
from data_plane.cell.election import without_brokers
from data_plane.cell.evacuation import evacuate
from data_plane.cell.growth import grow_internal_topics, needs_growth
from data_plane.cell.liveness import (
    NOTHING_OBSERVED,
    Incarnation,
    LivenessTracker,
    Observed,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage, PartitionImage
from data_plane.cell.metadata_store import ControllerLease, Heartbeat
from data_plane.cell.moves import Mover
from data_plane.cell.partition_state import with_settled_elr
from data_plane.cell.partitions_draft import PARTITIONS_PER_COMMIT_MAX, PartitionsDraft, Place
from data_plane.cell.reassignment import complete
from data_plane.cell.recovery_waits import PartitionState, RecoveryWaits
from data_plane.cell.settings import ControllerSettings
from data_plane.cell.source_followers import follow_sources

# The dynamic property of one broker that has its replicas move away.
DRAIN_PROPERTY = "broker.drain"


# Images of more partitions are decided on off the loop: in one turn that would take too long.
DECIDED_AT_ONCE_MAX = 500


@dataclass(frozen=True, slots=True)
class Situation:
    """What decisions follow from besides the image.

    - `lost`: brokers that have been dead for the whole rebuild delay.
    - `is_leader_check_due`: whether it is time to move leaders to preferred replicas.
    - `dead_ms`: for how long the dead have been so, as it is to be noted.
    - `overdue`: partitions for which nobody's report of his log end is waited for any longer.
    """

    observed: Observed
    settings: ControllerSettings
    lost: frozenset[Incarnation] = frozenset()
    is_leader_check_due: bool = False
    dead_ms: Mapping[Incarnation, int] = field(default_factory=dict)
    overdue: AbstractSet[PartitionState] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """Something may have to be done on `image`; what, `make` says, which is pure and may run in
    another thread."""

    image: MetadataImage
    situation: Situation
    now_ms: int

    @property
    def is_large(self) -> bool:
        return _is_large(self.image)

    def make(self) -> Sequence[Change]:
        return tuple(decide(self.image, self.situation))


def _is_large(image: MetadataImage) -> bool:
    count = sum(len(topic.partitions) for topic in image.topics_by_id.values())
    return count > DECIDED_AT_ONCE_MAX


def decide(
    image: MetadataImage,
    situation: Situation,
    partitions_max: int = PARTITIONS_PER_COMMIT_MAX,
) -> list[Change]:
    """Everything that is to be committed now. Pure."""
    brokers = {
        broker.node_id: decide_broker(broker, image, situation.observed, situation.dead_ms)
        for broker in image.brokers.values()
    }
    changes: list[Change] = [
        ChangeBroker(broker)
        for node_id, broker in sorted(brokers.items())
        if broker is not image.brokers[node_id]
    ]
    standing = Standing.of(brokers, situation.observed)
    settings = situation.settings
    draft = PartitionsDraft(image, partitions_max)
    _decide_leaders(draft, standing, settings, situation.overdue)
    leaving = {
        broker.node_id
        for broker in brokers.values()
        if broker.is_draining or (broker.node_id, broker.incarnation_id) in situation.lost
    }
    is_growing = needs_growth(image, settings.internal_replication_factor)

    def finish(place: Place, partition: PartitionImage) -> PartitionImage:
        minimum = settings.min_insync_replicas_of(place.topic)
        return complete(partition, standing.electable, minimum)

    follow_sources(draft, standing.electable, finish)
    if leaving or is_growing or settings.auto_replica_rebalance:
        in_cell = tuple(brokers.values())
        mover = Mover(draft, image, in_cell, settings.moves_per_broker_max, finish)
        evacuate(mover, leaving)
        if is_growing:
            grow_internal_topics(mover, image, settings.internal_replication_factor)
        if settings.auto_replica_rebalance:
            balance_replicas(mover, replace(image, brokers=brokers))
    if situation.is_leader_check_due:
        balance_leaders(draft, standing.electable, settings.leader_imbalance_percent_max)
    # Again: leaders have moved.
    follow_sources(draft, standing.electable, finish)
    return [*changes, *draft.changes()]


def decide_broker(
    broker: BrokerImage,
    image: MetadataImage,
    observed: Observed,
    notes_ms: Mapping[Incarnation, int],
) -> BrokerImage:
    """The broker as it should be registered; the same object when it is."""
    values = image.config_of_broker(str(broker.node_id))
    is_draining = values.get(DRAIN_PROPERTY, "").strip().lower() == "true"
    is_fenced, dead_ms = broker.is_fenced, broker.dead_ms
    if observed.is_dead(broker):
        is_fenced = True
        dead_ms = max(dead_ms, notes_ms.get((broker.node_id, broker.incarnation_id), 0))
    elif observed.is_alive(broker):
        dead_ms = 0
        if not broker.in_controlled_shutdown:
            is_fenced = False
    state = (is_fenced, is_draining, dead_ms)
    if state == (broker.is_fenced, broker.is_draining, broker.dead_ms):
        return broker
    return replace(broker, is_fenced=is_fenced, is_draining=is_draining, dead_ms=dead_ms)


@dataclass(frozen=True, slots=True)
class Standing:
    """What each broker may be, by node id.

    - `electable`: may lead: unfenced, seen alive, not about to stop.
    - `stopping`: about to stop, but still serving.
    - `present`: all others that have not gone; whoever is in no set here is gone.
    """

    electable: frozenset[int]
    stopping: frozenset[int]
    present: frozenset[int]

    @classmethod
    def of(cls, brokers: dict[int, BrokerImage], observed: Observed) -> Standing:
        electable, stopping, present = set(), set(), set()
        for node_id, broker in brokers.items():
            if observed.is_dead(broker):
                continue
            if broker.in_controlled_shutdown:
                # Once it has fenced itself it serves no more.
                if not broker.is_fenced:
                    stopping.add(node_id)
            elif broker.is_fenced or not observed.is_alive(broker):
                present.add(node_id)
            else:
                electable.add(node_id)
        return cls(frozenset(electable), frozenset(stopping), frozenset(present))

    @property
    def staying(self) -> frozenset[int]:
        """Whose replicas keep their places in ISR and lead."""
        return self.electable | self.present


def _decide_leaders(
    draft: PartitionsDraft,
    standing: Standing,
    settings: ControllerSettings,
    overdue: AbstractSet[PartitionState],
) -> None:
    staying, electable, stopping = standing.staying, standing.electable, standing.stopping
    for place, old in draft.items():
        if (
            old.leader in staying
            and staying.issuperset(old.isr)
            and not old.elr
            and not old.last_known_elr
            and not old.adding_replicas
            and not old.removing_replicas
        ):
            continue
        if draft.is_full:
            return
        topic = place.topic
        min_insync_replicas = settings.min_insync_replicas_of(topic)
        new = without_brokers(
            old,
            frozenset(old.replicas) - staying - stopping,
            stopping,
            electable,
            min_insync_replicas,
            is_unclean_allowed=settings.allows_unclean_election(topic),
            is_overdue=(*place.key, old.partition_epoch) in overdue,
        )
        new = complete(with_settled_elr(new, min_insync_replicas), electable, min_insync_replicas)
        if new is not old:
            draft.put(place, new)


def _is_as_it_was(change: ChangePartition, before: MetadataImage, image: MetadataImage) -> bool:
    old = before.topics_by_id[change.topic_id]
    new = image.topics_by_id.get(change.topic_id)
    if new is None or len(new.partitions) <= change.index or old.configs != new.configs:
        return False
    return old.partitions[change.index] == new.partitions[change.index]


class Controller:
    """One per broker with a shared store. See the module for how it is used."""

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        # Whoever holds the lease, as the last heartbeat said.
        self.lease: ControllerLease | None = None
        self._tracker = LivenessTracker()
        self._situation = Situation(NOTHING_OBSERVED, settings)
        # Nothing was to be done on this image in this situation.
        self._settled: tuple[MetadataImage, Situation] | None = None
        # What was decided last: with thousands of partitions it takes long to decide it again.
        self._decided: tuple[MetadataImage, Situation, Sequence[Change]] | None = None
        self._death_times = DeathTimes()
        self._recovery_waits = RecoveryWaits()
        self._leader_check_ms: int | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch to commit with; None while this broker is not the controller."""
        return self.lease.epoch if self.lease is not None and self.lease.is_ours else None

    def configure(self, settings: ControllerSettings) -> None:
        """Go by other settings from the next tick on."""
        self.settings = settings

    def observe_heartbeat(self, heartbeat: Heartbeat, image: MetadataImage, now_ms: int) -> None:
        """Take in the answer to this broker's own heartbeat, which arrived at `now_ms`."""
        before = self.epoch
        self.lease = heartbeat.controller
        observed = self._tracker.look(
            image.brokers, heartbeat.sessions, self.settings.session_timeout_ms, now_ms
        )
        if self.epoch is None:
            self._forget_decisions()
            return
        if self.epoch != before:
            self._forget_decisions()
            self._leader_check_ms = now_ms + self.settings.leader_imbalance_check_interval_ms
        # The store takes nothing from former controllers any more.
        has_all_notes = image.version >= heartbeat.version
        self._death_times.look(observed.dead, image.brokers, now_ms, has_all_notes=has_all_notes)
        self._situation = replace(self._situation, observed=observed)

    def next_look_ms(self) -> int | None:
        """When to look at the store at the latest, so that a death is seen when it is one; None
        when it does not matter."""
        if self.epoch is None:
            return None
        return self._tracker.next_verdict_ms(self.settings.session_timeout_ms)

    def observe_failure(self) -> None:
        """This broker's heartbeat has failed: others' may have, too, so what was seen of them
        before is no ground for a controller to come. One that has the lease looks on; whether
        its next look is too late is the tracker's matter."""
        if self.epoch is None:
            self._tracker.restart()

    def observe_loss(self) -> None:
        """The lease has run out by this broker's own clock: decide nothing until it is back."""
        self.lease = None
        self._tracker.restart()
        self._forget_decisions()

    def plan(self, image: MetadataImage, now_ms: int) -> Plan | None:
        """What is to be decided now; nothing unless this broker is the controller and has looked at
        the store recently, and something has changed since nothing was to be done."""
        settings = self.settings
        if self.epoch is None or not self._tracker.is_current(settings.session_timeout_ms, now_ms):
            return None
        self._situation = Situation(
            self._situation.observed,
            settings,
            self._death_times.lost(settings.rebuild_delay_ms, now_ms),
            self._is_leader_check_due(now_ms),
            self._death_times.notes(settings.rebuild_delay_ms, now_ms),
            self._recovery_waits.overdue(image, now_ms),
        )
        settled = self._settled
        if settled is not None and settled[0] is image and settled[1] == self._situation:
            return None
        return Plan(image, self._situation, now_ms)

    def take(self, plan: Plan, changes: Sequence[Change]) -> Sequence[Change]:
        """`plan` has been made. Returns `changes`: what is to be committed, by way of `decide`."""
        self._decided = (plan.image, plan.situation, changes)
        if not changes:
            self._settled = (plan.image, plan.situation)
            if plan.situation.is_leader_check_due:
                interval_ms = self.settings.leader_imbalance_check_interval_ms
                self._leader_check_ms = plan.now_ms + interval_ms
        return changes

    def tick(self, image: MetadataImage, now_ms: int) -> Sequence[Change]:
        """What is to be committed on `image` now, planned and made at once."""
        plan = self.plan(image, now_ms)
        return () if plan is None else self.take(plan, plan.make())

    def decide(self, image: MetadataImage) -> Sequence[Change]:
        """What is to be committed on `image`, by what the last plan knew. Of a large image that no
        plan was made on, it is what the last plan holds and `image` leaves as it was: perhaps
        nothing."""
        if self.epoch is None:
            return ()
        decided = self._decided
        if decided is not None and decided[0] is image and decided[1] is self._situation:
            return decided[2]
        if _is_large(image):
            return self._still_true(image)
        changes = tuple(decide(image, self._situation))
        self._decided = (image, self._situation, changes)
        return changes

    def _still_true(self, image: MetadataImage) -> Sequence[Change]:
        """Of what was decided last, the changes of partitions that nobody has changed since."""
        if self._decided is None:
            return ()
        before, situation, changes = self._decided
        now = self._situation
        if (
            before.brokers != image.brokers
            or before.configs != image.configs
            or situation.observed != now.observed
            or situation.settings != now.settings
        ):
            return ()
        return tuple(
            change
            for change in changes
            if not isinstance(change, ChangePartition) or _is_as_it_was(change, before, image)
        )

    @property
    def observed(self) -> Observed:
        """What is known of the brokers."""
        return self._situation.observed

    def electable(self, image: MetadataImage) -> frozenset[int]:
        """Who may lead now, by node id: for elections on request."""
        observed = self._situation.observed
        brokers = {
            broker.node_id: decide_broker(broker, image, observed, self._situation.dead_ms)
            for broker in image.brokers.values()
        }
        unfenced = {
            node_id: broker
            for node_id, broker in brokers.items()
            if not image.brokers[node_id].is_fenced
        }
        return Standing.of(unfenced, observed).electable

    def _forget_decisions(self) -> None:
        self._situation = Situation(NOTHING_OBSERVED, self.settings)
        self._settled = None
        self._decided = None
        self._death_times.restart()
        self._recovery_waits.restart()
        self._leader_check_ms = None

    def _is_leader_check_due(self, now_ms: int) -> bool:
        if not self.settings.auto_leader_rebalance or self._leader_check_ms is None:
            return False
        return now_ms >= self._leader_check_ms
