"""Where the batches appended last begin is known without a look at the file: reads that use it are
the reads that the sparse index gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.batch_walk import BadRange
from data_plane.log.reads import ReadResult
from data_plane.log.segment import RECENT_BATCHES_MIN, Segment
from tests.log.one_log import OneLog, batch_of

# Often more of them than are remembered.
SIZES = st.builds(
    lambda count, sizes: [50] * count + sizes,
    st.integers(0, 3 * RECENT_BATCHES_MIN),
    st.lists(st.integers(1, 400), min_size=1, max_size=10),
)


def read(one: OneLog, offset: int, max_bytes: int, max_offset: int, at_least: bool) -> ReadResult:
    return one.log.read(offset, max_bytes, max_offset=max_offset, at_least_one_batch=at_least)


def as_bytes(result: ReadResult) -> tuple[bytes, int, bool, int]:
    return (
        b"".join(map(bytes, result.buffers)),
        result.size,
        result.is_cold,
        result.next_offset,
    )


def check_reads(one: OneLog, data: st.DataObject) -> None:
    """Any reads, with what is known of recent batches and without."""
    end = one.log.log_end_offset
    places = [position for segment in one.log.segments for position, _ in starts(segment)]
    sizes = [high - low for low in places for high in places if high > low]
    for _ in range(8):
        offset = data.draw(st.integers(one.log.log_start_offset, end))
        max_offset = data.draw(st.integers(offset, end))
        exact = st.sampled_from(sizes) if sizes else st.nothing()
        max_bytes = data.draw(st.integers(0, 6_000) | exact)
        arguments = (offset, max_bytes, max_offset, data.draw(st.booleans()))
        found = as_bytes(read(one, *arguments))
        known = [(segment._recent, segment._hints) for segment in one.log.segments]
        for segment in one.log.segments:
            segment.forget_hints()
        assert found == as_bytes(read(one, *arguments))
        for segment, (recent, hints) in zip(one.log.segments, known, strict=True):
            segment._recent, segment._hints = recent, hints


def fill(one: OneLog, sizes: list[int]) -> None:
    for size in sizes:
        one.append(batch_of(*[b"v" * size] * (1 + size % 3)))


def starts(segment: Segment) -> list[tuple[int, int]]:
    """(position, base offset) of the batches that are known, which are the last ones, in order."""
    return list(segment._recent or ())


@given(st.data(), SIZES)
def test_reads_are_those_of_the_sparse_index(data: st.DataObject, sizes: list[int]) -> None:
    one = OneLog(segment_bytes=data.draw(st.sampled_from([2_000, 100_000])))
    fill(one, sizes)
    check_reads(one, data)


@given(st.data(), SIZES, SIZES)
def test_nothing_of_a_truncated_log_is_remembered(
    data: st.DataObject, sizes: list[int], later: list[int]
) -> None:
    one = OneLog(segment_bytes=100_000)
    fill(one, sizes)
    one.log.truncate_to(data.draw(st.integers(0, one.log.log_end_offset)))
    check_reads(one, data)
    fill(one, later)
    check_reads(one, data)


def test_so_many_batches_are_known_and_a_sealed_segment_keeps_none() -> None:
    one = OneLog(segment_bytes=1 << 20)
    for count in range(1, 5 * RECENT_BATCHES_MIN):
        one.fill(1)
        known = starts(one.log.segments[-1])
        assert len(known) >= min(count, RECENT_BATCHES_MIN)
        assert len(known) <= 2 * RECENT_BATCHES_MIN
        size = one.log.size_bytes // count
        assert known[-1][1] == count - 1
        assert abs(known[-1][0] - one.log.size_bytes + size) < 10
    one.log.roll()
    assert starts(one.log.segments[0]) == []
    one.fill(2)
    active = one.log.segments[-1]
    assert len(starts(active)) == 2
    # To be walked once more, from its first batch on.
    active.start_indexes()
    assert starts(active) == []


def test_what_turns_out_bad_is_not_found_by_memory() -> None:
    one = OneLog(segment_bytes=1 << 20)
    one.fill(4)
    segment = one.log.segments[-1]
    (second, _), (third, _) = starts(segment)[1:3]
    segment.add_bad_ranges([BadRange(second, third, "flipped")])
    assert starts(segment) == []
    found = read(one, 0, 1 << 20, 4, True)
    assert (found.size, found.next_offset) == (second, 1)
