"""A damaged copy: it stands back, is cut, filled by its leader; nobody counts on it meanwhile."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.replicas.replica_repair import LOOK_INTERVAL_MS, ReplicaRepair
from data_plane.broker.request.few_at_once import FewAtOnce
from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.metadata import MetadataImage, PartitionImage
from data_plane.cell.partition_state import without_damaged
from data_plane.log.damage import NOT_DAMAGED
from data_plane.log.errors import CorruptSegment
from data_plane.log.scrubber import ScrubJob
from data_plane.log.sim_file_system import Fault
from data_plane.wire.records import NewRecord, build_batch
from tests.broker.broker_player import BrokerPlayer
from tests.broker.cell_player import TOPIC, TOPIC_ID, CellPlayer
from tests.broker.doubles import QueueExecutor

LOOK_MS = LOOK_INTERVAL_MS + 10
DAMAGED = 4
SEGMENT_RECORDS = 3
WITHOUT_SESSION = -1
ALL = [(offset, 0) for offset in range(9)]


class Commits:
    """The metadata writer of one broker: commits when the test says so, and tells who should hear
    of it."""

    def __init__(self, cell: RepairCell) -> None:
        self._cell = cell
        self.wanted: list[tuple[Callable[[MetadataImage], Sequence[Change]], Any]] = []

    def write(self, decide: Callable[[MetadataImage], Sequence[Change]], on_done: Any) -> None:
        self.wanted.append((decide, on_done))
        if self._cell.commits_at_once:
            self.commit()

    def commit(self, only: Sequence[int] | None = None) -> None:
        wanted, self.wanted = self.wanted, []
        for decide, on_done in wanted:
            changes = decide(self._cell.image)
            if changes:
                self._cell.image = apply_changes(self._cell.image, changes)
                self._cell.tell(only)
            on_done(None)


class RepairCell(CellPlayer):
    def __init__(self, **options: Any) -> None:
        super().__init__(3, **options)
        self.commits_at_once = True
        self.commits: dict[int, Commits] = {}
        self.repairs: dict[int, ReplicaRepair] = {}
        for node_id, broker in self.brokers.items():
            commits: Any = Commits(self)
            self.commits[node_id] = broker.services.metadata = commits
            self.repairs[node_id] = self.attach(broker, node_id)
        self.run()

    def attach(self, broker: BrokerPlayer, node_id: int) -> ReplicaRepair:
        repair = ReplicaRepair(
            broker.services, lambda topic: 2, self.managers[node_id].damage_changed
        )
        repair.start(self.now_ms)
        broker.services.components.append(repair)
        return repair

    @property
    def state(self) -> PartitionImage:
        return self.image.topics_by_id[TOPIC_ID].partitions[0]

    def fill(self, *, has_keys: bool = False) -> None:
        """Three segments of three batches on every broker."""
        for _ in range(3):
            for number in range(SEGMENT_RECORDS):
                record = NewRecord(self.now_ms, b"k%d" % number if has_keys else None, b"value")
                self.brokers[1].produce(TOPIC, [], batch=build_batch([record]))
                self.run()
            for node_id in self.brokers:
                self.replica(node_id).log.roll()
        self.run(600)

    def rot(self, node_id: int, offset: int = DAMAGED) -> None:
        """A byte of a sealed segment changes, and the scrubber comes round."""
        log = self.replica(node_id).log
        segment = log.segments[offset // SEGMENT_RECORDS]
        size = segment.size // SEGMENT_RECORDS
        position = offset % SEGMENT_RECORDS * size + size - 3
        self.brokers[node_id].fs.flip_bit(segment.path(), position)
        job = ScrubJob([(log, one) for one in log.segments if one.sealed])
        job.run()
        job.finish()


@pytest.fixture
def cell() -> RepairCell:
    cell = RepairCell()
    cell.fill()
    return cell


def test_a_follower_stands_back_and_is_filled_again(cell: RepairCell) -> None:
    cell.rot(2)
    with pytest.raises(CorruptSegment):
        cell.stored(2)
    cell.run(LOOK_MS)
    # In a new leader epoch, so that no earlier fetch of it counts.
    assert (cell.state.isr, cell.state.leader, cell.state.leader_epoch) == ((1, 3), 1, 1)
    assert cell.stored(2) == ALL
    assert cell.replica(2).log.damaged_from == NOT_DAMAGED
    assert (cell.repairs[2].started_count, cell.repairs[2].finished_count) == (1, 0)
    cell.change(isr=(1, 3, 2))
    cell.run()
    assert cell.repairs[2].finished_count == 1
    assert cell.repairs[2].refetched_bytes > 0
    events = [name for _, name, _ in cell.brokers[2].log.events if name.startswith("replica")]
    assert events == ["replica_damaged", "replica_repair_started", "replica_repair_finished"]
    cell.run(2 * LOOK_MS)
    assert cell.repairs[2].started_count == 1


def test_a_long_cut_is_left_to_a_thread(cell: RepairCell) -> None:
    broker = cell.brokers[2]
    log = cell.replica(2).log
    log.log_directory.bytes_loaded_at_once_max = 0
    threads = QueueExecutor()
    broker.services.partitions._slow_work = FewAtOnce(threads)
    cell.rot(2)
    cell.run(LOOK_MS)
    for _ in range(3):
        # One job, however often it is looked at.
        assert len(threads.queue) == 1
        assert log.log_end_offset == len(ALL)
        assert log.damaged_from == DAMAGED
        cell.run(LOOK_MS)
    while threads.queue:
        threads.run_one()
    assert log.log_end_offset == DAMAGED
    cell.run(LOOK_MS)
    assert cell.stored(2) == ALL
    assert log.damaged_from == NOT_DAMAGED
    assert (cell.repairs[2].started_count, threads.queue) == (1, deque())


def test_a_cut_that_comes_too_late_is_asked_for_again(cell: RepairCell) -> None:
    """A new leader epoch has begun meanwhile: nothing is cut by what the old one allowed."""
    broker = cell.brokers[2]
    log = cell.replica(2).log
    log.log_directory.bytes_loaded_at_once_max = 0
    threads = QueueExecutor()
    broker.services.partitions._slow_work = FewAtOnce(threads)
    cell.rot(2)
    cell.run(LOOK_MS)
    cell.change(leader=3)
    while threads.queue:
        threads.run_one()
    assert log.log_end_offset == len(ALL)
    for _ in range(3):
        cell.run(LOOK_MS)
        while threads.queue:
            threads.run_one()
    assert cell.stored(2) == ALL
    assert log.damaged_from == NOT_DAMAGED


def test_a_leader_gives_up_what_another_one_has(cell: RepairCell) -> None:
    cell.rot(1)
    cell.run(LOOK_MS)
    assert (cell.state.isr, cell.state.leader) == ((2, 3), -1)
    # Nothing is cut while nobody leads.
    assert cell.replica(1).log.log_end_offset == len(ALL)
    cell.change(leader=2)
    cell.run(LOOK_MS)
    assert cell.stored(1) == ALL
    assert cell.repairs[1].started_count == 1


def test_the_last_in_the_isr_goes_on_until_there_is_another(cell: RepairCell) -> None:
    cell.change(isr=(1,), elr=(2,))
    cell.rot(1)
    version = cell.image.version
    cell.run(3 * LOOK_MS)
    assert cell.image.version == version
    assert cell.replica(1).is_leader
    cell.change(isr=(1, 3), elr=())
    cell.run(LOOK_MS)
    assert (cell.state.isr, cell.state.leader) == ((3,), -1)


def test_a_fenced_member_of_the_isr_is_nobody_to_hand_over_to(cell: RepairCell) -> None:
    cell.change(isr=(1, 2))
    cell.change_broker(2, is_fenced=True)
    cell.rot(1)
    cell.run(LOOK_MS)
    assert cell.state.leader == 1


def test_nothing_is_cut_before_the_cell_knows(cell: RepairCell) -> None:
    cell.commits_at_once = False
    cell.rot(2)
    cell.run(LOOK_MS)
    assert cell.replica(2).log.log_end_offset == len(ALL)
    count = len(cell.requests_of(2))
    cell.run(600)
    named = [view for view in cell.requests_of(2)[count:] if view.topics]
    assert not named, "a damaged copy claims to be one"
    # Nor before the leader does.
    cell.commits[2].commit(only=[2, 3])
    cell.run(LOOK_MS)
    assert cell.replica(2).log.log_end_offset == len(ALL)
    leadership = cell.replica(1).leadership
    assert leadership is not None
    assert leadership.leader_epoch == 0
    cell.tell()
    assert leadership.followers[2].log_end_offset == -1, "what it had under the old epoch counts"
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL
    assert leadership.followers[2].log_end_offset == len(ALL)


def test_nothing_is_cut_while_the_replica_may_be_elected(cell: RepairCell) -> None:
    """In the ELR it may be, and in an epoch in which nobody has fetched the damage."""
    cell.commits_at_once = False
    cell.rot(2)
    cell.run(LOOK_MS)
    cell.commits[2].wanted.clear()
    cell.change(isr=(3,), elr=(2,), leader=3)
    cell.run(3 * LOOK_MS)
    assert cell.repairs[2].started_count == 0
    cell.change(elr=())
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL
    assert cell.repairs[2].started_count == 1


def test_nothing_is_cut_that_the_leader_does_not_have_either(cell: RepairCell) -> None:
    cell.commits_at_once = False
    cell.rot(1)
    cell.rot(2)
    cell.run(LOOK_MS)
    cell.commits[1].wanted.clear()
    cell.commits[2].commit()
    cell.run(3 * LOOK_MS)
    assert cell.state.isr == (1, 3)
    assert cell.replica(2).log.log_end_offset == len(ALL)
    cell.change(isr=(3,), leader=3)
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL


def test_what_one_leader_has_shown_does_not_count_for_the_next(cell: RepairCell) -> None:
    """The answer comes when nobody leads, and whoever leads then is damaged in the same place."""
    cell.commits_at_once = False
    cell.rot(2)
    cell.run(LOOK_MS)
    cell.commits[2].commit()
    # Asked in epoch 1; here it has ended before broker 1 answers.
    cell.change(only=[2], leader=-1, isr=(3,))
    cell.run()
    assert asked(cell) == [(1, 1)]
    cell.rot(3)
    cell.change(leader=3)
    cell.run(LOOK_MS)
    assert asked(cell)[-1] == (3, 3)
    assert cell.replica(2).log.log_end_offset == len(ALL)
    cell.change(leader=1, isr=(1,))
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL


@pytest.mark.parametrize(("is_noted", "end_offset"), [(True, 9), (False, 7)])
def test_what_the_leader_has_shown_further_up_does_not_count(
    cell: RepairCell, is_noted: bool, end_offset: int
) -> None:
    """Meanwhile it turns out that the damage begins earlier, and the leader's in the same place."""
    cell.commits_at_once = False
    cell.rot(2, 7)
    cell.run(LOOK_MS)
    cell.commits[2].commit()
    assert (cell.replica(2).log.damaged_from, asked(cell)) == (7, [(1, 1)])
    cell.rot(1)
    cell.rot(2)
    if is_noted:
        cell.repairs[2].tick(cell.now_ms + LOOK_MS)
    cell.run(2 * LOOK_MS)
    log = cell.replica(2).log
    assert (log.damaged_from, log.log_end_offset) == (DAMAGED, end_offset)
    cell.change(isr=(3,), leader=3)
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL
    assert log.damaged_from == NOT_DAMAGED


def asked(cell: RepairCell) -> list[tuple[int, int]]:
    """Which leaders broker 2 has asked for what they have, and in which epochs."""
    return [
        (node_id, view.topics[0].partitions[0].current_leader_epoch)
        for node_id, view in cell.peers[2].requests
        if view.session_epoch == WITHOUT_SESSION
    ]


def test_a_dead_leader_is_waited_for(cell: RepairCell) -> None:
    cell.rot(2)
    cell.cuts.add(frozenset((1, 2)))
    cell.run(3 * LOOK_MS)
    assert cell.state.isr == (1, 3)
    assert cell.replica(2).log.log_end_offset == len(ALL)
    cell.cuts.clear()
    cell.run(2 * LOOK_MS)
    assert cell.stored(2) == ALL


def test_a_replica_out_of_the_isr_makes_its_fetches_void_too(cell: RepairCell) -> None:
    """Its leader may be about to take it in."""
    cell.change(isr=(1, 3))
    cell.rot(2)
    cell.run(LOOK_MS)
    assert (cell.state.isr, cell.state.leader_epoch) == ((1, 3), 1)
    assert cell.stored(2) == ALL


def test_a_process_that_begins_in_the_middle_goes_on(cell: RepairCell) -> None:
    cell.commits_at_once = False
    cell.rot(2)
    cell.run(LOOK_MS)
    before = cell.brokers[2]
    before.fs.process_death()
    broker = BrokerPlayer(disk=before.fs, image=cell.image, node_id=2)
    log = broker.logs.get(TOPIC_ID, 0)
    assert log.damaged_from == DAMAGED
    commits: Any = Commits(cell)
    broker.services.metadata = commits
    reviewed: list[Any] = []
    repair = ReplicaRepair(broker.services, lambda topic: 2, lambda *key: reviewed.append(key))
    repair.start(cell.now_ms)
    repair.tick(cell.now_ms)
    assert len(commits.wanted) == 1
    assert not reviewed, "it was not cut, nor is it sound"


def test_a_log_that_could_not_be_cut_stays_on_the_list(cell: RepairCell) -> None:
    """Its disk has failed in the middle. The next process goes on with it, and fetches nothing."""
    disk = cell.brokers[2].fs
    cell.rot(2)
    disk.faults.append(Fault("write", "truncation.checkpoint", errno.EIO))
    cell.run(2 * LOOK_MS)
    assert cell.repairs[2].started_count == 0
    assert not disk.faults, "it was about to be cut"
    disk.process_death()
    log = BrokerPlayer(disk=disk, image=cell.image, node_id=2).logs.get(TOPIC_ID, 0)
    assert (log.damaged_from, log.log_end_offset) == (DAMAGED, len(ALL))


def test_a_compacted_log_begins_anew() -> None:
    cell = RepairCell(configs={"cleanup.policy": "compact"})
    cell.fill(has_keys=True)
    cell.rot(2)
    offsets: list[int] = []
    manager = cell.managers[2]
    original = manager.damage_changed

    def damage_changed(topic_id: Any, index: int) -> None:
        offsets.append(cell.replica(2).log.log_end_offset)
        original(topic_id, index)

    cell.repairs[2]._on_damage_changed = damage_changed
    cell.run(LOOK_MS)
    assert offsets == [len(ALL), 0]
    assert cell.stored(2) == ALL


@given(
    isr=st.sets(st.integers(1, 4)),
    elr=st.sets(st.integers(1, 4)),
    live=st.sets(st.integers(1, 4)),
    leader=st.integers(1, 4),
    min_insync_replicas=st.integers(1, 4),
)
def test_who_is_damaged_leaves_when_somebody_else_can_lead(
    isr: set[int], elr: set[int], live: set[int], leader: int, min_insync_replicas: int
) -> None:
    elr -= isr
    old = PartitionImage((1, 2, 3, 4), tuple(isr), leader if leader in isr else -1, elr=tuple(elr))
    new = without_damaged(old, 1, live, min_insync_replicas)
    assert without_damaged(new, 1, live, min_insync_replicas) is new
    if new is old:
        is_needed = old.leader in (1, -1) and not (isr - {1}) & live
        assert is_needed or 1 not in isr | elr
        return
    assert 1 not in (*new.isr, *new.elr, new.leader)
    assert set(new.isr) == isr - {1}
    assert new.leader in (old.leader, -1)
    assert new.leader != -1 or (isr - {1}) & live
