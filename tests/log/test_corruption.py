"""A flipped bit in a stored segment: found, told with file and position, and never served."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from data_plane.log import batch_walk, reads
from data_plane.log.errors import CorruptSegment
from data_plane.log.log import Log
from data_plane.log.scrubber import ScrubJob
from data_plane.log.segment_checks import load_indexes
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import OneLog, batch_of

FAR = 1 << 62
SEGMENT = "00000000000000000010.log"
# Ten batches of one record to a segment, so the flipped one has neighbours on both sides.
BASE_OFFSET, END_OFFSET = 10, 25
BATCH_BYTES = 170
# A later epoch in the last batch of a segment may be a true one: nothing in the segment speaks
# against it.
LAST_OFFSET = 19
LEADER_EPOCH_FIELD = range(12, 16)


def served(log: Log) -> dict[int, bytes]:
    """All batches that a patient reader gets, offset by offset, stepping over what is refused."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, 100_000, max_offset=FAR, at_least_one_batch=True)
            if result.is_cold:
                result = log.read_cold(offset, 100_000, max_offset=FAR, at_least_one_batch=True)
        except CorruptSegment:
            offset += 1
            continue
        data = b"".join(bytes(one) for one in result.buffers)
        for header in iter_batch_headers(data, 0, len(data)):
            found[header.base_offset] = data[header.position : header.end_position]
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def filled(*, is_clean: bool) -> tuple[SimFileSystem, dict[int, bytes]]:
    """A disk with a log of three segments, stopped cleanly or killed, and what the log held."""
    one = OneLog(segment_bytes=BATCH_BYTES * 10 + 100, retention_ms=-1)
    one.fill(END_OFFSET, BATCH_BYTES - 61 - 9)
    assert one.names(".log") == [f"{base:020d}.log" for base in (0, 10, 20)]
    expected = served(one.log)
    assert sorted(expected) == list(range(END_OFFSET))
    assert {len(data) for data in expected.values()} == {BATCH_BYTES}
    if is_clean:
        one.manager.close(one.now_ms)
    one.fs.process_death()
    return one.fs, expected


def reopened(fs: SimFileSystem) -> OneLog:
    one = OneLog.__new__(OneLog)
    one.__dict__.update(OneLog().__dict__)
    one.fs = fs
    one.open()
    return one


def by_reading(log: Log) -> None:
    """Nothing: the first read is what finds it."""


def by_scrubbing(log: Log) -> None:
    job = ScrubJob([(log, segment) for segment in log.segments if segment.sealed])
    job.run()
    job.finish()
    assert log.log_directory.reports


FINDERS: list[tuple[Callable[[Log], None], bool]] = [
    (by_reading, True),
    (by_scrubbing, True),
    (by_reading, False),
]


@pytest.mark.parametrize("damaged", [10, 14, LAST_OFFSET])
@pytest.mark.parametrize(("find", "is_clean"), FINDERS, ids=["read", "scrub", "recovery"])
def test_a_flipped_bit_is_told_and_its_batch_is_not_served(
    find: Callable[[Log], None], is_clean: bool, damaged: int
) -> None:
    original, expected = filled(is_clean=is_clean)
    # Base offset and leader epoch, the first 16 bytes, are not covered by the CRC.
    start = (damaged - BASE_OFFSET) * BATCH_BYTES
    for byte in range(BATCH_BYTES):
        if damaged == LAST_OFFSET and byte in LEADER_EPOCH_FIELD:
            continue
        fs = copy.deepcopy(original)
        path = next(iter(_paths(fs)))
        fs.flip_bit(path, start + byte, byte * 5 % 8)
        one = reopened(fs)
        if not is_clean:
            assert one.manager.recovered_logs == 1
            assert one.log.log_directory.reports, f"recovery overlooked byte {byte}"
        find(one.log)
        got = served(one.log)
        reports = one.manager.take_corruption_reports()
        assert damaged not in got, f"byte {byte}: a damaged batch is served"
        others = {offset: data for offset, data in expected.items() if offset != damaged}
        assert got == others, f"byte {byte}: more is lost than is damaged"
        told = [(report.path, report.position) for report in reports]
        assert told == [(path, start)], f"byte {byte}"
        # Told once, not for each reader.
        assert served(one.log) == got
        assert one.manager.take_corruption_reports() == []


def _paths(fs: SimFileSystem) -> list[str]:
    folder = "/data/topics"
    for _ in range(2):
        folder = f"{folder}/{fs.list_directory(folder)[0]}"
    return [f"{folder}/{SEGMENT}"]


def test_of_a_segment_too_large_to_check_at_once_what_is_served_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "FIRST_READ_CHECK_BYTES_MAX", 1)
    fs, expected = filled(is_clean=True)
    one = reopened(fs)
    one.log.load()
    one.log.advance_high_watermark(END_OFFSET)
    for offset in (14, 17):
        fs.flip_bit(f"{one.log.folder}/{SEGMENT}", (offset - 10) * BATCH_BYTES + 100)

    def read(offset: int) -> list[int]:
        result = one.log.read_cold(offset, 2 * BATCH_BYTES, max_offset=FAR, at_least_one_batch=True)
        data = b"".join(bytes(each) for each in result.buffers)
        return [header.base_offset for header in iter_batch_headers(data, 0, len(data))]

    assert read(10) == [10, 11]
    assert one.manager.take_corruption_reports() == []
    assert read(13) == [13]
    for offset in (14, 17, 14, 17):
        with pytest.raises(CorruptSegment):
            read(offset)
    assert read(15) == [15, 16]
    reports = one.manager.take_corruption_reports()
    assert [report.position for report in reports] == [4 * BATCH_BYTES, 7 * BATCH_BYTES]
    del expected[14], expected[17]
    assert served(one.log) == expected


def test_what_was_not_checked_yet_is_not_served_from_memory() -> None:
    """Not even when a look-up has brought the indexes that show where it stands."""
    fs, _ = filled(is_clean=True)
    one = reopened(fs)
    one.log.load()
    one.log.advance_high_watermark(END_OFFSET)
    fs.flip_bit(f"{one.log.folder}/{SEGMENT}", 4 * BATCH_BYTES + 100)
    assert one.log.offset_for_timestamp(0, max_offset=END_OFFSET) == (0, one.now_ms, 0)
    for segment in one.log.segments:
        load_indexes(segment, segment.open_file())
    assert one.log.read(14, 1, max_offset=FAR, at_least_one_batch=True).is_cold
    with pytest.raises(CorruptSegment):
        one.log.read_cold(14, 1, max_offset=FAR, at_least_one_batch=True)


def with_one_damaged(byte: int) -> tuple[OneLog, int]:
    """A log, and the time of its first record. In a segment of eight batches of one record, 10 ms
    apart, the one at offset 3 is damaged at its byte `byte`, and that is known; the indexes have
    been made again without it."""
    one = OneLog(segment_bytes=3000)
    start_ms = one.now_ms
    for _ in range(8):
        one.fill(1)
        one.now_ms += 10
    one.log.roll()
    size = one.log.segments[0].size // 8
    one.log.flush()
    one.fs.flip_bit(one.log.segments[0].path(), 3 * size + byte)
    one.restart()
    one.log.load()
    by_scrubbing(one.log)
    return one, start_ms


@pytest.mark.parametrize(
    "byte", [11, 34, 42, 100], ids=["length", "timestamp", "maximum", "record"]
)
def test_a_search_by_time_says_that_there_is_damage_in_its_way(byte: int) -> None:
    """What is damaged says nothing of times or of where the next batch begins."""
    one, start_ms = with_one_damaged(byte)
    for wanted in (0, 20):
        found = one.log.offset_for_timestamp(start_ms + wanted, max_offset=8)
        assert found == (wanted // 10, start_ms + wanted, 0)
    # It may be the first at or after any of these, whatever it says.
    for wanted in (21, 30, 40):
        with pytest.raises(CorruptSegment):
            one.log.offset_for_timestamp(start_ms + wanted, max_offset=8)
    with pytest.raises(CorruptSegment):
        one.log.max_timestamp_offset(max_offset=5)
    # But for searches that end in front of it or begin behind it.
    assert one.log.offset_for_timestamp(start_ms + 50, max_offset=8) == (5, start_ms + 50, 0)
    assert one.log.offset_for_timestamp(start_ms + 21, max_offset=3) is None
    assert one.log.max_timestamp_offset(max_offset=3) == (2, start_ms + 20, 0)
    one.log.delete_records(3)
    with pytest.raises(CorruptSegment):
        one.log.offset_for_timestamp(start_ms, max_offset=8)
    one.log.delete_records(4)
    assert one.log.offset_for_timestamp(start_ms, max_offset=8) == (4, start_ms + 40, 0)
    assert one.log.max_timestamp_offset(max_offset=8) == (7, start_ms + 70, 0)


@pytest.mark.parametrize("is_known", [True, False])
def test_damage_at_the_end_of_a_segment_is_in_the_way_of_what_lies_behind(is_known: bool) -> None:
    one = OneLog(segment_bytes=3000, index_interval_bytes=1 << 20)
    start_ms = one.now_ms
    for _ in range(8):
        one.fill(1)
    one.log.roll()
    size = one.log.segments[0].size // 8
    one.now_ms += 10
    one.fill(1)
    one.log.flush()
    one.restart()
    one.log.load()
    one.fs.flip_bit(one.log.segments[0].path(), 7 * size + 11)
    if is_known:
        by_scrubbing(one.log)
    # The whole segment is older.
    found = one.log.offset_for_timestamp(start_ms + 1, max_offset=9)
    assert found == (8, start_ms + 10, 0)
    one.log.delete_records(7)
    with pytest.raises(CorruptSegment):
        one.log.offset_for_timestamp(start_ms, max_offset=9)
    one.log.delete_records(8)
    assert one.log.offset_for_timestamp(start_ms, max_offset=9) == (8, start_ms + 10, 0)


def test_damage_in_front_of_a_cut_says_nothing_of_producers() -> None:
    """Where the snapshot of the cut is lost, they are made again from the sound batches."""
    one = OneLog(segment_bytes=1000)
    for sequence in range(20):
        producer = (6, 0, 0) if sequence == 3 else (5, sequence, 0)
        one.append(batch_of(bytes(100), producer=producer))
    first, last = one.log.segments[0], one.log.segments[-1]
    one.log.flush()
    one.fs.flip_bit(first.path(), first.size // first.next_offset + 11)
    for name in one.names(".snapshot"):
        one.unlink(name)
    one.restart()
    one.log.load()
    by_scrubbing(one.log)
    one.log.truncate_to(last.base_offset + 1)
    assert set(one.log.producers.producers) == {5, 6}
    assert one.log.producers.producers[5].producer_epoch == last.base_offset


def test_a_sound_batch_is_found_wherever_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it lies across two of the pieces that are read."""
    monkeypatch.setattr(batch_walk, "WALK_CHUNK_BYTES", 150)
    batch = bytes(batch_of(b"v"))
    fs = SimFileSystem()
    for start in range(1, 320):
        file = fs.open(f"/{start}", create=True)
        # Each byte may be the magic one.
        file.write_at(0, b"\2" * start + batch)
        size = start + len(batch)
        assert batch_walk.find_sound_batch(file, 0, size) == start
        assert batch_walk.find_sound_batch(file, start + 1, size) is None
        assert batch_walk.find_sound_batch(file, 0, size - 1) is None
