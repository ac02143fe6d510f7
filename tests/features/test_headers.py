"""Headers that begin with `tw-`: which are refused, and in what words."""

from __future__ import annotations

import pytest

from data_plane.wire.records import NewRecord, build_batch
from features import headers
from features.headers import BROKER_HEADERS, NACK_HEADERS, HeaderRules

ELSEWHERE = (
    "it goes to the subscription that delivered the message, to partition 2p + 1, and to no other "
    "topic"
)


def problems(*records: tuple[tuple[bytes, bytes | None], ...]) -> list[tuple[int, str]]:
    batch = build_batch([NewRecord(0, None, b"v", record) for record in records])
    found = HeaderRules().problems(batch, 61, len(batch), len(records))
    # Asked again, and of a buffer that may not be written to.
    assert HeaderRules().problems(memoryview(bytes(batch)), 61, len(batch), len(records)) == found
    return list(found)


def test_what_is_allowed() -> None:
    tags = tuple((b"tw-tag", b"%d" % number) for number in range(64))
    of_the_broker = tuple((key, None) for key in sorted(BROKER_HEADERS))
    assert problems((), tags, ((b"tw-tag", "ü:1".encode()), (b"tw-id", b"x" * 64))) == []
    assert problems(of_the_broker, ((b"tw", b""), (b"other", b"tw-"), (b"", None))) == []
    assert problems(((b"tw-tag", b"x" * 128),), ((b"tw-id", b"\xff"),)) == []


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([(b"tw-tag", b"")], "header tw-tag: a tag is not empty"),
        ([(b"tw-tag", b"a"), (b"tw-tag", None)], "header tw-tag: a tag is not empty"),
        ([(b"tw-tag", b"\xff")], "header tw-tag: the tag is not UTF-8"),
        ([(b"tw-tag", b"x" * 129)], "header tw-tag: the tag has 129 bytes, more than 128"),
        (
            [(b"tw-tag", b"a")] * 65,
            "header tw-tag: the record has more than 64 tags, or larger ones than 128 bytes",
        ),
        (
            [(b"tw-tag", b"x" * 9_000)],
            "header tw-tag: the record has more than 64 tags, or larger ones than 128 bytes",
        ),
        ([(b"tw-id", b"")], "header tw-id: an id is not empty"),
        ([(b"tw-id", None)], "header tw-id: an id is not empty"),
        ([(b"tw-id", b"a"), (b"tw-id", b"a")], "header tw-id: a record has one id"),
        ([(b"tw-id", b"x" * 65)], "header tw-id: the id has 65 bytes, more than 64"),
        ([(b"tw-tags", b"a")], "header tw-tags: no header of the prefix tw- has this name"),
        ([(b"tw-", b"a")], "header tw-: no header of the prefix tw- has this name"),
        ([(b"tw-\xff\n", b"")], "header tw-\\\\xff\\n: no header of the prefix tw- has this name"),
        *[([(key, b"1")], f"header {key.decode()}: {ELSEWHERE}") for key in sorted(NACK_HEADERS)],
    ],
)
def test_what_is_refused(record: list[tuple[bytes, bytes | None]], problem: str) -> None:
    fine = ((b"tw-tag", b"a"), (b"tw-id", b"1"))
    assert problems(fine, tuple(record), fine) == [(1, problem)]


def test_all_that_are_refused_are_named_in_their_order() -> None:
    unknown, empty = ((b"tw-no", b""),), ((b"tw-tag", b""),)
    found = problems(empty, (), unknown, empty)
    assert [index for index, _ in found] == [0, 2, 3]


def test_a_long_name_is_cut() -> None:
    ((_, problem),) = problems(((b"tw-" + b"x" * 5000, b""),))
    assert len(problem) < 200


def test_what_is_told_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "PROBLEMS_MAX", 3)
    monkeypatch.setattr(headers, "OTHER_HEADERS_MAX", 5)
    unknown, empty = ((b"tw-no", b""),), ((b"tw-tag", b""),)
    assert [index for index, _ in problems(*[unknown] * 5)] == [0, 1, 2]
    assert [index for index, _ in problems(*[empty] * 7)] == [0, 1, 2]
    fine = ((b"tw-id", b"1"),)
    assert problems(*[fine] * 5) == []
    assert problems(*[fine] * 6) == [(5, "more than 5 headers of the batch begin with tw-")]


def test_very_many_tags_of_a_record_cost_little() -> None:
    """One by one: put together they would be 500 GB."""
    ((index, problem),) = problems(((b"tw-tag", b"1"),) * 900_000)
    assert (index, "more than 64 tags" in problem) == (0, True)


def test_what_is_remembered_is_bounded() -> None:
    rules = HeaderRules()
    count = headers.REMEMBERED_MAX + 10
    records = [NewRecord(0, None, None, ((b"tw-tag", b"%d" % number),)) for number in range(count)]
    batch = build_batch(records)
    assert rules.problems(batch, 61, len(batch), count) == []
    assert 0 < len(rules._sound) <= headers.REMEMBERED_MAX
    large = [
        NewRecord(0, None, None, tuple((b"tw-tag", b"%03d" % number * 40) for number in range(9)))
    ]
    batch = build_batch(large)
    rules = HeaderRules()
    assert rules.problems(batch, 61, len(batch), 1) == []
    assert not rules._sound
