"""Nothing is deleted by an image that nobody has vouched for, nor by a clock that has jumped."""

from __future__ import annotations

import pytest

from data_plane.broker.admin import delete_records
from data_plane.broker.cell.deletion_guard import START_MS, DeletionGuard
from data_plane.broker.replicas.log_maintenance import LogMaintenance
from data_plane.broker.request.api import ConnectionInfo, RequestContext
from data_plane.broker.request.wall_clock import WallClock
from data_plane.log.lanes import Lane
from data_plane.log.permit import PERMITTED
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from data_plane.wire.messages.delete_records_response import DeleteRecordsResponse
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import BrokerPlayer

DAY_MS = 24 * 3600 * 1000
MINUTE_MS = 60_000
SETTLE_MS = 5 * MINUTE_MS


class Broker(BrokerPlayer):
    """With retention, and a wall clock that is off by what the test says."""

    def __init__(self, *, retention_ms: int = 14 * DAY_MS) -> None:
        super().__init__({"log.retention.check.interval.ms": "60000"})
        self.off_ms = 0
        services = self.services
        services.wall_clock = WallClock(MINUTE_MS, SETTLE_MS)
        services.partitions.wall_ms = services.wall_clock.wall_ms
        lanes = dict.fromkeys(Lane, self.executor)
        self.guard = DeletionGuard(services, lambda: self.off_ms)
        services.components += [self.guard, LogMaintenance(services, lanes)]
        services.start(self.now_ms)
        self.create_topic("t", 1, {"retention.ms": str(retention_ms)})
        partition = services.partitions.get_by_name("default", "t", 0)
        assert partition is not None
        self.replica: Partition = partition
        self.pass_time(SETTLE_MS + MINUTE_MS, 10_000)

    def append(self, count: int, timestamp_ms: int | None = None) -> None:
        for _ in range(count):
            wall_ms = self.services.wall_clock.wall_ms(self.now_ms)
            batch = build_batch(
                [NewRecord(wall_ms if timestamp_ms is None else timestamp_ms, None, b"v")]
            )
            self.replica.append_as_leader(batch, 0, len(batch), now_ms=self.now_ms)
        self.replica.log.roll()

    def pass_time(self, ms: int, step_ms: int = 1000) -> None:
        for _ in range(ms // step_ms):
            self.now_ms += step_ms
            self.services.tick(self.now_ms)
            while self.executor.queue:
                self.executor.run_one()

    @property
    def log_start(self) -> int:
        return self.replica.log.log_start_offset

    def events(self) -> list[tuple[str, str]]:
        return [
            (event, str(fields.get("reason") or fields.get("was")))
            for _, event, fields in self.log.events
            if event.startswith("deletion_")
        ]


@pytest.mark.parametrize("glitch_ms", [1000, 4 * MINUTE_MS])
def test_a_clock_that_is_wrong_for_a_moment_costs_no_record(glitch_ms: int) -> None:
    broker = Broker()
    broker.append(20)
    broker.off_ms = 30 * DAY_MS
    broker.pass_time(glitch_ms)
    broker.off_ms = 0
    for _ in range(24 * 12):
        broker.pass_time(SETTLE_MS, MINUTE_MS)
    assert broker.log_start == 0
    broker.pass_time(14 * DAY_MS, 60 * MINUTE_MS)
    assert broker.log_start == 20, "and what is too old does go"


def test_records_without_a_timestamp_count_from_a_date_that_is_vouched_for() -> None:
    broker = Broker()
    broker.off_ms = -20 * DAY_MS
    broker.pass_time(10_000)
    broker.append(20, timestamp_ms=-1)
    broker.off_ms = 0
    broker.pass_time(DAY_MS, MINUTE_MS)
    assert broker.log_start == 0
    broker.pass_time(14 * DAY_MS, 60 * MINUTE_MS)
    assert broker.log_start == 20, "and what is too old does go"


def test_a_new_date_that_stands_is_the_date() -> None:
    broker = Broker()
    broker.append(20)
    broker.off_ms = 30 * DAY_MS
    broker.pass_time(SETTLE_MS)
    assert broker.log_start == 0
    broker.pass_time(2 * MINUTE_MS)
    assert broker.log_start == 20


def test_nothing_goes_while_nobody_vouches_for_the_image() -> None:
    broker = Broker(retention_ms=MINUTE_MS)
    broker.append(20)
    broker.guard.image_doubt = lambda now_ms: "the store is away"
    broker.pass_time(DAY_MS, MINUTE_MS)
    assert broker.log_start == 0
    broker.guard.image_doubt = lambda now_ms: ""
    broker.pass_time(2000)
    assert broker.log_start == 20


def test_deleting_records_on_request_waits_for_an_image_that_is_vouched_for() -> None:
    broker = Broker()
    delete_records.register(broker.services.handlers)
    broker.append(20)
    partition = broker.services.partitions.get_by_name("default", "t", 0)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)]
            )
        ],
        timeout_ms=1000,
    )

    def delete() -> int:
        entry = broker.services.handlers.get(int(ApiKey.DELETE_RECORDS))
        assert entry is not None
        assert entry.handler is not None
        connection = ConnectionInfo(1, "peer:1", "tenants", "peer", 1)
        names = broker.services.namespaces.names[connection.namespace]
        context = RequestContext(int(ApiKey.DELETE_RECORDS), 2, 0, None, connection, names)
        response = entry.handler(broker.services, context, request, broker.now_ms)
        assert isinstance(response, DeleteRecordsResponse)
        return response.topics[0].partitions[0].error_code

    assert partition is broker.replica
    broker.guard.image_doubt = lambda now_ms: "the store is away"
    broker.pass_time(1000)
    assert delete() == ErrorCode.REQUEST_TIMED_OUT
    assert broker.log_start == 0
    broker.guard.image_doubt = lambda now_ms: ""
    broker.pass_time(1000)
    assert delete() == ErrorCode.NONE
    assert broker.log_start == 5


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_start_is_no_reason_to_warn_unless_it_lasts(is_answered: bool) -> None:
    player = BrokerPlayer()
    doubt = ["not heard from the store"]
    guard = DeletionGuard(player.services, lambda: 0)
    guard.image_doubt = lambda now_ms: doubt[0]
    player.services.components.append(guard)
    player.services.start(player.now_ms)
    if is_answered:
        doubt[0] = ""
    for _ in range(2 * START_MS // 1000):
        player.pass_time(1000)
    told = [(level, event) for level, event, _ in player.log.events if "deletion" in event]
    end = ("info", "deletion_resumed") if is_answered else ("warning", "deletion_suspended")
    assert told == [("info", "deletion_suspended"), end]


def test_each_suspension_and_its_end_is_told_once_with_its_reason() -> None:
    broker = Broker()
    assert broker.events() == [
        ("deletion_suspended", "the clock has not stood for 300000 ms since the start yet"),
        ("deletion_resumed", "the clock has not stood for 300000 ms since the start yet"),
    ]
    broker.log.events.clear()
    broker.off_ms = 2 * DAY_MS
    broker.pass_time(10_000)
    assert broker.services.deletion_permit.why_nothing == ""
    broker.guard.image_doubt = lambda now_ms: "the store is away"
    broker.pass_time(10_000)
    assert broker.services.deletion_permit.why_nothing == "the store is away"
    broker.off_ms = 0
    broker.guard.image_doubt = lambda now_ms: ""
    broker.pass_time(10_000)
    jumped = f"the clock has jumped by {2 * DAY_MS} ms"
    assert broker.events() == [
        ("deletion_suspended", jumped),
        ("deletion_suspended", "the store is away"),
        ("deletion_resumed", "the store is away"),
    ]
    assert broker.services.deletion_permit is PERMITTED
    assert broker.guard.suspensions_count == 2


def test_records_are_dated_by_the_wall_clock() -> None:
    broker = Broker()
    broker.create_topic("dated", 1, {"message.timestamp.type": "LogAppendTime"})
    partition = broker.services.partitions.get_by_name("default", "dated", 0)
    assert partition is not None
    broker.off_ms = -2 * DAY_MS
    broker.pass_time(1000)
    batch = build_batch([NewRecord(0, None, b"v")])
    result = partition.append_as_leader(batch, 0, len(batch), now_ms=broker.now_ms)
    assert result.log_append_time_ms == broker.now_ms - 2 * DAY_MS
