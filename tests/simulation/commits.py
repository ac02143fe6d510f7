"""Every commit of the metadata store, looked at when it happens.

- A broker that has registered after its disk lost committed records is in no ISR and no ELR until
  it has them again (KIP-966, KIP-903).
- An ISR changes by its leader, by the controller, and a broker may leave it by itself. There is an
  ELR only while the ISR is below min.insync.replicas.
- Leaders are elected by the controller alone: the broker that holds the lease at that moment, and
  under its epoch; from the ISR or the ELR, or where there is neither, from the last known ELR one
  that has reported where its log ends, unless the topic allows unclean elections. There, too,
  nobody else is elected before all of the ISR and the ELR are dead, or have fenced themselves.
- Whoever had everything that was committed is in the ISR or in one of the ELRs as long as the ISR
  is too small, and each of them for one reason only.
- Nobody is fenced by mistake: not before his session has been silent for a session timeout, in
  which the time of store outages does not count. Nobody is let in by mistake either: he has renewed
  it lately, as the process that is registered, and is not about to stop.
- Nobody joins an ISR who is fenced or about to stop (KIP-841).
- No commit has two successors, and epochs grow by one.

It also counts what a run has to reach. Deliberately absent: whether brokers follow what was
committed, which is history.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from data_plane.cell.changes import AlterConfigs, ChangeBroker, ChangePartition, RegisterBroker
from data_plane.cell.metadata import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from data_plane.cell.metadata_store import Commit
from data_plane.cell.reassignment import is_reassigning, original_of
from tests.simulation.placements import check_placements
from tests.simulation.replicas import TopicPartition
from tests.simulation.undeletes import settings_of
from tests.simulation.world import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

UNCLEAN = "unclean.leader.election.enable"
# Clocks run up to 10 % fast, and heartbeats are counted when they arrive.
SILENCE_SHARE_MIN = 0.75
# Who comes back while its fencing is under way is fenced all the same: so long after its return.
RETURN_SHARE_MAX = 0.5
# Clocks run up to 10 % slow, and a pass goes by what was known when it began.
VOUCHED_SHARE_MAX = 1.3
# A session's end is noticed with a heartbeat of the controller, and committed after retries.
SILENCE_SHARE_MAX = 4.0


class CommitWatch:
    """See the module."""

    def __init__(self, cell: Cell, session_timeout_ms: int) -> None:
        self._cell = cell
        self._world = cell.world
        self._session_timeout_ms = session_timeout_ms
        self._unclean_topics: dict[UUID, None] = {}
        # Of each topic: its settings, and since when they are the truth.
        self._settings: dict[UUID, list[tuple[int, dict[str, str]]]] = {}
        self._controller_epoch = 0
        # Incarnation → when its session was last renewed, in microseconds the store was up for.
        self._renewed_us: dict[str, int] = {}
        # Incarnations that have renewed theirs since they registered.
        self._heartbeats: dict[str, None] = {}
        # Incarnation → when it was heard of again after a silence that is a reason to fence it.
        self._returned_us: dict[str, int] = {}
        self._down_us = 0
        self._down_since_us: int | None = None

    def allows_unclean(self, topic_id: UUID) -> bool:
        """Whether the topic's settings have ever allowed an unclean election."""
        return topic_id in self._unclean_topics

    def vouched_settings(self, topic_id: UUID) -> list[dict[str, str]]:
        """All that the topic's settings have been, oldest first, of which a broker may take the
        store's word now: it has that for a session."""
        known = self._settings.get(topic_id, [])
        first_us = self._world.now_us - int(
            self._session_timeout_ms * VOUCHED_SHARE_MAX * US_PER_MS
        )
        ends_us = [since_us for since_us, _ in known[1:]]
        return [
            configs
            for (_, configs), end_us in zip(known, [*ends_us, self._world.now_us], strict=True)
            if end_us >= first_us
        ]

    def _note_settings(self, after: MetadataImage) -> None:
        for topic_id, topic in after.topics_by_id.items():
            known = self._settings.setdefault(topic_id, [])
            configs = settings_of(topic)
            if not known or known[-1][1] != configs:
                known.append((self._world.now_us, configs))

    # Sessions

    def store_went_down(self) -> None:
        if self._down_since_us is None:
            self._down_since_us = self._world.now_us

    def store_came_back(self) -> None:
        if self._down_since_us is not None:
            self._down_us += self._world.now_us - self._down_since_us
            self._down_since_us = None

    def _up_us(self) -> int:
        return self._world.now_us - self._down_us

    def renewed(self, incarnation_id: str) -> None:
        """The store has taken a heartbeat."""
        now_us = self._up_us()
        if self._is_silent(incarnation_id):
            self._returned_us[incarnation_id] = now_us
        self._renewed_us[incarnation_id] = now_us
        self._heartbeats[incarnation_id] = None

    def _is_silent(self, incarnation_id: str) -> bool:
        """Whether it has not been heard of for so long that it may be fenced."""
        silent_us = self._up_us() - self._renewed_us.get(incarnation_id, 0)
        return silent_us >= self._session_timeout_ms * SILENCE_SHARE_MIN * US_PER_MS

    def _has_just_returned(self, incarnation_id: str) -> bool:
        returned_us = self._returned_us.get(incarnation_id)
        share_us = self._session_timeout_ms * RETURN_SHARE_MAX * US_PER_MS
        return returned_us is not None and self._up_us() - returned_us < share_us

    # Commits

    def committed(
        self, who: str, before: MetadataImage, after: MetadataImage, commit: Commit
    ) -> None:
        """Check and count one commit."""
        for topic in after.topics_by_id.values():
            if topic.configs.get(UNCLEAN) == "true":
                self._unclean_topics[topic.topic_id] = None
        if after.topics_by_id is not before.topics_by_id:
            self._note_settings(after)
        if commit.version != before.version + 1 or after.version != commit.version:
            self._world.violate(f"commit {commit.version} follows {before.version}")
        self._check_controller(who, commit)
        check_placements(self._world, before, commit.changes)
        for change in commit.changes:
            if isinstance(change, RegisterBroker):
                self._cell.history.registered(f"b{change.broker.node_id}")
                self._check_registered(change.broker.node_id, after)
                self._renewed_us[change.broker.incarnation_id] = self._up_us()
            elif isinstance(change, ChangeBroker):
                self._check_fencing(who, before, change, commit)
        # What a broker has wanted of one partition on several grounds stands in one commit.
        changed: dict[tuple[UUID, int], PartitionImage] = {}
        for change in commit.changes:
            if isinstance(change, ChangePartition):
                known = before.topics_by_id.get(change.topic_id)
                if change.topic_id not in after.topics_by_id:
                    continue  # Deleted in the same commit.
                if known is not None and change.index < len(known.partitions):
                    key = (change.topic_id, change.index)
                    old = changed.get(key, known.partitions[change.index])
                    changed[key] = change.partition
                    self._partition_changed(who, old, change, commit, known.name, after)
        names = ", ".join(describe(change, after) for change in commit.changes[:6])
        self._world.note("store", f"{who} commits {after.version}: {names}")

    def _check_registered(self, node_id: int, after: MetadataImage) -> None:
        """Who comes back without what was committed vouches for nothing from the same moment on."""
        for partition in self._cell.history.partitions.values():
            lost = partition.lost.get(f"b{node_id}")
            topic = after.topics_by_id.get(partition.key[0])
            if lost is None or topic is None or self.allows_unclean(partition.key[0]):
                continue
            if partition.is_lossy or lost.end <= partition.start_offset:
                continue
            state = topic.partitions[partition.key[1]]
            if node_id in (*state.isr, *state.elr):
                self._world.violate(
                    f"b{node_id} registers without the committed records {lost.start}..{lost.end} "
                    f"of {partition}, which it lost, and is in ISR {state.isr} or ELR {state.elr}"
                )

    def _check_controller(self, who: str, commit: Commit) -> None:
        epoch = commit.controller_epoch
        if epoch is None:
            return
        if epoch < self._controller_epoch:
            self._world.violate(f"{who} commits {commit.version} under the old epoch {epoch}")
        if epoch > self._controller_epoch:
            self._controller_epoch = epoch
            self._world.count("controller changes")

    def _check_fencing(
        self, who: str, before: MetadataImage, change: ChangeBroker, commit: Commit
    ) -> None:
        node_id = change.broker.node_id
        old = before.brokers[node_id]
        if old.is_fenced == change.broker.is_fenced:
            return
        if not change.broker.is_fenced:
            self._world.count("unfenced")
            self._check_unfenced(who, before, change.broker, commit)
            return
        if who == f"b{node_id}" and commit.controller_epoch is None:
            return  # Its own farewell.
        self._world.count("fenced")
        if not self._may_be_dead_to(who, old.incarnation_id):
            self._world.violate(
                f"{who} fences b{node_id}, whose session was renewed "
                f"{self._silent_ms(old.incarnation_id):.0f} ms ago"
            )

    def _may_be_dead_to(self, who: str, incarnation_id: str) -> bool:
        """Whether that controller may take a process for dead."""
        # By its own clock, which somebody may just have set forward a little.
        set_us = self._cell.nodes[int(who[1:])].clock_set_us
        is_clock_steady = self._world.now_us - set_us > 2 * self._session_timeout_ms * US_PER_MS
        is_excused = self._is_silent(incarnation_id) or self._has_just_returned(incarnation_id)
        return is_excused or not is_clock_steady

    def _silent_ms(self, incarnation_id: str) -> float:
        return (self._up_us() - self._renewed_us.get(incarnation_id, 0)) / US_PER_MS

    def _check_unfenced(
        self, who: str, before: MetadataImage, broker: BrokerImage, commit: Commit
    ) -> None:
        """Only the controller lets a broker in, which it has seen to renew its session."""
        old = before.brokers[broker.node_id]
        if commit.controller_epoch is None or broker.incarnation_id != old.incarnation_id:
            self._world.violate(f"{who} lets in {broker} by {commit}")
        if broker.in_controlled_shutdown:
            self._world.violate(f"{who} lets in {broker}, which is about to stop")
        silent_ms = self._silent_ms(broker.incarnation_id)
        is_silent = silent_ms > self._session_timeout_ms * SILENCE_SHARE_MAX
        if is_silent or broker.incarnation_id not in self._heartbeats:
            self._world.violate(f"{who} lets in {broker}, silent for {silent_ms:.0f} ms")

    def _check_join(
        self,
        who: str,
        name: str,
        key: TopicPartition,
        old: PartitionImage,
        node_id: int,
        commit: Commit,
        after: MetadataImage,
    ) -> None:
        """Only the leader takes somebody into the ISR, and the controller whom it elects."""
        broker = after.brokers.get(node_id)
        if broker is None or broker.is_fenced or broker.in_controlled_shutdown:
            self._world.violate(f"{name}: {broker} joins the ISR")
        if commit.controller_epoch is not None:
            return
        if who != f"b{old.leader}":
            self._world.violate(f"{name}: b{node_id} joins the ISR by {who}, not the leader: {old}")
        known = self._known_broker_epoch(old.leader, key, node_id)
        if 0 <= known < broker.broker_epoch:
            self._world.violate(
                f"{name}: b{node_id} joins the ISR by what its life of broker epoch {known} had, "
                f"registered is {broker.broker_epoch} (KIP-903)"
            )

    def _known_broker_epoch(self, leader: int, key: TopicPartition, follower: int) -> int:
        """The broker epoch that the follower's last fetch named to the leader; -1 for none."""
        services = self._cell.nodes[leader].services
        if services is None:
            return -1
        replica = services.partitions.replica(*key)
        leadership = None if replica is None else replica.leadership
        known = None if leadership is None else leadership.followers.get(follower)
        return -1 if known is None else known.broker_epoch

    def _partition_changed(
        self,
        who: str,
        old: PartitionImage,
        change: ChangePartition,
        commit: Commit,
        topic: str,
        after: MetadataImage,
    ) -> None:
        new = change.partition
        self._count(old, new)
        key = (change.topic_id, change.index)
        name = f"{topic}-{change.index}"
        partition = self._cell.history.partitions.get(key)
        if partition is not None:
            partition.note_removals(set(old.replicas) - set(new.replicas), commit.version)
            # Where nobody is known to have it all somebody leads who may not; history.py judges
            # whether that had to be.
            is_last_resort = not old.isr and not old.elr
            is_last_resort = is_last_resort or self.allows_unclean(change.topic_id)
            if is_last_resort:
                partition.pins = None
            for node_id in sorted(set(new.isr) - set(old.isr)):
                self._check_join(who, name, key, old, node_id, commit, after)
                if not is_last_resort and not self.allows_unclean(change.topic_id):
                    self._cell.history.committed.check_joining(partition, f"b{node_id}", str(new))
                    self._cell.history.held.check_isr(partition, (node_id,))
                partition.doubted.pop(f"b{node_id}", None)
            for node_id in () if is_last_resort else (*new.isr, *new.elr):
                lost = partition.lost.get(f"b{node_id}")
                if lost is not None and lost.end <= partition.start_offset:
                    continue  # Deleted by its owner.
                if lost is not None and lost.is_registered and not partition.is_lossy:
                    self._world.violate(
                        f"{name}: b{node_id} is in ISR {new.isr} or ELR {new.elr} without the "
                        f"committed records {lost.start}..{lost.end}, which it lost"
                    )
        if commit.controller_epoch is None and new.replicas == old.replicas:
            for node_id in sorted(set(old.isr) - set(new.isr)):
                if who not in (f"b{old.leader}", f"b{node_id}"):
                    self._world.violate(f"{name}: {who} takes b{node_id} out of the ISR of {old}")
        self._check_peace(name, old, new)
        self._check_copies(name, old, change, after, commit)
        if new.leader in (NO_LEADER, old.leader):
            return
        if commit.controller_epoch is None:
            self._world.violate(f"{name}: {new} is elected by a commit that no lease stands for")
        self._check_lives(name, new.leader, after)
        if self.allows_unclean(change.topic_id) and new.leader not in (*old.isr, *old.elr):
            self._check_unclean(who, name, old, new, after)
        if new.leader not in new.isr:
            self._world.violate(f"{name}: the leader of {new} is not in its ISR")
        if new.leader in (*old.isr, *old.elr) or self.allows_unclean(change.topic_id):
            return
        if old.isr or old.elr or new.leader not in {end.node_id for end in old.log_ends}:
            self._world.violate(f"{name}: {new} is elected from {old}")

    def _check_copies(
        self,
        name: str,
        old: PartitionImage,
        change: ChangePartition,
        after: MetadataImage,
        commit: Commit,
    ) -> None:
        """ISR, ELR and last known ELR fit each other and the replicas, and forget nobody."""
        new = change.partition
        # Of several changes in one commit nobody sees any but the last: the ISR shrinks, and then
        # min.insync.replicas is lowered, and the ELR emptied with that.
        is_last = after.topics_by_id[change.topic_id].partitions[change.index] == new
        min_isr = self._cell.min_isr_of(after, change.topic_id, new)
        if is_last and new.elr and len(new.isr) >= min_isr:
            self._world.violate(f"{name}: {new} has an ELR although its ISR is large enough")
        arrived = set(old.adding_replicas) & (set(new.replicas) - set(new.adding_replicas))
        if not arrived <= set(new.isr):
            self._world.violate(f"{name}: {new} has {arrived} for good, who is not in sync: {old}")
        holders = [*new.isr, *new.elr, *new.last_known_elr]
        given_up = {*old.isr, *old.elr, *old.last_known_elr} - set(new.replicas)
        if given_up and len(holders) < min_isr:
            self._world.violate(
                f"{name}: {new} leaves fewer safe copies than {min_isr}, without {given_up}: {old}"
            )
        if len(set(holders)) < len(holders) or not set(holders) <= set(new.replicas):
            self._world.violate(f"{name}: {new} is not a state of a partition")
        # Lowered and raised again in one commit, it empties the ELR in between.
        is_lowered = _has_min_isr_of_one(commit, after.topics_by_id[change.topic_id])
        if len(new.isr) < min_isr and not is_lowered:
            forgotten = {*old.isr, *old.elr, *old.last_known_elr} & set(new.replicas)
            if forgotten - set(holders):
                self._world.violate(f"{name}: {new} forgets some of {old}")

    def _check_peace(self, name: str, old: PartitionImage, new: PartitionImage) -> None:
        """Where nothing goes wrong a replica leaves the ISR only when it is given up."""
        if not self._cell.is_peaceful:
            return
        given_up = {*old.removing_replicas} | set(old.replicas) - set(new.replicas)
        left = set(old.isr) - set(new.isr) - given_up
        if left:
            self._world.violate(f"{name}: {left} fell out of the ISR in peace: {new} after {old}")

    def _check_unclean(
        self, who: str, name: str, old: PartitionImage, new: PartitionImage, after: MetadataImage
    ) -> None:
        """Records are given up only when all who have them are gone."""
        for node_id in (*old.isr, *old.elr):
            broker = after.brokers.get(node_id)
            if broker is None or (broker.is_fenced and broker.in_controlled_shutdown):
                continue
            if not broker.is_fenced or not self._may_be_dead_to(who, broker.incarnation_id):
                self._world.violate(
                    f"{name}: {new} is elected from {old}, although b{node_id} was heard of "
                    f"{self._silent_ms(broker.incarnation_id):.0f} ms ago"
                )
        if old.isr or old.elr:
            self._world.count("unclean elections")

    def _check_lives(self, name: str, leader: int, after: MetadataImage) -> None:
        """Only a broker that is known to live is elected."""
        silent_ms = self._silent_ms(after.brokers[leader].incarnation_id)
        is_silent = silent_ms > self._session_timeout_ms * SILENCE_SHARE_MAX
        if after.brokers[leader].is_fenced or is_silent:
            self._world.violate(
                f"{name}: b{leader} is elected, silent for {silent_ms:.0f} ms: "
                f"{after.brokers[leader]}"
            )

    def _count(self, old: PartitionImage, new: PartitionImage) -> None:
        count = self._world.count
        if new.leader_epoch > old.leader_epoch and new.leader >= 0:
            count("elections")
            if new.leader not in (old.leader, old.last_known_leader):
                count("failovers")
            if new.leader in old.elr:
                count("elections from the ELR")
            elif new.leader not in old.isr:
                count("elections of the longest log or an unclean leader")
        if len(new.log_ends) > len(old.log_ends):
            count("log ends reported")
        if set(old.isr) - set(new.isr):
            count("ISR shrinks")
        if set(new.isr) - set(old.isr):
            count("ISR expansions")
        if set(new.elr) - set(old.elr):
            count("ELR joins")
        if new.replicas != old.replicas:
            count("reassignment steps")
        if not is_reassigning(new) and (is_reassigning(old) or old.replicas != new.replicas):
            change = len(new.replicas) - len(original_of(old))
            if change:
                count("replication factors " + ("raised" if change > 0 else "lowered"))


def describe(change: object, image: MetadataImage) -> str:
    """A change in a few words."""
    if isinstance(change, ChangePartition):
        topic = image.topics_by_id.get(change.topic_id)
        name = "?" if topic is None else topic.name
        state = change.partition
        extra = f" elr {state.elr}" if state.elr else ""
        if state.last_known_elr:
            extra += f" last known elr {state.last_known_elr}"
        if state.log_ends:
            extra += f" log ends {[tuple(end) for end in state.log_ends]}"
        return (
            f"{name}-{change.index} leader {state.leader} epoch {state.leader_epoch} "
            f"isr {state.isr} of {state.replicas}{extra}"
        )
    if isinstance(change, (ChangeBroker, RegisterBroker)):
        broker = change.broker
        states = [
            name
            for name in ("is_fenced", "in_controlled_shutdown", "is_draining")
            if getattr(broker, name)
        ]
        return f"{type(change).__name__} b{broker.node_id} {' '.join(states)}"
    return repr(change)[:160]


def _has_min_isr_of_one(commit: Commit, topic: TopicImage) -> bool:
    """Whether somewhere in a commit a topic may do with an ISR of one."""
    return any(
        isinstance(change, AlterConfigs)
        and (change.tenant, change.resource_name) == (topic.tenant, topic.name)
        and ("min.insync.replicas", "1") in change.values
        for change in commit.changes
    )
