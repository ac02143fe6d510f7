"""What retention reads of segments that nobody has used since the start: the end of an index."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from data_plane.log.file_system import File
from data_plane.log.indexes import TIME_ENTRY
from tests.log.one_log import START_MS, OneLog, batch_of

SEGMENT_RECORDS = 40


def restarted(timestamps_start_ms: int = START_MS) -> OneLog:
    """A log of several sealed segments, whose indexes have an entry for every second record."""
    one = OneLog(segment_bytes=SEGMENT_RECORDS * 200, index_interval_bytes=200)
    for number in range(4 * SEGMENT_RECORDS):
        one.append(batch_of(bytes(100), timestamps=[timestamps_start_ms + number]))
    one.log.flush()
    one.restart()
    one.log.load()
    one.log.advance_high_watermark(one.log.log_end_offset)
    return one


def bytes_read(one: OneLog, suffix: str, call: Callable[[], object]) -> int:
    """How much `call` reads of files with that suffix."""
    read = 0
    real_read_file, real_open = one.fs.read_file, one.fs.open

    def read_file(path: str) -> bytes:
        nonlocal read
        data = real_read_file(path)
        read += len(data) if path.endswith(suffix) else 0
        return data

    def open_(path: str, *, create: bool = False, write: bool = True) -> object:
        return Counting(path, real_open(path, create=create, write=write))

    class Counting:
        def __init__(self, path: str, file: File) -> None:
            self._path = path
            self._file = file

        def read_at(self, position: int, size: int) -> object:
            nonlocal read
            data = self._file.read_at(position, size)
            read += len(data) if self._path.endswith(suffix) else 0
            return data

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    one.fs.read_file, one.fs.open = read_file, open_  # type: ignore[method-assign, assignment]
    try:
        call()
    finally:
        del one.fs.read_file, one.fs.open
    return read


def test_retention_reads_two_entries_of_each_segment_that_it_looks_at() -> None:
    one = restarted()
    sealed = len(one.log.segments) - 1
    one.set_config(retention_ms=1_000)
    gone: list[int] = []
    look = lambda: gone.append(one.log.apply_retention(START_MS + 1_000_000))  # noqa: E731
    assert len(one.content(one.names(".timeindex")[0])) > 10 * TIME_ENTRY.size
    assert bytes_read(one, "index", look) <= sealed * 2 * TIME_ENTRY.size
    assert gone[0] >= sealed


def test_nothing_that_is_young_goes_by_the_end_of_an_index() -> None:
    one = restarted()
    first = one.log.segments[0]
    youngest_ms = START_MS + first.next_offset - 1
    one.set_config(retention_ms=1_000)
    assert one.log.apply_retention(youngest_ms + 1_000) == 0
    assert first.largest_timestamp() == youngest_ms
    assert first.max_timestamp_offset == first.next_offset - 1
    assert first.offset_index is None
    assert one.log.apply_retention(youngest_ms + 1_001) == 1


@pytest.mark.parametrize("damage", ["zeros", "foreign", "odd", "empty", "missing"])
def test_an_end_that_is_not_sound_has_the_indexes_made_anew(damage: str) -> None:
    one = restarted()
    first = one.log.segments[0]
    name = one.names(".timeindex")[0]
    path = f"{one.log.folder}/{name}"
    data = one.content(name)
    file = one.fs.open(path)
    if damage == "zeros":
        file.write_at(len(data) - TIME_ENTRY.size, bytes(TIME_ENTRY.size))
    elif damage == "foreign":
        entry = TIME_ENTRY.pack(START_MS + 10_000, first.next_offset + 5)
        file.write_at(len(data) - TIME_ENTRY.size, entry)
    elif damage == "odd":
        file.truncate(len(data) - 1)
    elif damage == "empty":
        file.truncate(0)
    else:
        one.unlink(name)
    file.close()
    youngest_ms = START_MS + first.next_offset - 1
    assert first.largest_timestamp() == youngest_ms
    assert first.offset_index is not None
