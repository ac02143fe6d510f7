"""Groups over replicas: what a coordinator says is committed, and no coordinator says it too long.

Broker 7 coordinates; the test plays brokers 8 and 9, which follow `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.coordinators import coordinator_log, group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.coordinators.internal_topic import read_log, records_of
from data_plane.cell.changes import ChangePartition, CreateTopic, DeleteTopic
from data_plane.cell.metadata import PartitionImage
from data_plane.groups.record_formats import (
    CommittedOffset,
    OffsetKey,
    encode_committed_offset,
    encode_key,
)
from data_plane.log.errors import CorruptSegment
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, Pending
from tests.broker.replicated_player import OTHERS, ReplicatedPlayer

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_ID = UUID(int=77)
GROUP = "readers"


class CoordinatorPlayer(ReplicatedPlayer):
    """A coordinator of all groups; the offsets topic has one partition on 7, 8 and 9."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(properties)
        self.groups = GroupService(self.services)
        self.services.groups = self.groups
        self.services.components.append(self.groups)
        group_handlers.register(self.services.handlers)
        self.groups.start(self.now_ms)
        self.commit(CreateTopic("default", OFFSETS_TOPIC, OFFSETS_ID, ((NODE_ID, *OTHERS),)))

    @property
    def offsets_state(self) -> PartitionImage:
        return self.services.image.topics_by_id[OFFSETS_ID].partitions[0]

    @property
    def offsets_replica(self) -> Partition:
        partition = self.services.partitions.replica(OFFSETS_ID, 0)
        assert partition is not None
        return partition

    def change_offsets(self, **fields: Any) -> None:
        self.change(topic_id=OFFSETS_ID, **fields)
        self.run_jobs()

    def follow_offsets(self, *node_ids: int, offset: int | None = None) -> None:
        """These brokers have the offsets topic up to `offset`, or all of it, and say so."""
        self.catch_up_on(OFFSETS_ID, node_ids or OTHERS, offset)

    def send_commit(self, offset: int) -> Pending:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
        request = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic]
        )
        return self.send(ApiKey.OFFSET_COMMIT, 9, request)

    def committed(self) -> int | ErrorCode:
        topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        response = self.send(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group])).response
        if response.groups[0].error_code:
            return ErrorCode(response.groups[0].error_code)
        offset: int = response.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def coordinator(self) -> tuple[ErrorCode, int]:
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        (found,) = self.send(ApiKey.FIND_COORDINATOR, 6, request).response.coordinators
        return ErrorCode(found.error_code), found.node_id


def outcome(pending: Pending) -> ErrorCode:
    return ErrorCode(pending.response.topics[0].partitions[0].error_code)


def test_a_commit_is_acknowledged_and_seen_when_all_in_sync_have_it() -> None:
    one = CoordinatorPlayer()
    pending = one.send_commit(42)
    one.follow_offsets(8)
    assert not pending.is_answered
    assert one.committed() == -1, "nobody is told what may still be lost"
    one.follow_offsets(9)
    assert outcome(pending) is ErrorCode.NONE
    assert one.committed() == 42


def test_below_min_isr_a_commit_is_refused_before_it_is_written() -> None:
    one = CoordinatorPlayer()
    one.follow_offsets()
    one.change_offsets(isr=(NODE_ID,))
    end = one.offsets_replica.log.log_end_offset
    assert outcome(one.send_commit(42)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert one.offsets_replica.log.log_end_offset == end
    one.follow_offsets(8)
    one.change_offsets(isr=(NODE_ID, 8))
    pending = one.send_commit(43)
    one.follow_offsets(8)
    assert outcome(pending) is ErrorCode.NONE
    assert one.committed() == 43


def test_who_lost_the_partition_coordinates_no_more() -> None:
    one = CoordinatorPlayer()
    pending = one.send_commit(42)
    one.change_offsets(leader=8)
    assert outcome(pending) is ErrorCode.NOT_COORDINATOR
    assert outcome(one.send_commit(43)) is ErrorCode.NOT_COORDINATOR
    assert one.committed() is ErrorCode.NOT_COORDINATOR
    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    response = one.send(ApiKey.HEARTBEAT, 4, beat).response
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert one.coordinator() == (ErrorCode.NONE, 8)


def test_nobody_is_sent_to_a_coordinator_that_does_not_live() -> None:
    one = CoordinatorPlayer()
    one.change_offsets(leader=-1)
    assert one.coordinator() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_new_coordinator_tells_nothing_that_may_be_lost_with_it() -> None:
    one = CoordinatorPlayer()
    first = one.send_commit(42)
    one.follow_offsets()
    assert outcome(first) is ErrorCode.NONE
    # Written here, and acknowledged to nobody.
    one.send_commit(43)
    one.change_offsets(leader=8)
    one.change_offsets(leader=NODE_ID)
    assert one.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.follow_offsets(8)
    assert one.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.follow_offsets(9)
    assert one.committed() == 43


def test_what_one_epoch_has_decided_is_nothing_to_the_next() -> None:
    one = CoordinatorPlayer()
    epoch = one.offsets_state.leader_epoch
    one.change_offsets(leader=8)
    one.change_offsets(leader=NODE_ID)
    topic = one.groups.topic
    end = one.offsets_replica.log.log_end_offset
    refused: list[ErrorCode] = []
    records = [NewRecord(one.now_ms, b"key", b"value")]
    topic.append(0, epoch, records, one.now_ms, refused.append)
    assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert one.offsets_replica.log.log_end_offset == end
    confirmed: list[bool] = []
    topic.confirm_leading(0, epoch, one.now_ms, confirmed.append)
    topic.confirm_leading(0, epoch + 2, one.now_ms, confirmed.append)
    assert confirmed == [False, True]


def test_a_coordinator_that_leads_in_a_newer_epoch_loads_anew() -> None:
    """Whoever led between, and what that one has written, it has not heard of."""
    one = CoordinatorPlayer()
    one.send_commit(42)
    one.follow_offsets()
    old = one.offsets_state
    between = replace(old, leader=8, leader_epoch=1, partition_epoch=old.partition_epoch + 1)
    again = replace(old, leader_epoch=2, partition_epoch=old.partition_epoch + 2)
    one.commit(ChangePartition(OFFSETS_ID, 0, between), ChangePartition(OFFSETS_ID, 0, again))
    one.follow_offsets()
    one.run_jobs()
    pending = one.send_commit(44)
    one.follow_offsets()
    assert outcome(pending) is ErrorCode.NONE
    assert one.committed() == 44


def test_a_coordinator_that_leads_again_while_it_waits_loads_in_the_new_epoch() -> None:
    one = CoordinatorPlayer()
    one.send_commit(42)
    for leader in (8, NODE_ID, 9, NODE_ID):
        one.change_offsets(leader=leader)
    assert one.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    one.follow_offsets()
    assert one.committed() == 42
    pending = one.send_commit(43)
    one.follow_offsets()
    assert outcome(pending) is ErrorCode.NONE


def test_half_of_what_was_known_is_not_coordinated() -> None:
    """A byte has changed on the disk in what this process has written, which is not checked when it
    is read otherwise."""
    one = CoordinatorPlayer()
    for offset in (42, 43):
        one.send_commit(offset)
        one.follow_offsets()
    log = one.offsets_replica.log
    assert len(list(records_of(read_log(log, 0, log.log_end_offset)))) == log.log_end_offset
    one.fs.flip_bit(log.segments[0].path(), log.segments[0].size - 3)
    with pytest.raises(CorruptSegment):
        list(read_log(log, 0, log.log_end_offset))
    one.change_offsets(leader=8)
    one.change_offsets(leader=NODE_ID)
    one.follow_offsets()
    assert one.committed() is ErrorCode.NOT_COORDINATOR
    assert "groups_not_loaded" in [event for _, event, _ in one.log.events]


def test_offsets_of_a_topic_that_an_image_on_the_way_does_not_have_yet_stay() -> None:
    """This broker follows a large commit in steps, and coordinates already in the first one. What
    the coordinator before has taken is of a topic that comes with a later step."""
    one = CoordinatorPlayer()
    one.follow_offsets()
    one.change_offsets(leader=8)
    late_id = UUID(int=91)
    key = OffsetKey(GROUP, "late", 0)
    committed = CommittedOffset(42, -1, "", one.now_ms, None, late_id)
    value = encode_committed_offset(committed)
    record = NewRecord(timestamp=one.now_ms, key=encode_key("default", key), value=value)
    replica, epoch = one.offsets_replica, one.offsets_state.leader_epoch
    end = replica.log.log_end_offset
    batch = build_batch([record], base_offset=end, partition_leader_epoch=epoch)
    replica.append_as_follower(
        batch,
        0,
        len(batch),
        leader_epoch=epoch,
        leader_high_watermark=end + 1,
        leader_log_start=0,
        now_ms=one.now_ms,
    )
    state = one.offsets_state
    one.commit(
        ChangePartition(
            OFFSETS_ID,
            0,
            replace(
                state,
                leader=NODE_ID,
                leader_epoch=epoch + 1,
                partition_epoch=state.partition_epoch + 1,
            ),
        ),
        CreateTopic("default", "wide", UUID(int=90), (OTHERS,) * 2_000),
        CreateTopic("default", "late", late_id, (OTHERS,)),
    )
    one.follow_offsets()
    assert one.groups.coordinator.is_loaded(0)
    assert "late" not in one.services.image.topics_of("default")
    while not one.services.images.is_settled:
        one.pass_time(1)
        one.run_jobs()
    one.follow_offsets()
    assert one.groups.coordinator.committed_offsets("default") == {key: committed}


@pytest.mark.parametrize("partitions_count", [1, 3])
def test_a_topic_that_is_made_anew_at_once_has_no_groups_of_the_one_before(
    partitions_count: int,
) -> None:
    """This broker hears of both in one step, and leads in epoch 0 before and after."""
    one = CoordinatorPlayer()
    acknowledged, waiting = one.send_commit(42), one.send_commit(43)
    one.follow_offsets(offset=1)
    assert outcome(acknowledged) is ErrorCode.NONE
    assert one.committed() == 42
    replicas = (NODE_ID, *OTHERS)
    one.commit(
        DeleteTopic(OFFSETS_ID),
        CreateTopic("default", OFFSETS_TOPIC, UUID(int=78), (replicas,) * partitions_count),
    )
    one.run_jobs()
    assert outcome(waiting) is not ErrorCode.NONE
    assert one.groups.coordinator.config.offsets_topic_num_partitions == partitions_count
    assert one.committed() == -1


def test_what_is_being_read_of_a_deleted_topic_is_not_loaded_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_log, "LOADS_AT_ONCE_MAX", 1)
    one = CoordinatorPlayer()
    one.send_commit(42)
    one.follow_offsets()
    service = GroupService(one.services)
    service.start(one.now_ms)
    one.services.wakes.run(one.now_ms)
    assert one.executor.queue
    assert not service.coordinator.is_loaded(0)
    one.commit(
        DeleteTopic(OFFSETS_ID),
        CreateTopic("default", OFFSETS_TOPIC, UUID(int=78), ((NODE_ID, *OTHERS),)),
    )
    one.run_jobs()
    assert service.coordinator.is_loaded(0)
    assert service.coordinator.committed_offsets("default") == {}


def test_the_fate_of_an_append_is_nothing_to_the_coordinator_of_another_topic() -> None:
    """Both count their appends from 1."""
    one = CoordinatorPlayer()
    former = one.send_commit(42)
    replicas = (NODE_ID, *OTHERS)
    one.follow_offsets(8)
    coordinator = one.groups.coordinator
    log = one.groups.log
    tell = [
        partial(log._append_done, log._generation, partial(one.groups._append_settled, append_id))
        for append_id in range(4)
    ]
    one.commit(DeleteTopic(OFFSETS_ID))
    one.run_jobs()
    assert outcome(former) is not ErrorCode.NONE
    one.commit(CreateTopic("default", OFFSETS_TOPIC, UUID(int=78), (replicas,) * 3))
    one.run_jobs()
    assert one.groups.coordinator is not coordinator
    pending = one.send_commit(43)
    for settled in tell:
        settled(ErrorCode.NONE)
    one.services.wakes.run(one.now_ms)
    assert not pending.is_answered
    assert one.committed() == -1
