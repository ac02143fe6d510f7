"""One of two disks cannot be read at a start: what was on it is lost, and nothing is put in its
place until somebody has it back."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.replicas.failed_directories import LOOK_INTERVAL_MS, FailedDirectories
from data_plane.broker.replicas.topic_partitions import TopicPartitions
from data_plane.cell.changes import CreateTopic
from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
from data_plane.cell.topics_draft import by_tenant
from data_plane.log.config import LogConfig
from data_plane.log.errors import DuplicateLog, LogDirFailure, LogError
from data_plane.log.log import Log
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from tests.broker.member_player import Member
from tests.log.one_log import START_MS, batch_of

NODE_ID = 1
OLD, NEW = UUID(int=3), UUID(int=4)
EPOCH = 7


class Properties:
    """The replicas' configuration: all defaults."""

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig()

    def get_int(self, name: str) -> int:
        return 30_000

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> object:
        return 1


def image_of(version: int, **partitions_counts: int) -> MetadataImage:
    """Topics "old" and "new" with so many partitions, all of this broker's."""
    topics = []
    for name, count in partitions_counts.items():
        topic_id = OLD if name == "old" else NEW
        partitions = tuple(PartitionImage((NODE_ID,), (NODE_ID,), NODE_ID) for _ in range(count))
        topics.append(TopicImage("default", name, topic_id, partitions, {}))
    by_id = {topic.topic_id: topic for topic in topics}
    return MetadataImage("c", version, {}, by_tenant(topics), by_id)


class Disks:
    """Two disks with a log of "old" each, partition 0 on /a and 1 on /b."""

    def __init__(self) -> None:
        self.fs = SimFileSystem()
        self.paths = [Path("/a"), Path("/b")]
        self.image = image_of(1, old=2)
        self.start()
        for index in (0, 1):
            self.add(index)
        assert self.log(0).folder.startswith("/a/")
        self.stop()

    def start(self, *, is_image_old: bool = False) -> list[LogDirFailure]:
        self.manager = LogManager(
            self.paths, default_config=LogConfig(), fs=self.fs, now_ms=START_MS
        )
        failures = self.manager.start(START_MS)
        self.failed: list[tuple[str, int, LogError]] = []
        self.partitions = TopicPartitions(
            NODE_ID, self.image, self.manager, Properties(), lambda partition: None
        )
        self.partitions.is_image_old = is_image_old
        self.partitions.on_open_failed = lambda *what: self.failed.append(what)
        return failures

    def start_without_a(self, *, is_image_old: bool = False) -> None:
        self.fs.faults.append(Fault("list", "/a/topics", errno.EIO))
        (failure,) = self.start(is_image_old=is_image_old)
        assert failure.directory == "/a"

    def stop(self) -> None:
        self.manager.close(START_MS, broker_epoch=EPOCH)
        self.fs.process_death()

    def apply(self, image: MetadataImage) -> None:
        self.image = image
        self.partitions.apply_image(image, START_MS)

    def add(self, index: int, topic_id: UUID = OLD) -> None:
        partition = self.partitions.get(topic_id, index)
        assert partition is not None
        buf = batch_of(b"v")
        partition.append_as_leader(buf, 0, len(buf), now_ms=START_MS)

    def log(self, index: int) -> Log:
        return self.manager.get(OLD, index)

    def partition(self, index: int, topic_id: UUID = OLD) -> Partition | None:
        return self.partitions.get(topic_id, index)


@pytest.fixture
def disks() -> Disks:
    return Disks()


def test_what_was_on_it_is_not_made_anew(disks: Disks) -> None:
    disks.start_without_a()
    assert disks.partition(0) is None
    assert disks.partitions.error(OLD, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    ((topic, index, error),) = disks.failed
    assert (topic, index) == ("old", 0)
    assert "/a" in str(error)
    assert disks.fs.list_directory(f"/b/topics/{OLD}") == ["Partition-1"]
    # The other disk goes on.
    disks.add(1)
    assert disks.log(1).log_end_offset == 2
    assert [disks.manager.is_lost(OLD, index) for index in (0, 1)] == [True, False]


def test_all_is_there_when_the_disk_is_back(disks: Disks) -> None:
    disks.start_without_a()
    assert disks.partition(0) is None
    disks.stop()
    assert disks.start() == []
    assert [disks.log(index).log_end_offset for index in (0, 1)] == [1, 1]
    assert not disks.manager.is_lost(OLD, 0)
    disks.add(0)


def test_what_the_metadata_brings_from_here_on_is_made_at_once(disks: Disks) -> None:
    disks.start_without_a()
    disks.apply(image_of(2, old=3, new=1))
    assert set(disks.manager.partition_ids()) == {(OLD, 1), (OLD, 2), (NEW, 0)}
    disks.add(0, NEW)
    assert disks.partition(0) is None
    # So the next start knows it, though the disk is still away, and however it is asked for.
    disks.stop()
    disks.start_without_a()
    disks.add(0, NEW)
    disks.add(2)
    assert disks.manager.get(NEW, 0).log_end_offset == 2
    assert disks.partition(0) is None


def test_a_replica_that_was_elsewhere_before_is_new_here(disks: Disks) -> None:
    disks.image = replace_replicas(disks.image, 0, (2,))
    disks.start_without_a()
    disks.apply(replace_replicas(image_of(2, old=2), 0, (2, NODE_ID)))
    assert (OLD, 0) in disks.manager.partition_ids()


def replace_replicas(image: MetadataImage, index: int, replicas: tuple[int, ...]) -> MetadataImage:
    (topic,) = image.topics_of("default").values()
    partitions = list(topic.partitions)
    partitions[index] = PartitionImage(replicas, replicas, replicas[0])
    topic = replace(topic, partitions=tuple(partitions))
    return replace(image, topics_by_tenant=by_tenant([topic]), topics_by_id={topic.topic_id: topic})


def test_what_an_old_image_did_not_know_is_not_new_for_that(disks: Disks) -> None:
    """This broker may have had it in its last life, whose image was newer than what it saved."""
    disks.image = image_of(0, old=1)
    disks.start_without_a(is_image_old=True)
    disks.apply(image_of(1, old=2, new=1))
    assert set(disks.manager.partition_ids()) == {(OLD, 1)}
    assert disks.partition(0, NEW) is None
    disks.apply(image_of(2, old=3, new=1))
    assert (OLD, 2) in disks.manager.partition_ids()


def test_a_disk_that_fails_later_hides_nothing(disks: Disks) -> None:
    """All its logs are known by then."""
    disks.start()
    disks.fs.faults.append(Fault("write", "/a/", errno.EIO))
    with pytest.raises(LogDirFailure):
        disks.add(0)
    disks.apply(image_of(2, old=2, new=1))
    assert disks.manager.partition_ids() == [(OLD, 0), (OLD, 1)], "made when first asked for"
    disks.add(0, NEW)
    assert [disks.manager.is_lost(*key) for key in ((OLD, 0), (OLD, 1), (NEW, 0))] == [
        True,
        False,
        False,
    ]


def test_a_log_that_cannot_be_recovered_makes_its_disk_one_that_was_not_read(disks: Disks) -> None:
    disks.fs.faults.append(Fault("read", "/a/recovery-point", errno.EIO))
    disks.fs.unlink("/a/clean-shutdown")
    assert [failure.directory for failure in disks.start()] == ["/a"]
    assert disks.partition(0) is None


def test_one_partition_in_two_places_is_an_error_that_names_both(disks: Disks) -> None:
    copy = f"/b/topics/{OLD}/Partition-0"
    disks.fs.make_directory(copy)
    manager = LogManager(disks.paths, default_config=LogConfig(), fs=disks.fs)
    with pytest.raises(DuplicateLog) as raised:
        manager.start(START_MS)
    for part in (f"/a/topics/{OLD}/Partition-0", copy, "partition 0 of old"):
        assert part in str(raised.value)
    # It left nothing locked, and all as it was.
    disks.fs.remove_directory(copy)
    assert disks.start() == []
    assert manager.partition_ids() == []
    assert disks.manager.recovered_logs == 0
    assert disks.log(0).log_end_offset == 1


# What the broker says of itself when it registers.


def clean_epoch(disks: Disks, *paths: str) -> int | None:
    manager = LogManager([Path(path) for path in paths], default_config=LogConfig(), fs=disks.fs)
    manager.lock()
    epoch = manager.clean_broker_epoch()
    manager.close(START_MS, clean=False)
    return epoch


def test_a_broker_that_has_all_its_disks_says_that_it_has_lost_nothing(disks: Disks) -> None:
    assert clean_epoch(disks, "/a", "/b") == EPOCH


def test_a_broker_that_cannot_read_a_disk_does_not(disks: Disks) -> None:
    disks.fs.faults.append(Fault("list", "/a/topics", errno.EIO))
    assert clean_epoch(disks, "/a", "/b") is None


def test_a_broker_that_is_told_of_fewer_disks_than_before_does_not(disks: Disks) -> None:
    assert clean_epoch(disks, "/b") is None


def test_a_killed_broker_knows_how_many_disks_it_had(disks: Disks) -> None:
    disks.start()
    disks.manager.set_broker_epoch(EPOCH)
    for directory in disks.manager.directories:
        disks.manager.checkpoint_job(directory).run()
    disks.fs.process_death()
    assert clean_epoch(disks, "/b") is None
    assert clean_epoch(disks, "/a", "/b") == EPOCH


def test_replicas_that_may_be_on_it_are_given_up(disks: Disks) -> None:
    """Others have them: whoever holds this for the leader, or one in sync, learns better."""
    member = Member()
    disks.start_without_a()
    logs: Any = disks.manager
    member.services.logs = logs
    failed = FailedDirectories(member.services, lambda topic: 1, lambda: None)
    member.services.components.append(failed)
    member.write(CreateTopic("default", "old", OLD, ((NODE_ID, 2), (NODE_ID, 2))))
    member.run_jobs()
    member.services.start(member.now_ms())
    member.pass_time(LOOK_INTERVAL_MS + 10)
    lost, kept = member.image.topics_by_id[OLD].partitions
    assert (lost.isr, lost.leader, lost.elr) == ((2,), -1, ())
    assert (kept.isr, kept.leader) == ((NODE_ID, 2), NODE_ID)
