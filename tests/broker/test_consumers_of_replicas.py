"""Fetches of consumers where a partition has several replicas: at its leader, at a follower."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.fetch.replica_selector import RACK_AWARE
from data_plane.cell.changes import ChangeBroker
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import NODE_ID, NOW_MS, values_of
from tests.broker.replicated_player import ReplicatedPlayer, part, produced, records

ORDERS = ("orders", 0)


@pytest.fixture
def broker() -> ReplicatedPlayer:
    return ReplicatedPlayer()


def test_consumers_may_read_at_a_follower_up_to_its_high_watermark(
    broker: ReplicatedPlayer,
) -> None:
    broker.produce("orders", [b"a", b"b"])
    broker.catch_up()
    broker.produce("orders", [b"c"])
    broker.change(leader=8)
    assert records(broker.fetch({ORDERS: 0}, version=11)) == [(0, b"a"), (1, b"b")]
    assert part(broker.fetch({ORDERS: 0}, version=11)).high_watermark == 2
    old = part(broker.fetch({ORDERS: 0}, version=10))
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    waiting = broker.fetch({ORDERS: 2}, version=11, max_wait_ms=500)
    broker.replica.append_as_follower(
        b"", 0, 0, leader_epoch=1, leader_high_watermark=3, leader_log_start=0, now_ms=NOW_MS
    )
    broker.services.wakes.run(broker.now_ms)
    assert records(waiting) == [(2, b"c")]
    # A produce still goes to the leader.
    assert produced(broker.produce("orders", [b"d"])).error_code != ErrorCode.NONE


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [
        (2, 0, (0, -1, -1)),
        (1, 0, (0, -1, -1)),
        (3, 0, (0, 0, 2)),
        # It has nothing of the epoch that has begun, and may well be behind.
        (2, 1, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
        (3, 1, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
        (2, 2, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
    ],
)
def test_a_follower_compares_epochs_by_its_batches_alone_as_apache_kafka(
    broker: ReplicatedPlayer, offset: int, last_epoch: int, expected: tuple[int, int, int]
) -> None:
    broker.produce("orders", [b"a", b"b"])
    broker.catch_up()
    broker.change(leader=8)
    # Otherwise a read that gives nothing has nothing to say.
    answer = part(broker.fetch({ORDERS: offset}, version=12, last_fetched_epoch=last_epoch))
    diverging = answer.diverging_epoch
    assert (answer.error_code, diverging.epoch, diverging.end_offset) == expected


def test_a_follower_without_a_batch_knows_no_epoch() -> None:
    broker = ReplicatedPlayer()
    broker.change(leader=8)
    answer = part(broker.fetch({ORDERS: 0}, version=12, last_fetched_epoch=0))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_that_waits_hears_of_a_leader_that_moved(broker: ReplicatedPlayer) -> None:
    old = broker.fetch({ORDERS: 0}, version=10, max_wait_ms=500)
    new = broker.fetch({ORDERS: 0}, version=16, max_wait_ms=500, current_leader_epoch=0)
    broker.change(leader=8)
    assert part(old).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part(new).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part(new).current_leader.leader_id == 8


@pytest.mark.parametrize(("version", "leader_id"), [(12, -1), (15, -1), (16, 8), (18, 8)])
def test_who_leads_now_is_told_from_version_16_on_as_apache_kafka(
    broker: ReplicatedPlayer, version: int, leader_id: int
) -> None:
    broker.change(leader=8)
    answer = broker.fetch({ORDERS: 0}, version=version, current_leader_epoch=0)
    assert part(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part(answer).current_leader.leader_id == leader_id
    nodes = [node.node_id for node in answer.response.node_endpoints]
    assert nodes == ([] if leader_id < 0 else [leader_id])


def test_aborted_transactions_of_errors_as_apache_kafka(broker: ReplicatedPlayer) -> None:
    broker.change(leader=8)
    moved = part(broker.fetch({ORDERS: 0}, version=10))
    assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert moved.aborted_transactions is None
    unknown = part(broker.fetch({("orders", 9): 0}, version=10))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.aborted_transactions == []


def test_who_is_sent_elsewhere_hears_of_no_aborted_transactions_as_apache_kafka() -> None:
    broker = ReplicatedPlayer({"replica.selector.class": RACK_AWARE})
    broker.produce("orders", [b"a"])
    broker.catch_up()
    sent_away = part(broker.fetch({ORDERS: 0}, version=18, rack_id="b", isolation_level=1))
    assert (sent_away.preferred_read_replica, sent_away.aborted_transactions) == (8, None)
    diverged = part(broker.fetch({ORDERS: 9}, version=12, last_fetched_epoch=0, isolation_level=1))
    assert (diverged.diverging_epoch.end_offset, diverged.aborted_transactions) == (1, None)
    reads = part(broker.fetch({ORDERS: 0}, version=12, isolation_level=1))
    assert reads.aborted_transactions == []


def test_between_high_watermark_and_log_end_there_is_nothing_and_no_error(
    broker: ReplicatedPlayer,
) -> None:
    broker.produce("orders", [b"a", b"b"])
    for offset in (0, 1, 2):
        answer = part(broker.fetch({ORDERS: offset}))
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, b"")
    assert part(broker.fetch({ORDERS: 3})).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def fetch_from_rack(broker: ReplicatedPlayer, rack: str, offset: int = 0) -> Any:
    return part(broker.fetch({ORDERS: offset}, version=18, rack_id=rack, max_wait_ms=500))


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    broker = ReplicatedPlayer({"replica.selector.class": RACK_AWARE})
    broker.produce("orders", [b"a"])
    broker.catch_up()
    answer = fetch_from_rack(broker, "b")
    assert (answer.preferred_read_replica, answer.records) == (8, b"")
    for rack in ("a", "z", ""):
        answer = fetch_from_rack(broker, rack)
        assert answer.preferred_read_replica == -1
        assert values_of(answer.records) == [(0, b"a")]
    # A replica out of the ISR, fenced, or without what is asked for: stay with the leader.
    broker.change(isr=(NODE_ID, 8))
    broker.catch_up(9)
    assert fetch_from_rack(broker, "c").preferred_read_replica == -1
    broker.produce("orders", [b"b"])
    broker.catch_up(9)
    assert broker.replica.log.log_end_offset == 2
    broker.change(isr=(NODE_ID, 8, 9))
    broker.produce("orders", [b"c"], acks=1)
    assert fetch_from_rack(broker, "b", 0).preferred_read_replica == 8
    unheard = broker.fetch({ORDERS: 2}, version=18, rack_id="b", max_wait_ms=500)
    broker.pass_time(500)
    assert part(unheard).preferred_read_replica == -1


def test_a_consumer_is_sent_to_nobody_who_cannot_give_what_it_wants() -> None:
    """What a follower has deleted would be out of range there; who is fenced may be gone."""
    broker = ReplicatedPlayer({"replica.selector.class": RACK_AWARE})
    broker.produce("orders", [b"a"])
    broker.produce("orders", [b"b"])
    broker.catch_up()
    for _ in range(2):
        broker.follow(8, 2, log_start_offset=1)
    assert fetch_from_rack(broker, "b", 0).preferred_read_replica == -1
    assert fetch_from_rack(broker, "b", 1).preferred_read_replica == 8
    broker.commit(ChangeBroker(replace(broker.services.image.brokers[8], is_fenced=True)))
    assert fetch_from_rack(broker, "b", 1).preferred_read_replica == -1


def test_without_a_selector_nobody_is_sent_away(broker: ReplicatedPlayer) -> None:
    broker.produce("orders", [b"a"])
    broker.catch_up()
    assert fetch_from_rack(broker, "b").preferred_read_replica == -1
