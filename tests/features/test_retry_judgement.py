"""Judging commands, and what is stored for them, against a model of what was delivered."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.errors import AppendError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import HIDDEN_FLAG
from data_plane.wire.records import (
    NewRecord,
    Record,
    build_batch,
    decode_batch,
    read_batch_header,
)
from features.retry_dlq.commands import Command, Position
from features.retry_dlq.judgement import (
    COMMANDS_MAX,
    Copy,
    Dead,
    NoOriginal,
    NotThere,
    Original,
    Outcome,
    Outlook,
    Repeat,
    judge,
)
from features.retry_dlq.policy import Policy, parse_backoff
from features.retry_dlq.stored_form import stored_batch

WALL_MS = 1_800_000_000_000
POLICY = Policy(parse_backoff("list:1s,10s,5m"), 0.0, 3)
OUTLOOK = Outlook(3, POLICY, b"pay.dlq/3", WALL_MS)


def nack(partition: int, offset: int, **more: object) -> Command:
    given = {"is_dead_letter": False, "delay_ms": None, "texts": (), **more}
    return Command(Position(partition, offset), **given)  # type: ignore[arg-type]


class Delivered:
    """What was delivered of a pair of partitions: attempt by position."""

    def __init__(self, attempts: dict[Position, int]) -> None:
        self.attempts = attempts
        self.said: set[Position] = set()
        self.not_there: set[Position] = set()

    def nacked(self, positions: Iterable[Position]) -> set[Position]:
        return self.said & set(positions)

    def original(self, position: Position) -> Original:
        if position in self.not_there:
            raise NotThere(ErrorCode.NOT_ENOUGH_REPLICAS, "not yet")
        if position not in self.attempts:
            raise NoOriginal("there is no record")
        record = Record(position.offset, 5, b"k", b"v", ((b"tw-tag", b"eu"), (b"h", None)))
        source = b"orders/3/%d" % position.offset
        return Original(record, self.attempts[position], source, 5, None)


def outcomes_of(
    delivered: Delivered, *commands: Command, outlook: Outlook = OUTLOOK
) -> list[Outcome]:
    return judge(commands, delivered, outlook, random.Random(1))


def refused(delivered: Delivered, *commands: Command) -> AppendError:
    with pytest.raises(AppendError) as found:
        outcomes_of(delivered, *commands)
    return found.value


def test_it_comes_back_until_the_last_attempt_has_failed() -> None:
    delivered = Delivered({Position(6, 100): 1, Position(7, 4): 2, Position(7, 9): 3})
    first, second, third = outcomes_of(delivered, nack(6, 100), nack(7, 4), nack(7, 9))
    assert isinstance(first, Copy)
    assert (first.attempt, first.due_ms) == (2, WALL_MS + 1_000)
    assert isinstance(second, Copy)
    assert (second.attempt, second.due_ms) == (3, WALL_MS + 10_000)
    assert isinstance(third, Dead)
    assert third.attempts == 3


def test_a_dead_letter_is_one_at_once_and_a_delay_is_taken_by_its_word() -> None:
    delivered = Delivered({Position(6, 100): 1, Position(6, 101): 1})
    asked = nack(6, 100, is_dead_letter=True), nack(6, 101, delay_ms=7)
    dead, copy = outcomes_of(delivered, *asked)
    assert isinstance(dead, Dead)
    assert dead.attempts == 1
    assert isinstance(copy, Copy)
    assert copy.due_ms == WALL_MS + 7


def test_for_ever_is_for_ever() -> None:
    outlook = OUTLOOK._replace(policy=POLICY._replace(attempts_max=0))
    delivered = Delivered({Position(7, 4): 10**6})
    (copy,) = outcomes_of(delivered, nack(7, 4), outlook=outlook)
    assert isinstance(copy, Copy)
    assert (copy.attempt, copy.due_ms) == (10**6 + 1, WALL_MS + 300_000)


def test_those_at_fault_are_named_and_nothing_is_stored() -> None:
    delivered = Delivered({Position(6, 1): 1})
    wrong = refused(delivered, nack(6, 1), nack(4, 1), nack(9, 1))
    assert wrong.error_code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in wrong.name_records()] == [1, 2]
    missing = refused(delivered, nack(6, 1), nack(6, 2))
    assert missing.error_code is ErrorCode.INVALID_RECORD
    assert missing.message == "record 1: 6:2: there is no record"
    # What cannot be told yet is tried again, unless something is wrong for good.
    delivered.not_there.add(Position(6, 3))
    assert refused(delivered, nack(6, 3)).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    both = refused(delivered, nack(6, 3), nack(6, 2))
    assert both.error_code is ErrorCode.INVALID_RECORD
    assert delivered.said == set()


def test_a_batch_has_so_many_at_most() -> None:
    delivered = Delivered({Position(6, at): 1 for at in range(COMMANDS_MAX + 1)})
    commands = [nack(6, at) for at in range(COMMANDS_MAX + 1)]
    assert refused(delivered, *commands).error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(outcomes_of(delivered, *commands[1:])) == COMMANDS_MAX


@given(st.randoms(use_true_random=False), st.integers(0, 4))
def test_each_position_has_one_outcome_and_attempts_never_go_back(
    rng: random.Random, attempts_max: int
) -> None:
    """Batches of nacks, repeated as it comes; what is stored is delivered now and then."""
    outlook = OUTLOOK._replace(policy=POLICY._replace(attempts_max=attempts_max))
    delivered = Delivered({Position(6, offset): 1 for offset in range(5)})
    source_of = {position: position.offset for position in delivered.attempts}
    pending: list[tuple[int, int]] = []
    outcomes: dict[Position, Outcome] = {}
    attempts = dict.fromkeys(range(5), 1)
    next_own = 0
    for _ in range(12):
        known = list(delivered.attempts)
        commands = [
            Command(rng.choice(known), rng.random() < 0.1, rng.choice([None, 3]), ())
            for _ in range(rng.randrange(1, 6))
        ]
        for command, outcome in zip(
            commands, judge(commands, delivered, outlook, rng), strict=True
        ):
            position = command.position
            if position in outcomes:
                assert isinstance(outcome, Repeat)
                continue
            assert not isinstance(outcome, Repeat)
            outcomes[position] = outcome
            delivered.said.add(position)
            if isinstance(outcome, Copy):
                assert outcome.attempt == delivered.attempts[position] + 1
                assert outcome.due_ms > WALL_MS
                pending.append((source_of[position], outcome.attempt))
            else:
                assert command.is_dead_letter or delivered.attempts[position] == attempts_max
        for source, attempt in rng.sample(pending, rng.randrange(len(pending) + 1)):
            pending.remove((source, attempt))
            assert attempt == attempts[source] + 1
            attempts[source] = attempt
            position = Position(7, next_own)
            delivered.attempts[position], source_of[position] = attempt, source
            next_own += 1
    # Each message is to be nacked, pending or dead, once.
    open_positions = delivered.attempts.keys() - outcomes.keys()
    dead = [source_of[at] for at, outcome in outcomes.items() if isinstance(outcome, Dead)]
    states = [source_of[at] for at in open_positions] + [at for at, _ in pending] + dead
    assert sorted(states) == list(range(5))


def test_the_stored_batch_has_the_producer_and_as_many_records() -> None:
    sent = build_batch(
        [NewRecord(WALL_MS + at, b"ignored", b"ignored") for at in range(3)],
        compression=3,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    header = read_batch_header(sent, 0)
    delivered = Delivered({Position(6, 100): 1, Position(7, 9): 3})
    texts = ((b"tw-reason", b"r"), (b"tw-exception", b"E"))
    commands = [nack(6, 100, texts=texts), nack(6, 100), nack(7, 9)]
    outcomes = outcomes_of(delivered, *commands)
    times = [WALL_MS, WALL_MS + 1, WALL_MS + 2]
    batch = stored_batch(header, times, outcomes, OUTLOOK)
    stored = read_batch_header(batch, 0)
    assert stored.attributes == HIDDEN_FLAG | 3
    assert stored[9:14] == header[9:14]
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (7, 2, 40)
    copy, repeat, dead = decode_batch(batch, 0)
    assert [one.timestamp for one in (copy, repeat, dead)] == times
    assert (copy.key, copy.value) == (dead.key, dead.value) == (b"k", b"v")
    kept = ((b"tw-tag", b"eu"), (b"h", None))
    assert copy.headers == (
        *kept,
        (b"tw-nack", b"6:100"),
        (b"tw-deliver-at", b"%d" % (WALL_MS + 1_000)),
        (b"tw-source", b"orders/3/100"),
        (b"tw-attempt", b"2"),
        (b"tw-produced-at", b"5"),
        (b"tw-first-failed-at", b"%d" % WALL_MS),
        *texts,
    )
    assert repeat == Record(1, WALL_MS + 1, None, None, ((b"tw-repeat", b"6:100"),))
    assert dead.headers == (
        *kept,
        (b"tw-dead-letter", b"7:9"),
        (b"tw-target", b"pay.dlq/3"),
        (b"tw-failed-at", b"%d" % WALL_MS),
        (b"tw-source", b"orders/3/9"),
        (b"tw-attempt", b"3"),
        (b"tw-produced-at", b"5"),
        (b"tw-first-failed-at", b"%d" % WALL_MS),
    )
