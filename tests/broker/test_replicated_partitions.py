"""Produce, Fetch and look-ups where a partition has more replicas than one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.replicas.stray_logs import delete_strays
from data_plane.broker.request.timers import REBUILD_CANCELLED_MIN
from data_plane.cell.changes import (
    Change,
    ChangeBroker,
    ChangePartition,
    DeleteTopic,
    apply_change,
)
from data_plane.cell.metadata import NO_LEADER, MetadataImage
from data_plane.cell.metadata_store import InMemoryMetadataStore, StoreUnavailable
from data_plane.cell.partition_state import next_epochs
from data_plane.replica.waiters import QUEUE_ENTRIES_KEPT, OffsetWaiters
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, NOW_MS, BrokerPlayer, Pending, make_batch
from tests.broker.replicated_player import (
    OTHERS,
    TOPIC_ID,
    ReplicatedPlayer,
    part,
    produced,
    records,
)

ORDERS = ("orders", 0)


@pytest.fixture
def broker() -> ReplicatedPlayer:
    return ReplicatedPlayer()


def produce_to_both(broker: ReplicatedPlayer) -> Pending:
    """One request with a record for each of two partitions."""
    parts = [
        PartitionProduceData(index=index, records=bytes(make_batch([b"a"]))) for index in (0, 1)
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="orders", partition_data=parts)],
    )
    return broker.send(ApiKey.PRODUCE, 12, request)


def errors(pending: Pending) -> list[int]:
    """What a Produce answer says of its partitions."""
    return [one.error_code for one in pending.response.responses[0].partition_responses]


def isr(broker: ReplicatedPlayer) -> list[int]:
    """The committed ISR."""
    return list(broker.state.isr)


# Produce


def test_acks_all_waits_for_every_in_sync_replica(broker: ReplicatedPlayer) -> None:
    pending = broker.produce("orders", [b"a"])
    broker.catch_up(8)
    assert not pending.is_answered
    broker.catch_up(9)
    assert produced(pending).error_code == ErrorCode.NONE
    assert produced(pending).base_offset == 0


def test_acks_1_waits_for_the_leader_alone(broker: ReplicatedPlayer) -> None:
    pending = broker.produce("orders", [b"a"], acks=1)
    assert produced(pending).base_offset == 0
    assert broker.replica.high_watermark == 0


def test_acks_1_waits_for_the_leader_s_sync_where_the_topic_asks_for_it() -> None:
    broker = ReplicatedPlayer(configs={"durability": "fsync"})
    one = broker.produce("orders", [b"a"], acks=1)
    everyone = broker.produce("orders", [b"b"])
    broker.catch_up(8)
    assert not one.is_answered
    broker.run_jobs()
    assert produced(one).error_code == ErrorCode.NONE
    assert not everyone.is_answered
    broker.catch_up(9)
    assert produced(everyone).error_code == ErrorCode.NONE


def wait_queues(broker: ReplicatedPlayer) -> list[int]:
    """How long the queues of those who wait for what is not committed are, and how many timers and
    callbacks of the connection there are."""
    committed: OffsetWaiters = broker.replica._committed_waiters
    return [len(committed.queue), len(broker.services.timers), len(broker.connection.on_close)]


@pytest.mark.parametrize("how", ["too late", "gone"])
def test_nothing_stays_of_a_produce_that_nobody_waits_for_any_more(how: str) -> None:
    """With a follower dead and the metadata store down nothing is committed for hours."""
    broker = ReplicatedPlayer()
    at_rest = wait_queues(broker)
    pending = [broker.produce("orders", [b"a"]) for _ in range(3 * QUEUE_ENTRIES_KEPT)]
    if how == "too late":
        broker.pass_time(30_000)
        assert {produced(one).error_code for one in pending} == {ErrorCode.REQUEST_TIMED_OUT}
    else:
        on_close, broker.connection.on_close = broker.connection.on_close, {}
        for callback in on_close:
            callback()
        assert not any(one.is_answered for one in pending)
    left = broker.replica._committed_waiters.queue
    assert all(waiter.callback is None for waiter in left)
    now = wait_queues(broker)
    assert now[0] <= QUEUE_ENTRIES_KEPT
    assert now[1] <= at_rest[1] + REBUILD_CANCELLED_MIN
    assert now[2] == at_rest[2]
    # What is committed later has nobody to tell.
    for node_id in OTHERS:
        broker.follow(node_id, len(pending))
    assert wait_queues(broker)[0] == 0
    assert broker.replica.high_watermark == len(pending)


def test_a_produce_that_is_not_committed_in_time(broker: ReplicatedPlayer) -> None:
    pending = broker.produce("orders", [b"a"])
    broker.pass_time(30_000)
    assert produced(pending).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert produced(pending).base_offset == 0


def test_an_answer_waits_for_each_of_its_partitions() -> None:
    broker = ReplicatedPlayer(partitions_count=2)
    pending = produce_to_both(broker)
    for node_id in OTHERS:
        broker.follow(node_id, 1, index=1)
    assert [broker.replica_at(index).high_watermark for index in (0, 1)] == [0, 1]
    assert not pending.is_answered
    broker.catch_up(8)
    assert not pending.is_answered
    broker.catch_up(9)
    assert errors(pending) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("how", ["too late", "replaced"])
def test_what_is_committed_says_nothing_of_the_other_partitions(how: str) -> None:
    broker = ReplicatedPlayer(partitions_count=2)
    pending = produce_to_both(broker)
    for node_id in OTHERS:
        broker.follow(node_id, 1, index=1)
    if how == "too late":
        broker.pass_time(29_999)
        assert not pending.is_answered
        broker.pass_time(1)
        assert errors(pending) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    else:
        broker.change(leader=8, isr=OTHERS)
        assert errors(pending) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(
    broker: ReplicatedPlayer,
) -> None:
    broker.change(isr=(NODE_ID,))
    pending = broker.produce("orders", [b"a"])
    assert produced(pending).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produced(pending).error_message is None
    assert (produced(pending).base_offset, produced(pending).log_start_offset) == (-1, 0)
    assert broker.replica.log.log_end_offset == 0
    assert produced(broker.produce("orders", [b"a"], acks=1)).error_code == ErrorCode.NONE


def test_an_isr_that_shrinks_after_the_append_leaves_it_uncommitted(
    broker: ReplicatedPlayer,
) -> None:
    pending = broker.produce("orders", [b"a"])
    broker.change(isr=(NODE_ID,))
    broker.catch_up()
    assert not pending.is_answered
    broker.change(isr=(NODE_ID, 8))
    assert produced(pending).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_leader_that_is_replaced_answers_what_waits(
    broker: ReplicatedPlayer, version: int
) -> None:
    pending = broker.produce("orders", [b"a"], version=version)
    broker.change(leader=8, isr=OTHERS)
    answer = produced(pending)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (8, 1)
        endpoint = pending.response.node_endpoints[0]
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (8, "host-8", 9008)
    again = broker.produce("orders", [b"a"], version=version)
    assert produced(again).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fenced_leader_is_named_without_an_address(broker: ReplicatedPlayer) -> None:
    image = broker.services.image.brokers[8]
    broker.change(leader=8, isr=OTHERS)
    broker.commit(ChangeBroker(image.__class__(**{**_fields(image), "is_fenced": True})))
    pending = broker.produce("orders", [b"a"])
    assert produced(pending).current_leader.leader_id == 8
    assert not pending.response.node_endpoints


def _fields(image: Any) -> dict[str, Any]:
    return {name: getattr(image, name) for name in image.__slots__}


def test_a_duplicate_waits_for_its_original(broker: ReplicatedPlayer) -> None:
    batch = make_batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0)
    first = broker.produce("orders", [], batch=batch)
    second = broker.produce("orders", [], batch=batch)
    broker.catch_up(8)
    assert not first.is_answered
    assert not second.is_answered
    broker.catch_up(9)
    assert produced(first).base_offset == produced(second).base_offset == 0
    third = broker.produce("orders", [], batch=batch)
    assert produced(third).base_offset == 0


# Followers' fetches


def test_followers_read_what_consumers_may_not_see_yet(broker: ReplicatedPlayer) -> None:
    broker.produce("orders", [b"a"])
    assert records(broker.follow(8, 0)) == [(0, b"a")]
    assert records(broker.fetch({ORDERS: 0})) == []
    assert part(broker.fetch({ORDERS: 0})).high_watermark == 0
    broker.catch_up(8)
    assert part(broker.follow(9, 1)).high_watermark == 1
    assert records(broker.fetch({ORDERS: 0})) == [(0, b"a")]


def test_an_append_wakes_followers_and_a_commit_wakes_consumers(broker: ReplicatedPlayer) -> None:
    broker.catch_up()
    followers = [broker.follow(node_id, 0, max_wait_ms=500) for node_id in OTHERS]
    consumer = broker.fetch({ORDERS: 0}, max_wait_ms=500)
    pending = broker.produce("orders", [b"a"])
    assert [records(one) for one in followers] == [[(0, b"a")], [(0, b"a")]]
    assert not consumer.is_answered
    followers = [broker.follow(node_id, 1, max_wait_ms=500) for node_id in OTHERS]
    assert records(consumer) == [(0, b"a")]
    assert produced(pending).error_code == ErrorCode.NONE
    # That the high watermark moved is nothing to wake followers for; they hear of it in time.
    assert not any(one.is_answered for one in followers)
    broker.pass_time(500)
    assert [part(one).high_watermark for one in followers] == [1, 1]


def test_in_a_session_what_is_not_named_has_not_changed(broker: ReplicatedPlayer) -> None:
    first = broker.follow(8, 0, session=(0, 0))
    session_id = first.response.session_id
    pending = broker.produce("orders", [b"a"])
    broker.catch_up(9)
    second = broker.follow(8, None, session=(session_id, 1))
    assert records(second) == [(0, b"a")]
    # It was given the record and has not said that it has it.
    broker.follow(8, None, session=(session_id, 2))
    assert not pending.is_answered
    third = broker.follow(8, 1, session=(session_id, 3), max_wait_ms=500)
    assert produced(pending).error_code == ErrorCode.NONE
    # It was the last one: the answer to its own fetch carries the high watermark, in time.
    broker.pass_time(500)
    assert part(third).high_watermark == 1
    quiet = broker.follow(8, None, session=(session_id, 4), max_wait_ms=500)
    broker.pass_time(500)
    assert part(quiet) is None


def test_who_was_taken_out_of_the_isr_comes_back_by_a_request_that_names_nothing(
    broker: ReplicatedPlayer,
) -> None:
    """It does not know that it has to say again where it stands."""
    session_id = broker.follow(8, 0, session=(0, 0)).response.session_id
    broker.change(isr=(NODE_ID, 9))
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 9]
    broker.follow(8, None, session=(session_id, 1))
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 9, 8]


def test_a_parked_follower_is_told_of_the_high_watermark_when_its_wait_ends(
    broker: ReplicatedPlayer,
) -> None:
    session_id = broker.follow(8, 0, session=(0, 0)).response.session_id
    broker.produce("orders", [b"a"])
    broker.follow(8, None, session=(session_id, 1))
    parked = broker.follow(8, 1, session=(session_id, 2), max_wait_ms=500)
    broker.catch_up(9)
    assert broker.replica.high_watermark == 1
    assert not parked.is_answered
    broker.pass_time(500)
    assert part(parked).high_watermark == 1


def test_a_session_of_a_follower_is_no_consumer_s(broker: ReplicatedPlayer) -> None:
    """Its fetches would go up to the log end."""
    session_id = broker.follow(8, 0, session=(0, 0)).response.session_id
    taken = broker.fetch({}, version=18, session_id=session_id, session_epoch=1)
    assert taken.response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetches_of_a_stale_incarnation_do_not_count(broker: ReplicatedPlayer) -> None:
    pending = broker.produce("orders", [b"a"])
    broker.catch_up(9)
    stale = broker.follow(8, 1, broker_epoch=broker.broker_epoch(8) - 1)
    assert part(stale).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not pending.is_answered
    broker.catch_up(8)
    assert pending.is_answered


def test_a_broker_without_a_replica_is_told_to_look_again(broker: ReplicatedPlayer) -> None:
    broker.change(replicas=(NODE_ID, 8), isr=(NODE_ID, 8))
    assert part(broker.follow(9, 0)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unsaid = broker.follow(9, 0, leader_epoch=-1)
    assert part(unsaid).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_epochs_fence_followers(broker: ReplicatedPlayer) -> None:
    pending = broker.produce("orders", [b"a"])
    newer = broker.follow(8, 1, leader_epoch=1)
    assert part(newer).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    older = broker.follow(8, 1, leader_epoch=0)
    assert part(older).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert produced(pending).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = broker.produce("orders", [b"b"])
    assert not again.is_answered
    assert broker.replica.high_watermark == 0


def test_a_log_that_diverged_is_told_where_and_does_not_count(broker: ReplicatedPlayer) -> None:
    broker.produce("orders", [b"a"])
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    pending = broker.produce("orders", [b"b"])
    broker.catch_up(9)
    # 8 has two records, the second one of its own epoch 1.
    answer = part(broker.follow(8, 2, last_epoch=1))
    assert answer.error_code == ErrorCode.NONE
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert not answer.records
    assert not pending.is_answered
    # Longer than this log: that, too, is to be cut and not an error.
    answer = part(broker.follow(8, 9, last_epoch=2))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 2)
    assert records(broker.follow(8, 1, last_epoch=0)) == [(1, b"b")]
    broker.follow(8, 2, last_epoch=2)
    assert pending.is_answered


def test_out_of_range_tells_followers_where_to_begin(broker: ReplicatedPlayer) -> None:
    for value in (b"a", b"b", b"c"):
        broker.produce("orders", [value])
    broker.catch_up()
    broker.replica.log.delete_records(2)
    answer = part(broker.follow(8, 0))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
    consumer = part(broker.fetch({ORDERS: 0}))
    assert (consumer.error_code, consumer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_followers_fetch_from_the_leader_only(broker: ReplicatedPlayer) -> None:
    broker.change(leader=8)
    answer = broker.follow(9, 0)
    assert part(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part(answer).current_leader.leader_id == 8
    assert answer.response.node_endpoints[0].port == 9008


# The ISR


def test_a_follower_that_catches_up_joins_at_once(broker: ReplicatedPlayer) -> None:
    broker.change(isr=(NODE_ID, 8))
    broker.produce("orders", [b"a"])
    broker.catch_up(8)
    broker.follow(9, 0)
    assert isr(broker) == [NODE_ID, 8]
    broker.catch_up(9)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]
    assert broker.isr.expands_count == 1


def test_followers_that_lag_leave_and_what_waits_is_committed(broker: ReplicatedPlayer) -> None:
    broker.catch_up()
    pending = broker.produce("orders", [b"a"])
    broker.catch_up(8)
    broker.pass_time(30_000)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]
    again = broker.produce("orders", [b"a"])
    broker.catch_up(8)
    broker.pass_time(15_000)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8]
    assert broker.isr.shrinks_count == 1
    assert pending.is_answered
    assert produced(again).error_code == ErrorCode.NONE


def test_the_last_member_to_leave_joins_the_elr(broker: ReplicatedPlayer) -> None:
    broker.change(isr=(NODE_ID, 8))
    broker.catch_up(8)
    broker.produce("orders", [b"a"])
    broker.pass_time(45_000)
    broker.run_jobs()
    assert (broker.state.isr, broker.state.elr) == ((NODE_ID,), (8,))


class UnreachableStore(InMemoryMetadataStore):
    """Loses requests, or the answers to them, while `loses` says so."""

    loses = ""

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        if self.loses == "requests":
            raise StoreUnavailable("no connection")
        image = super().apply(
            changes, expected_version, request_id, controller_epoch=controller_epoch
        )
        if self.loses == "answers":
            raise StoreUnavailable("no answer")
        return image


@pytest.mark.parametrize("loses", ["requests", "answers"])
def test_an_unknown_outcome_withdraws_nothing(broker: ReplicatedPlayer, loses: str) -> None:
    """The commit may have happened, and 9 may be elected for it: it counts until that is known."""
    broker.change(isr=(NODE_ID, 8))
    store = broker.services.store = UnreachableStore(broker.services.image)
    store.loses = loses
    broker.catch_up()
    leadership = broker.replica.leadership
    assert leadership is not None
    for _ in range(3):
        broker.run_jobs()
        assert leadership.proposed_isr == (NODE_ID, 8, 9)
        assert isr(broker) == [NODE_ID, 8]
        broker.pass_time(500)
        if loses == "answers":
            break
    broker.produce("orders", [b"a"])
    broker.catch_up(8)
    broker.now_ms += 60_000
    broker.replica.review(broker.now_ms)
    assert broker.replica.high_watermark == 0
    store.loses = ""
    broker.catch_up(8)
    broker.pass_time(500)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]
    assert leadership.proposed_isr is None
    assert broker.replica.high_watermark == 0
    broker.catch_up(9)
    assert broker.replica.high_watermark == 1


def test_a_store_that_did_not_answer_is_asked_again_soon(broker: ReplicatedPlayer) -> None:
    """And not at the next look for followers that lag: producers wait for a follower to leave."""
    broker.change(isr=(NODE_ID, 8))
    store = broker.services.store = UnreachableStore(broker.services.image)
    store.loses = "requests"
    broker.catch_up()
    broker.run_jobs()
    store.loses = ""
    broker.pass_time(499)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8]
    broker.pass_time(1)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]


def test_a_change_by_others_ends_a_proposal(broker: ReplicatedPlayer) -> None:
    broker.change(isr=(NODE_ID, 8))
    broker.catch_up()
    leadership = broker.replica.leadership
    assert leadership is not None
    assert leadership.proposed_isr == (NODE_ID, 8, 9)
    # It was decided for the state before. For the one after, it is made anew.
    broker.change(isr=(NODE_ID, 8))
    assert leadership.proposed_isr is None
    broker.run_jobs()
    broker.catch_up(9)
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]


def test_a_proposal_is_for_the_state_that_it_was_made_for() -> None:
    """Once it is withdrawn the leader does not wait for 9 any more; it must not join after that."""
    broker = ReplicatedPlayer({"replica.lag.time.max.ms": "1000"})
    broker.change(isr=(NODE_ID, 8))
    broker.catch_up()
    broker.change(isr=(NODE_ID, 8))
    broker.produce("orders", [b"a"])
    broker.now_ms += 2_000
    broker.catch_up(8)
    assert broker.replica.high_watermark == 1
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8]


def test_who_was_fenced_meanwhile_does_not_join(broker: ReplicatedPlayer) -> None:
    broker.change(isr=(NODE_ID, 8))
    broker.catch_up()
    image = broker.services.image.brokers[9]
    broker.commit(ChangeBroker(image.__class__(**{**_fields(image), "is_fenced": True})))
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8]
    leadership = broker.replica.leadership
    assert leadership is not None
    assert leadership.proposed_isr is None
    broker.commit(ChangeBroker(image))
    broker.run_jobs()
    assert isr(broker) == [NODE_ID, 8, 9]


# Look-ups


def list_offset(broker: ReplicatedPlayer, timestamp: int, version: int = 11, **options: Any) -> Any:
    wanted = ListOffsetsPartition(
        partition_index=0,
        current_leader_epoch=options.pop("current_leader_epoch", -1),
        timestamp=timestamp,
    )
    request = ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        isolation_level=0,
        topics=[ListOffsetsTopic(name="orders", partitions=[wanted])],
    )
    response = broker.ask(ApiKey.LIST_OFFSETS, version, request, **options)
    return response.topics[0].partitions[0]


def test_an_end_that_a_new_leader_does_not_know_yet_is_not_told(broker: ReplicatedPlayer) -> None:
    """KIP-207: a client may have seen records that this leader does not know to be committed."""
    broker.produce("orders", [b"a", b"b"])
    assert list_offset(broker, -1).offset == 0
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    assert broker.replica.high_watermark < broker.replica.epoch_start_offset
    assert list_offset(broker, -1).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(broker, -1, 4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert list_offset(broker, NOW_MS).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(broker, -3).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(broker, -2).offset == 0
    at_the_end = list_offset(broker, -1, replica_id=8, connection=broker.door)
    assert at_the_end.offset == 2
    broker.catch_up()
    assert list_offset(broker, -1).offset == 2
    assert list_offset(broker, NOW_MS).offset == 0


def test_an_emptied_log_begins_with_the_leader_s_epoch_as_apache_kafka(
    broker: ReplicatedPlayer,
) -> None:
    broker.produce("orders", [b"a", b"b"])
    broker.catch_up()
    assert list_offset(broker, -2).leader_epoch == 0
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    assert (list_offset(broker, -2).offset, list_offset(broker, -2).leader_epoch) == (0, 0)
    broker.replica.log.delete_records(2)
    for timestamp in (-2, -4):
        answer = list_offset(broker, timestamp)
        assert (answer.offset, answer.leader_epoch) == (2, 2)


def epoch_end(broker: ReplicatedPlayer, epoch: int, current_leader_epoch: int = -1) -> Any:
    wanted = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[wanted])]
    )
    response = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
    return response.topics[0].partitions[0]


def test_the_end_of_an_epoch_in_which_nothing_was_written(broker: ReplicatedPlayer) -> None:
    broker.produce("orders", [b"a"])
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    for epoch, expected in ((0, (0, 1)), (1, (0, 1)), (2, (2, 1)), (3, (-1, -1))):
        answer = epoch_end(broker, epoch)
        assert (answer.leader_epoch, answer.end_offset) == expected


# Roles and logs


def test_listeners_hear_of_roles_and_of_nothing_else(broker: ReplicatedPlayer) -> None:
    heard: list[int] = []
    broker.services.partitions.on_roles_changed(lambda changed, now_ms: heard.append(len(changed)))
    broker.change(isr=(NODE_ID, 8))
    assert heard == []
    broker.change(leader=8)
    assert heard == [1]
    assert [one.image.leader for one in broker.services.partitions.followed()] == [8]
    broker.change(leader=NO_LEADER, isr=())
    assert heard == [1, 1]
    assert list(broker.services.partitions.followed()) == []
    topic_id = broker.create_topic("more", 3)
    assert heard == [1, 1, 3]
    broker.delete_topic(topic_id)
    assert heard == [1, 1, 3, 3]


def test_a_replica_that_is_moved_away_loses_its_log(broker: ReplicatedPlayer) -> None:
    broker.produce("orders", [b"a"])
    waiting = broker.fetch({ORDERS: 1}, version=12, max_wait_ms=500)
    broker.change(leader=8, isr=OTHERS)
    assert (TOPIC_ID, 0) in broker.logs.partition_ids()
    broker.change(replicas=OTHERS)
    assert broker.logs.partition_ids() == []
    assert broker.services.partitions.replica(TOPIC_ID, 0) is None
    assert part(waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.change(replicas=(*OTHERS, NODE_ID))
    assert broker.replica.log.log_end_offset == 0


def test_logs_of_partitions_that_others_hold_are_strays() -> None:
    broker = ReplicatedPlayer()
    broker.produce("orders", [b"a"])
    assert delete_strays(broker.logs, broker.services.image, NODE_ID, NOW_MS) == []
    broker.change(leader=8, isr=OTHERS)
    assert delete_strays(broker.logs, broker.services.image, NODE_ID, NOW_MS) == []
    # It was moved away while this broker was down.
    broker.logs.close(broker.now_ms)
    topic = broker.services.image.topics_by_id[TOPIC_ID]
    moved = next_epochs(topic.partitions[0], replace(topic.partitions[0], replicas=OTHERS))
    image = apply_change(broker.services.image, ChangePartition(TOPIC_ID, 0, moved))
    survivor = BrokerPlayer(disk=broker.fs, image=image)
    assert delete_strays(survivor.logs, image, NODE_ID, NOW_MS) == [(TOPIC_ID, 0)]
    assert survivor.logs.partition_ids() == []


def test_a_log_that_was_there_before_its_topic_was_known_gets_the_topic_s_settings() -> None:
    """The image on disk was older than the log; retention works on it without anybody asking."""
    broker = ReplicatedPlayer(configs={"retention.ms": "-1", "cleanup.policy": "compact"})
    broker.produce("orders", [b"a"])
    image = broker.services.image
    broker.logs.close(broker.now_ms)
    survivor = BrokerPlayer(disk=broker.fs, image=apply_change(image, DeleteTopic(TOPIC_ID)))
    log = survivor.logs.get(TOPIC_ID, 0)
    assert not log.config.compact
    survivor.services.partitions.apply_image(image, survivor.now_ms)
    assert log.config.compact
    assert log.config.retention_ms == -1


def test_min_insync_replicas_takes_effect_when_it_is_set(broker: ReplicatedPlayer) -> None:
    broker.change(isr=(NODE_ID,))
    pending = broker.produce("orders", [b"a"])
    assert produced(pending).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.configure_topic("orders", min_insync_replicas="1")
    pending = broker.produce("orders", [b"a"])
    assert produced(pending).error_code == ErrorCode.NONE


def test_min_insync_replicas_is_no_more_than_there_are_replicas() -> None:
    broker = ReplicatedPlayer({"min.insync.replicas": "3"}, replicas=(NODE_ID, 8))
    pending = broker.produce("orders", [b"a"])
    broker.catch_up(8)
    assert produced(pending).error_code == ErrorCode.NONE
    # One that is only being added does not count as one that there is.
    broker.change(replicas=(NODE_ID, 8, 9), adding_replicas=(9,))
    pending = broker.produce("orders", [b"b"])
    broker.catch_up(8)
    assert produced(pending).error_code == ErrorCode.NONE


def test_a_log_that_cannot_be_loaded_is_an_error_of_its_partition(
    broker: ReplicatedPlayer,
) -> None:
    """Epochs and transactions are read from the disk when they are first asked for."""
    broker.produce("orders", [b"a"])
    broker.catch_up()
    log = broker.replica.log
    log.flush()
    log.unload()
    log.log_directory.fail(OSError(5, "Input/output error"))
    failure = ErrorCode.KAFKA_STORAGE_ERROR
    broker.change(leader=8)
    broker.change(leader=NODE_ID)
    assert part(broker.follow(8, 1, last_epoch=0)).error_code == failure
    assert part(broker.fetch({ORDERS: 0}, isolation_level=1)).error_code == failure
    assert part(broker.fetch({ORDERS: 1})).error_code == failure
    assert list_offset(broker, -2).error_code == failure
    assert list_offset(broker, -3).error_code == failure
    assert epoch_end(broker, 0).error_code == failure
    assert broker.close_reasons == []


def test_a_follower_looks_at_the_epoch_before_it_says_that_it_does_not_lead(
    broker: ReplicatedPlayer,
) -> None:
    """As Kafka: who has an older epoch hears so, and who has a newer one is not sent away."""
    broker.change(leader=8)
    expected = {
        -1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        0: ErrorCode.FENCED_LEADER_EPOCH,
        1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        2: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    for epoch, error in expected.items():
        assert part(broker.follow(9, 0, leader_epoch=epoch)).error_code == error
        assert list_offset(broker, -1, current_leader_epoch=epoch).error_code == error
        assert epoch_end(broker, 0, epoch).error_code == error
    assert part(broker.follow(9, 0, leader_epoch=0)).current_leader.leader_id == 8
    # In Fetch every negative epoch says nothing; elsewhere only -1 does.
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part(broker.follow(9, 0, leader_epoch=-2)).error_code == error
    error = ErrorCode.FENCED_LEADER_EPOCH
    assert list_offset(broker, -1, current_leader_epoch=-2).error_code == error
    assert epoch_end(broker, 0, -2).error_code == error


def test_a_broker_without_a_replica_knows_no_epoch(broker: ReplicatedPlayer) -> None:
    broker.change(leader=8, replicas=(8, 9), isr=(8, 9))
    for epoch in range(-1, 3):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert part(broker.follow(9, 0, leader_epoch=epoch)).error_code == error
        assert list_offset(broker, -1, current_leader_epoch=epoch).error_code == error
        assert epoch_end(broker, 0, epoch).error_code == error
