"""Fetches of records that are not in memory: what waits for them, and how much they may take."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.broker.authorization.requirements import GUARDS
from data_plane.broker.fetch.cold_reads import ANSWER_BYTES_MIN, COLD_READS_AT_ONCE_MAX
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.budget import UNSENT_BYTES_TOTAL_MAX
from data_plane.log.errors import LogDirFailure
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import BrokerPlayer, Pending, values_of
from tests.broker.doubles import QueueExecutor
from tests.broker.replicated_player import ReplicatedPlayer
from tests.broker.test_fetch import parts
from tests.broker.test_produce import only

PARTITIONS_COUNT = 3


@pytest.fixture
def broker() -> BrokerPlayer:
    """Three partitions of 400 KB each, none of which is in memory."""
    player = BrokerPlayer()
    player.create_topic("orders", PARTITIONS_COUNT)
    for index in range(PARTITIONS_COUNT):
        for _ in range(40):
            player.produce("orders", [bytes(10_000)], index=index)
    player.logs.close(player.now_ms)
    player = BrokerPlayer(disk=player.fs, image=player.services.image)
    player.fs.is_cache_cold = True
    return player


def connected(player: BrokerPlayer, tenant: str) -> ConnectionInfo:
    connection = player.connect()
    connection.namespace = tenant
    return connection


def sizes(poll: Pending) -> list[int]:
    return [len(part.records or b"") for part in parts(poll.response).values()]


def test_a_fetch_behind_one_that_reads_from_disk_gets_its_own_partitions(
    broker: BrokerPlayer,
) -> None:
    first = broker.fetch({("orders", 0): 0, ("orders", 1): 3})
    second = broker.fetch({("orders", 2): 39})
    assert not first.is_answered
    broker.run_jobs()
    assert sorted(parts(first.response)) == [0, 1]
    assert values_of(parts(first.response)[1].records)[0][0] == 3
    assert sorted(parts(second.response)) == [2]
    # The connection's set is used again once the answers are made.
    third = broker.fetch({("orders", 0): 40})
    broker.run_jobs()
    assert sorted(parts(third.response)) == [0]
    assert broker.sessions.kept.count == 1


def test_cold_reads_of_one_fetch_share_what_memory_is_left(broker: BrokerPlayer) -> None:
    broker.services.unsent.used = UNSENT_BYTES_TOTAL_MAX - 2 * 500_000
    everything = {("orders", index): 0 for index in range(PARTITIONS_COUNT)}
    poll = broker.fetch(everything, partition_max_bytes=300_000)
    broker.run_jobs()
    assert 450_000 <= sum(sizes(poll)) <= 500_000
    # What was left out comes with the next one.
    broker.services.unsent.used = 0
    poll = broker.fetch(everything)
    broker.run_jobs()
    assert min(sizes(poll)) > 400_000


def test_cold_reads_under_way_leave_less_for_the_next(broker: BrokerPlayer) -> None:
    broker.services.unsent.max = 800_000
    polls = [
        broker.fetch({("orders", 0): 0}, connection=broker.connect(), partition_max_bytes=1 << 20)
        for _ in range(8)
    ]
    assert broker.sessions.cold_reads.held.used <= 800_000 + 8 * ANSWER_BYTES_MIN
    broker.run_jobs()
    assert broker.sessions.cold_reads.held.used == 0
    found = [sum(sizes(poll)) for poll in polls]
    assert 390_000 <= found[0] <= 400_000
    assert 190_000 <= found[1] <= 200_000
    assert 60_000 <= found[-1] <= ANSWER_BYTES_MIN


def test_a_tenant_that_reads_its_whole_past_leaves_the_others_memory_and_threads() -> None:
    player = BrokerPlayer()
    for tenant in ("acme", "globex"):
        player.make_tenant(tenant)
        player.create_topic("orders", tenant=tenant)
        connection = connected(player, tenant)
        for _ in range(40):
            player.produce("orders", [bytes(10_000)], connection=connection)
    player.logs.close(player.now_ms)
    player = BrokerPlayer(disk=player.fs, image=player.services.image)
    player.services.handlers.guards.update(GUARDS)
    player.fs.is_cache_cold = True
    unsent = player.services.unsent
    unsent.max = 1_000_000
    reading = [
        player.fetch({("orders", 0): 0}, connection=connected(player, "acme")) for _ in range(100)
    ]
    assert len(player.executor.queue) == COLD_READS_AT_ONCE_MAX
    # What is being read counts: a half, and what each fetch gets in any case.
    held = player.sessions.cold_reads.held
    assert held.use_of("acme") <= 500_000 + COLD_READS_AT_ONCE_MAX * ANSWER_BYTES_MIN
    other = player.fetch({("orders", 0): 0}, connection=connected(player, "globex"))
    # Those at the disk, the one whose turn it was, and it.
    for _ in range(COLD_READS_AT_ONCE_MAX + 2):
        player.executor.run_one()
        player.services.wakes.run(player.now_ms)
    assert other.is_answered
    assert not reading[-1].is_answered
    player.run_jobs()
    assert all(poll.is_answered for poll in reading)
    assert (unsent.used, held.used) == (0, 0)


def test_what_consumers_read_from_disk_has_threads_of_its_own(broker: BrokerPlayer) -> None:
    services = broker.services
    readers = QueueExecutor()
    services.read_executor = readers
    services.fetches = OpenFetches(services)
    polls = [
        broker.fetch({("orders", 0): 0}, connection=broker.connect())
        for _ in range(COLD_READS_AT_ONCE_MAX + 1)
    ]
    assert len(readers.queue) == COLD_READS_AT_ONCE_MAX
    assert not broker.executor.queue
    while readers.queue:
        readers.run_one()
        services.wakes.run(broker.now_ms)
    assert all(poll.is_answered for poll in polls)


def test_reads_that_are_under_way_for_one_tenant_are_not_taken_from_anothers_share(
    broker: BrokerPlayer,
) -> None:
    unsent = broker.services.unsent
    unsent.max = 800_000
    unsent.leaves_room = True
    acme = unsent.of("acme")
    while acme.take(1_000):
        pass
    assert 390_000 <= acme.used <= 400_000
    poll = broker.fetch({("orders", 0): 0}, partition_max_bytes=1 << 20)
    held = broker.sessions.cold_reads.held
    assert 95_000 <= held.use_of("default") <= 105_000
    broker.run_jobs()
    assert 90_000 <= sizes(poll)[0] <= 105_000
    assert held.used == 0


def test_cold_reads_that_wait_take_nothing_from_fetches_of_what_is_in_memory(
    broker: BrokerPlayer,
) -> None:
    unsent, held = broker.services.unsent, broker.sessions.cold_reads.held
    unsent.max = 1_000_000
    polls = [
        broker.fetch({("orders", 0): 0}, connection=broker.connect(), partition_max_bytes=1 << 20)
        for _ in range(100)
    ]
    assert len(broker.executor.queue) == COLD_READS_AT_ONCE_MAX
    assert held.used <= 1_000_000 + COLD_READS_AT_ONCE_MAX * ANSWER_BYTES_MIN
    assert unsent.used == 0, "clients have left nothing unread"
    broker.fs.is_cache_cold = False
    warm = broker.fetch(
        {("orders", 1): 0}, connection=broker.connect(), partition_max_bytes=1 << 20
    )
    assert warm.is_answered
    assert sizes(warm)[0] > 400_000
    broker.run_jobs()
    assert all(poll.is_answered for poll in polls)
    assert held.used == 0


def test_a_read_whose_turn_comes_takes_what_is_left_then(broker: BrokerPlayer) -> None:
    polls = [
        broker.fetch(
            {("orders", 0): 0, ("orders", 1): 0},
            connection=broker.connect(),
            partition_max_bytes=1 << 20,
        )
        for _ in range(COLD_READS_AT_ONCE_MAX + 1)
    ]
    broker.services.unsent.used = UNSENT_BYTES_TOTAL_MAX
    broker.run_jobs()
    assert min(sizes(polls[0])) > 400_000
    assert 0 < sum(sizes(polls[-1])) <= ANSWER_BYTES_MIN
    assert broker.sessions.cold_reads.held.used == 0


def test_a_batch_larger_than_what_is_left_is_read_all_the_same() -> None:
    broker = BrokerPlayer()
    broker.create_topic("orders")
    broker.produce("orders", [bytes(300_000)])
    broker.logs.close(broker.now_ms)
    broker = BrokerPlayer(disk=broker.fs, image=broker.services.image)
    broker.fs.is_cache_cold = True
    broker.services.unsent.used = UNSENT_BYTES_TOTAL_MAX
    poll = broker.fetch({("orders", 0): 0})
    broker.run_jobs()
    assert len(values_of(only(poll.response).records)) == 1


@pytest.mark.parametrize("is_cold", [False, True])
def test_what_consumers_leave_unread_does_not_slow_replication_down(is_cold: bool) -> None:
    broker = ReplicatedPlayer()
    for _ in range(40):
        broker.produce("orders", [bytes(10_000)], acks=1)
    broker.fs.is_cache_cold = is_cold
    broker.services.unsent.used = UNSENT_BYTES_TOTAL_MAX
    poll = broker.follow(8, 0)
    assert broker.sessions.cold_reads.held.used == 0
    broker.run_jobs()
    assert sizes(poll)[0] > 400_000


def test_a_list_of_aborted_transactions_that_is_lost_is_an_error_of_its_partition(
    broker: BrokerPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = broker.fetch({("orders", 0): 0, ("orders", 1): 0}, isolation_level=1)

    def lost(log: Log, offset: int, end_offset: int) -> Any:
        raise LogDirFailure("data", "its index is gone")

    monkeypatch.setattr(Log, "aborted_transactions", lost)
    broker.run_jobs()
    for part in parts(poll.response).values():
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (part.high_watermark, values_of(part.records)) == (-1, [])


def test_a_failure_to_answer_a_cold_fetch_closes_the_connection(
    broker: BrokerPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    broker.connection.close = reasons.append
    poll = broker.fetch({("orders", 0): 0}, isolation_level=1)

    def broken(log: Log, offset: int, end_offset: int) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Log, "aborted_transactions", broken)
    broker.run_jobs()
    assert not poll.is_answered
    assert reasons == ["request failed: ZeroDivisionError('a bug')"]
    assert [event for _, event, _ in broker.log.events if event == "request_failed"]
