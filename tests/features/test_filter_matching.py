"""Filters applied to tags: what the plain way says, for one record and for batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.wire.records import NewRecord, build_batch
from features.filtering import matching
from features.filtering.language import Expression, parse_filter
from features.filtering.matching import Matcher
from features.filtering.tags import TAG_HEADER, split_tags
from tests.features.filters import EXPRESSIONS, TAG_LISTS, says


def stored(tags: list[str]) -> bytes:
    out = b""
    for tag in tags:
        data = tag.encode()
        size = 2 * len(data)
        while size > 127:
            out += bytes([size & 127 | 128])
            size >>= 7
        out += bytes([size]) + data
    return out


def record(tags: list[str]) -> NewRecord:
    headers = tuple((TAG_HEADER, tag.encode()) for tag in tags)
    return NewRecord(0, None, b"tw-tag", (*headers, (b"tw-tags", b"a"), (TAG_HEADER[:-1], b"a")))


@given(TAG_LISTS)
def test_stored_tags_are_taken_apart(tags: list[str]) -> None:
    assert [tag.decode() for tag in split_tags(stored(tags))] == tags


def test_a_null_is_an_empty_tag_and_long_sizes_are_read() -> None:
    assert list(split_tags(b"\x01" + stored(["a"]) + b"\x01")) == [b"", b"a", b""]
    assert list(split_tags(stored(["x" * 128, "y" * 70_000]))) == [b"x" * 128, b"y" * 70_000]


@given(EXPRESSIONS, st.lists(TAG_LISTS, min_size=1, max_size=20))
def test_the_plain_way_says_the_same(expression: Expression, records: list[list[str]]) -> None:
    matcher = Matcher(expression)
    expected = [says(expression, tags) for tags in records]
    assert [matcher.passes(stored(tags)) for tags in records] == expected
    batch = build_batch([record(tags) for tags in records])
    selected = Matcher(expression).select(batch, 61, len(batch), len(records))
    if isinstance(selected, bool):
        assert expected == [selected] * len(records)
    else:
        assert list(selected) == expected


def test_sizes_of_tags_are_read_as_the_kernel_reads_them() -> None:
    """A size may be written longer than it need be, and have bits that do not count."""
    odd = bytes([0x8A, 0x80, 0x80, 0x80, 0x10]) + b"alpha" + bytes([0x88, 0x00]) + b"beta"
    assert list(split_tags(odd)) == [b"alpha", b"beta"]


def test_a_record_with_too_many_tags_does_not_pass() -> None:
    records = [record(["a"]), record(["a"] * 65), record(["b"])]
    batch = build_batch(records)
    selected = Matcher(parse_filter("a")).select(batch, 61, len(batch), 3)
    assert selected == b"\x01\x00\x00"
    assert Matcher(parse_filter("not a")).select(batch, 61, len(batch), 3) == b"\x00\x00\x01"


def test_what_is_remembered_is_bounded() -> None:
    matcher = Matcher(parse_filter("a:7 or (b:* and not c)"))
    numbers = range(2 * matching.REMEMBERED_MAX + 10)
    records = [record([f"a:{number}"]) for number in numbers]
    batch = build_batch(records)
    selected = matcher.select(batch, 61, len(batch), len(records))
    assert isinstance(selected, bytes)
    assert [at for at, passes in enumerate(selected) if passes] == [7]
    assert len(matcher._by_set) <= matching.REMEMBERED_MAX
    for number in range(2 * matching.REMEMBERED_MAX):
        assert matcher.passes(stored([f"{number}" * 60, "a:7"]))
        assert matcher.passes(stored([f"{number:0120}"] * 5 + ["a:7"]))
    assert sum(map(len, matcher._by_set)) <= matching.REMEMBERED_BYTES_MAX
    assert max(map(len, matcher._by_set)) <= matching.SET_BYTES_MAX
