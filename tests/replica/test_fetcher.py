"""The replica fetcher against a model of its leader: what it asks, what it takes, when it rests."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from data_plane.log.errors import LogError
from data_plane.replica.fetcher import (
    BACKOFF_MS_MIN,
    INTERRUPT_AFTER_MS,
    STORAGE_BACKOFF_MS_MAX,
)
from data_plane.replica.followed import FetchOutcome, FetchRequest
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchPartitionResult
from tests.replica.fetcher_pair import BACKOFF_MS, NODE_ID, A, B, Pair, named
from tests.replica.leader_model import (
    RECORD_BYTES,
    ModelLog,
    encode_record,
    encoded,
)

PARTITIONS = 3
INDEXES = st.integers(0, PARTITIONS - 1)


def test_requests_say_who_asks_and_what_it_has() -> None:
    pair = Pair()
    pair.add(A, 4, records=3)
    pair.exchange()
    first = pair.leader.requests[0]
    assert (first.replica_id, first.replica_epoch) == (NODE_ID, 77)
    assert (first.session_id, first.session_epoch, first.isolation_level) == (0, 0, 0)
    # A session opens without a long poll, since nothing can be added before.
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (0, 1, 10 << 20)
    part = first.topics[0].partitions[0]
    assert part[:6] == (4, 0, 0, -1, 0, 1 << 20)
    pair.exchange()
    second = pair.leader.requests[1]
    assert (second.session_id, second.session_epoch, second.max_wait_ms) == (1, 1, 500)
    assert second.topics[0].partitions[0][:6] == (4, 0, 3, 0, 0, 1 << 20)


def test_only_what_changed_stands_in_a_request() -> None:
    pair = Pair()
    for topic_id in (A, B):
        for index in range(1000):
            pair.add(topic_id, index)
    pair.settle()
    assert len(named(pair)) == 0
    pair.leader.logs[(B, 7)].epochs += [0, 0]
    pair.exchange()
    assert named(pair) == []
    pair.exchange()
    assert named(pair) == [(B, 7, 2)]
    pair.exchange()
    request = pair.request()
    assert request is not None
    assert len(request.body) < 60
    assert pair.replicas[(B, 7)].log.epochs == [0, 0]


def test_everything_in_every_request_where_the_leader_gives_no_session() -> None:
    pair = Pair()
    pair.leader.gives_sessions = False
    replicas = [pair.add(A, index, records=index) for index in range(4)]
    for _ in range(3):
        pair.exchange()
        assert len(named(pair)) == 4
    assert [len(replica.log.epochs) for replica in replicas] == [0, 1, 2, 3]
    # Without a session there is always a poll under way, so it waits at the leader.
    assert pair.leader.requests[0].max_wait_ms == 0
    assert pair.leader.requests[-1].max_wait_ms == 500


def test_a_lost_session_is_opened_again_at_once() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    pair.exchange()
    pair.leader.lose_session()
    pair.leader.logs[(A, 0)].epochs.append(0)
    outcome = pair.exchange()
    assert outcome == FetchOutcome([])
    pair.exchange()
    assert pair.leader.requests[-1][7:9] == (0, 0)
    assert replica.log.epochs == [0, 0, 0]
    # Again, before any request within the new session has succeeded: not at once.
    pair.leader.lose_session()
    outcome = pair.exchange()
    assert outcome is not None
    assert outcome.connection_problem == "Fetch refused with FETCH_SESSION_ID_NOT_FOUND"
    assert pair.request() is None
    assert pair.fetcher.next_deadline_ms() == pair.now_ms + 2 * BACKOFF_MS_MIN


def test_a_failed_connection_is_tried_again_later_and_later() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    waits = []
    for _ in range(9):
        request = pair.request()
        assert request is not None
        pair.respond(request.number, None)
        assert pair.request() is None
        deadline_ms = pair.fetcher.next_deadline_ms()
        assert deadline_ms is not None
        waits.append(deadline_ms - pair.now_ms)
        pair.now_ms = deadline_ms - 1
        assert pair.request() is None
        pair.now_ms = deadline_ms
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    request = pair.request()
    assert request is not None
    pair.respond(request.number, None)
    pair.fetcher.retry_now()
    pair.settle()
    assert replica.log.epochs == [0, 0]


def test_any_lost_answer_ends_the_session() -> None:
    pair = Pair()
    pair.add(A, 0)
    pair.settle()
    parked = pair.request()
    pair.add(A, 1)
    pair.wait(INTERRUPT_AFTER_MS)
    second = pair.request()
    assert parked is not None
    assert second is not None
    pair.respond(second.number, None)
    pair.respond(parked.number, pair.leader.answer(parked.body))
    pair.wait(BACKOFF_MS_MIN)
    assert pair.exchange() is not None
    assert pair.leader.requests[-1].session_epoch == 0


def test_a_new_leader_epoch_makes_what_is_under_way_worthless() -> None:
    pair = Pair()
    replica = pair.add(A, 0)
    pair.settle()
    request = pair.request()
    assert request is not None
    # The old leader answers with records that the new one does not have.
    pair.leader.logs[(A, 0)].epochs += [0, 0]
    late = pair.leader.answer(request.body)
    replica.leader_epoch = 1
    pair.fetcher.follow(A, 0, replica)
    pair.respond(request.number, late)
    assert replica.log.epochs == []
    pair.leader.epochs[(A, 0)] = 1
    pair.leader.logs[(A, 0)].epochs = [1]
    pair.settle()
    assert replica.log.epochs == [1]


def test_an_answer_to_the_request_before_is_not_for_what_was_named_since() -> None:
    pair = Pair()
    replica = pair.add(A, 0)
    pair.settle()
    old = pair.request()
    assert old is not None
    pair.leader.logs[(A, 0)].epochs += [0, 0]
    late = pair.leader.answer(old.body)
    replica.leader_epoch = pair.leader.epochs[(A, 0)] = 1
    pair.leader.logs[(A, 0)].epochs = []
    pair.fetcher.follow(A, 0, replica)
    pair.wait(INTERRUPT_AFTER_MS)
    new = pair.request()
    assert new is not None, "the new epoch is named before the old answer is here"
    pair.respond(old.number, late)
    assert replica.log.epochs == []
    pair.respond(new.number, pair.leader.answer(new.body))
    pair.leader.logs[(A, 0)].epochs += [1]
    pair.settle()
    assert replica.log.epochs == [1]


def test_what_is_followed_no_more_takes_nothing() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    pair.add(A, 1)
    request = pair.request()
    assert request is not None
    pair.fetcher.unfollow(A, 0)
    pair.respond(request.number, pair.leader.answer(request.body))
    assert replica.appends_count == 0
    pair.settle()
    assert set(pair.leader.session) == {(A, 1)}
    pair.fetcher.unfollow(A, 1)
    pair.exchange()
    assert pair.leader.session_id == 0
    assert pair.request() is None
    assert pair.fetcher.next_deadline_ms() is None


def test_news_interrupt_a_long_poll_but_not_an_answer_on_its_way() -> None:
    pair = Pair()
    pair.add(A, 0)
    pair.settle()
    parked = pair.request()
    assert parked is not None
    fresh = pair.add(A, 1, records=3)
    assert pair.request() is None
    assert pair.fetcher.next_deadline_ms() == pair.now_ms + INTERRUPT_AFTER_MS
    pair.wait(INTERRUPT_AFTER_MS)
    second = pair.request()
    assert second is not None
    pair.add(A, 2)
    pair.wait(INTERRUPT_AFTER_MS)
    assert pair.request() is None, "two are under way"
    answers = [pair.leader.answer(request.body) for request in (parked, second)]
    pair.respond(parked.number, answers[0])
    assert fresh.log.epochs == []
    pair.respond(second.number, answers[1])
    assert fresh.log.epochs == [0, 0, 0]


def test_the_same_records_twice_are_taken_once() -> None:
    """A leader that is asked again before it knows of the append sends what it has sent."""
    pair = Pair()
    replica = pair.add(A, 0)
    pair.settle()
    parked = pair.request()
    assert parked is not None
    pair.wait(INTERRUPT_AFTER_MS)
    pair.add(A, 1)
    second = pair.request()
    assert second is not None
    pair.leader.logs[(A, 0)].epochs += [0, 0]
    answers = [pair.leader.answer(request.body) for request in (parked, second)]
    for request, answer in zip((parked, second), answers, strict=True):
        pair.respond(request.number, answer)
    assert replica.log.epochs == [0, 0]
    assert pair.problems == []
    pair.settle()
    assert pair.leader.acknowledged[(A, 0)] == 2


def test_divergence_and_ranges() -> None:
    pair = Pair()
    replica = pair.add(A, 0)
    replica.log.epochs = [0, 0, 0, 2, 2]
    pair.leader.logs[(A, 0)].epochs = [0, 0, 1, 1, 3, 3]
    ahead = pair.add(A, 1, records=2)
    ahead.log = ModelLog([], 9)
    behind = pair.add(A, 2)
    behind.log.epochs = [0, 0]
    pair.leader.logs[(A, 2)] = ModelLog([0, 0], 7)
    for index in range(3):
        pair.leader.epochs[(A, index)] = pair.replicas[(A, index)].leader_epoch = 3
    pair.leader.high_watermarks[(A, 0)] = 5
    for _ in range(9):
        pair.exchange()
        pair.wait(1)
    assert replica.log.epochs == [0, 0, 1, 1, 3, 3]
    assert replica.leader_high_watermark == 5
    assert behind.log == ModelLog([0, 0], 7)
    assert ahead.log == ModelLog([0, 0], 0)
    assert pair.problems == []


def test_a_replica_that_is_cut_stands_in_no_request_until_it_is() -> None:
    pair = Pair()
    replica, other = pair.add(A, 0, records=3), pair.add(A, 1)
    replica.needs_cuts = True
    replica.log.epochs = [0, 1, 1, 1]
    pair.leader.logs[(A, 0)].epochs = [0, 2, 2]
    pair.leader.epochs[(A, 0)] = replica.leader_epoch = 2
    ready: list[int] = []
    pair.fetcher.on_ready = lambda: ready.append(1)
    for _ in range(3):
        pair.exchange()
        pair.wait(50)
    assert replica.is_busy
    assert pair.fetcher.paused_count == 1
    assert replica.log.epochs == [0, 1, 1, 1]
    # The others go on.
    pair.leader.logs[(A, 1)].epochs = [0, 0]
    for _ in range(3):
        pair.exchange()
        pair.wait(50)
    assert other.log.epochs == [0, 0]
    assert not ready
    replica.cut()
    assert ready == [1]
    assert replica.log.epochs == [0]
    pair.settle()
    assert replica.log.epochs == [0, 2, 2]
    assert pair.problems == []


def test_a_log_with_records_is_not_thrown_away_for_an_offset_out_of_range() -> None:
    pair = Pair()
    replica = pair.add(A, 0)
    replica.log.epochs = [0, 0]
    for log_start_offset in (-1, 0, 1):
        request = pair.request()
        assert request is not None
        pair.leader.answer(request.body)
        result = FetchPartitionResult(
            0, int(ErrorCode.OFFSET_OUT_OF_RANGE), -1, log_start_offset=log_start_offset
        )
        pair.respond(request.number, encoded([("", A, [result])], 0, 0))
        assert replica.log.epochs == [0, 0]
        assert pair.problems.pop().reason == "the leader answers OFFSET_OUT_OF_RANGE"
        pair.wait(BACKOFF_MS)


@pytest.mark.parametrize("epoch_before", [-1, 4])
def test_one_that_ends_where_its_leader_begins_and_knows_nothing_begins_anew(
    epoch_before: int,
) -> None:
    """And has the epoch of what was before from the leader, if that has come to know it."""
    pair = Pair()
    replica = pair.add(A, 0)
    replica.log.epochs = [0, 0]
    request = pair.request()
    assert request is not None
    pair.leader.answer(request.body)
    result = FetchPartitionResult(
        0,
        int(ErrorCode.OFFSET_OUT_OF_RANGE),
        -1,
        log_start_offset=2,
        diverging_epoch=None if epoch_before < 0 else (epoch_before, 2),
    )
    pair.respond(request.number, encoded([("", A, [result])], 0, 0))
    assert (replica.log.start, replica.log.epochs) == (2, [])
    assert replica.epoch_before == epoch_before
    assert not pair.problems


def test_a_new_registration_names_everything_again() -> None:
    pair = Pair()
    pair.add(A, 0, records=2)
    pair.settle()
    session_id = pair.leader.session_id
    pair.fetcher.set_replica_epoch(77)
    pair.exchange()
    assert named(pair) == []
    pair.fetcher.set_replica_epoch(78)
    pair.exchange()
    assert named(pair) == [(A, 0, 2)]
    last = pair.leader.requests[-1]
    # The old session is named, for the leader to let go of it.
    assert (last.replica_epoch, last.session_id, last.session_epoch) == (78, session_id, 0)


def test_the_answer_of_a_session_that_was_given_up_opens_no_other() -> None:
    pair = Pair()
    pair.add(A, 0, records=2)
    pair.settle()
    given_up = pair.request()
    assert given_up is not None
    late = pair.leader.answer(given_up.body)
    pair.fetcher.set_replica_epoch(78)
    opening = pair.request()
    assert opening is not None
    pair.respond(given_up.number, late)
    pair.wait(INTERRUPT_AFTER_MS)
    assert pair.request() is None, "the answer to the opening request is still to come"
    pair.respond(opening.number, pair.leader.answer(opening.body))
    pair.exchange()
    last = pair.leader.requests[-1]
    assert (last.session_id, last.session_epoch) == (pair.leader.session_id, 1)
    assert not pair.problems


def test_a_log_start_that_moved_is_told() -> None:
    pair = Pair()
    pair.add(A, 0, records=4)
    pair.settle()
    pair.leader.logs[(A, 0)].move_start(3)
    pair.exchange()
    pair.exchange()
    assert pair.leader.requests[-1].topics[0].partitions[0].log_start_offset == 3


def test_a_log_start_that_this_replicas_own_retention_moved_is_told() -> None:
    pair = Pair()
    replica = pair.add(records=5)
    pair.add(B, records=2)
    pair.settle()
    replica.log.move_start(3)
    pair.fetcher.log_start_changed(A, 0)
    pair.exchange()
    (topic,) = pair.leader.requests[-1].topics
    (part,) = topic.partitions
    assert (topic.topic_id, part.fetch_offset, part.log_start_offset) == (A, 5, 3)
    pair.settle()
    # Of what is not followed nothing is told.
    pair.fetcher.log_start_changed(A, 9)
    pair.exchange()
    assert named(pair) == []


def test_a_failing_log_rests_alone() -> None:
    pair = Pair()
    bad, good = pair.add(A, 0, records=2), pair.add(A, 1, records=2)
    pair.exchange()
    for replica in (bad, good):
        assert replica.log.epochs == [0, 0]
    bad.fails_with = LogError("the disk is gone")
    pauses = []
    for _ in range(30):
        for index in (0, 1):
            pair.leader.logs[(A, index)].epochs.append(0)
        pair.exchange()
        pair.exchange()
        assert [problem.key for problem in pair.problems] == [(A, 0)]
        pauses.append(pair.problems.pop().pause_ms)
        pair.wait(pauses[-1])
    assert pauses[:4] == [20, 40, 80, 160]
    assert max(pauses) == STORAGE_BACKOFF_MS_MAX
    assert len(good.log.epochs) == 32
    bad.fails_with = None
    pair.settle()
    assert bad.log.epochs == pair.leader.logs[(A, 0)].epochs


def test_a_bug_in_a_replica_costs_that_replica_alone() -> None:
    pair = Pair()
    bad, good = pair.add(A, 0, records=2), pair.add(A, 1, records=2)
    bad.fails_with = ZeroDivisionError("oops")
    pair.exchange()
    pair.exchange()
    assert good.log.epochs == [0, 0]
    assert [problem.reason for problem in pair.problems] == ["ZeroDivisionError('oops')"]


@pytest.mark.parametrize(
    ("error", "is_expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_a_partition_with_an_error_is_left_out_for_a_while(
    error: ErrorCode, is_expected: bool
) -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    pair.add(A, 1)
    request = pair.request()
    assert request is not None
    pair.leader.answer(request.body)
    results = [FetchPartitionResult(0, int(error), -1), FetchPartitionResult(1, 0, 0)]
    pair.respond(request.number, encoded([("", A, results)], 0, 1))
    assert [(p.pause_ms, p.is_expected) for p in pair.problems] == [(BACKOFF_MS_MIN, is_expected)]
    assert error.name in pair.problems[0].reason
    pair.exchange()
    # An error that stays in the session would answer every poll at once.
    assert set(pair.leader.session) == {(A, 1)}
    pair.wait(BACKOFF_MS_MIN)
    pair.settle()
    assert replica.log.epochs == [0, 0]


def test_an_answer_without_progress_is_not_asked_for_again_at_once() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    request = pair.request()
    assert request is not None
    pair.leader.answer(request.body)
    half = [FetchPartitionResult(0, 0, 2, -1, 0, records=[encode_record(0, 0)[:-1]])]
    pair.respond(request.number, encoded([("", A, half)], 0, 1))
    assert [(problem.pause_ms, problem.reason) for problem in pair.problems] == [
        (BACKOFF_MS_MIN, "the leader's answer brings this replica no further")
    ]
    pair.wait(BACKOFF_MS_MIN)
    pair.settle()
    assert replica.log.epochs == [0, 0]


def test_damaged_frames_end_the_connection() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    request = pair.request()
    assert request is not None
    answer = pair.leader.answer(request.body)
    outcome = pair.respond(request.number, answer[:-4])
    assert outcome.connection_problem.startswith("malformed Fetch response")
    assert replica.appends_count == 0
    assert pair.request() is None
    pair.settle()
    assert replica.log.epochs == [0, 0]


def test_records_count_when_they_are_synced() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    replica.needs_sync = True
    other = pair.add(A, 1)
    ready: list[None] = []
    pair.fetcher.on_ready = lambda: ready.append(None)
    pair.exchange()
    assert replica.log.epochs == [0, 0]
    for _ in range(3):
        pair.exchange()
        assert pair.leader.acknowledged[(A, 0)] == 0
    pair.leader.logs[(A, 1)].epochs.append(0)
    pair.exchange()
    assert other.log.epochs == [0], "the others go on"
    parked = pair.request()
    assert parked is not None
    replica.sync()
    assert ready == [None]
    # The acknowledgement does not wait for the long poll.
    pair.wait(INTERRUPT_AFTER_MS)
    second = pair.request()
    assert second is not None
    pair.leader.answer(parked.body)
    pair.leader.answer(second.body)
    assert pair.leader.acknowledged[(A, 0)] == 2


def test_an_unsynced_tail_is_not_claimed_at_first_either() -> None:
    pair = Pair()
    replica = pair.add(A, 0, records=2)
    replica.needs_sync = True
    replica.log.epochs = [0, 0]
    assert pair.request() is None
    replica.sync()
    pair.exchange()
    assert pair.leader.acknowledged[(A, 0)] == 2


class Histories(RuleBasedStateMachine):
    """Anything may happen in any order; when it stops the follower has what the leader has."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.pair.leader.records_per_partition_max = 3
        self.requests: list[FetchRequest] = []
        self.answers: list[tuple[int, bytes]] = []

    @initialize(records=st.integers(0, 8))
    def begin(self, records: int) -> None:
        for index in range(PARTITIONS):
            self.pair.add(A, index, records)
        self.pair.replicas[(A, 0)].needs_sync = True
        for index in range(0, PARTITIONS, 2):
            self.pair.replicas[(A, index)].needs_cuts = True
        self.settled_round()

    @rule(count=st.integers(1, 3))
    def rounds(self, count: int) -> None:
        """Everything goes well for a while."""
        for _ in range(count):
            self.settled_round()

    def settled_round(self) -> None:
        self.ask(INTERRUPT_AFTER_MS)
        while self.requests:
            self.answer()
        while self.answers:
            self.deliver()

    @rule(index=INDEXES, count=st.integers(1, 7))
    def produce(self, index: int, count: int) -> None:
        log = self.pair.leader.logs[(A, index)]
        log.epochs += [self.pair.leader.epochs[(A, index)]] * count
        self.pair.leader.high_watermarks[(A, index)] = log.start

    @rule(index=INDEXES, lost=st.integers(0, 5), told=st.booleans())
    def elect(self, index: int, lost: int, told: bool) -> None:
        """Another log leads, which lacks some; the follower may hear of it later."""
        key = (A, index)
        log = self.pair.leader.logs[key]
        del log.epochs[max(0, len(log.epochs) - lost) :]
        self.pair.leader.epochs[key] += 1
        if told:
            self.tell(index)

    @rule(index=INDEXES)
    def tell(self, index: int) -> None:
        key = (A, index)
        replica = self.pair.replicas[key]
        if replica.leader_epoch != self.pair.leader.epochs[key]:
            replica.leader_epoch = self.pair.leader.epochs[key]
            self.pair.fetcher.follow(A, index, replica)

    @rule(index=INDEXES, count=st.integers(1, 4))
    def delete_records(self, index: int, count: int) -> None:
        log = self.pair.leader.logs[(A, index)]
        log.move_start(min(log.end, log.start + count))

    @rule(index=INDEXES, fails=st.booleans())
    def disk(self, index: int, fails: bool) -> None:
        self.pair.replicas[(A, index)].fails_with = LogError("disk") if fails else None

    @rule()
    def sync(self) -> None:
        self.pair.replicas[(A, 0)].sync()

    @rule(index=INDEXES)
    def cut(self, index: int) -> None:
        self.pair.replicas[(A, index)].cut()

    @rule()
    def lose_session(self) -> None:
        self.pair.leader.lose_session()

    @rule(gives=st.booleans())
    def sessions(self, gives: bool) -> None:
        self.pair.leader.gives_sessions = gives

    @rule(wait_ms=st.sampled_from([0, 1, INTERRUPT_AFTER_MS, 50, 5000]))
    def ask(self, wait_ms: int) -> None:
        self.pair.wait(wait_ms)
        request = self.pair.request()
        if request is not None:
            self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule()
    def answer(self) -> None:
        request = self.requests.pop(0)
        self.answers.append((request.number, self.pair.leader.answer(request.body)))

    @precondition(lambda self: self.answers)
    @rule()
    def deliver(self) -> None:
        self.pair.respond(*self.answers.pop(0))

    @precondition(lambda self: self.answers)
    @rule(seed=st.integers(0, 2**32))
    def deliver_damaged(self, seed: int) -> None:
        """A byte of some record is wrong. (The other fields come from a process of this cell and
        are believed; a frame cut off anywhere has a test of its own.)"""
        number, body = self.answers.pop(0)
        damaged = bytearray(body)
        places = [at for log in self.pair.leader.logs.values() for at in _places(body, log)]
        rng = random.Random(seed)
        if places:
            damaged[rng.choice(places) + rng.randrange(RECORD_BYTES)] ^= 1 << rng.randrange(8)
        outcome = self.pair.respond(number, bytes(damaged))
        # Without records the answer is as it was, perhaps that the session is gone.
        assert not (places and outcome.connection_problem)

    @rule()
    def disconnect(self) -> None:
        for request in self.requests:
            self.pair.respond(request.number, None)
        for number, _ in self.answers:
            self.pair.respond(number, None)
        self.requests.clear()
        self.answers.clear()

    @invariant()
    def no_pause_without_an_end(self) -> None:
        pair = self.pair
        if self.requests or self.answers:
            return
        is_busy = any(replica.is_busy for replica in pair.replicas.values())
        assert is_busy or pair.fetcher.next_deadline_ms() is not None

    def teardown(self) -> None:
        pair = self.pair
        for request in self.requests:
            self.answers.append((request.number, pair.leader.answer(request.body)))
        for number, body in self.answers:
            pair.respond(number, body)
        pair.leader.gives_sessions = True
        for key, replica in pair.replicas.items():
            replica.fails_with = None
            replica.needs_sync = replica.needs_cuts = False
            replica.cut()
            replica.sync()
            self.tell(key[1])
        pair.wait(2 * STORAGE_BACKOFF_MS_MAX)
        for _ in range(200):
            if pair.exchange() is None:
                pair.wait(50)
        for key, replica in pair.replicas.items():
            log = pair.leader.logs[key]
            assert replica.log.end == log.end, key
            offset = max(log.start, replica.log.start)
            assert (
                replica.log.epochs[offset - replica.log.start :] == log.epochs[offset - log.start :]
            )


def _places(body: bytes, log: ModelLog) -> list[int]:
    """Where records of that log stand in a response."""
    found = [body.find(encode_record(log.start + n, epoch)) for n, epoch in enumerate(log.epochs)]
    return [at for at in found if at >= 0]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
