"""What a client's records say that are produced to a retry partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.delayed.times import DELAY_MS_MAX
from features.retry_dlq.commands import (
    NAME_BYTES_MAX,
    PROBLEMS_MAX,
    REASON_BYTES_MAX,
    Command,
    InvalidCommand,
    Position,
    parse_position,
    read_commands,
)

Headers = list[tuple[bytes, bytes | None]]


def read(*records: Headers) -> tuple[list[Command], list[tuple[int, str]]]:
    headers = [(at, *header) for at, record in enumerate(records) for header in record]
    return read_commands(headers, len(records))


def problem(*headers: tuple[bytes, bytes | None]) -> str:
    commands, problems = read(list(headers))
    assert not commands
    ((index, text),) = problems
    assert index == 0
    return text


def test_a_nack_a_dead_letter_and_all_that_goes_with_them() -> None:
    commands, problems = read(
        [(b"tw-nack", b"6:100")],
        [(b"tw-delay", b"2h"), (b"tw-reason", "spät".encode()), (b"tw-nack", b"7:0")],
        [(b"tw-dead-letter", b"6:5"), (b"tw-exception", b"E"), (b"tw-consumer", b"")],
    )
    assert not problems
    assert commands == [
        Command(Position(6, 100), False, None, ()),
        Command(Position(7, 0), False, 7_200_000, ((b"tw-reason", "spät".encode()),)),
        Command(Position(6, 5), True, None, ((b"tw-exception", b"E"), (b"tw-consumer", b""))),
    ]
    assert [command.position.is_own for command in commands] == [False, True, False]


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ([], "records with tw-nack or tw-dead-letter only"),
        ([(b"tw-reason", b"r")], "records with tw-nack or tw-dead-letter only"),
        ([(b"tw-nack", b"6:1"), (b"tw-dead-letter", b"6:1")], "one of tw-nack and tw-dead-letter"),
        ([(b"tw-nack", b"6:1"), (b"tw-nack", b"6:2")], "tw-nack: a record has it once"),
        ([(b"tw-nack", b"6:1"), (b"tw-delay", b"never")], "tw-delay: a delay is a number"),
        ([(b"tw-dead-letter", b"6:1"), (b"tw-delay", b"1s")], "a dead letter has no delay"),
        ([(b"tw-nack", b"6:1"), (b"tw-deliver-at", b"9")], "tw-deliver-at: a subscription's retry"),
        ([(b"tw-nack", b"6:1"), (b"tw-sent", b"1:1")], "tw-sent: a subscription's retry"),
        ([(b"tw-nack", b"6:1"), (b"tw-\xff", b"")], r"tw-\xff: a subscription's retry"),
        ([(b"tw-nack", b"6:1"), (b"tw-reason", None)], "tw-reason: it has a value"),
        ([(b"tw-nack", b"6:1"), (b"tw-reason", b"\xff")], "tw-reason: it is not UTF-8"),
        (
            [(b"tw-nack", b"6:1"), (b"tw-reason", b"x" * (REASON_BYTES_MAX + 1))],
            f"more than {REASON_BYTES_MAX}",
        ),
        (
            [(b"tw-nack", b"6:1"), (b"tw-consumer", b"x" * (NAME_BYTES_MAX + 1))],
            f"more than {NAME_BYTES_MAX}",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(headers: Headers, says: str) -> None:
    assert says in problem(*headers)


def test_texts_may_be_as_long_as_that() -> None:
    commands, _ = read(
        [
            (b"tw-nack", b"6:1"),
            (b"tw-reason", b"x" * REASON_BYTES_MAX),
            (b"tw-exception", b"x" * NAME_BYTES_MAX),
            (b"tw-delay", b"%d" % DELAY_MS_MAX),
        ]
    )
    assert commands[0].delay_ms == DELAY_MS_MAX


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"6",
        b"6:",
        b":1",
        b"6:-1",
        b"+6:1",
        b"6: 1",
        b"6:1 ",
        b"6:1:2",
        "٦:1".encode(),
        b"2147483648:1",
        b"6:9223372036854775808",
    ],
)
def test_a_position_is_read_in_one_way(value: bytes | None) -> None:
    with pytest.raises(InvalidCommand, match="a partition and an offset"):
        parse_position(value)


@given(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1))
def test_a_position_comes_back(partition: int, offset: int) -> None:
    position = Position(partition, offset)
    assert parse_position(position.encoded()) == position
    assert position.is_own is (partition % 2 == 1)


@given(st.lists(st.booleans(), max_size=60))
def test_those_at_fault_are_named_and_nothing_is_taken(are_good: list[bool]) -> None:
    good: Headers = [(b"tw-nack", b"0:1")]
    commands, problems = read(*(good if is_good else [] for is_good in are_good))
    at_fault = [at for at, is_good in enumerate(are_good) if not is_good]
    assert [index for index, _ in problems] == at_fault
    assert len(commands) == (0 if at_fault else len(are_good))


def test_of_many_at_fault_some_are_named() -> None:
    _, problems = read(*([] for _ in range(PROBLEMS_MAX + 5)))
    assert len(problems) == PROBLEMS_MAX
