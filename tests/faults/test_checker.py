"""The checker finds what it is there to find: each kind of fault, planted into a sound history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.checker import (
    UNKNOWN_OFFSET,
    Assigned,
    Committed,
    Delivered,
    Message,
    ReaderEvent,
    WriterHistory,
    judge,
    judge_readers,
)


def sound_log() -> dict[int, list[Message]]:
    return {0: [Message(1, 0), Message(2, 0), Message(1, 1), Message(2, 1), Message(1, 2)], 1: []}


def sound_writers() -> list[WriterHistory]:
    one = WriterHistory(1, sent={0: 3})
    one.acknowledged[0] = {0: 0, 1: 2, 2: 4}
    # Its last message was never answered: it may be in the log or not.
    two = WriterHistory(2, sent={0: 3})
    two.acknowledged[0] = {0: 1, 1: 3}
    return [one, two]


def delivered(reader: str, offset: int) -> Delivered:
    return Delivered(reader, 0, offset, sound_log()[0][offset])


def sound_events() -> list[ReaderEvent]:
    return [
        Assigned("a", (0, 1)),
        delivered("a", 0),
        delivered("a", 1),
        Committed("a", 0, 1),
        delivered("a", 2),
        Assigned("b", (0,)),
        # The uncommitted ones once more.
        delivered("b", 1),
        delivered("b", 2),
        delivered("b", 3),
        # It was on its way when the partition moved.
        delivered("a", 3),
        delivered("b", 4),
        Committed("b", 0, 5),
    ]


def test_a_sound_history_has_no_problems() -> None:
    assert judge(sound_writers(), sound_log()) == []
    assert judge_readers(sound_events(), sound_log()) == []


def lose_the_end(records: list[Message]) -> None:
    records.pop()


def lose_one(records: list[Message]) -> None:
    del records[2]


def repeat_one(records: list[Message]) -> None:
    records.append(Message(1, 1))


def swap_two(records: list[Message]) -> None:
    records[0], records[2] = records[2], records[0]


def invent_one(records: list[Message]) -> None:
    records.append(Message(2, 3))


def invent_a_writer(records: list[Message]) -> None:
    records.append(Message(9, 0))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lose_the_end, "where there is nothing"),
        (lose_one, "was acknowledged at offset 2"),
        (repeat_one, "repeated or out of order"),
        (swap_two, "repeated or out of order"),
        (invent_one, "never sent"),
        (invent_a_writer, "never sent"),
    ],
)
def test_a_log_that_is_wrong(plant: Callable[[list[Message]], None], words: str) -> None:
    log = sound_log()
    plant(log[0])
    problems = judge(sound_writers(), log)
    assert any(words in problem for problem in problems), problems


def test_what_was_acknowledged_without_an_offset_must_be_somewhere() -> None:
    writers = sound_writers()
    writers[0].acknowledged[0][1] = UNKNOWN_OFFSET
    assert judge(writers, sound_log()) == []
    log = sound_log()
    del log[0][2]
    assert any("nothing of it" in problem for problem in judge(writers, log))


@pytest.mark.parametrize(
    ("index", "event", "words"),
    [
        (4, delivered("a", 3), "instead of 2"),
        (6, delivered("b", 4), "nobody had read"),
        (6, delivered("b", 0), "was committed"),
        (4, Delivered("a", 0, 2, Message(2, 7)), "the log has"),
        (9, Delivered("a", 0, 7, Message(1, 7)), "the log has nothing"),
        (10, Committed("b", 0, 4), "read up to 4 of 5"),
    ],
)
def test_readers_that_were_served_wrong(index: int, event: ReaderEvent, words: str) -> None:
    events = sound_events()
    events[index] = event
    problems = judge_readers(events, sound_log())
    assert any(words in problem for problem in problems), problems


def test_what_nobody_read_is_missed() -> None:
    log = sound_log()
    log[1].append(Message(1, 0))
    assert judge_readers(sound_events(), log) == ["partition 1: read up to 0 of 1"]
