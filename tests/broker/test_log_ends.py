"""What a broker reports of its logs when nobody has everything that was committed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.replicas.log_ends import (
    LOOK_INTERVAL_MS,
    REPORTS_PER_COMMIT_MAX,
    LogEndReporter,
)
from data_plane.cell.changes import ChangePartition, CreateTopic, RegisterBroker
from data_plane.cell.metadata import BrokerImage, LogEnd, PartitionImage
from data_plane.cell.partition_state import next_epochs, with_isr, with_leader
from data_plane.log.errors import LogDirFailure, UnknownPartition
from data_plane.log.leader_epochs import EpochEntry, LeaderEpochs
from tests.broker.member_player import Member

TOPIC = UUID(int=1)


class FakeLog:
    def __init__(self, leader_epoch: int, end_offset: int) -> None:
        self.latest_epoch = leader_epoch
        self.log_end_offset = end_offset
        self.log_directory = SimpleNamespace(failure=None)
        self.damaged_from = -1
        self.epochs = LeaderEpochs()
        self.is_unreadable = False

    @property
    def segments(self) -> list[Any]:
        if self.is_unreadable:
            raise LogDirFailure("/data", "EIO")
        return []


class FakeLogs:
    def __init__(self) -> None:
        self.by_index: dict[int, FakeLog] = {}
        self.offline: list[str] = []

    def is_lost(self, topic_id: UUID, index: int) -> bool:
        return bool(self.offline)

    def get(self, topic_id: UUID, index: int) -> FakeLog:
        if index not in self.by_index:
            raise UnknownPartition("never made")
        return self.by_index[index]


class Broker(Member):
    """Broker 1, whose process calls itself 1-a."""

    def __init__(self) -> None:
        super().__init__()
        self.fake_logs = FakeLogs()
        logs: Any = self.fake_logs
        self.services.logs = logs
        self.services.components.append(LogEndReporter(self.services, "1-a"))
        self.services.start(self.now_ms())

    def register(self, incarnation_id: str) -> None:
        self.commit(RegisterBroker(BrokerImage(1, "h", 1, incarnation_id=incarnation_id)))

    def commit(self, *changes: Any) -> None:
        self.write(*changes)
        self.pass_time(100)

    def create(self, *assignments: tuple[int, ...]) -> None:
        self.commit(CreateTopic("default", "t", TOPIC, assignments))

    def state(self, index: int = 0) -> PartitionImage:
        return self.image.topics_by_id[TOPIC].partitions[index]

    def change(self, index: int = 0, **fields: Any) -> None:
        old = self.state(index)
        self.commit(ChangePartition(TOPIC, index, next_epochs(old, replace(old, **fields))))

    def lose_all(self, index: int = 0) -> None:
        """All replicas of the partition were started again after a power loss."""
        old = self.state(index)
        new = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
        self.commit(ChangePartition(TOPIC, index, next_epochs(old, new)))

    @property
    def reports(self) -> int:
        return self.count("log_ends_reported")

    def count(self, event: str) -> int:
        return sum(name == event for _, name, _ in self.log.events)


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.register("1-a")
    return broker


def test_all_that_is_asked_for_is_reported_in_one_commit(broker: Broker) -> None:
    broker.fake_logs.by_index = {0: FakeLog(4, 100), 1: FakeLog(5, 20), 2: FakeLog(1, 1)}
    broker.create((1, 2, 3), (2, 1), (2, 3), (1, 2), (1,))
    before = [broker.state(index) for index in range(5)]
    lost = [
        ChangePartition(
            TOPIC,
            index,
            next_epochs(old, with_leader(with_isr(old, (), 2, lost=old.replicas), -1)),
        )
        for index, old in enumerate(before[:4])
    ]
    broker.commit(*lost)
    assert broker.state(0).log_ends == (LogEnd(1, 4, 100),)
    assert broker.state(1).log_ends == (LogEnd(1, 5, 20),)
    assert broker.state(2).log_ends == ()
    # Never made, or wiped.
    assert broker.state(3).log_ends == (LogEnd(1, -1, 0),)
    assert broker.state(4) == before[4]
    assert broker.reports == 1
    version = broker.image.version
    broker.pass_time(10 * LOOK_INTERVAL_MS, 100)
    assert broker.image.version == version


def test_nothing_is_reported_while_somebody_has_everything(broker: Broker) -> None:
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2, 3))
    broker.change(isr=(), elr=(2,), leader=-1, leader_epoch=1, last_known_elr=(1,))
    assert broker.state().log_ends == ()
    broker.change(elr=(), last_known_elr=(1, 2))
    assert broker.state().log_ends == (LogEnd(1, 4, 100),)


def test_a_process_that_is_not_registered_yet_reports_nothing() -> None:
    broker = Broker()
    broker.register("1-before")
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2))
    broker.lose_all()
    assert broker.state().log_ends == ()
    broker.register("1-a")
    assert broker.state().log_ends == (LogEnd(1, 4, 100),)


def test_a_leader_ends_it_and_the_next_time_counts_anew(broker: Broker) -> None:
    log = FakeLog(4, 100)
    broker.fake_logs.by_index = {0: log}
    broker.create((1, 2))
    broker.lose_all()
    old = broker.state()
    led = with_leader(with_isr(old, (2,), 2), 2)
    broker.commit(ChangePartition(TOPIC, 0, next_epochs(old, led)))
    assert broker.state().log_ends == ()
    log.latest_epoch, log.log_end_offset = 6, 120
    broker.lose_all()
    assert broker.state().log_ends == (LogEnd(1, 6, 120),)


def test_an_election_in_between_wins(broker: Broker) -> None:
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2))

    def elect() -> None:
        image = broker.cell_store.read()
        old = image.topics_by_id[TOPIC].partitions[0]
        led = with_leader(with_isr(old, (2,), 2), 2)
        change = ChangePartition(TOPIC, 0, next_epochs(old, led))
        broker.cell_store.apply([change], image.version, "faster")

    old = broker.state()
    lost = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
    broker.write(ChangePartition(TOPIC, 0, next_epochs(old, lost)))
    broker.run_jobs()
    broker.store.before_apply = elect
    broker.pass_time(200)
    assert (broker.state().leader, broker.state().log_ends) == (2, ())


def test_what_is_on_its_way_does_not_count_for_a_later_loss(broker: Broker) -> None:
    """Another one has led meanwhile, whose log this broker has followed."""
    log = FakeLog(4, 100)
    broker.fake_logs.by_index = {0: log}
    broker.create((1, 2))

    def lead_and_lose() -> None:
        image = broker.cell_store.read()
        old = image.topics_by_id[TOPIC].partitions[0]
        led = next_epochs(old, with_leader(with_isr(old, (2,), 2), 2))
        lost = with_leader(with_isr(led, (), 2, lost=led.replicas), -1)
        changes = [ChangePartition(TOPIC, 0, each) for each in (led, next_epochs(led, lost))]
        broker.cell_store.apply(changes, image.version, "faster")
        log.latest_epoch, log.log_end_offset = 6, 90

    old = broker.state()
    lost = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
    broker.write(ChangePartition(TOPIC, 0, next_epochs(old, lost)))
    broker.run_jobs()
    broker.store.before_apply = lead_and_lose
    version = broker.cell_store.read().version
    broker.pass_time(200)
    reported = [
        change.partition.log_ends
        for commit in broker.cell_store.feed(version)
        for change in commit.changes
        if isinstance(change, ChangePartition) and change.partition.log_ends
    ]
    assert reported == [(LogEnd(1, 6, 90),)]


def test_the_next_process_of_this_broker_reports_for_itself(broker: Broker) -> None:
    """Its disk may have lost what this one knows of."""
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2))

    def register() -> None:
        change = RegisterBroker(BrokerImage(1, "h", 1, incarnation_id="1-b"))
        broker.cell_store.apply([change], broker.cell_store.read().version, "faster")

    old = broker.state()
    lost = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
    broker.write(ChangePartition(TOPIC, 0, next_epochs(old, lost)))
    broker.run_jobs()
    broker.store.before_apply = register
    broker.pass_time(200)
    assert broker.image.brokers[1].incarnation_id == "1-b"
    assert broker.state().log_ends == ()


def test_it_is_reported_until_the_store_has_it(broker: Broker) -> None:
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2))
    old = broker.state()
    lost = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
    broker.write(ChangePartition(TOPIC, 0, next_epochs(old, lost)))
    broker.run_jobs()
    broker.store.is_down = True
    broker.pass_time(40_000, 100)
    assert broker.count("log_ends_not_reported")
    broker.store.is_down = False
    broker.pass_time(3_000, 100)
    assert broker.state().log_ends == (LogEnd(1, 4, 100),)


def test_a_lost_answer_reports_once(broker: Broker) -> None:
    broker.fake_logs.by_index = {0: FakeLog(4, 100)}
    broker.create((1, 2))
    old = broker.state()
    lost = with_leader(with_isr(old, (), 2, lost=old.replicas), -1)
    broker.write(ChangePartition(TOPIC, 0, next_epochs(old, lost)))
    broker.run_jobs()
    version = broker.image.version
    broker.store.lost_replies = 1
    broker.pass_time(5_000, 100)
    assert broker.state().log_ends == (LogEnd(1, 4, 100),)
    assert broker.image.version == version + 1


def test_nobody_knows_what_lies_on_a_failed_disk(broker: Broker) -> None:
    log = FakeLog(4, 100)
    broker.fake_logs.by_index = {0: log}
    broker.create((1, 2), (1, 2))
    broker.lose_all()
    log.log_directory.failure = "EIO"
    broker.fake_logs.offline = ["/data"]
    broker.pass_time(LOOK_INTERVAL_MS + 100)
    assert broker.state().log_ends == (LogEnd(1, -1, -1),)
    # A log that is not there may be on that disk.
    broker.lose_all(1)
    assert broker.state(1).log_ends == (LogEnd(1, -1, -1),)


def test_a_damaged_log_ends_where_the_damage_begins(broker: Broker) -> None:
    log = FakeLog(4, 100)
    log.epochs.replace([EpochEntry(2, 0), EpochEntry(4, 60)])
    log.damaged_from = 60
    broker.fake_logs.by_index = {0: log}
    broker.create((1, 2))
    broker.lose_all()
    assert broker.state().log_ends == (LogEnd(1, 2, 60),)
    log.is_unreadable = True
    broker.pass_time(LOOK_INTERVAL_MS + 100)
    assert broker.state().log_ends == (LogEnd(1, -1, -1),)


def test_many_partitions_take_several_commits(broker: Broker) -> None:
    count = 2 * REPORTS_PER_COMMIT_MAX + 1
    broker.create(*((1, 2),) * count)
    old = broker.state()
    lost = next_epochs(old, with_leader(with_isr(old, (), 2, lost=old.replicas), -1))
    broker.commit(*(ChangePartition(TOPIC, index, lost) for index in range(count)))
    # Large commits are followed in steps.
    broker.pass_time(1_000)
    assert all(one.log_ends for one in broker.image.topics_by_id[TOPIC].partitions)
    assert broker.reports == 3
