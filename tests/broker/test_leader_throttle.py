"""What a leader gives to followers that are not in sync."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import ResourceType
from tests.broker.broker_player import NODE_ID, Pending, make_batch
from tests.broker.replicated_player import ReplicatedPlayer

RATE = "leader.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"
BATCH = make_batch([bytes(900)])


def throttled(rate: int = 5_000, replicas: str = "*") -> ReplicatedPlayer:
    """7 leads; 8 is in sync, 9 is not. 20 batches of about 1,000 bytes are there."""
    broker = ReplicatedPlayer({RATE: str(rate)}, configs={REPLICAS: replicas})
    broker.change(isr=(NODE_ID, 8), adding_replicas=(9,))
    for _ in range(20):
        broker.produce("orders", [bytes(900)], acks=1)
    return broker


class Follower:
    """Fetches in a session, and goes on where an answer ends."""

    def __init__(self, broker: ReplicatedPlayer, node_id: int, bytes_max: int = 1_100) -> None:
        self.broker = broker
        self.node_id = node_id
        self.bytes_max = bytes_max
        self.offset = 0
        self.session = (0, 0)
        self.received_bytes = 0

    def fetch(self, max_wait_ms: int = 0) -> Pending:
        pending = self.broker.follow(
            self.node_id,
            self.offset,
            session=self.session,
            max_wait_ms=max_wait_ms,
            bytes_max=self.bytes_max,
        )
        self.take(pending)
        return pending

    def take(self, pending: Pending) -> None:
        if not pending.is_answered:
            return
        answer = pending.response
        self.session = (answer.session_id, self.session[1] + 1)
        for topic in answer.responses:
            for partition in topic.partitions:
                assert not partition.error_code
                size = len(partition.records or b"")
                self.received_bytes += size
                self.offset += size // len(BATCH)


def test_a_follower_that_is_not_in_sync_gets_no_more_than_the_rate() -> None:
    broker = throttled()
    follower = Follower(broker, 9)
    for _ in range(30):
        follower.fetch()
    first_bytes = follower.received_bytes
    assert 5_000 <= first_bytes <= 5_000 + len(BATCH), "one second's worth, and one answer"
    for _ in range(20):
        broker.pass_time(100)
        follower.fetch()
    assert abs(follower.received_bytes - first_bytes - 10_000) <= len(BATCH)


def test_followers_in_sync_are_neither_limited_nor_counted() -> None:
    broker = throttled()
    in_sync, added = Follower(broker, 8), Follower(broker, 9)
    for _ in range(20):
        in_sync.fetch()
    assert in_sync.offset == 20
    for _ in range(20):
        added.fetch()
    assert 5 <= added.offset <= 6, "the whole second's worth is left"


def test_a_follower_is_not_limited_once_it_is_proposed_for_the_isr() -> None:
    """The store may be away for long: producers wait for everybody who may be in the ISR."""
    broker = throttled()
    in_sync, added = Follower(broker, 8, 1 << 20), Follower(broker, 9)
    in_sync.fetch()
    in_sync.fetch()
    while added.offset < 20:
        broker.pass_time(100)
        added.fetch()
    added.fetch()
    leadership = broker.replica.leadership
    assert leadership is not None
    assert leadership.proposed_isr == (NODE_ID, 8, 9)
    pending = [broker.produce("orders", [bytes(900)]) for _ in range(20)]
    in_sync.fetch()
    in_sync.fetch()
    for _ in range(21):
        added.fetch()
    assert added.offset == 40
    assert all(one.is_answered for one in pending)
    assert leadership.committed_isr == (NODE_ID, 8)


@pytest.mark.parametrize("replicas", ["1:7,0:7", " 0:7 ,3:9", "*"])
def test_the_list_names_partitions_and_their_leader(replicas: str) -> None:
    follower = Follower(throttled(rate=1, replicas=replicas), 9)
    for _ in range(20):
        follower.fetch()
    assert follower.offset == 1


@pytest.mark.parametrize("replicas", ["", "0:9", "1:7"])
def test_what_the_list_does_not_name_is_not_limited(replicas: str) -> None:
    follower = Follower(throttled(rate=1, replicas=replicas), 9)
    for _ in range(20):
        follower.fetch()
    assert follower.offset == 20


def test_a_fetch_that_is_held_is_answered_when_the_bucket_has_refilled() -> None:
    broker = throttled(rate=1_000)
    follower = Follower(broker, 9)
    while True:
        pending = follower.fetch(max_wait_ms=5_000)
        if not pending.is_answered:
            break
    before = follower.offset
    waited_ms = 0
    while not pending.is_answered:
        broker.pass_time(10)
        waited_ms += 10
    follower.take(pending)
    assert follower.offset == before + 1
    # Two answers were taken from a bucket of 1,000 bytes; it has to come above nothing again.
    assert 0 < waited_ms <= 1_100
    assert broker.sessions.throttle.held_count


def test_a_follower_that_names_nothing_new_still_gets_the_rest_later() -> None:
    """In its session it does not repeat where it stands."""
    broker = throttled(rate=1_000)
    follower = Follower(broker, 9)
    while follower.fetch().response.responses:
        pass
    broker.pass_time(3_000)
    pending = broker.follow(9, None, session=follower.session)
    follower.take(pending)
    assert pending.response.responses[0].partitions[0].records


@pytest.mark.parametrize(
    "change",
    [
        lambda broker: set_rate(broker, "", "1000000"),
        lambda broker: set_rate(broker, str(NODE_ID), "1000000"),
        lambda broker: broker.change(isr=(NODE_ID, 8, 9), adding_replicas=()),
        lambda broker: broker.commit(
            AlterConfigs("default", ResourceType.TOPIC, "orders", ((REPLICAS, "0:8"),))
        ),
    ],
    ids=["another rate", "another rate of this broker", "in sync", "another list"],
)
def test_what_is_held_goes_on_at_once_when_it_may(change: Any) -> None:
    broker = throttled(rate=0)
    follower = Follower(broker, 9)
    pending = follower.fetch(max_wait_ms=60_000)
    broker.pass_time(10_000)
    assert not pending.is_answered
    change(broker)
    broker.pass_time(0)
    assert pending.is_answered
    follower.take(pending)
    assert follower.offset == 1


def test_what_is_held_again_after_a_change_still_waits_for_the_bucket() -> None:
    broker = throttled(rate=1_000)
    follower = Follower(broker, 9)
    while (pending := follower.fetch(max_wait_ms=5_000)).is_answered:
        pass
    # Nothing that concerns it: it is looked at, and held again.
    broker.commit(
        AlterConfigs("default", ResourceType.TOPIC, "orders", (("retention.ms", "1000000"),))
    )
    broker.pass_time(0)
    assert not pending.is_answered
    broker.pass_time(1_100)
    assert pending.is_answered
    before = follower.offset
    follower.take(pending)
    assert follower.offset == before + 1


def test_a_held_fetch_acknowledges_and_learns_of_high_watermarks() -> None:
    broker = throttled(rate=0)
    follower = Follower(broker, 9)
    follower.fetch()
    leadership = broker.replica.leadership
    assert leadership is not None
    assert leadership.followers[9].log_end_offset == 0
    broker.follow(8, 20)
    answer = broker.follow(9, None, session=follower.session).response
    (partition,) = answer.responses[0].partitions
    assert partition.high_watermark == 20
    assert not partition.records


def set_rate(broker: ReplicatedPlayer, name: str, rate: str) -> None:
    """Of one broker, or with "" of all."""
    broker.commit(AlterConfigs("default", ResourceType.BROKER, name, ((RATE, rate),)))
