"""No wake is lost: consumers of every kind read on while everything around them happens.

A machine plays producers and consumers, with sessions and without, on several connections: polls
that wait, polls that are overtaken by the next one, connections that go, cold reads whose files are
read late, several requests in one pass. Two rules hold after every pass:

- a poll that still waits has nothing to read (and no file work under way);
- what an answer brings begins where the consumer had asked, or at the batch that holds it.

In the end every consumer polls until nothing comes and must have come to the end of everything.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from data_plane.broker.fetch.fetch_poll import Poll
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.waiting import WakeQueue
from data_plane.wire.errors import ErrorCode
from tests.broker.broker_player import BrokerPlayer, Pending, values_of

TOPIC = "orders"
PARTITIONS = 3
CONSUMERS = 4
WAIT_MS = 10_000
STEPS_MAX = 40
# Bytes of a partition, bytes of an answer.
ROOMY = (1 << 20, 1 << 20)

consumers = st.integers(0, CONSUMERS - 1)
partitions = st.integers(0, PARTITIONS - 1)
subsets = st.sets(partitions, min_size=1)
waits = st.sampled_from([0, WAIT_MS, WAIT_MS])
limits = st.sampled_from([ROOMY, ROOMY, (1, 1 << 20), (1 << 20, 1), (200, 300)])


class Consumer:
    """What a client remembers: its positions, its session, its requests without an answer."""

    def __init__(self, number: int, version: int) -> None:
        self.number = number
        self.version = version
        self.uses_sessions = version >= 7 and number % 2 == 1
        self.positions = dict.fromkeys(range(PARTITIONS), 0)
        self.reconnects = 0
        self.reconnect()

    def reconnect(self) -> None:
        self.reconnects += 1
        number = self.number * 1000 + self.reconnects
        self.connection = ConnectionInfo(number, f"peer:{number}", "tenants", "peer", number)
        # (answer to come, what was asked: index → offset)
        self.open: list[tuple[Pending, dict[int, int]]] = []
        self.forget_session()

    def forget_session(self) -> None:
        self.session_id = 0
        self.session_epoch = 0
        # What the broker knows of the session's partitions: index → fetch offset.
        self.told: dict[int, int] = {}


class WakesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = BrokerPlayer()
        self.broker.create_topic(TOPIC, PARTITIONS)
        self.consumers: list[Consumer] = []
        self.produced = 0

    @initialize(versions=st.tuples(*[st.sampled_from([4, 6, 7, 11, 12, 13, 17])] * CONSUMERS))
    def begin(self, versions: tuple[int, ...]) -> None:
        self.consumers = [Consumer(number, version) for number, version in enumerate(versions)]

    # What producers do.

    @rule(indexes=st.lists(partitions, min_size=1, max_size=4), size=st.integers(1, 3))
    def produce(self, indexes: list[int], size: int) -> None:
        for index in indexes:
            values = [b"%d" % (self.produced + number) for number in range(size)]
            self.produced += size
            assert self.broker.produce(TOPIC, values, index=index).is_answered

    @rule(indexes=st.lists(partitions, min_size=2, max_size=6))
    def produce_in_one_pass(self, indexes: list[int]) -> None:
        """The wakes of several requests come together at the end of their pass."""
        run = self.broker.services.wakes.run
        self.broker.services.wakes.run = lambda now_ms: None  # type: ignore[method-assign]
        try:
            self.produce.__wrapped__(self, indexes, 1)  # type: ignore[attr-defined]
        finally:
            self.broker.services.wakes.run = run  # type: ignore[method-assign]
        run(self.broker.now_ms)

    # What consumers do.

    @rule(number=consumers, wanted=subsets, wait_ms=waits, limits=limits)
    def poll(self, number: int, wanted: set[int], wait_ms: int, limits: tuple[int, int]) -> None:
        self._take_answers()
        self._poll(self.consumers[number], wanted, wait_ms, limits)

    @rule(wanted=subsets, wait_ms=waits, limits=limits, times=st.integers(1, 3))
    def all_poll(self, wanted: set[int], wait_ms: int, limits: tuple[int, int], times: int) -> None:
        for _ in range(times):
            self._take_answers()
            for consumer in self.consumers:
                if not consumer.open:
                    self._poll(consumer, wanted, wait_ms, limits)

    @rule(number=consumers, index=partitions, back=st.integers(1, 5), wait_ms=waits)
    def seek_back(self, number: int, index: int, back: int, wait_ms: int) -> None:
        self._take_answers()
        consumer = self.consumers[number]
        consumer.positions[index] = max(0, consumer.positions[index] - back)
        self._poll(consumer, {index}, wait_ms, ROOMY)

    def _poll(
        self, consumer: Consumer, wanted: set[int], wait_ms: int, limits: tuple[int, int]
    ) -> None:
        options: dict[str, Any] = {
            "version": consumer.version,
            "max_wait_ms": wait_ms,
            "partition_max_bytes": limits[0],
            "max_bytes": limits[1],
            "connection": consumer.connection,
        }
        asked = {index: consumer.positions[index] for index in wanted}
        named = asked
        if consumer.uses_sessions:
            named = {
                index: offset
                for index, offset in asked.items()
                if consumer.told.get(index) != offset or not consumer.session_id
            }
            if consumer.session_id:
                gone = [(TOPIC, index) for index in consumer.told if index not in asked]
                options["forgotten"] = gone
            options["session_id"] = consumer.session_id
            options["session_epoch"] = consumer.session_epoch
            consumer.told = dict(asked)
            consumer.session_epoch += 1
        wanted_fields = {(TOPIC, index): offset for index, offset in named.items()}
        consumer.open.append((self.broker.fetch(wanted_fields, **options), asked))

    @rule(number=consumers)
    def lose_connection(self, number: int) -> None:
        consumer = self.consumers[number]
        connection = consumer.connection
        connection.gate.close()
        on_close, connection.on_close = connection.on_close, {}
        for callback in on_close:
            callback()
        consumer.reconnect()

    # What the broker does.

    @rule(count=st.integers(1, 9))
    def file_jobs(self, count: int) -> None:
        for _ in range(min(count, len(self.broker.executor.queue))):
            self.broker.executor.run_one()
            self.broker.services.wakes.run(self.broker.now_ms)

    @rule(index=partitions)
    def roll_and_come_to_rest(self, index: int) -> None:
        """What was in memory has to be loaded anew, and is cold until it is read."""
        log = self.broker.partition(TOPIC, index).log
        if log.log_end_offset > log.active.base_offset:
            log.roll()
        if not self.broker.executor.queue:
            log.flush()
            log.unload()

    @rule(ms=st.sampled_from([1, WAIT_MS // 2, WAIT_MS]))
    def wait(self, ms: int) -> None:
        self.broker.pass_time(ms)

    # What must hold.

    @invariant()
    def who_waits_has_nothing_to_read(self) -> None:
        if self.broker.executor.queue:
            return
        for consumer in self.consumers:
            for pending, asked in consumer.open:
                if not pending.is_answered:
                    for index, offset in asked.items():
                        end = self.broker.partition(TOPIC, index).high_watermark
                        assert offset >= end, f"{consumer.number} waits at {offset} of {end}"

    def _take_answers(self) -> None:
        for consumer in self.consumers:
            # Answers leave in the order of their requests.
            while consumer.open and consumer.open[0][0].is_answered:
                pending, asked = consumer.open.pop(0)
                self._take_answer(consumer, pending.response, asked)

    def _take_answer(self, consumer: Consumer, response: Any, asked: dict[int, int]) -> None:
        if consumer.version >= 7:
            if response.error_code != ErrorCode.NONE:
                assert consumer.uses_sessions
                consumer.forget_session()
                return
            if consumer.uses_sessions and not consumer.session_id:
                consumer.session_id = response.session_id
                if not response.session_id:
                    consumer.forget_session()
        for topic in response.responses:
            for piece in topic.partitions:
                index = piece.partition_index
                assert piece.error_code == ErrorCode.NONE, piece
                values = [offset for offset, _ in values_of(piece.records)]
                if not values or asked.get(index) != consumer.positions[index]:
                    continue
                assert values[0] <= asked[index] <= values[-1], (values, asked[index])
                consumer.positions[index] = values[-1] + 1

    def teardown(self) -> None:
        everything = set(range(PARTITIONS))
        # An answer ends with its segment, and each step may have made one.
        for _ in range(STEPS_MAX + 12):
            self.broker.run_jobs()
            self.broker.pass_time(WAIT_MS)
            self.broker.run_jobs()
            self._take_answers()
            for consumer in self.consumers:
                if not consumer.open:
                    self._poll(consumer, everything, 0, ROOMY)
        self.broker.run_jobs()
        self._take_answers()
        for consumer in self.consumers:
            for index, position in consumer.positions.items():
                end = self.broker.partition(TOPIC, index).high_watermark
                assert position == end, f"{consumer.number} stays at {position} of {end}"
        assert not any(level == "error" for level, _, _ in self.broker.log.events)


def test_one_that_fails_keeps_nobody_waiting() -> None:
    class Waiting:
        runs = 0

        def run(self, now_ms: int) -> None:
            self.runs += 1
            if self is broken:
                queue.wake(late)
                raise ValueError("a bug")

    queue = WakeQueue()
    broken, other, late = Waiting(), Waiting(), Waiting()
    queue.wake(broken)
    queue.wake(other)
    with pytest.raises(ValueError, match="a bug"):
        queue.run(5)
    assert (broken.runs, other.runs, late.runs) == (1, 1, 1)
    queue.run(6)
    assert (broken.runs, other.runs, late.runs) == (1, 1, 1)


TestWakes = WakesMachine.TestCase
TestWakes.settings = settings(max_examples=100, stateful_step_count=STEPS_MAX, deadline=None)


@pytest.mark.parametrize("ending", ["time", "stop", "next request"])
def test_a_poll_that_fails_at_its_end_closes_its_connection(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerPlayer()
    broker.create_topic(TOPIC)
    connection = broker.connect()
    reasons: list[str] = []
    connection.close = reasons.append
    session_epoch = 0 if ending == "next request" else -1
    wanted = {(TOPIC, 0): 0}
    poll = broker.fetch(
        wanted, max_wait_ms=WAIT_MS, session_epoch=session_epoch, connection=connection
    )
    assert not poll.is_answered
    other = broker.fetch(wanted, max_wait_ms=WAIT_MS, connection=broker.connect())

    def broken(poll: Poll) -> bool:
        if poll._context.connection is connection:
            raise ZeroDivisionError("a bug")
        return evaluate(poll)

    evaluate = Poll.evaluate
    monkeypatch.setattr(Poll, "evaluate", broken)
    if ending == "time":
        broker.pass_time(WAIT_MS)
    elif ending == "stop":
        broker.sessions.stop(broker.now_ms)
    else:
        (session_id,) = broker.sessions.cache._sessions
        broker.fetch({}, session_id=session_id, session_epoch=1, connection=broker.connect())
        broker.pass_time(WAIT_MS)
    assert reasons == ["request failed: ZeroDivisionError('a bug')"]
    assert other.is_answered
    assert not broker.sessions.parked
