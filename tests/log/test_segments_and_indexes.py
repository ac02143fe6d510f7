"""The sparse indexes: their files, byte for byte Kafka's, and what is found through them."""

from __future__ import annotations

import copy
import struct
from bisect import bisect_right
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log import reads
from data_plane.log.errors import CorruptSegment, LogNotLoaded
from data_plane.log.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    AbortedTransaction,
    InvalidIndex,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    encode_aborted,
)
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.log import Log
from data_plane.log.segment_checks import largest_timestamp, load_indexes
from data_plane.wire import kernel
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import START_MS, OneLog, batch_of
from tests.log.test_corruption import served
from tests.log.world import read_all

INT32_MAX = 2**31 - 1
FAR = 1 << 62

increasing = st.lists(
    st.tuples(st.integers(0, INT32_MAX), st.integers(0, INT32_MAX)), max_size=30, unique=True
).map(
    lambda pairs: list(
        zip(
            sorted({offset for offset, _ in pairs}),
            sorted({position for _, position in pairs}),
            strict=False,
        )
    )
)


def offset_index(entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


@given(increasing, st.integers(0, INT32_MAX))
def test_an_offset_is_looked_up_from_the_greatest_entry_below(
    entries: list[tuple[int, int]], target: int
) -> None:
    index = offset_index(entries)
    below = [position for offset, position in entries if offset <= target]
    assert index.position_for(target) == (below[-1] if below else 0)
    positions = [position for _, position in entries]
    at = bisect_right(positions, target)
    assert index.boundary_at_or_below(target) == (positions[at - 1] if at else 0)
    assert index.boundary_above(target) == (positions[at] if at < len(positions) else None)


@given(increasing)
def test_offset_index_files_hold_pairs_of_32_bits(entries: list[tuple[int, int]]) -> None:
    index = offset_index(entries)
    data = index.encode()
    assert data == b"".join(struct.pack(">II", *entry) for entry in entries)
    again = OffsetIndex.decode(data, INT32_MAX + 1)
    assert again.encode() == data
    assert len(again) * OFFSET_ENTRY_BYTES == len(data)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(-1, 52))
def test_time_index_entries_increase_and_lead_to_no_later_offset(
    offered: list[tuple[int, int]], target: int
) -> None:
    index = TimeIndex()
    kept: list[tuple[int, int]] = []
    for timestamp, offset in offered:
        index.append_if_later(timestamp, offset)
        if not kept or (timestamp > kept[-1][0] and offset > kept[-1][1]):
            kept.append((timestamp, offset))
    data = index.encode()
    assert data == b"".join(struct.pack(">qI", *entry) for entry in kept)
    again = TimeIndex.decode(data)
    assert again.encode() == data
    assert len(again) * TIME_ENTRY_BYTES == len(index) * TIME_ENTRY_BYTES == len(data)
    earlier = [offset for timestamp, offset in kept if timestamp < target]
    assert index.offset_for(target) == (earlier[-1] if earlier else 0)
    assert index.last == (kept[-1] if kept else None)


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        bytes(16),
        struct.pack(">IIII", 5, 10, 5, 20),
        struct.pack(">IIII", 5, 10, 6, 10),
        struct.pack(">IIII", 5, 10, 4, 20),
        struct.pack(">II", 5, 1000),
    ],
)
def test_an_offset_index_that_cannot_be_true_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidIndex):
        OffsetIndex.decode(data, 1000)


@pytest.mark.parametrize(
    "data",
    [bytes(11), bytes(24), struct.pack(">qIqI", 5, 1, 5, 2), struct.pack(">qIqI", 5, 2, 6, 2)],
)
def test_a_time_index_that_cannot_be_true_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidIndex):
        TimeIndex.decode(data)


def test_transaction_index_files() -> None:
    entries = [AbortedTransaction(7, 10, 14, 12), AbortedTransaction(8, 12, 19, 20)]
    data = encode_aborted(entries)
    assert data == struct.pack(">hqqqq", 0, 7, 10, 14, 12) + struct.pack(">hqqqq", 0, 8, 12, 19, 20)
    assert decode_aborted(data, 10, 20) == entries
    for damaged in (data[:-1], data[34:] + data[:34], b"\1" + data[1:]):
        with pytest.raises(InvalidIndex):
            decode_aborted(damaged, 10, 20)
    for base_offset, end_offset in ((10, 19), (15, 20)):
        with pytest.raises(InvalidIndex):
            decode_aborted(data, base_offset, end_offset)


def test_entries_stand_index_interval_bytes_apart() -> None:
    one = OneLog(segment_bytes=1 << 20, index_interval_bytes=1000)
    for index in range(60):
        one.now_ms = START_MS + index
        one.fill(1, value_bytes=30 + index * 7 % 50)
    one.log.roll()
    data = b"".join(read_all(one.log))
    positions = {header.position: header for header in iter_batch_headers(data, 0, len(data))}
    entries = list(struct.iter_unpack(">II", one.content(f"{0:020d}.index")))
    times = list(struct.iter_unpack(">qI", one.content(f"{0:020d}.timeindex")))
    assert len(entries) > 4
    last = 0
    for offset, position in entries:
        assert positions[position].last_offset == offset
        assert position - last >= 1000
        last = position
    assert [offset for _, offset in times] == [*(offset for offset, _ in entries), 59]
    assert [time - START_MS for time, _ in times] == [offset for _, offset in times]


@pytest.mark.parametrize("interval_bytes", [0, 300, 5000, 1 << 30])
def test_every_offset_and_time_is_found_whatever_the_interval(interval_bytes: int) -> None:
    one = OneLog(segment_bytes=3000, index_interval_bytes=interval_bytes)
    times = [START_MS + index * 7 % 40 for index in range(0, 90, 3)]
    for first in range(0, 30, 3):
        one.append(
            batch_of(*[b"v" * 80] * 3, timestamps=times[first : first + 3], compression=first % 2)
        )
    for how in ("", "restart", "kill"):
        if how:
            getattr(one, how)()
        one.log.load()
        for offset in range(30):
            result = one.log.read_cold(offset, 1, max_offset=FAR, at_least_one_batch=True)
            header = next(iter_batch_headers(result.buffers[0], 0, result.size))
            assert header.base_offset == offset - offset % 3
            assert result.next_offset == header.next_offset
        for time in range(START_MS - 1, START_MS + 42):
            found = one.log.offset_for_timestamp(time, max_offset=30)
            expected = next((i for i, other in enumerate(times) if other >= time), None)
            assert (None if found is None else found[0]) == expected
        highest = max(times)
        assert one.log.max_timestamp_offset(max_offset=30) == (times.index(highest), highest, 0)


def test_look_ups_by_time_keep_to_the_visible_part_of_a_batch() -> None:
    one = OneLog()
    one.append(batch_of(*[b"v"] * 4, timestamps=[70, 90, 80, 60]))
    one.append(batch_of(*[b"v"] * 2, timestamps=[85, 95]))
    assert one.log.max_timestamp_offset(max_offset=5) == (1, 90, 0)
    one.log.delete_records(2)
    assert one.log.offset_for_timestamp(65, max_offset=6) == (2, 80, 0)
    assert one.log.offset_for_timestamp(85, max_offset=6) == (4, 85, 0)
    assert one.log.offset_for_timestamp(85, max_offset=4) is None
    assert one.log.max_timestamp_offset(max_offset=6) == (5, 95, 0)
    assert one.log.max_timestamp_offset(max_offset=5) == (4, 85, 0)
    assert one.log.max_timestamp_offset(max_offset=3) == (2, 80, 0)
    assert one.log.max_timestamp_offset(max_offset=2) is None


def test_a_time_index_names_the_last_offset_of_the_batch() -> None:
    """As Kafka's does."""
    one = OneLog(index_interval_bytes=0)
    for _ in range(3):
        one.append(batch_of(*[b"v"] * 3, timestamps=[10, 50, 20]))
    one.append(batch_of(*[b"v"] * 3, timestamps=[60, 40, 20]))
    one.log.roll()
    assert list(TimeIndex.decode(one.content(f"{0:020d}.timeindex")).entries()) == [
        (2, 50),
        (11, 60),
    ]


def test_a_time_index_without_its_last_entry_is_made_again_at_the_first_read() -> None:
    one = OneLog(segment_bytes=600, index_interval_bytes=0)
    for _ in range(8):
        one.fill(1)
        one.now_ms += 10
    largest = largest_timestamp(one.log.segments[0])
    one.manager.close(one.now_ms)
    one.fs.process_death()
    name = one.names(".timeindex")[0]
    file = one.fs.open(f"{one.log.folder}/{name}")
    file.truncate(file.size() - TIME_ENTRY.size)
    one.open()
    one.log.load()
    one.log.read_cold(0, 1, max_offset=FAR, at_least_one_batch=True)
    assert largest_timestamp(one.log.segments[0]) == largest


def test_an_empty_time_index_makes_no_segment_old() -> None:
    """A power loss may leave the file's name and nothing in it."""
    one = OneLog(segment_bytes=600)
    one.fill(8)
    one.manager.close(one.now_ms)
    one.fs.process_death()
    name = one.names(".timeindex")[0]
    one.fs.open(f"{one.log.folder}/{name}").truncate(0)
    one.open()
    one.set_config(retention_ms=1000)
    one.log.advance_high_watermark(8)
    assert largest_timestamp(one.log.segments[0]) == START_MS
    assert one.log.apply_retention(one.now_ms) == 0


def test_the_newest_visible_record_is_found_below_newer_ones() -> None:
    """Neither the index nor the largest timestamp of a segment visible in part says where."""
    one = OneLog(segment_bytes=300, index_interval_bytes=0)
    for timestamps in ((50, 10, 80, 90), (20, 95)):
        for timestamp in timestamps:
            one.append(batch_of(b"v", timestamps=[timestamp]))
        one.log.roll()
    assert [segment.base_offset for segment in one.log.segments] == [0, 4, 6]
    assert one.log.max_timestamp_offset(max_offset=2) == (0, 50, 0)
    assert one.log.max_timestamp_offset(max_offset=5) == (3, 90, 0)
    assert one.log.max_timestamp_offset(max_offset=6) == (5, 95, 0)


@pytest.mark.parametrize("compression", [0, 1])
def test_look_ups_by_time_make_no_objects_of_records(
    compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneLog()
    one.append(batch_of(*[b"v"] * 4, timestamps=[70, 90, 80, 60], compression=compression))
    one.log.delete_records(2)

    def refuse(*_: object) -> None:
        raise AssertionError("records were made into objects")

    for name in ("decode_records", "outline_records", "list_keys"):
        monkeypatch.setattr(kernel, name, refuse)
    assert one.log.offset_for_timestamp(65, max_offset=4) == (2, 80, 0)
    assert one.log.max_timestamp_offset(max_offset=4) == (2, 80, 0)
    assert one.log.max_timestamp_offset(max_offset=3) == (2, 80, 0)


def test_lost_indexes_are_made_again_as_they_were() -> None:
    one = OneLog(segment_bytes=20_000, index_interval_bytes=4096)
    for index in range(300):
        one.now_ms = START_MS + index
        one.fill(1)
    one.log.flush()
    names = [name for name in one.names() if name.endswith((".index", ".timeindex"))]
    written = {name: one.content(name) for name in names}
    assert len(written) >= 4
    one.manager.close(one.now_ms)
    one.fs.process_death()
    for name in names:
        one.unlink(name)
    one.open()
    for segment in one.log.segments[:-1]:
        load_indexes(segment, segment.open_file())
        assert segment.offset_index is not None
        assert segment.time_index is not None
        assert segment.offset_index.encode() == written[f"{segment.base_offset:020d}.index"]
        assert segment.time_index.encode() == written[f"{segment.base_offset:020d}.timeindex"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_in_an_index_leads_no_search_by_time_astray(suffix: str) -> None:
    one = OneLog(segment_bytes=1500, index_interval_bytes=200)
    for number in range(30):
        one.append(batch_of(bytes(60), timestamps=[START_MS + 10 * number]))
    one.manager.close(one.now_ms)
    one.fs.process_death()
    original = one.fs
    name = one.names(suffix)[1]
    path = f"{one.log.folder}/{name}"
    first = int(name[:20])
    for bit in range(len(one.content(name)) * 8):
        one.fs = copy.deepcopy(original)
        one.fs.flip_bit(path, bit // 8, bit % 8)
        # From the front, where other entries are looked at first, and from the back.
        for numbers in (range(first, first + 12), range(first + 11, first - 1, -1)):
            one.open()
            one.log.load()
            for number in numbers:
                found = one.log.offset_for_timestamp(START_MS + 10 * number - 5, max_offset=30)
                assert found == (number, START_MS + 10 * number, 0), f"bit {bit}"
            assert one.log.max_timestamp_offset(max_offset=30) == (29, START_MS + 290, 0)
            one.manager.close(one.now_ms)
            one.fs.process_death()


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_in_an_index_leads_no_reader_astray(
    suffix: str, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        # Too large to be checked as a whole before the first read.
        monkeypatch.setattr(reads, "FIRST_READ_CHECK_BYTES_MAX", 0)
    one = OneLog(segment_bytes=1500, index_interval_bytes=200)
    for _ in range(30):
        one.now_ms += 1
        one.fill(1, value_bytes=60)
    expected = served(one.log)
    largest = largest_timestamp(one.log.segments[1])
    one.manager.close(one.now_ms)
    one.fs.process_death()
    original = one.fs
    name = one.names(suffix)[1]
    path = f"{one.log.folder}/{name}"
    base_offset = int(name[:20])
    size = len(one.content(name))
    assert size >= 32, size
    for bit in range(size * 8):
        one.fs = copy.deepcopy(original)
        one.fs.flip_bit(path, bit // 8, bit % 8)
        one.open()
        one.log.load()
        one.log.advance_high_watermark(30)
        for offset in range(base_offset, base_offset + 10):
            try:
                result = one.log.read_cold(offset, 1, max_offset=FAR, at_least_one_batch=True)
            except CorruptSegment:
                pytest.fail(f"bit {bit}: offset {offset} cannot be read")
            assert bytes(result.buffers[0]) == expected[offset], f"bit {bit}, offset {offset}"
        if not is_large:
            assert largest_timestamp(one.log.segments[1]) == largest, f"bit {bit}"


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=12),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(-1, 10),
)
def test_leader_epochs_are_those_of_the_batches(
    steps: list[tuple[int, int]], start: int, end: int, asked: int
) -> None:
    """Against a list with the epoch of every offset: from the epoch of the last record that the log
    has deleted on."""
    by_offset: list[int] = []
    epochs = LeaderEpochs()
    epoch = 0
    for bump, count in steps:
        epoch += bump if bump > 5 else 0
        epochs.assign(epoch, len(by_offset))
        by_offset += [epoch] * count
    again = LeaderEpochs()
    again.restore(epochs.encode())
    assert again.entries == epochs.entries
    end = min(end, len(by_offset))
    epochs.truncate_from_end(end)
    del by_offset[end:]
    start = min(start, end)
    epochs.truncate_from_start(start)
    known_from = by_offset.index(by_offset[start - 1]) if start else 0
    for offset in range(known_from, end):
        assert epochs.epoch_at(offset) == by_offset[offset]
    assert epochs.epoch_at(known_from - 1) == -1
    if end:
        assert epochs.latest_epoch == by_offset[-1]
        inside = by_offset[known_from:]
        found = epochs.end_offset_for(asked, end)
        if asked < 0 or asked > inside[-1]:
            assert found == (-1, -1)
        else:
            known = [one for one in inside if one <= asked]
            above = [known_from + i for i, one in enumerate(inside) if one > asked]
            assert found == (known[-1] if known else asked, above[0] if above else end)


def test_leader_epochs_at_the_very_place_of_a_cut() -> None:
    epochs = LeaderEpochs()
    for epoch, start_offset in ((2, 0), (4, 10), (7, 20)):
        epochs.assign(epoch, start_offset)
    epochs.truncate_from_end(20)
    assert epochs.entries == [(2, 0), (4, 10)]
    epochs.truncate_from_start(10)
    assert epochs.entries == [(2, 0), (4, 10)]
    epochs.truncate_from_start(11)
    assert epochs.entries == [(4, 10)]
    epochs.truncate_from_end(10)
    assert (epochs.entries, epochs.latest_epoch) == ([], -1)
    epochs.assign(3, 10)
    assert epochs.entries == [(3, 10)]


def test_a_file_of_leader_epochs_that_is_cut_off_is_refused() -> None:
    epochs = LeaderEpochs()
    for epoch in range(3):
        epochs.assign(epoch, 10 * epoch)
    lines = epochs.encode().splitlines(keepends=True)
    for count in range(len(lines)):
        with pytest.raises(ValueError):  # noqa: PT011 -- whatever is missing
            LeaderEpochs().restore(b"".join(lines[:count]))


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.read_cold(0, 100, max_offset=FAR, at_least_one_batch=True),
        lambda log: log.offset_for_timestamp(0, max_offset=FAR),
        lambda log: log.max_timestamp_offset(max_offset=FAR),
    ],
)
def test_worker_threads_do_not_load(use: Callable[[Log], object]) -> None:
    one = OneLog()
    one.append(batch_of(b"here"))
    one.restart()
    for _ in range(2):
        # An empty answer would say that there is nothing, and loading is the loop's.
        with pytest.raises(LogNotLoaded, match="load the log"):
            use(one.log)
        assert not one.log.is_loaded
        one.log.load()
        assert use(one.log)
        one.log.unload()
