"""What is asked of a partition's records and files where it has several replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.broker.admin import handlers
from data_plane.broker.replicas.log_maintenance import LogMaintenance
from data_plane.cell.changes import ChangeBroker
from data_plane.log.lanes import Lane
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from data_plane.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, Pending
from tests.broker.replicated_player import TOPIC_ID, ReplicatedPlayer

TIMEOUT_MS = 30_000
RETENTION_INTERVAL_MS = MaintenanceConfig().retention_check_interval_ms


class RecordsPlayer(ReplicatedPlayer):
    """Five records, and everybody has them."""

    def __init__(self) -> None:
        super().__init__()
        handlers.register_admin(self.services.handlers)
        self.produce("orders", [b"%d" % number for number in range(5)])
        self.catch_up()

    def delete(self, offset: int) -> Pending:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="orders", partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        return self.send(ApiKey.DELETE_RECORDS, 2, request)

    def begin_at(self, node_id: int, log_start_offset: int) -> None:
        """A follower fetches and says where its log begins."""
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1)
        request.replica_state.replica_id = node_id
        request.replica_state.replica_epoch = self.broker_epoch(node_id)
        piece = FetchPartition(
            partition=0,
            fetch_offset=self.replica.log.log_end_offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=self.state.leader_epoch,
            log_start_offset=log_start_offset,
        )
        request.topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[piece])]
        self.send(ApiKey.FETCH, 18, request, connection=self.door)


@pytest.fixture
def player() -> RecordsPlayer:
    return RecordsPlayer()


def outcome(pending: Pending) -> tuple[ErrorCode, int]:
    (topic,) = pending.response.topics
    (partition,) = topic.partitions
    return ErrorCode(partition.error_code), partition.low_watermark


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({"compact"}, ErrorCode.POLICY_VIOLATION),
        ({"compact", "delete"}, ErrorCode.NONE),
        (set(), ErrorCode.NONE),
    ],
)
def test_records_of_a_compacted_topic_are_not_deleted(
    player: RecordsPlayer, policy: set[str], error: ErrorCode
) -> None:
    log = player.replica.log
    log.update_config(replace(log.config, cleanup_policy=frozenset(policy)))
    pending = player.delete(3)
    for follower in (8, 9):
        player.begin_at(follower, 3)
    assert outcome(pending) == (error, -1 if error else 3)
    assert log.log_start_offset == (0 if error else 3)


@pytest.mark.parametrize(("offset", "start"), [(3, 3), (-1, 5)])
def test_records_are_deleted_when_no_live_replica_has_them(
    player: RecordsPlayer, offset: int, start: int
) -> None:
    pending = player.delete(offset)
    assert player.replica.log.log_start_offset == start
    player.begin_at(8, start)
    player.begin_at(9, start - 1)
    assert not pending.is_answered
    player.begin_at(9, start)
    assert outcome(pending) == (ErrorCode.NONE, start)
    # What everybody has dropped already is deleted at once.
    assert outcome(player.delete(2)) == (ErrorCode.NONE, start)
    assert not player.replica.watchers


def test_a_live_replica_that_has_said_nothing_yet_may_have_them_all(
    player: RecordsPlayer,
) -> None:
    player.change(leader=8)
    player.change(leader=NODE_ID)
    pending = player.delete(3)
    assert player.replica.log.log_start_offset == 3
    player.begin_at(8, 3)
    assert not pending.is_answered
    player.begin_at(9, 3)
    assert outcome(pending) == (ErrorCode.NONE, 3)


def test_a_fenced_broker_is_not_waited_for(player: RecordsPlayer) -> None:
    pending = player.delete(3)
    player.begin_at(8, 3)
    player.commit(ChangeBroker(replace(player.services.image.brokers[9], is_fenced=True)))
    assert outcome(pending) == (ErrorCode.NONE, 3)


def test_a_replica_that_does_not_follow_in_time(player: RecordsPlayer) -> None:
    listeners = len(player.services.image_listeners)
    pending = player.delete(3)
    player.begin_at(8, 3)
    player.pass_time(TIMEOUT_MS)
    assert outcome(pending) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    player.begin_at(9, 3)
    assert len(player.services.image_listeners) == listeners


def test_a_leader_that_stops_leading_does_not_know(player: RecordsPlayer) -> None:
    pending = player.delete(3)
    player.change(leader=8)
    assert outcome(pending) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_follower_may_be_put_where_it_is(player: RecordsPlayer) -> None:
    player.change(leader=8)
    topic = AlterReplicaLogDirTopic(name="orders", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=[topic])])
    response = player.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
    assert response.results[0].partitions[0].error_code == ErrorCode.NONE


def test_a_replica_that_is_elsewhere_is_put_nowhere(player: RecordsPlayer) -> None:
    player.change(leader=8, replicas=(8, 9), isr=(8, 9))
    topic = AlterReplicaLogDirTopic(name="orders", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=[topic])])
    response = player.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request)
    assert response.results[0].partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE


def test_followers_that_wait_hear_of_a_log_start_that_retention_moved() -> None:
    """Without it their logs would begin where the leader's did until somebody produces again."""
    player = ReplicatedPlayer(configs={"retention.bytes": "0"})
    maintenance = LogMaintenance(player.services, dict.fromkeys(Lane, player.executor))
    maintenance.start(player.now_ms)
    player.services.components.append(maintenance)
    player.produce("orders", [b"a"])
    player.catch_up()
    player.pass_time(RETENTION_INTERVAL_MS - 2_000)
    session_id = player.follow(8, 1, session=(0, 0)).response.session_id
    parked = player.follow(8, None, session=(session_id, 1), max_wait_ms=5_000)
    assert not parked.is_answered
    player.pass_time(2_000)
    assert player.replica.log.log_start_offset == 1
    player.pass_time(5_000)
    (topic,) = parked.response.responses
    assert [one.log_start_offset for one in topic.partitions] == [1]
