"""A cell as the rules of elections see it: an image, and one list of records for each replica.

No network, no delays: a leader sees its followers' logs, and all see the newest image. What is
modelled is what makes elections dangerous: who has which records, who may have lost some, and what
was committed. `check` holds the rules; tests/cell/test_histories.py finds the histories.

Fault model: a broker stops cleanly (its mark names its broker epoch), crashes (there is no
mark), or crashes and loses the tails of its logs. The controller may know nothing yet of some
brokers, and reports of log ends may take their time.

Committed records may be gone only when as many disks have lost them as min.insync.replicas asked
for, by what the disks have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

from data_plane.cell.changes import (
    AlterConfigs,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    RegisterBroker,
    apply_changes,
)
from data_plane.cell.controller import DRAIN_PROPERTY, Situation, decide
from data_plane.cell.liveness import Incarnation, Observed
from data_plane.cell.metadata import (
    NO_LEADER,
    BrokerImage,
    LogEnd,
    MetadataImage,
    PartitionImage,
    ResourceType,
)
from data_plane.cell.min_isr_changes import decide_min_isr_changes
from data_plane.cell.partition_state import (
    effective_min_isr,
    is_recovering,
    may_join_isr,
    next_epochs,
    with_isr,
    with_log_end,
)
from data_plane.cell.reassignment import cancel, is_reassigning, start, target_of
from data_plane.cell.registration import decide_registration
from data_plane.cell.settings import MIN_INSYNC_REPLICAS, ControllerSettings

TOPIC = UUID(int=7)
BROKERS = (1, 2, 3, 4)
Log = list[tuple[int, int]]


def has(log: Log, prefix: Log) -> bool:
    return log[: len(prefix)] == prefix


class CellModel:
    """See the module."""

    def __init__(
        self, min_insync_replicas: int, is_unclean_allowed: bool, rebuild_delay_is_over: bool
    ) -> None:
        self.settings = ControllerSettings(
            unclean_leader_election=is_unclean_allowed, moves_per_broker_max=1
        )
        self._rebuilds = rebuild_delay_is_over
        self.image = apply_changes(
            MetadataImage("cluster"),
            [
                *(
                    RegisterBroker(BrokerImage(one, "h", 1, host_id=str(one), incarnation_id="0"))
                    for one in BROKERS
                ),
                CreateTopic(
                    "default",
                    "t",
                    TOPIC,
                    ((1, 2, 3), (4,)),
                    ((MIN_INSYNC_REPLICAS, str(min_insync_replicas)),),
                ),
            ],
        )
        self.up = set(BROKERS)
        self.marks: dict[int, int | None] = {}
        # Whose disk is worse than the image thinks, until it has registered again.
        self.damaged: set[int] = set()
        self.logs: dict[tuple[int, int], Log] = {(one, p): [] for one in BROKERS for p in (0, 1)}
        self.committed: dict[int, Log] = {0: [], 1: []}
        # How many disks have to fail before a committed record may be lost.
        self.promised: dict[int, list[int]] = {0: [], 1: []}
        # By node and partition: from which record on the disk has lost what it had.
        self.lost: dict[tuple[int, int], int] = {}
        self.leaders: dict[tuple[int, int], int] = {}
        self.records = 0
        # What this history has had, to see that histories are worth something.
        self.reached: Counter[str] = Counter()
        self.commit()

    # What everybody does to the image.

    def commit(self, *changes: Change) -> None:
        if changes:
            before = [self.partition(p) for p in (0, 1)]
            self.image = apply_changes(self.image, changes)
            for p in (0, 1):
                self._moved(p, before[p], self.partition(p))
        for p in (0, 1):
            self._check(p)

    def partition(self, p: int) -> PartitionImage:
        return self.image.topics_of("default")["t"].partitions[p]

    def min_insync_replicas(self) -> int:
        return self.settings.min_insync_replicas_of(self.image.topics_of("default")["t"])

    def effective_min_isr(self, p: int) -> int:
        return effective_min_isr(self.partition(p), self.min_insync_replicas())

    def change(self, p: int, new: PartitionImage) -> None:
        old = self.partition(p)
        if new != old:
            self.commit(ChangePartition(TOPIC, p, next_epochs(old, new)))

    def incarnation(self, node_id: int) -> Incarnation:
        return node_id, self.image.brokers[node_id].incarnation_id

    # Rules.

    def tick(self, unknown: set[int], *, is_overdue: bool = False) -> None:
        """The controller looks; of `unknown` it knows nothing yet. `is_overdue`: who has not
        reported the end of his log is not waited for."""
        situation = self.situation(unknown)
        if is_overdue:
            states = {(TOPIC, p, self.partition(p).partition_epoch) for p in (0, 1)}
            situation = replace(situation, overdue=frozenset(states))
        changes = decide(self.image, situation)
        self.commit(*changes)
        if changes:
            again = decide(self.image, situation)
            assert not again, f"decided {changes} and then {again}"

    def situation(self, unknown: set[int]) -> Situation:
        dead = {self.incarnation(one) for one in BROKERS if one not in self.up}
        alive = {self.incarnation(one) for one in self.up}
        hidden = {self.incarnation(one) for one in unknown}
        return Situation(
            Observed(frozenset(alive - hidden), frozenset(dead - hidden)),
            self.settings,
            frozenset(dead - hidden) if self._rebuilds else frozenset(),
            is_leader_check_due=True,
        )

    def report(self, node_id: int) -> None:
        """The broker tells where its logs end, where that is asked."""
        for p in (0, 1):
            partition, log = self.partition(p), self.logs[node_id, p]
            is_asked = is_recovering(partition) and node_id in partition.last_known_elr
            if node_id in self.up and is_asked:
                end = LogEnd(node_id, log[-1][0] if log else -1, len(log))
                self.change(p, with_log_end(partition, end))

    def leader(self, p: int) -> int | None:
        leader = self.partition(p).leader
        return leader if leader in self.up else None

    def produce(self, p: int) -> None:
        leader = self.leader(p)
        if leader is not None:
            self.records += 1
            self.logs[leader, p].append((self.partition(p).leader_epoch, self.records))

    def replicate(self, p: int, follower: int, records_max: int) -> None:
        """A follower throws away what its leader does not have, and copies some more."""
        leader = self.leader(p)
        if leader in (None, follower) or follower not in self.up:
            return
        if follower not in self.partition(p).replicas:
            return
        assert leader is not None
        theirs, ours = self.logs[leader, p], self.logs[follower, p]
        common = 0
        while common < min(len(theirs), len(ours)) and theirs[common] == ours[common]:
            common += 1
        self.logs[follower, p] = theirs[: max(common, 0) + records_max]
        start = self.lost.get((follower, p))
        if start is not None:
            # What it has fetched again it has not lost.
            self.lost[follower, p] = max(start, len(self.logs[follower, p]))

    def advance(self, p: int) -> None:
        """The high watermark moves."""
        partition, leader = self.partition(p), self.leader(p)
        if leader is None or len(partition.isr) < self.effective_min_isr(p):
            return
        log = self.logs[leader, p]
        end = min(
            len(self.logs[one, p]) if has(log, self.logs[one, p]) else 0 for one in partition.isr
        )
        if end > len(self.committed[p]):
            assert has(log, self.committed[p])
            self.reached["committed"] += end - len(self.committed[p])
            self.committed[p] = log[:end]
            self.promised[p] += [self.effective_min_isr(p)] * (end - len(self.promised[p]))

    def shrink(self, p: int, follower: int) -> None:
        partition = self.partition(p)
        if self.leader(p) in (None, follower) or follower not in partition.isr:
            return
        isr = [one for one in partition.isr if one != follower]
        self.change(p, with_isr(partition, isr, self.min_insync_replicas()))

    def expand(self, p: int, follower: int) -> None:
        partition, leader = self.partition(p), self.leader(p)
        if leader is None or follower in partition.isr or follower not in partition.replicas:
            return
        epoch = self.image.brokers[follower].broker_epoch
        if follower not in self.up or not may_join_isr(self.image, follower, epoch):
            return
        log, ours = self.logs[leader, p], self.logs[follower, p]
        if has(log, ours) and len(ours) >= len(self.committed[p]):
            isr = (*partition.isr, follower)
            self.change(p, with_isr(partition, isr, self.min_insync_replicas()))

    def stop(self, node_id: int) -> None:
        self.up.discard(node_id)
        self.marks[node_id] = self.image.brokers[node_id].broker_epoch

    def crash(self, node_id: int, kept: int | None) -> None:
        """`kept`: how many records its logs have left at most, None for all."""
        self.up.discard(node_id)
        self.marks[node_id] = None
        if kept is not None:
            self.damaged.add(node_id)
            for p in (0, 1):
                if kept < len(self.logs[node_id, p]):
                    self.lost[node_id, p] = min(kept, self.lost.get((node_id, p), kept))
                del self.logs[node_id, p][kept:]

    def start(self, node_id: int) -> None:
        if node_id in self.up:
            return
        incarnation_id = str(self.image.version)
        starting = BrokerImage(node_id, "h", 1, host_id=str(node_id), incarnation_id=incarnation_id)
        mark = self.marks[node_id]
        self.up.add(node_id)
        self.damaged.discard(node_id)
        before = [self.partition(p) for p in (0, 1)]
        self.commit(*decide_registration(self.image, starting, mark, self.settings))
        for p in (0, 1):
            was, now = before[p], self.partition(p)
            if mark is None:
                assert node_id not in (*now.isr, *now.elr, now.leader)
                assert node_id not in {end.node_id for end in now.log_ends}
            else:
                assert (was.isr, was.elr) == (now.isr, now.elr)

    def announce_stop(self, node_id: int) -> None:
        if node_id in self.up:
            broker = self.image.brokers[node_id]
            self.commit(ChangeBroker(replace(broker, in_controlled_shutdown=True)))

    def fence_itself(self, node_id: int) -> None:
        broker = self.image.brokers[node_id]
        if node_id in self.up and broker.in_controlled_shutdown:
            self.commit(ChangeBroker(replace(broker, is_fenced=True)))

    def drain(self, node_id: int, is_draining: bool) -> None:
        value = "true" if is_draining else None
        self.commit(
            AlterConfigs("default", ResourceType.BROKER, str(node_id), ((DRAIN_PROPERTY, value),))
        )

    def reassign(self, p: int, target: tuple[int, ...]) -> None:
        self.change(p, start(self.partition(p), target))

    def cancel(self, p: int) -> None:
        cancelled = cancel(self.partition(p))
        if cancelled is not None:
            self.change(p, cancelled)

    def change_min_isr(self, value: int) -> None:
        change = AlterConfigs(
            "default", ResourceType.TOPIC, "t", ((MIN_INSYNC_REPLICAS, str(value)),)
        )
        self.commit(change, *decide_min_isr_changes(self.image, [change], self.settings))

    # What has to hold.

    def _moved(self, p: int, old: PartitionImage, new: PartitionImage) -> None:
        # Whoever asks for less gets less, for older records too.
        minimum = self.effective_min_isr(p)
        self.promised[p] = [min(promised, minimum) for promised in self.promised[p]]
        self.reached["reassignments"] += is_reassigning(old) and not is_reassigning(new)
        if new.leader == old.leader or new.leader == NO_LEADER:
            return
        self.reached["elections"] += 1
        self.reached["elections from the ELR"] += new.leader in old.elr
        if not has(self.logs[new.leader, p], self.committed[p]):
            # Committed records are gone. It takes as many disks as were asked for, or a topic
            # that allows it.
            self.reached["losses"] += 1
            assert new.leader not in (*old.isr, *old.elr)
            if not self.settings.unclean_leader_election:
                assert not old.isr
                assert not old.elr
                assert new.leader in old.last_known_elr
            while not has(self.logs[new.leader, p], self.committed[p]):
                self.committed[p].pop()
                promised, index = self.promised[p].pop(), len(self.committed[p])
                losers = [one for one in BROKERS if self.lost.get((one, p), index + 1) <= index]
                if not self.settings.unclean_leader_election:
                    assert len(losers) >= promised, f"{new} leads, lost by {losers} of {promised}"
        if new.leader not in (*old.isr, *old.elr):
            self.reached["recoveries"] += is_recovering(old)
            assert self.settings.unclean_leader_election or is_recovering(old)
            assert (new.isr, new.elr) == ((new.leader,), ())

    def _check(self, p: int) -> None:
        partition = self.partition(p)
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert len(replicas) == len(partition.replicas)
        assert isr | elr <= replicas
        assert not isr & elr
        assert set(target_of(partition))
        assert partition.leader == NO_LEADER or partition.leader in isr
        assert (partition.last_known_leader != NO_LEADER) == (partition.leader == NO_LEADER)
        last_known_elr = set(partition.last_known_elr)
        assert last_known_elr <= replicas - isr - elr
        # All who may have what is committed: nobody is forgotten.
        assert isr | elr | last_known_elr
        if len(isr) >= self.effective_min_isr(p):
            assert not elr
            assert not last_known_elr
        if partition.log_ends:
            assert is_recovering(partition)
        key = p, partition.leader_epoch
        if partition.leader != NO_LEADER:
            assert self.leaders.setdefault(key, partition.leader) == partition.leader
        for one in (isr | elr) - self.damaged:
            assert has(self.logs[one, p], self.committed[p]), f"{one} lacks committed records"

    def settle(self) -> None:
        """All come back and catch up. What was begun has to end, and all have to lead again."""
        for one in BROKERS:
            self.drain(one, False)
            if self.image.brokers[one].in_controlled_shutdown and one in self.up:
                self.stop(one)
            self.start(one)
        self._rebuilds = False
        wanted = [target_of(self.partition(p)) for p in (0, 1)]
        for _ in range(20):
            before = self.image
            for one in BROKERS:
                self.report(one)
            self.tick(set())
            for p in (0, 1):
                for one in self.partition(p).replicas:
                    self.replicate(p, one, 1_000)
                    self.expand(p, one)
                self.advance(p)
            if self.image is before:
                break
        for p in (0, 1):
            partition = self.partition(p)
            assert not is_reassigning(partition)
            assert partition.replicas == wanted[p]
            assert set(partition.isr) == set(wanted[p]), partition
            assert partition.leader == wanted[p][0]
