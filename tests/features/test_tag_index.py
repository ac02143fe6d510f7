"""Tag indexes: what they save reading, where they are kept, and what bounds them."""

from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c

from data_plane.broker.fetch import projected_reads, projected_searches
from data_plane.broker.fetch.projected_reads import Scan, SliceScan, UnreadableBatch
from data_plane.broker.fetch.projected_searches import TooMuchToRead
from data_plane.broker.fetch.projection import ProjectedPartition, Selection, SourceBatch
from data_plane.log.errors import CorruptSegment
from data_plane.log.segment import Segment
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch, iter_batch_headers
from features.filtering import indexed_records, tag_index, tag_indexes
from features.filtering.indexed_records import FilteredRecords
from features.filtering.language import Tag
from features.filtering.matching import Matcher
from features.filtering.tag_index import OTHERS, SegmentTags
from tests.features.tagged_log import TaggedLog, offsets_in

RARE, COMMON = Tag(b"rare"), Tag(b"common")
BLOCK_BYTES = 300
# No batch is smaller than its header.
PER_BLOCK_MAX = BLOCK_BYTES // 61


class Counting(FilteredRecords):
    """Knows which batches it was shown, by their base offsets."""

    def __init__(self, one: TaggedLog, tag: Tag) -> None:
        super().__init__(Matcher(tag), one.indexes)
        self.read: list[int] = []

    def select(self, batch: SourceBatch) -> Selection:
        self.read.append(batch.header.base_offset)
        return super().select(batch)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_indexes, "INDEX_FROM_BYTES", 1)
    monkeypatch.setattr(tag_index, "BLOCK_BYTES", BLOCK_BYTES)


def filled(count: int = 60, rare: tuple[int, ...] = (31, 47), **options: object) -> TaggedLog:
    """A batch of one record at each offset."""
    one = TaggedLog(**{"segment_bytes": 2_000, **options})
    for offset in range(count):
        one.put(["rare", "common"] if offset in rare else ["common"])
    return one


def tags_of(one: TaggedLog, segment: Segment) -> SegmentTags:
    tags = one.indexes.find(segment)
    assert tags is not None
    return tags


def test_only_blocks_with_a_match_are_read() -> None:
    one = filled()
    assert len(one.log.segments) > 2
    one.index()
    projection = Counting(one, RARE)
    assert offsets_in(one.shown(projection, 0, 60)) == [31, 47]
    assert len(projection.read) <= 2 * PER_BLOCK_MAX
    assert one.count(projection, 0, 60) == 2


def test_whole_blocks_are_counted_unread() -> None:
    one = filled()
    one.index()
    projection = Counting(one, COMMON)
    assert one.count(projection, 0, 60) == 60
    assert projection.read == []
    assert one.count(projection, 17, 60) == 43
    assert len(projection.read) <= PER_BLOCK_MAX


def test_what_is_on_the_disk_serves_a_cold_memory() -> None:
    one = filled()
    one.log.roll()
    one.index()
    assert len(one.names(".tags.side")) == len(one.log.segments) - 1
    one.restart()
    one.forget()
    one.log.load()
    one.commit()
    projection = Counting(one, RARE)
    assert offsets_in(one.shown(projection, 0, 60)) == [31, 47]
    assert len(projection.read) <= 2 * PER_BLOCK_MAX


def test_the_end_of_a_log_is_scanned_and_indexed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_indexes, "INDEX_FROM_BYTES", 500)
    one = filled(3, (2,), segment_bytes=100_000)
    one.index()
    assert one.indexes.find(one.log.active) is None
    projection = Counting(one, RARE)
    assert offsets_in(one.shown(projection, 0, 3)) == [2]
    for _ in range(20):
        one.put(["common"])
    # Whoever reads wants it.
    one.shown(projection, 0, 23)
    one.run_jobs()
    assert tags_of(one, one.log.active).next_offset == 23


def test_nothing_beyond_the_high_watermark_is_indexed() -> None:
    one = filled(20, segment_bytes=100_000)
    for _ in range(5):
        one.put(["common"], commit=False)
    one.index()
    assert tags_of(one, one.log.active).next_offset == 20


def test_what_was_cut_is_forgotten() -> None:
    one = filled(20, (), segment_bytes=100_000)
    one.index()
    one.truncate(10)
    for offset in range(10, 20):
        one.put(["rare"] if offset == 15 else ["common"])
    projection = Counting(one, RARE)
    assert offsets_in(one.shown(projection, 0, 20)) == [15]
    one.index()
    one.forget()
    assert offsets_in(one.shown(Counting(one, RARE), 0, 20)) == [15]


def test_a_slice_that_was_scanned_before_the_log_was_cut_counts_for_nothing() -> None:
    one = filled(40, (), segment_bytes=100_000)
    one.index()
    projection = one.projection(RARE)

    def cut() -> None:
        if one.epoch == 0:
            one.truncate(10)
            for _ in range(30):
                one.put(["rare"])

    with pytest.raises(AssertionError):
        # No progress.
        one.shown(projection, 0, 40, cut)
    assert offsets_in(one.shown(projection, 0, 40)) == list(range(10, 40))


@pytest.mark.parametrize("limit", ["SETS_MAX", "SET_BYTES_MAX", "POSTINGS_MAX"])
def test_without_bound_on_the_tags_what_is_too_much_is_read(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_index, limit, {"SET_BYTES_MAX": 60}.get(limit, 10))
    one = TaggedLog(segment_bytes=100_000)
    for offset in range(40):
        one.put([f"user:{offset}"])
    one.index()
    tags = tags_of(one, one.log.active)
    assert len(tags.sets) <= 1 + 10 or limit == "POSTINGS_MAX"
    assert tags.postings[OTHERS].blocks
    for user in (0, 39):
        projection = Counting(one, Tag(b"user:%d" % user))
        assert offsets_in(one.shown(projection, 0, 40)) == [user]
        assert one.count(projection, 0, 40) == 1
    # The first blocks say all.
    early = Counting(one, Tag(b"user:39"))
    one.shown(early, 0, 40)
    assert 0 not in early.read


def test_a_batch_with_attributes_of_later_versions_may_hold_anything() -> None:
    one = TaggedLog(segment_bytes=100_000)
    one.put(["a"])
    batch = build_batch([NewRecord(one.now_ms, None, b"later")])
    batch[22] |= 0x80
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    one.store(batch, commit=True)
    for _ in range(10):
        one.put(["a"])
    one.index()
    tags = tags_of(one, one.log.active)
    assert list(tags.postings[OTHERS].blocks) == [0]


def test_what_was_stored_is_what_is_read() -> None:
    one = TaggedLog(segment_bytes=100_000)
    rng = random.Random(3)
    for _ in range(50):
        lists = [rng.sample(["a", "b", "c"], rng.randrange(3)) for _ in range(3)]
        one.put(*lists, producer_id=rng.choice([-1, 5]))
        if rng.random() < 0.2:
            one.end_transaction(5, is_commit=rng.random() < 0.5)
    one.index()
    tags = tags_of(one, one.log.active)
    assert tags.prefix is not None
    copy = SegmentTags.decode(memoryview(tags.encode()), tags.prefix)
    assert copy.encode() == tags.encode()
    for name in ("starts", "sets", "numbers", "producers", "published", "memory_bytes"):
        assert getattr(copy, name) == getattr(tags, name)
    for cut in (0, 10, len(tags.encode()) - 1):
        with pytest.raises(ValueError, match=r"buffer|cut off"):
            SegmentTags.decode(memoryview(tags.encode())[:cut], tags.prefix)


def test_memory_is_bounded_and_what_was_dropped_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = filled()
    one.index()
    # Its index is whole, and not stored yet.
    one.log.roll()
    one.index()
    assert len(one.names(".tags.side")) == len(one.log.segments) - 1
    sizes = [tags_of(one, one_).memory_bytes for one_ in one.log.segments[:-1]]
    monkeypatch.setattr(tag_indexes, "MEMORY_BYTES_MAX", max(sizes) + 1)
    projection = Counting(one, RARE)
    assert offsets_in(one.shown(projection, 0, 60)) == [31, 47]
    one.indexes.keep(one.log.segments[0], tags_of(one, one.log.segments[0]))
    one.indexes.tick(one.now_ms)
    assert [one.indexes.find(one_) is not None for one_ in one.log.segments[:-1]].count(True) == 1
    projection.read.clear()
    assert offsets_in(one.shown(projection, 0, 60)) == [31, 47]
    assert len(projection.read) <= 2 * PER_BLOCK_MAX


def test_a_segment_has_so_many_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_records, "VIEWS_MAX", 2)
    one = filled(20, (), segment_bytes=100_000)
    one.index()
    projections = [one.projection(Tag(b"t%d" % number)) for number in range(3)]
    for projection in projections:
        one.shown(projection, 0, 20)
    assert 1 <= len(tags_of(one, one.log.active).views) <= 2


def test_a_count_that_would_read_too_much_fails_until_there_is_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(projected_searches, "SEARCH_BYTES_MAX", 1_000)
    monkeypatch.setattr(projected_searches, "END_BYTES_MAX", 0)
    monkeypatch.setattr(projected_searches, "READ_BYTES", 500)
    one = filled()
    projection = one.projection(RARE)
    with pytest.raises(TooMuchToRead) as caught:
        one.count(projection, 0, 60)
    assert caught.value.error_code is ErrorCode.REQUEST_TIMED_OUT
    for _ in range(len(one.log.segments)):
        # Each time more of it is known.
        one.run_jobs()
        try:
            assert one.count(projection, 0, 60) == 2
        except TooMuchToRead:
            continue
        return
    raise AssertionError("it never comes to an end")


def damaged() -> tuple[TaggedLog, int]:
    """A byte has changed in what this process has written, in the batch at offset 19; and where
    that one begins."""
    one = filled(40, (35,), segment_bytes=100_000)
    path = one.log.active.path()
    content = one.fs.read_file(path)
    file = one.fs.open(path)
    file.write_at(content.index(b"v20"), b"vXX")
    file.close()
    headers = iter_batch_headers(content, 0, len(content))
    return one, next(header.position for header in headers if header.base_offset == 19)


def test_damage_ends_an_index() -> None:
    one, position = damaged()
    one.index()
    tags = tags_of(one, one.log.active)
    assert tags.next_offset == 19
    assert tags.is_blocked
    one.indexes.want(one.log, one.log.active)
    assert one.indexes.next_deadline_ms() is None
    assert [bad.start for bad in one.log.active.bad_ranges or ()] == [position]
    # Nor is it counted.
    with pytest.raises(CorruptSegment):
        one.count(one.projection(RARE), 0, 40)


def test_damage_is_reported_by_the_thread_that_meets_it() -> None:
    one, position = damaged()
    with pytest.raises(UnreadableBatch):
        one.count(one.projection(RARE), 0, 40)
    assert [bad.start for bad in one.log.active.bad_ranges or ()] == [position]
    one, position = damaged()
    with pytest.raises(UnreadableBatch):
        one.shown(one.projection(RARE), 0, 40)
    assert [bad.start for bad in one.log.active.bad_ranges or ()] == [position]


def test_damage_that_the_loop_meets_is_looked_for_by_the_next_thread() -> None:
    one, position = damaged()
    log = one.log
    read = log.read(0, 1 << 20, max_offset=40, at_least_one_batch=True)
    scan = Scan(ProjectedPartition(b"", 0, one.projection(RARE)), 0)
    part = SliceScan(scan, log, 40, 1 << 20, read.buffers, read.next_offset)
    assert isinstance(part.run_at_once().error, UnreadableBatch)
    assert not log.active.bad_ranges
    assert log.read(0, 1 << 20, max_offset=40, at_least_one_batch=True).is_cold
    log.read_cold(0, 1 << 20, max_offset=40, at_least_one_batch=True)
    assert [bad.start for bad in log.active.bad_ranges or ()] == [position]


@pytest.mark.parametrize("limit", ["PASSED_AT_ONCE_MAX", "SLICE_READS_MAX"])
def test_what_one_look_and_one_turn_take_is_bounded(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        indexed_records if limit == "PASSED_AT_ONCE_MAX" else projected_reads, limit, 1
    )
    one = filled(80, (3, 31, 75))
    one.log.roll()
    one.index()
    turns: list[int] = []
    shown = one.shown(one.projection(RARE), 0, 80, lambda: turns.append(1))
    assert offsets_in(shown) == [3, 31, 75]
    assert len(turns) >= 3 or limit == "PASSED_AT_ONCE_MAX"
    # On the loop it looks at one segment.
    projection = Counting(one, RARE)
    one.shown(projection, 0, 80)
    second = one.log.segments[1].base_offset
    assert projection.candidates(one.log, 5, 80, has_shown=False)[0] <= second or (
        limit != "PASSED_AT_ONCE_MAX"
    )


def test_so_many_are_wanted_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    one = filled()
    monkeypatch.setattr(tag_indexes, "WANTED_MAX", 1)
    one.index()
    assert [one.indexes.find(segment) is not None for segment in one.log.segments] == [
        True,
        False,
        False,
    ]
    monkeypatch.setattr(tag_indexes, "WANTED_MAX", 10)
    monkeypatch.setattr(tag_indexes, "SEGMENTS_MAX", 2)
    one.index()
    kept = [one.indexes.find(segment) is not None for segment in one.log.segments]
    assert kept.count(True) == 2
