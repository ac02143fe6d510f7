"""Groups over real logs: written through partitions, read back by another process, off the loop."""

from __future__ import annotations

import errno
import random
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.coordinators.group_handlers import register
from data_plane.broker.coordinators.groups import GroupService
from data_plane.cell.changes import CreateTopic, DeleteTopic
from data_plane.groups.config import GROUP_METADATA_TOPIC_NAME
from data_plane.log.file_system import SyncSite
from data_plane.log.sim_file_system import Fault, SimFileSystem
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.registry import ApiKey as Api
from tests.broker.broker_player import BrokerPlayer
from tests.groups.requests import commit, fetch, heartbeat, join, sync

PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


class GroupsOnDisk(BrokerPlayer):
    """A broker with groups."""

    def __init__(self, *, starts: bool = True, **options: Any) -> None:
        properties = {**PROPERTIES, **options.pop("properties", {})}
        super().__init__(properties, **options)
        self.groups = GroupService(self.services)
        self.services.groups = self.groups
        self.services.components.append(self.groups)
        register(self.services.handlers)
        if starts:
            self.services.start(self.now_ms)
            self.run_jobs()

    def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        answer = self.ask(Api.FIND_COORDINATOR, 4, request).coordinators[0]
        assert answer.error_code == ErrorCode.NONE

    def next_process(self, *, starts: bool = True, **options: Any) -> GroupsOnDisk:
        """The same disk after this process has died."""
        self.fs.process_death()
        return GroupsOnDisk(
            starts=starts, disk=self.fs, image=self.services.image, seed=2, **options
        )

    def committed(self, group_id: str = "g", partition: int = 0) -> int:
        request = fetch(group_id, {"orders": [partition]})
        group = self.ask(Api.OFFSET_FETCH, 9, request).groups[0]
        assert group.error_code == ErrorCode.NONE
        offset: int = group.topics[0].partitions[0].committed_offset
        return offset

    def commit(self, offset: int, group_id: str = "g", partition: int = 0) -> ErrorCode:
        request = commit(group_id, {("orders", partition): offset})
        answer = self.ask(Api.OFFSET_COMMIT, 9, request)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def new_broker(**options: Any) -> GroupsOnDisk:
    broker = GroupsOnDisk(**options)
    broker.create_topic("orders", 3)
    broker.find_coordinator()
    return broker


def test_the_first_question_is_answered_when_the_topic_is_made() -> None:
    broker = GroupsOnDisk()
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    pending = [broker.send(Api.FIND_COORDINATOR, 4, request) for _ in range(3)]
    assert not any(each.is_answered for each in pending)
    broker.run_jobs()
    for each in pending:
        assert each.response.coordinators[0].error_code == ErrorCode.NONE
    assert broker.ask(Api.JOIN_GROUP, 9, join("g")).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (
        len(broker.services.image.topics_of("default")[GROUP_METADATA_TOPIC_NAME].partitions) == 4
    )


@pytest.mark.parametrize("codec", ["0", "1", "2", "3", "4"])
def test_a_group_survives_its_broker(codec: str) -> None:
    broker = new_broker(properties={"offsets.topic.compression.codec": codec})
    member_id = broker.ask(Api.JOIN_GROUP, 9, join("g")).member_id
    joining = broker.send(Api.JOIN_GROUP, 9, join("g", member_id))
    broker.pass_time(1)
    broker.pass_time(1)
    assert joining.response.generation_id == 1
    answer = broker.ask(Api.SYNC_GROUP, 5, sync("g", member_id, 1, {member_id: b"all"}))
    assert answer.assignment == b"all"
    for number in range(200):
        offsets: Any = {("orders", 0): number, ("orders", 1): 2 * number}
        request = commit("g", offsets, member_id=member_id, generation_id=1)
        answer = broker.ask(Api.OFFSET_COMMIT, 9, request)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    after = broker.next_process()
    assert (after.committed(), after.committed(partition=1)) == (199, 398)
    assert after.ask(Api.HEARTBEAT, 4, heartbeat("g", member_id, 1)).error_code == 0
    group = after.ask(Api.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (group.group_state, group.members[0].member_assignment) == ("Stable", b"all")


def test_requests_before_a_partition_is_read_are_put_off() -> None:
    broker = new_broker()
    assert broker.commit(5) is ErrorCode.NONE
    after = broker.next_process(starts=False)
    after.services.start(after.now_ms)
    assert after.executor.queue, "partitions are read off the loop"
    request = fetch("g", {"orders": [0]})
    loading = after.send(Api.OFFSET_FETCH, 9, request).response.groups[0]
    assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    after.run_jobs()
    assert after.committed() == 5


def test_what_is_read_of_an_offsets_topic_that_was_deleted_is_not_taken_for_its_successor() -> None:
    broker = new_broker()
    assert broker.commit(5) is ErrorCode.NONE
    after = broker.next_process(starts=False)
    after.services.start(after.now_ms)
    assert after.executor.queue, "partitions are being read"
    image = after.services.image
    old = image.topics_of("default")[GROUP_METADATA_TOPIC_NAME]
    replicas = tuple(partition.replicas for partition in old.partitions)
    new = CreateTopic("default", old.name, UUID(int=77), replicas, tuple(old.configs.items()))
    changes = (DeleteTopic(old.topic_id), new)
    image = after.services.store.apply(changes, image.version, "made anew")
    after.services.apply_image(image, after.now_ms)
    after.run_jobs()
    assert after.committed() == -1
    assert after.commit(6) is ErrorCode.NONE
    assert after.committed() == 6


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_keeps_what_was_acknowledged_durably(seed: int, durability: str) -> None:
    disk = SimFileSystem(maps_files=True)
    disk.make_directory("/data")
    disk.sync_directory("/", SyncSite.DATA_FOLDER)
    broker = new_broker(disk=disk, properties={"log.durability": durability})
    broker.configure_topic(GROUP_METADATA_TOPIC_NAME, durability="fsync")
    acknowledged: dict[int, int] = {}
    for number in range(20):
        partition = number % 3
        if broker.commit(number, partition=partition) is ErrorCode.NONE:
            acknowledged[partition] = number
    unsynced = broker.send(Api.OFFSET_COMMIT, 9, commit("g", {("orders", 0): 99}))
    assert not unsynced.is_answered
    broker.fs.power_loss(random.Random(seed))
    after = broker.next_process()
    for partition, offset in acknowledged.items():
        assert after.committed(partition=partition) in (offset, 99)


def test_a_failing_disk_sends_clients_to_look_for_the_coordinator() -> None:
    broker = new_broker()
    assert broker.commit(5) is ErrorCode.NONE
    broker.fs.faults.append(Fault("write", "Partition", errno.EIO))
    assert broker.commit(6) is ErrorCode.NOT_COORDINATOR


def test_deleted_topics_take_their_offsets_with_them() -> None:
    broker = new_broker()
    topic_id = broker.services.image.topics_of("default")["orders"].topic_id
    assert broker.commit(5) is ErrorCode.NONE
    broker.delete_topic(topic_id)
    broker.run_jobs()
    broker.create_topic("orders", 3)
    assert broker.committed() == -1
    assert broker.next_process().committed() == -1


def test_stopping_and_starting_again() -> None:
    broker = new_broker()
    for number in range(30):
        assert broker.commit(number, group_id=f"g-{number}") is ErrorCode.NONE
    broker.services.stop(broker.now_ms)
    broker.logs.close(broker.now_ms)
    after = broker.next_process()
    assert [after.committed(f"g-{number}") for number in range(30)] == list(range(30))
