"""A failed disk: what this broker gives up, and what it keeps because nobody else has it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.replicas.failed_directories import (
    LOOK_INTERVAL_MS,
    PARTITIONS_PER_COMMIT_MAX,
    FailedDirectories,
    without_disk,
)
from data_plane.cell.changes import ChangePartition, CreateTopic
from data_plane.cell.election import elect
from data_plane.cell.metadata import LogEnd, PartitionImage
from data_plane.cell.partition_state import next_epochs, with_log_end
from tests.broker.member_player import Member

FIRST, SECOND = UUID(int=1), UUID(int=2)


class FakeLogs:
    """Two directories; even partitions are in the first one."""

    def __init__(self) -> None:
        self.directories = [SimpleNamespace(failure=None), SimpleNamespace(failure=None)]

    def offline_directories(self) -> list[Any]:
        return [directory for directory in self.directories if directory.failure]

    def is_lost(self, topic_id: UUID, index: int) -> bool:
        if topic_id != FIRST:
            return all(directory.failure for directory in self.directories)
        return self.directories[index % 2].failure is not None


class Broker(Member):
    def __init__(self) -> None:
        super().__init__()
        self.fake_logs = FakeLogs()
        logs: Any = self.fake_logs
        self.services.logs = logs
        self.told = 0
        self.failed = FailedDirectories(self.services, lambda topic: 2, self._tell)
        self.services.components.append(self.failed)
        self.services.start(self.now_ms())

    def _tell(self) -> None:
        self.told += 1

    def create(self, topic_id: UUID, *assignments: tuple[int, ...]) -> None:
        self.write(CreateTopic("default", f"t{topic_id.int}", topic_id, assignments))
        self.run_jobs()

    def fail(self, *numbers: int) -> None:
        for number in numbers:
            self.fake_logs.directories[number].failure = "EIO"
        self.pass_time(LOOK_INTERVAL_MS + 10)

    def partitions_of(self, topic_id: UUID) -> tuple[PartitionImage, ...]:
        return self.image.topics_by_id[topic_id].partitions


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_what_is_on_the_failed_disk_is_given_up_and_nothing_else(broker: Broker) -> None:
    broker.create(FIRST, (1, 2, 3), (1, 2, 3), (2, 1, 3), (2, 3))
    before = broker.partitions_of(FIRST)
    broker.fail(0)
    led, kept, followed, foreign = broker.partitions_of(FIRST)
    assert (led.isr, led.leader, led.leader_epoch) == ((2, 3), -1, 1)
    assert led.last_known_leader == 1
    assert (followed.isr, followed.leader, followed.leader_epoch) == ((2, 3), 2, 0)
    assert (kept, foreign) == (before[1], before[3])
    assert broker.told == 1
    broker.fail(1)
    assert broker.told == 2


def test_without_the_only_copy_nobody_leads_until_it_is_back(broker: Broker) -> None:
    broker.create(FIRST, (1,))
    broker.fail(0)
    partition = broker.partitions_of(FIRST)[0]
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), ())
    assert partition.last_known_elr == (1,), "whose log leads again when it can be read"
    version = broker.image.version
    broker.pass_time(5_000)
    assert broker.image.version == version, "that is said once"


@pytest.mark.parametrize("is_unclean_allowed", [False, True])
def test_nobody_is_elected_to_lead_from_a_failed_disk(is_unclean_allowed: bool) -> None:
    old = PartitionImage((1, 2), (1,), 1)
    new = with_log_end(without_disk(old, 1, 1), LogEnd(1, -1, -1))
    alone = elect(new, frozenset({1}), 1, is_unclean_allowed=is_unclean_allowed)
    assert alone is None
    other = elect(new, frozenset({1, 2}), 1, is_unclean_allowed=is_unclean_allowed)
    assert (other is not None and other.leader == 2) == is_unclean_allowed
    repaired = with_log_end(new, LogEnd(1, 0, 70))
    back = elect(repaired, frozenset({1, 2}), 1, is_unclean_allowed=is_unclean_allowed)
    assert back is not None
    assert back.leader == 1


def test_the_last_in_the_isr_makes_room_for_the_elr(broker: Broker) -> None:
    broker.create(FIRST, (1, 2))
    old = broker.partitions_of(FIRST)[0]
    broker.write(ChangePartition(FIRST, 0, next_epochs(old, replace(old, isr=(1,), elr=(2,)))))
    broker.run_jobs()
    broker.fail(0)
    partition = broker.partitions_of(FIRST)[0]
    assert (partition.isr, partition.elr, partition.leader) == ((), (2,), -1)


def test_a_log_that_was_never_made_is_lost_when_there_is_no_place_for_it(broker: Broker) -> None:
    broker.create(SECOND, (1, 2, 3))
    broker.fail(0)
    assert broker.partitions_of(SECOND)[0].isr == (1, 2, 3)
    broker.fail(1)
    assert broker.partitions_of(SECOND)[0].isr == (2, 3)


def test_it_is_asked_for_until_the_store_is_back(broker: Broker) -> None:
    broker.create(FIRST, (1, 2, 3))
    broker.store.is_down = True
    broker.fail(0)
    broker.pass_time(40_000, 100)
    broker.store.is_down = False
    broker.pass_time(2_000, 100)
    assert broker.partitions_of(FIRST)[0].isr == (2, 3)


def test_many_partitions_take_several_commits(broker: Broker) -> None:
    broker.create(FIRST, *((1, 2, 3),) * (2 * PARTITIONS_PER_COMMIT_MAX + 2))
    broker.fail(0)
    broker.pass_time(2_000)
    assert all(1 not in partition.isr for partition in broker.partitions_of(FIRST)[::2])
    assert all(1 in partition.isr for partition in broker.partitions_of(FIRST)[1::2])


def test_without_a_failed_disk_nothing_is_looked_at(broker: Broker) -> None:
    broker.create(FIRST, (1, 2, 3))
    version = broker.image.version
    broker.pass_time(5_000)
    assert broker.image.version == version


@given(
    isr=st.sets(st.integers(1, 4)),
    elr=st.sets(st.integers(1, 4)),
    leads=st.booleans(),
    min_insync_replicas=st.integers(1, 4),
)
def test_nobody_who_had_all_is_forgotten(
    isr: set[int], elr: set[int], leads: bool, min_insync_replicas: int
) -> None:
    elr -= isr
    leader = 1 if leads and 1 in isr else next(iter(isr - {1}), -1)
    old = PartitionImage((1, 2, 3, 4), tuple(isr), leader, elr=tuple(elr))
    new = without_disk(old, 1, min_insync_replicas)
    assert without_disk(new, 1, min_insync_replicas) is new
    if new is old:
        assert 1 not in isr | elr
        return
    assert 1 not in (*new.isr, *new.elr, new.leader)
    assert new.isr or new.elr or new.last_known_elr
    assert set(new.isr) == isr - {1}
    assert new.leader in (-1, *new.isr)
