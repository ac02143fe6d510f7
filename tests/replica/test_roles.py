"""The table of data_plane/replica/role.py, row by row: what a replica may do in which role."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from data_plane.cell.metadata import PartitionImage
from data_plane.replica.errors import StaleLeaderEpoch
from data_plane.replica.leadership import ReplicationSettings
from data_plane.replica.partition import Partition
from data_plane.replica.role import Role
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch
from tests.replica.test_partition import NODE_ID, NOW_MS, Counting, Played

OTHER = NODE_ID + 1
EPOCH = 3
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def image(*replicas: int, leader: int, epoch: int = EPOCH) -> PartitionImage:
    return PartitionImage(replicas, replicas, leader, epoch)


IMAGES = {
    Role.FOLLOWER: image(NODE_ID, OTHER, leader=OTHER),
    Role.SOLE_LEADER: image(NODE_ID, leader=NODE_ID),
    Role.LEADER: image(NODE_ID, OTHER, leader=NODE_ID),
}


class Unnamed(Played):
    """A replica that no image has named yet."""

    def lead(self, leader_epoch: int) -> None:
        """Not before it is told to."""

    def follow(self, state: PartitionImage) -> bool:
        return self.partition.follow_image(state, ReplicationSettings(), NOW_MS)


def in_role(role: Role) -> Unnamed:
    played = Unnamed()
    if role in IMAGES:
        assert played.follow(IMAGES[role])
    elif role is Role.CLOSED:
        played.follow(IMAGES[Role.LEADER])
        played.partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
    assert played.partition.role is role
    return played


def batch() -> bytearray:
    return build_batch([NewRecord(NOW_MS, None, b"v")])


def refuses(action: Callable[[], object]) -> bool:
    try:
        action()
    except StaleLeaderEpoch:
        return True
    return False


@pytest.mark.parametrize("role", Role)
def test_who_leads_takes_what_clients_produce(role: Role) -> None:
    partition = in_role(role).partition
    error = {Role.NEW: NOT_LEADER, Role.FOLLOWER: NOT_LEADER}.get(role, ErrorCode.NONE)
    if role is Role.CLOSED:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.leader_error is error
    assert partition.is_leader is role.leads is (error is ErrorCode.NONE)
    data = batch()
    if role.leads:
        partition.append_as_leader(data, 0, len(data), now_ms=NOW_MS)
    else:
        with pytest.raises(AssertionError):
            partition.append_as_leader(data, 0, len(data), now_ms=NOW_MS)
    assert partition.log.log_end_offset == int(role.leads)
    outcomes: list[ErrorCode] = []
    for wait in (partition.when_committed, partition.when_appended):
        waiter = wait(partition.log.log_end_offset, outcomes.append)
        # A leader's wait; the others know at once.
        assert (waiter is not None) is role.leads
    assert outcomes == ([] if role.leads else [error, error])


@pytest.mark.parametrize("role", Role)
def test_who_follows_takes_a_leaders_answers(role: Role) -> None:
    partition = in_role(role).partition
    data = batch()
    for epoch in (partition.leader_epoch, EPOCH):
        answer = partial(
            partition.append_as_follower,
            data,
            0,
            0,
            leader_epoch=epoch,
            leader_high_watermark=0,
            leader_log_start=0,
            now_ms=NOW_MS,
        )
        assert refuses(answer) is not role.follows
    for cut in (
        lambda: partition.truncate_for_divergence(0, 0),
        lambda: partition.drop_damaged(0),
        lambda: partition.restart_at(5),
    ):
        assert refuses(cut) is not role.follows
    assert partition.log.log_start_offset == (5 if role.follows else 0)
    assert partition.is_follower is role.follows
    # Where it stands may be asked until the end.
    assert refuses(partition.fetch_state) is (role is Role.CLOSED)


@pytest.mark.parametrize("role", Role)
def test_who_counts_followers_hears_of_their_logs(role: Role) -> None:
    partition = in_role(role).partition
    assert (partition.leadership is not None) is role.counts_followers
    assert partition.follower_fetched(OTHER, 1, 0, 0, NOW_MS) is role.counts_followers
    if role.leads:
        data = batch()
        partition.append_as_leader(data, 0, len(data), now_ms=NOW_MS)
    late_ms = NOW_MS + 10 * Played.replica_lag_time_max_ms
    proposal = partition.propose_isr(late_ms, may_shrink=True)
    assert (proposal is not None) is role.counts_followers
    assert partition.is_under_min_isr is False


@pytest.mark.parametrize("becomes", IMAGES)
@pytest.mark.parametrize("role", Role)
def test_images_lead_from_any_role_but_the_last(role: Role, becomes: Role) -> None:
    played = in_role(role)
    watcher = Counting()
    played.partition.watchers[watcher] = None
    given: Any = IMAGES[becomes]
    newer = image(*given.replicas, leader=given.leader, epoch=EPOCH + 1)
    assert played.follow(newer) is role.follows_images
    assert played.partition.role is (becomes if role.follows_images else Role.CLOSED)
    assert watcher.count >= int(role.follows_images)
    # An image of an older epoch changes nothing.
    before = played.partition.role
    for older in IMAGES.values():
        assert not played.follow(older)
        assert played.partition.role is before


@pytest.mark.parametrize("role", Role)
def test_every_role_ends(role: Role) -> None:
    partition = in_role(role).partition
    outcomes: list[ErrorCode] = []
    partition.when_committed(partition.log.log_end_offset, outcomes.append)
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert partition.role is Role.CLOSED
    assert partition.is_closed
    assert partition.leader_error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.leadership is None
    if role.leads:
        assert outcomes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_replica_that_gets_company_counts_it_and_one_that_is_left_alone_does_not() -> None:
    played = in_role(Role.SOLE_LEADER)
    partition: Partition = played.partition
    data = batch()
    partition.append_as_leader(data, 0, len(data), now_ms=NOW_MS)
    assert partition.high_watermark == 1
    state = PartitionImage((NODE_ID, OTHER), (NODE_ID,), NODE_ID, EPOCH, 1)
    assert not played.follow(state)
    roles = [partition.role]
    played.follow(PartitionImage((NODE_ID,), (NODE_ID,), NODE_ID, EPOCH, 2))
    roles.append(partition.role)
    assert roles == [Role.LEADER, Role.SOLE_LEADER]
    assert partition.high_watermark == 1


def test_consumers_read_where_there_is_a_copy_to_lead_or_to_follow() -> None:
    readable = {role for role in Role if role.serves_consumers}
    assert readable == {Role.FOLLOWER, Role.SOLE_LEADER, Role.LEADER}
