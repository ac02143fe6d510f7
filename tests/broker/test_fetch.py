"""Fetch: limits, long polls, sessions, errors; version by version where versions differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.fetch.fetch_sessions import FetchSet
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import BrokerPlayer, Pending, make_batch, values_of
from tests.broker.test_produce import only
from tests.log.one_log import batch_of

VERSIONS = range(4, 19)
Wanted = dict[tuple[str, int], int]


@pytest.fixture
def broker() -> BrokerPlayer:
    player = BrokerPlayer()
    player.create_topic("orders", 3)
    return player


def parts(response: Any) -> dict[int, Any]:
    """Partition index → its part of the answer; for answers of one topic."""
    return {part.partition_index: part for topic in response.responses for part in topic.partitions}


def fill(broker: BrokerPlayer, index: int, count: int, size: int = 100, **options: Any) -> None:
    for _ in range(count):
        broker.produce("orders", [bytes(size)], index=index, **options)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads(broker: BrokerPlayer, version: int) -> None:
    broker.produce("orders", [b"a", b"b"], index=1)
    broker.produce("orders", [b"c"], index=1)
    response = broker.fetch({("orders", 1): 1}, version=version).response
    part = only(response)
    assert values_of(part.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (part.partition_index, part.error_code) == (1, 0)
    assert (part.high_watermark, part.last_stable_offset) == (3, 3)
    assert part.aborted_transactions is None
    if version >= 5:
        assert part.log_start_offset == 0
    if version >= 11:
        assert part.preferred_read_replica == -1
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_read_committed_has_an_empty_list_of_aborted_transactions(
    broker: BrokerPlayer, version: int
) -> None:
    broker.produce("orders", [b"a"])
    part = only(broker.fetch({("orders", 0): 0}, version=version, isolation_level=1).response)
    assert part.aborted_transactions == []
    assert values_of(part.records) == [(0, b"a")]


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topics_and_partitions(broker: BrokerPlayer, version: int) -> None:
    topic_error = (
        ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    part = only(broker.fetch({("nowhere", 0): 0}, version=version, max_wait_ms=500).response)
    assert ErrorCode(part.error_code) is topic_error
    assert (part.high_watermark, part.last_stable_offset) == (-1, -1)
    part = only(broker.fetch({("orders", 9): 0}, version=version).response)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [-1, 2, 2**40])
def test_offsets_outside_the_log(broker: BrokerPlayer, offset: int) -> None:
    broker.produce("orders", [b"a"])
    part = only(broker.fetch({("orders", 0): offset}, max_wait_ms=500).response)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (part.high_watermark, part.log_start_offset) == (-1, -1)


def test_the_log_end_is_a_place_to_wait(broker: BrokerPlayer) -> None:
    broker.produce("orders", [b"a"])
    part = only(broker.fetch({("orders", 0): 1}).response)
    assert (part.error_code, part.high_watermark) == (0, 1)
    assert values_of(part.records) == []


@pytest.mark.parametrize(("epoch", "error"), [(0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)])
def test_leader_epochs(broker: BrokerPlayer, epoch: int, error: int) -> None:
    broker.produce("orders", [b"a"])
    part = only(broker.fetch({("orders", 0): 0}, current_leader_epoch=epoch).response)
    assert part.error_code == error


@pytest.mark.parametrize("epoch", [-1, -2, -(1 << 31)])
def test_a_negative_leader_epoch_says_nothing(broker: BrokerPlayer, epoch: int) -> None:
    broker.produce("orders", [b"a"])
    part = only(broker.fetch({("orders", 0): 0}, current_leader_epoch=epoch).response)
    assert part.error_code == 0


def test_an_old_leader_epoch_is_fenced_and_the_leader_named(broker: BrokerPlayer) -> None:
    broker.produce("orders", [b"a"])
    broker.partition("orders").leader_epoch = 3
    answer = broker.fetch({("orders", 0): 0}, version=16, current_leader_epoch=2)
    part = only(answer.response)
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part.current_leader.leader_id == 7


def test_a_diverging_epoch(broker: BrokerPlayer) -> None:
    broker.produce("orders", [b"a"])
    broker.partition("orders").leader_epoch = 4
    broker.produce("orders", [b"b"])
    same = only(broker.fetch({("orders", 0): 1}, last_fetched_epoch=0).response)
    assert same.diverging_epoch.epoch == -1
    assert values_of(same.records) == [(1, b"b")]
    other = only(broker.fetch({("orders", 0): 2}, last_fetched_epoch=2).response)
    assert (other.diverging_epoch.epoch, other.diverging_epoch.end_offset) == (0, 1)
    assert values_of(other.records) == []


@pytest.mark.parametrize("version", [4, 7, 12, 15, 18])
def test_followers_have_a_door_of_their_own(broker: BrokerPlayer, version: int) -> None:
    broker.produce("orders", [b"a"])
    response = broker.fetch({("orders", 0): 0}, version=version, replica_id=1).response
    if version >= 7:
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert response.responses == []
    else:
        assert only(response).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not only(response).records
    door = broker.connect(is_inter_broker=True)
    response = broker.fetch(
        {("orders", 0): 0}, version=version, replica_id=1, connection=door
    ).response
    # That door is open, but a broker without a replica has nothing to fetch here.
    assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Byte limits


def test_the_first_batch_is_returned_however_large(broker: BrokerPlayer) -> None:
    fill(broker, 0, 2, size=5_000)
    fill(broker, 1, 2, size=5_000)
    wanted: Wanted = {("orders", 0): 0, ("orders", 1): 0}
    found = parts(broker.fetch(wanted, max_bytes=1, partition_max_bytes=1).response)
    assert [offset for offset, _ in values_of(found[0].records)] == [0]
    assert values_of(found[1].records) == []
    found = parts(broker.fetch({("orders", 0): 0}, max_bytes=0).response)
    assert [offset for offset, _ in values_of(found[0].records)] == [0]


def test_partitions_share_max_bytes_in_order(broker: BrokerPlayer) -> None:
    for index in range(3):
        fill(broker, index, 10, size=1_000)
    wanted: Wanted = {("orders", index): 0 for index in range(3)}
    found = parts(broker.fetch(wanted, max_bytes=8_000, partition_max_bytes=5_000).response)
    counts = [len(values_of(found[index].records)) for index in range(3)]
    assert counts == [4, 3, 0]


def test_fetch_max_bytes_of_the_broker_bounds_the_client() -> None:
    broker = BrokerPlayer({"fetch.max.bytes": "4000"})
    broker.create_topic("orders")
    fill(broker, 0, 10, size=1_000)
    part = only(broker.fetch({("orders", 0): 0}).response)
    assert len(values_of(part.records)) == 3


@pytest.mark.parametrize(
    ("unsent_bytes", "batches_count"),
    [(0, 100), ((512 << 20) - 140_000, 65), ((512 << 20) - 1, 60), (1 << 40, 60)],
)
def test_answers_get_smaller_when_clients_do_not_read_theirs(
    broker: BrokerPlayer, unsent_bytes: int, batches_count: int
) -> None:
    fill(broker, 0, 100, size=1_000)
    broker.services.unsent.used = unsent_bytes
    part = only(broker.fetch({("orders", 0): 0}, min_bytes=1 << 20).response)
    assert abs(len(values_of(part.records)) - batches_count) <= 2


# Long polls


def test_a_long_poll_is_answered_when_records_come(broker: BrokerPlayer) -> None:
    wanted: Wanted = {("orders", index): 0 for index in range(3)}
    poll = broker.fetch(wanted, max_wait_ms=500)
    assert not poll.is_answered
    broker.produce("orders", [b"a"], index=1)
    found = parts(poll.response)
    assert values_of(found[1].records) == [(0, b"a")]
    assert sorted(found) == [0, 1, 2]
    assert not broker.sessions.parked
    assert len(broker.services.timers) <= 1
    broker.pass_time(1_000)


def test_a_long_poll_ends_after_its_wait(broker: BrokerPlayer) -> None:
    poll = broker.fetch({("orders", 0): 0}, max_wait_ms=500)
    broker.pass_time(499)
    assert not poll.is_answered
    broker.pass_time(1)
    assert values_of(only(poll.response).records) == []
    assert not broker.sessions.parked


def test_min_bytes_counts_over_partitions(broker: BrokerPlayer) -> None:
    poll = broker.fetch({("orders", 0): 0, ("orders", 1): 0}, max_wait_ms=500, min_bytes=300)
    broker.produce("orders", [bytes(100)], index=0)
    assert not poll.is_answered
    broker.produce("orders", [bytes(100)], index=1)
    found = parts(poll.response)
    assert all(len(values_of(part.records)) == 1 for part in found.values())


@pytest.mark.parametrize(
    ("partition_max_bytes", "max_bytes", "min_bytes", "is_at_once"),
    [
        (10_000, 1 << 20, 10_000, True),
        (10_000, 1 << 20, 9_999, True),
        # No more of one partition is wanted, so that `min_bytes` cannot be had.
        (10_000, 1 << 20, 10_001, False),
        (20_000, 10_000, 10_000, True),
        (20_000, 10_000, 20_000, True),
        (1 << 20, 1 << 20, 25_000, False),
    ],
)
def test_what_a_limit_keeps_back_counts_towards_min_bytes(
    broker: BrokerPlayer,
    partition_max_bytes: int,
    max_bytes: int,
    min_bytes: int,
    is_at_once: bool,
) -> None:
    for _ in range(22):
        broker.produce("orders", [bytes(900)])
    poll = broker.fetch(
        {("orders", 0): 0},
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        partition_max_bytes=partition_max_bytes,
    )
    assert poll.is_answered is is_at_once
    broker.pass_time(500)
    records = only(poll.response).records
    assert 0 < len(records) <= min(partition_max_bytes, max_bytes)


def test_a_sealed_segment_is_not_waited_with(broker: BrokerPlayer) -> None:
    log = broker.partition("orders").log
    for _ in range(3):
        broker.produce("orders", [bytes(900)])
        log.roll()
    broker.produce("orders", [bytes(900)])
    for offset, is_at_once in ((0, True), (2, True), (3, False)):
        poll = broker.fetch({("orders", 0): offset}, max_wait_ms=500, min_bytes=1 << 20)
        assert poll.is_answered is is_at_once
        broker.pass_time(500)
        assert values_of(only(poll.response).records) == [(offset, bytes(900))]


def test_what_is_there_leaves_when_the_wait_is_over(broker: BrokerPlayer) -> None:
    poll = broker.fetch({("orders", 0): 0}, max_wait_ms=500, min_bytes=10_000)
    broker.produce("orders", [b"a"])
    assert not poll.is_answered
    broker.pass_time(500)
    assert values_of(only(poll.response).records) == [(0, b"a")]


def test_a_poll_is_evaluated_once_for_all_appends_of_a_pass(broker: BrokerPlayer) -> None:
    poll = broker.fetch({("orders", 0): 0, ("orders", 1): 0}, max_wait_ms=500)
    partitions = [broker.partition("orders", index) for index in (0, 1)]
    for partition in partitions:
        data = make_batch([b"a"])
        partition.append_as_leader(data, 0, len(data), now_ms=broker.now_ms)
    assert not poll.is_answered
    broker.services.wakes.run(broker.now_ms)
    found = parts(poll.response)
    assert [len(values_of(found[index].records)) for index in (0, 1)] == [1, 1]


def test_a_closed_connection_leaves_nothing_behind(broker: BrokerPlayer) -> None:
    poll = broker.fetch({("orders", 0): 0}, max_wait_ms=500)
    for callback in list(broker.connection.on_close):
        callback()
    broker.produce("orders", [b"a"])
    broker.pass_time(1_000)
    assert not poll.is_answered
    assert not broker.sessions.parked
    assert not broker.partition("orders").watchers


def test_a_poll_that_fails_hurts_its_own_connection_only(
    broker: BrokerPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = broker.connect()
    other_reasons: list[str] = []
    other.close = other_reasons.append
    poll = broker.fetch({("orders", 0): 0}, max_wait_ms=500, connection=other)
    log = broker.partition("orders").log
    monkeypatch.setattr(type(log), "read", lambda *_, **__: 1 // 0)
    answer = only(broker.produce("orders", [b"a"]).response)
    assert answer.error_code == 0
    assert not poll.is_answered
    assert len(other_reasons) == 1
    assert not broker.close_reasons
    assert not broker.sessions.parked


def test_a_deleted_topic_ends_the_poll(broker: BrokerPlayer) -> None:
    topic_id = broker.create_topic("gone")
    poll = broker.fetch({("gone", 0): 0}, max_wait_ms=500)
    broker.delete_topic(topic_id)
    broker.services.wakes.run(broker.now_ms)
    assert only(poll.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Sessions


def open_session(broker: BrokerPlayer, wanted: Mapping[tuple[str, int], int]) -> int:
    response = broker.fetch(wanted, session_epoch=0).response
    assert response.error_code == 0
    assert response.session_id > 0
    session_id: int = response.session_id
    return session_id


def test_a_session_answers_with_what_changed(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", index): 0 for index in range(3)})
    broker.produce("orders", [b"a"], index=2)
    response = broker.fetch(session_id=session_id, session_epoch=1).response
    assert response.session_id == session_id
    assert sorted(parts(response)) == [2]
    assert values_of(parts(response)[2].records) == [(0, b"a")]
    # Not acknowledged by a new fetch offset, so it comes again.
    response = broker.fetch(session_id=session_id, session_epoch=2).response
    assert values_of(parts(response)[2].records) == [(0, b"a")]
    response = broker.fetch({("orders", 2): 1}, session_id=session_id, session_epoch=3).response
    assert response.responses == []


def test_a_parked_session_wakes_and_its_quiet_partitions_are_not_looked_at(
    broker: BrokerPlayer,
) -> None:
    broker.create_topic("many", 1000)
    session_id = open_session(broker, {("many", index): 0 for index in range(1000)})
    poll = broker.fetch(session_id=session_id, session_epoch=1, max_wait_ms=500)
    assert not poll.is_answered
    found = broker.sessions.cache.find(session_id, 2, False, broker.now_ms)
    assert not isinstance(found, ErrorCode)
    assert not found.dirty
    broker.produce("many", [b"a"], index=777)
    assert values_of(parts(poll.response)[777].records) == [(0, b"a")]
    assert len(parts(poll.response)) == 1


def test_forgotten_partitions_are_left_out(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0, ("orders", 1): 0})
    broker.produce("orders", [b"a"], index=0)
    broker.produce("orders", [b"b"], index=1)
    response = broker.fetch(
        session_id=session_id, session_epoch=1, forgotten=[("orders", 0)]
    ).response
    assert sorted(parts(response)) == [1]
    assert not broker.partition("orders", 0).watchers


def test_a_session_of_nothing_is_closed(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0})
    response = broker.fetch(
        session_id=session_id, session_epoch=1, forgotten=[("orders", 0)]
    ).response
    assert (response.error_code, response.session_id) == (0, 0)
    assert len(broker.sessions.cache) == 0


@pytest.mark.parametrize(
    ("id_change", "epoch", "error"),
    [
        (1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_session_errors_are_the_whole_answer(
    broker: BrokerPlayer, id_change: int, epoch: int, error: ErrorCode
) -> None:
    session_id = open_session(broker, {("orders", 0): 0})
    response = broker.fetch(
        session_id=session_id + id_change, session_epoch=epoch, max_wait_ms=500
    ).response
    assert ErrorCode(response.error_code) is error
    assert (response.session_id, response.responses) == (0, [])


def test_names_and_ids_do_not_mix_in_a_session(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0})
    response = broker.fetch(session_id=session_id, session_epoch=1, version=13).response
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_fetch_closes_the_session(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0})
    response = broker.fetch({}, session_id=session_id, session_epoch=-1).response
    assert (response.error_code, response.session_id) == (0, 0)
    assert len(broker.sessions.cache) == 0
    assert not broker.partition("orders").watchers


def test_a_full_fetch_replaces_the_session(broker: BrokerPlayer) -> None:
    first = open_session(broker, {("orders", 0): 0})
    response = broker.fetch({("orders", 1): 0}, session_id=first, session_epoch=0).response
    assert response.session_id not in (0, first)
    assert len(broker.sessions.cache) == 1


def test_without_slots_a_session_is_not_offered() -> None:
    broker = BrokerPlayer({"max.incremental.fetch.session.cache.slots": "0"})
    broker.create_topic("orders")
    assert broker.fetch({("orders", 0): 0}, session_epoch=0).response.session_id == 0


def test_errors_in_a_session_are_told_every_time_and_end(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0, ("later", 0): 0})
    for epoch in (1, 2):
        poll = broker.fetch(session_id=session_id, session_epoch=epoch, max_wait_ms=500)
        assert only(poll.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("later")
    broker.produce("later", [b"a"])
    part = only(broker.fetch(session_id=session_id, session_epoch=3).response)
    assert (part.error_code, values_of(part.records)) == (0, [(0, b"a")])


def test_a_topic_made_anew_is_another_topic_in_a_session_by_id(broker: BrokerPlayer) -> None:
    old_id = broker.create_topic("again")
    broker.produce("again", [b"old"])
    response = broker.fetch({("again", 0): 0}, version=13, session_epoch=0).response
    session_id = response.session_id
    broker.delete_topic(old_id)
    broker.create_topic("again")
    broker.produce("again", [b"new"])
    response = broker.fetch(session_id=session_id, session_epoch=1, version=13).response
    part = only(response)
    assert ErrorCode(part.error_code) is ErrorCode.UNKNOWN_TOPIC_ID


def test_partitions_take_turns_within_a_session(broker: BrokerPlayer) -> None:
    for index in range(3):
        fill(broker, index, 20, size=1_000)
    consumer = _Consumer(broker, 3)
    for _ in range(8):
        # Room for two batches a fetch, and three partitions that have one each to give.
        consumer.take(consumer.poll(2_500, 0, partition_max_bytes=1_100).response)
    assert sum(consumer.offsets.values()) == 16
    assert max(consumer.offsets.values()) - min(consumer.offsets.values()) <= 1


def test_the_next_request_of_a_session_ends_a_parked_one(broker: BrokerPlayer) -> None:
    session_id = open_session(broker, {("orders", 0): 0})
    first = broker.fetch(session_id=session_id, session_epoch=1, max_wait_ms=500)
    second = broker.fetch(session_id=session_id, session_epoch=2, max_wait_ms=500)
    assert first.is_answered
    assert not second.is_answered
    broker.produce("orders", [b"a"])
    assert values_of(only(second.response).records) == [(0, b"a")]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_session_that_ends_ends_its_parked_poll(broker: BrokerPlayer, epoch: int) -> None:
    """What follows on the same connection would wait for that poll's answer."""
    session_id = open_session(broker, {("orders", 0): 0})
    parked = broker.fetch(session_id=session_id, session_epoch=1, max_wait_ms=500)
    assert not parked.is_answered
    wanted = {("orders", 0): 0}
    closing = broker.fetch(wanted, session_id=session_id, session_epoch=epoch)
    assert parked.is_answered
    assert (parked.response.error_code, parked.response.responses) == (0, [])
    assert parked.response.session_id == session_id
    assert closing.is_answered
    assert not broker.sessions.parked


class _Consumer:
    """A consumer with a session, as KIP-227 describes one, or without, as librdkafka is one: it
    names all its partitions in every poll, beginning with another one each time."""

    def __init__(
        self, broker: BrokerPlayer, partitions_count: int, *, has_session: bool = True
    ) -> None:
        self._broker = broker
        self._has_session = has_session
        self.offsets: dict[int, int] = dict.fromkeys(range(partitions_count), 0)
        self.read: dict[int, list[tuple[int, bytes | None]]] = {
            index: [] for index in range(partitions_count)
        }
        self._changed = set(self.offsets)
        self._session_id = 0
        self._epoch = 0

    def poll(self, max_bytes: int, max_wait_ms: int, partition_max_bytes: int = 400) -> Pending:
        indexes = sorted(self._changed)
        if not self._has_session:
            start = self._epoch % len(self.offsets)
            indexes = [*range(start, len(self.offsets)), *range(start)]
        self._changed.clear()
        return self._broker.fetch(
            {("orders", index): self.offsets[index] for index in indexes},
            session_id=self._session_id,
            session_epoch=self._epoch if self._has_session else -1,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            max_wait_ms=max_wait_ms,
        )

    def take(self, response: Any) -> None:
        assert response.error_code == 0
        self._session_id = response.session_id
        self._epoch += 1
        found_parts = parts(response)
        if not self._has_session:
            assert sorted(found_parts) == sorted(self.offsets)
        for index, part in found_parts.items():
            assert part.error_code == 0
            assert part.high_watermark == self._broker.partition("orders", index).high_watermark
            found = [
                (offset, value)
                for offset, value in values_of(part.records)
                if offset >= self.offsets[index]
            ]
            if found:
                self.read[index] += found
                self.offsets[index] = found[-1][0] + 1
                self._changed.add(index)


@given(
    st.booleans(),
    st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.integers(0, 2), st.integers(1, 4)),
            st.tuples(st.just("poll"), st.integers(1, 1500), st.integers(0, 1)),
        ),
        max_size=40,
    ),
)
def test_every_record_is_read_once_and_in_order(
    has_session: bool, steps: list[tuple[str, int, int]]
) -> None:
    broker = BrokerPlayer()
    broker.create_topic("orders", 3)
    consumer = _Consumer(broker, 3, has_session=has_session)
    produced: dict[int, list[tuple[int, bytes | None]]] = {0: [], 1: [], 2: []}
    poll: Pending | None = None
    for kind, first, second in steps:
        if kind == "produce":
            values = [b"%d" % number for number in range(second)]
            start = len(produced[first])
            produced[first] += [(start + n, value) for n, value in enumerate(values)]
            broker.produce("orders", values, index=first)
        elif poll is None:
            poll = consumer.poll(first, second * 500)
        if poll is not None and poll.is_answered:
            consumer.take(poll.response)
            poll = None
    if poll is not None:
        broker.pass_time(500)
        consumer.take(poll.response)
    for _ in range(200):
        if all(consumer.read[index] == produced[index] for index in produced):
            break
        consumer.take(consumer.poll(1500, 0).response)
    assert consumer.read == produced


# Clients without sessions


def test_the_partitions_of_a_connection_are_remembered_until_it_closes(
    broker: BrokerPlayer,
) -> None:
    wanted: Wanted = {("orders", index): 0 for index in range(3)}
    assert len(parts(broker.fetch(wanted).response)) == 3
    kept = broker.connection.fetch_set
    assert not kept.dirty
    broker.produce("orders", [b"a"], index=1)
    assert [target.index for target in kept.dirty] == [1]
    found = parts(broker.fetch(wanted).response)
    assert [len(values_of(found[index].records)) for index in range(3)] == [0, 1, 0]
    assert broker.connection.fetch_set is kept
    assert broker.sessions.kept.count == 3
    for callback in list(broker.connection.on_close):
        callback()
    assert broker.sessions.kept.count == 0
    assert not any(broker.partition("orders", index).watchers for index in range(3))


def test_what_a_poll_does_not_name_any_more_is_forgotten(broker: BrokerPlayer) -> None:
    broker.fetch({("orders", 0): 0, ("orders", 1): 0})
    found = parts(broker.fetch({("orders", 1): 0, ("orders", 2): 0}).response)
    assert sorted(found) == [1, 2]
    assert not broker.partition("orders", 0).watchers
    assert broker.sessions.kept.count == 2
    # As many as before, but others.
    found = parts(broker.fetch({("orders", 0): 0, ("orders", 2): 0}).response)
    assert sorted(found) == [0, 2]


def test_a_changed_isolation_level_is_a_changed_poll(broker: BrokerPlayer) -> None:
    wanted: Wanted = {("orders", 0): 0}
    assert only(broker.fetch(wanted).response).aborted_transactions is None
    assert only(broker.fetch(wanted, isolation_level=1).response).aborted_transactions == []
    assert only(broker.fetch(wanted).response).aborted_transactions is None
    assert broker.fetch(wanted, version=5).is_answered
    assert only(broker.fetch(wanted, version=5).response).log_start_offset == 0


def test_a_poll_that_found_nothing_stable_reads_on_when_it_reads_everything(
    broker: BrokerPlayer,
) -> None:
    batch = batch_of(b"undecided", producer=(7, 0, 0), is_transactional=True)
    broker.partition("orders", 0).append_as_leader(batch, 0, len(batch), now_ms=broker.now_ms)
    wanted: Wanted = {("orders", 0): 0}
    for _ in range(2):
        assert not only(broker.fetch(wanted, isolation_level=1).response).records
        assert values_of(only(broker.fetch(wanted).response).records) == [(0, b"undecided")]


def test_polls_of_one_connection_may_overlap(broker: BrokerPlayer) -> None:
    first = broker.fetch({("orders", 0): 0}, max_wait_ms=500)
    second = broker.fetch({("orders", 0): 0, ("orders", 1): 0}, max_wait_ms=500)
    broker.produce("orders", [b"a"])
    assert values_of(only(first.response).records) == [(0, b"a")]
    assert values_of(parts(second.response)[0].records) == [(0, b"a")]
    assert len(broker.partition("orders", 0).watchers) == 1
    assert not broker.partition("orders", 1).watchers


def test_remembered_partitions_are_bounded(broker: BrokerPlayer) -> None:
    broker.sessions.kept.budget.max = 3
    connections = [broker.connect() for _ in range(3)]
    two: Wanted = {("orders", 0): 0, ("orders", 1): 0}
    broker.fetch(two, connection=connections[0])
    assert broker.sessions.kept.count == 2
    # No room for two more: served, but not remembered.
    assert len(parts(broker.fetch(two, connection=connections[1]).response)) == 2
    assert broker.fetch(two, session_epoch=0, connection=connections[2]).response.session_id == 0
    assert broker.sessions.kept.count == 2
    assert len(broker.partition("orders").watchers) == 1
    one: Wanted = {("orders", 2): 0}
    response = broker.fetch(one, session_epoch=0, connection=connections[2]).response
    assert response.session_id > 0
    # The session grows beyond the bound and is closed, the connection's set is let go.
    response = broker.fetch(
        two, session_id=response.session_id, session_epoch=1, connection=connections[2]
    ).response
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    more: Wanted = {**two, **one, ("orders", 7): 0}
    assert len(parts(broker.fetch(more, connection=connections[0]).response)) == 4
    assert broker.sessions.kept.count == 0
    assert not broker.partition("orders").watchers


def test_a_session_hears_of_a_log_start_that_moved(broker: BrokerPlayer) -> None:
    broker.produce("orders", [b"a"])
    session_id = open_session(broker, {("orders", 0): 1, ("orders", 1): 0})
    partition = broker.partition("orders")
    partition.log.delete_records(1)
    partition.log_start_changed()
    part = only(broker.fetch(session_id=session_id, session_epoch=1).response)
    assert (part.log_start_offset, values_of(part.records)) == (1, [])
    assert broker.fetch(session_id=session_id, session_epoch=2).response.responses == []


def test_a_parked_poll_below_a_new_log_start_hears_of_it(broker: BrokerPlayer) -> None:
    for _ in range(3):
        broker.produce("orders", [b"a"])
    poll = broker.fetch({("orders", 0): 1}, max_wait_ms=500, min_bytes=10_000)
    partition = broker.partition("orders")
    partition.log.delete_records(2)
    partition.log_start_changed()
    broker.services.wakes.run(broker.now_ms)
    assert only(poll.response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def ask(broker: BrokerPlayer, topics: list[FetchTopic], version: int = 12, **fields: Any) -> Any:
    """A Fetch of just these topics, which `BrokerPlayer.fetch` would not ask for."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics, **fields)
    return broker.send(ApiKey.FETCH, version, request).response


def test_a_partition_named_twice_keeps_no_other_alive(broker: BrokerPlayer) -> None:
    broker.fetch({("orders", 2): 0})
    piece = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    response = ask(broker, [FetchTopic(topic="orders", partitions=[piece, piece])])
    assert sorted(parts(response)) == [0]
    assert not broker.partition("orders", 2).watchers


def test_topics_without_partitions_are_passed_over_as_by_apache_kafka(broker: BrokerPlayer) -> None:
    piece = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    orders = FetchTopic(topic="orders", partitions=[piece])
    nothing = [FetchTopic(topic=f"nothing-{number}", partitions=[]) for number in range(3)]
    for topics in ([orders, *nothing], [orders]):
        assert [topic.topic for topic in ask(broker, topics).responses] == ["orders"]
    assert len(broker.connection.fetch_set.topics) == 1
    opened = ask(broker, [orders], session_epoch=0)
    ask(broker, nothing, session_id=opened.session_id, session_epoch=1)
    session = broker.sessions.cache.find(opened.session_id, 2, False, broker.now_ms)
    assert isinstance(session, FetchSet)
    assert len(session.topics) == 1
