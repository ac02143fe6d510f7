"""Fetch requests and sessions with very many partitions: no turn of the loop is about all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from data_plane.broker.fetch import (
    fetch_handler,
    fetch_poll,
    fetch_reads,
    kept_partitions,
    large_fetches,
)
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import BrokerPlayer, Pending, values_of
from tests.broker.counted_turns import BrokerTurns
from tests.broker.test_fetch import Wanted, parts

# All limits are a tenth of what they are.
COUNT = 600
LARGE_FETCH_BYTES = fetch_reads.LARGE_FETCH_BYTES // 10
LOOKED_AT_MAX = fetch_reads.LOOKED_AT_MAX // 10
WAIT_MS = 500
# Of functions, in one turn. All partitions take 20,000, from their names to their answers.
CALLS_MAX = 1_000


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerPlayer]:
    monkeypatch.setattr(fetch_handler, "LARGE_FETCH_BYTES", LARGE_FETCH_BYTES)
    monkeypatch.setattr(fetch_poll, "LOOKED_AT_MAX", LOOKED_AT_MAX)
    monkeypatch.setattr(fetch_reads, "LOOKED_AT_MAX", LOOKED_AT_MAX)
    for name in ("NAMED_MAX", "LOOKED_AT_MAX", "TOLD_MAX"):
        monkeypatch.setattr(large_fetches, name, getattr(large_fetches, name) // 10)
    closed_max = kept_partitions.CLOSED_PER_TURN_MAX // 10
    monkeypatch.setattr(kept_partitions, "CLOSED_PER_TURN_MAX", closed_max)
    player = BrokerPlayer()
    player.services.components.append(player.sessions)
    player.create_topic("orders", COUNT)
    for index in range(COUNT):
        # The log is made by the first question, which is not what is counted here.
        assert player.partition("orders", index).log.log_end_offset == 0
    yield player
    assert not player.sessions.parked
    assert len(player.services.request_work) == 0


@pytest.fixture
def turns(broker: BrokerPlayer) -> BrokerTurns:
    return BrokerTurns(broker)


def check(turns: BrokerTurns) -> None:
    assert max(turns.calls_counts) <= CALLS_MAX


def all_of(offset: int = 0, *, count: int = COUNT) -> Wanted:
    return {("orders", index): offset for index in range(count)}


def send_and_count(broker: BrokerPlayer, turns: BrokerTurns, *args: Any, **options: Any) -> Pending:
    return turns.answered(turns.sent(lambda: broker.fetch(*args, **options)))


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("epoch", [0, -1])
def test_an_answer_in_slices_is_what_it_would_be_at_once(
    broker: BrokerPlayer,
    turns: BrokerTurns,
    version: int,
    epoch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create_topic("others", 2)
    broker.produce("orders", [b"a"], index=COUNT - 1)
    broker.produce("others", [b"b"], index=1)
    wanted = {**all_of(), ("orders", 7): 9, ("others", 0): 0, ("others", 1): 0, ("none", 0): 0}
    response = send_and_count(broker, turns, wanted, version=version, session_epoch=epoch).response
    check(turns)
    monkeypatch.setattr(fetch_handler, "LARGE_FETCH_BYTES", 1 << 30)
    at_once = broker.fetch(
        wanted, version=version, session_epoch=epoch, connection=broker.connect()
    ).response
    if version >= 7 and epoch == 0:
        assert response.session_id
        at_once.session_id = response.session_id
    assert response == at_once
    assert sum(len(topic.partitions) for topic in response.responses) == len(wanted)


def test_the_session_goes_on(broker: BrokerPlayer, turns: BrokerTurns) -> None:
    opened = send_and_count(broker, turns, all_of(), session_epoch=0).response
    session = {"session_id": opened.session_id, "max_wait_ms": WAIT_MS}
    poll = broker.fetch(session_epoch=1, **session)
    assert not poll.is_answered
    broker.produce("orders", [b"a"], index=COUNT - 1)
    (part,) = parts(poll.response).values()
    assert values_of(part.records) == [(0, b"a")]
    # All of them change at once.
    changed = send_and_count(broker, turns, all_of(9), session_epoch=2, **session)
    told = dict(parts(changed.response))
    epoch = 3
    while len(told) < COUNT and epoch < 9:
        more = send_and_count(broker, turns, session_epoch=epoch, **session).response
        assert 0 < len(parts(more)) <= LOOKED_AT_MAX
        told |= parts(more)
        epoch += 1
    assert len(told) == COUNT
    assert {part.error_code for part in told.values()} == {int(ErrorCode.OFFSET_OUT_OF_RANGE)}
    forgotten = [("orders", index) for index in range(COUNT)]
    gone = send_and_count(broker, turns, forgotten=forgotten, session_epoch=epoch, **session)
    assert (gone.response.error_code, gone.response.session_id) == (0, 0)
    assert not broker.partition("orders").watchers


def test_a_session_with_very_many_changed_partitions_is_looked_at_in_slices(
    broker: BrokerPlayer, turns: BrokerTurns
) -> None:
    """The small request of another isolation level makes all of them dirty; one has a record."""
    opened = send_and_count(broker, turns, all_of(), session_epoch=0).response
    broker.produce("orders", [b"a"], index=COUNT - 1)
    answer = send_and_count(
        broker,
        turns,
        session_id=opened.session_id,
        session_epoch=1,
        isolation_level=1,
        max_wait_ms=WAIT_MS,
    )
    assert sorted(parts(answer.response)) == [COUNT - 1]
    # As many as one small request may name.
    assert max(turns.calls_counts) <= 10 * LOOKED_AT_MAX < 10 * COUNT


@pytest.mark.parametrize("ending", ["records", "time", "records before", "records after"])
def test_a_poll_without_session_waits(
    broker: BrokerPlayer, turns: BrokerTurns, ending: str
) -> None:
    # The second time with the connection's set, which has nothing dirty.
    broker.answered(broker.fetch(all_of()))
    poll = broker.fetch(all_of(), max_wait_ms=WAIT_MS)
    # It is parsed and named in three slices, and then its dirty partitions, none, are looked at.
    for _ in range({"records before": 1, "records after": 4}.get(ending, 0)):
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
    if ending in ("records before", "records after"):
        broker.produce("orders", [b"a"], index=1)
    turns.answered(poll)
    if ending == "records":
        broker.produce("orders", [b"a"], index=1)
    elif ending == "time":
        assert not poll.is_answered
        broker.pass_time(WAIT_MS)
    turns.answered(poll)
    check(turns)
    told = parts(poll.response)
    assert len(told) == COUNT
    assert values_of(told[1].records) == ([] if ending == "time" else [(0, b"a")])
    # The connection's set is free for the next poll.
    assert broker.connection.fetch_set.parked is None
    assert broker.sessions.kept.count == COUNT


def test_partitions_that_are_no_longer_named_are_forgotten(
    broker: BrokerPlayer, turns: BrokerTurns
) -> None:
    broker.answered(broker.fetch(all_of()))
    fewer = all_of(count=COUNT // 2)
    assert len(parts(send_and_count(broker, turns, fewer).response)) == COUNT // 2
    check(turns)
    assert broker.sessions.kept.count == COUNT // 2
    assert not broker.partition("orders", COUNT - 1).watchers


def test_a_second_poll_meanwhile_has_a_set_of_its_own(broker: BrokerPlayer) -> None:
    broker.answered(broker.fetch(all_of()))
    first = broker.fetch(all_of())
    broker.executor.run_one()
    broker.services.wakes.run(broker.now_ms)
    second = broker.fetch({("orders", 3): 0})
    assert sorted(parts(second.response)) == [3]
    assert len(parts(broker.answered(first).response)) == COUNT


def test_a_log_that_is_read_from_the_disk(broker: BrokerPlayer) -> None:
    broker.fs.maps_files = False
    broker.produce("orders", [b"a"], index=4)
    broker.run_jobs()
    told = parts(broker.answered(broker.fetch(all_of())).response)
    assert values_of(told[4].records) == [(0, b"a")]


@pytest.mark.parametrize("turns_count", [0, 1, 5, 14, 25, 30])
@pytest.mark.parametrize("ending", ["gone", "stop", "session wanted"])
@pytest.mark.parametrize("epoch", [0, -1])
def test_cut_short(broker: BrokerPlayer, turns_count: int, ending: str, epoch: int) -> None:
    connection = broker.connect()
    reasons: list[str] = []
    connection.close = reasons.append
    poll = broker.fetch(all_of(), session_epoch=epoch, connection=connection, max_wait_ms=WAIT_MS)
    for _ in range(turns_count):
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
    sessions = list(broker.sessions.cache._sessions)
    if ending == "session wanted":
        for session_id in sessions:
            other = broker.fetch({}, session_id=session_id, session_epoch=1).response
            assert other.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not sessions:
            broker.sessions.stop(broker.now_ms)
    elif ending == "stop":
        broker.sessions.stop(broker.now_ms)
    if ending != "gone":
        assert len(reasons) == 1
    connection.gate.close()
    on_close, connection.on_close = connection.on_close, {}
    for callback in on_close:
        callback()
    broker.run_jobs()
    for _ in range(COUNT // kept_partitions.CLOSED_PER_TURN_MAX):
        broker.pass_time(1)
    assert not poll.is_answered
    assert broker.sessions.kept.count == 0
    assert not broker.partition("orders").watchers


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_large_set_lets_go_over_many_turns(
    broker: BrokerPlayer, turns: BrokerTurns, epoch: int
) -> None:
    """What its partitions say until then is heard by nobody."""
    opened = broker.answered(broker.fetch(all_of(), session_epoch=epoch)).response
    assert broker.sessions.kept.count == COUNT
    turns_count = COUNT // kept_partitions.CLOSED_PER_TURN_MAX
    if epoch == 0:
        turns.sent(lambda: broker.fetch({}, session_id=opened.session_id, session_epoch=-1))
    else:
        connection = broker.connection
        turns.take(lambda: [callback() for callback in list(connection.on_close)])
    assert broker.sessions.kept.count >= COUNT, "what is not let go of counts"
    turns.ticked(1)
    broker.produce("orders", [b"a"], index=0)
    turns.ticked(2 * turns_count)
    assert broker.sessions.kept.count == 0
    assert not any(broker.partition("orders", index).watchers for index in range(COUNT))
    assert max(turns.calls_counts) <= 3 * kept_partitions.CLOSED_PER_TURN_MAX
    assert broker.sessions.next_deadline_ms() is None
    assert len(turns.calls_counts) == 1 + turns_count


@pytest.mark.parametrize("turns_count", [0, 1, 3, 5])
def test_a_large_set_whose_connection_ends_during_a_poll_is_let_go_of_once(
    broker: BrokerPlayer, turns_count: int
) -> None:
    """Both end then, the set that an earlier poll has left there and the poll that goes on with
    it."""
    connection = broker.connect()
    broker.answered(broker.fetch(all_of(), connection=connection))
    poll = broker.fetch(all_of(), connection=connection, max_wait_ms=WAIT_MS)
    for _ in range(turns_count):
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
    assert not poll.is_answered
    connection.gate.close()
    for callback in list(connection.on_close):
        callback()
    broker.run_jobs()
    for _ in range(COUNT // kept_partitions.CLOSED_PER_TURN_MAX + 1):
        broker.pass_time(1)
    assert broker.sessions.kept.count == 0
    assert not broker.partition("orders").watchers
    assert broker.sessions.next_deadline_ms() is None, "nothing is left to let go of"


def test_a_stop_lets_go_of_everything(broker: BrokerPlayer) -> None:
    opened = broker.answered(broker.fetch(all_of(), session_epoch=0)).response
    broker.fetch({}, session_id=opened.session_id, session_epoch=-1)
    broker.sessions.stop(broker.now_ms)
    assert broker.sessions.kept.count == 0
    assert not broker.partition("orders").watchers


def test_a_session_whose_change_is_cut_short_is_over(broker: BrokerPlayer) -> None:
    opened = broker.answered(broker.fetch(all_of(), session_epoch=0)).response
    connection = broker.connect()
    broker.fetch(all_of(9), session_id=opened.session_id, session_epoch=1, connection=connection)
    for _ in range(4):
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
    for callback in list(connection.on_close):
        callback()
    broker.run_jobs()
    answer = broker.fetch(session_id=opened.session_id, session_epoch=2).response
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_more_partitions_than_are_remembered(broker: BrokerPlayer, turns: BrokerTurns) -> None:
    broker.sessions.kept.budget.max = COUNT - 1
    poll = send_and_count(broker, turns, all_of(), session_epoch=0, max_wait_ms=WAIT_MS)
    broker.pass_time(WAIT_MS)
    response = turns.answered(poll).response
    assert (len(parts(response)), response.session_id) == (COUNT, 0)
    turns.ticked(COUNT // kept_partitions.CLOSED_PER_TURN_MAX)
    assert not broker.partition("orders").watchers
