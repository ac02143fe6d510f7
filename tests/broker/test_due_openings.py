"""Partitions whose logs have something to do later: open without a request, and no others."""

from __future__ import annotations

import errno
from dataclasses import replace
from uuid import UUID

import pytest

from data_plane.broker.replicas.due_openings import (
    OPENED_AT_ONCE_MAX,
    RETRY_INTERVAL_MS,
    DueOpenings,
)
from data_plane.cell.changes import ChangePartition, RegisterBroker
from data_plane.cell.metadata import BrokerImage
from data_plane.cell.partition_state import next_epochs
from data_plane.log.sim_file_system import Fault
from tests.broker.broker_player import NODE_ID, BrokerPlayer, make_batch
from tests.log.test_due_folds import Alarms
from tests.log.test_folds import FREE, PIN

PARTITIONS = 2 * OPENED_AT_ONCE_MAX + 2
DUE = (0, 2, 3, 4)


class DuePlayer(BrokerPlayer):
    """A broker that opens what has something due."""

    def __init__(self, before: BrokerPlayer | None = None) -> None:
        if before is None:
            super().__init__(fold_factories=[Alarms])
        else:
            image = before.services.image
            super().__init__(disk=before.fs, image=image, fold_factories=[Alarms])
        self.openings = DueOpenings(self.services)
        self.services.components.append(self.openings)
        self.services.start(self.now_ms)

    def put(self, index: int, value: bytes) -> None:
        batch = make_batch([value])
        partition = self.partition("orders", index)
        partition.append_as_leader(batch, 0, len(batch), now_ms=self.now_ms)

    def checkpoint(self) -> None:
        for log in self.logs.logs():
            log.flush()
        job = self.logs.checkpoint_job(self.logs.directories[0])
        job.run()
        job.finish()

    def is_open(self, index: int) -> bool:
        topic_id = self.topic_id.bytes
        return self.services.partitions.is_open((topic_id, index))

    @property
    def topic_id(self) -> UUID:
        return self.services.image.topics_of("default")["orders"].topic_id

    def opened(self) -> list[int]:
        return [index for index in range(PARTITIONS) if self.is_open(index)]

    def settle(self) -> None:
        """Until there is nothing to do at this time."""
        for _ in range(100):
            self.services.tick(self.now_ms)
            self.run_jobs()

    def lead(self, leader: int) -> None:
        """Have another broker lead every partition, or this one."""
        services = self.services
        changes = []
        for index, old in enumerate(services.image.topics_by_id[self.topic_id].partitions):
            new = replace(old, replicas=(NODE_ID, 8), isr=(NODE_ID, 8), leader=leader)
            changes.append(ChangePartition(self.topic_id, index, next_epochs(old, new)))
        image = services.store.apply(
            changes, services.image.version, f"lead {services.image.version}"
        )
        services.apply_image(image, self.now_ms)


def stopped(how: str = "stop") -> BrokerPlayer:
    """Some partitions have something due, others not any more or never had."""
    broker = DuePlayer()
    broker.create_topic("orders", PARTITIONS)
    for index in range(PARTITIONS):
        broker.put(index, PIN if index in DUE or index == 1 else b"v")
    broker.put(1, FREE)
    if how == "stop":
        broker.logs.close(broker.now_ms)
    else:
        broker.checkpoint()
    broker.fs.process_death()
    return broker


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_at_the_start_they_are_opened_a_few_at_a_time(how: str) -> None:
    broker = DuePlayer(stopped(how))
    assert broker.logs.recovered_logs == 0
    assert not any(log.is_loaded for log in broker.logs.logs())
    assert broker.openings.next_deadline_ms() is not None
    broker.services.tick(broker.now_ms)
    assert len(broker.executor.queue) == OPENED_AT_ONCE_MAX
    assert broker.openings.next_deadline_ms() is None
    assert broker.opened() == []
    broker.settle()
    assert broker.opened() == list(DUE)
    loaded = sorted(log.partition for log in broker.logs.logs() if log.is_loaded)
    assert loaded == list(DUE)
    assert all(broker.partition("orders", index).log.fold(Alarms).offsets == [0] for index in DUE)


def test_those_that_a_recovery_has_loaded_are_opened_too() -> None:
    before = DuePlayer()
    before.create_topic("orders", PARTITIONS)
    for index in DUE:
        before.put(index, PIN)
    before.fs.process_death()
    broker = DuePlayer(before)
    assert broker.logs.recovered_logs == len(DUE)
    broker.settle()
    assert broker.opened() == list(DUE)


def test_they_stay_in_memory() -> None:
    broker = DuePlayer(stopped())
    broker.settle()
    for log in broker.logs.logs():
        log.unload()
    assert sorted(log.partition for log in broker.logs.logs() if log.is_loaded) == list(DUE)


def test_those_that_another_broker_leads_wait_until_this_one_does() -> None:
    before = stopped()
    broker = DuePlayer(before)
    register = RegisterBroker(BrokerImage(8, "other", 9092, None, is_fenced=False))
    version = broker.services.image.version
    broker.services.apply_image(
        broker.services.store.apply((register,), version, "register"), broker.now_ms
    )
    broker.lead(8)
    broker.settle()
    assert broker.opened() == []
    broker.lead(NODE_ID)
    broker.settle()
    assert broker.opened() == list(DUE)


@pytest.mark.parametrize("is_lasting", [False, True])
def test_one_that_cannot_be_loaded_is_tried_again(is_lasting: bool) -> None:
    broker = DuePlayer(stopped())
    broker.fs.faults.append(Fault("open", ".log", errno.EMFILE, is_lasting=is_lasting))
    broker.settle()
    assert broker.openings.next_deadline_ms() == broker.now_ms + RETRY_INTERVAL_MS
    broker.fs.faults.clear()
    broker.now_ms += RETRY_INTERVAL_MS
    broker.settle()
    assert broker.opened() == list(DUE)
    assert sorted(log.partition for log in broker.logs.logs() if log.is_loaded) == list(DUE)


def test_a_disk_that_has_failed_is_left_alone() -> None:
    broker = DuePlayer(stopped())
    broker.logs.directories[0].fail(OSError(errno.EIO, "Input/output error"))
    broker.settle()
    assert broker.openings.next_deadline_ms() is None
    assert not broker.executor.queue


def test_a_topic_that_is_deleted_meanwhile_is_not_opened() -> None:
    broker = DuePlayer(stopped())
    broker.services.tick(broker.now_ms)
    broker.delete_topic(broker.topic_id)
    broker.settle()
    assert broker.openings.next_deadline_ms() is None
    assert len(broker.services.partitions) == 0


def test_a_request_for_one_that_is_being_opened_waits_for_it() -> None:
    broker = DuePlayer(stopped())
    broker.services.tick(broker.now_ms)
    produce = broker.produce("orders", [b"x"], index=0)
    assert not produce.is_answered
    broker.settle()
    assert produce.is_answered
