"""Worker threads read a segment while the loop closes it, to have room for others.

The loop may do so between any two things that the thread does: here before each of them in turn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from data_plane.log.log import Log
from data_plane.log.scrubber import ScrubJob
from data_plane.log.sim_file_system import Fault
from data_plane.log.timestamps import Found
from data_plane.wire.records import iter_batch_headers
from tests.log.one_log import START_MS, OneLog, batch_of

ENTRY = struct.Struct(">ii")
RECORDS = 40
WANTED = 10


def read(log: Log) -> list[int]:
    result = log.read_cold(WANTED, 700, max_offset=RECORDS - 1, at_least_one_batch=True)
    return [one.base_offset for one in iter_batch_headers(result.buffers[0], 0, result.size)]


def read_a_batch_too_many(log: Log) -> list[int]:
    result = log.read_cold(WANTED, 1, max_offset=RECORDS - 1, at_least_one_batch=True)
    return [one.base_offset for one in iter_batch_headers(result.buffers[0], 0, result.size)]


def find_by_time(log: Log) -> Found | None:
    return log.offset_for_timestamp(START_MS + WANTED, max_offset=RECORDS)


def find_newest(log: Log) -> Found | None:
    return log.max_timestamp_offset(max_offset=WANTED)


def scrub(log: Log) -> list[str]:
    job = ScrubJob([(log, segment) for segment in log.segments if segment.sealed])
    job.run()
    job.finish()
    return [found.path for found in log.log_directory.take_reports()]


class Closing:
    """Closes all sealed segments before the worker's operation number `number`."""

    def __init__(self, one: OneLog, number: int) -> None:
        self.has_struck = False
        self._one = one
        self._left = number
        self._check = one.fs.check_fault
        one.fs.check_fault = self.check  # type: ignore[method-assign]

    def check(self, operation: str, path: str) -> Fault | None:
        if self._left == 0 and not self.has_struck:
            self.has_struck = True
            for segment in self._one.log.loaded_segments[:-1]:
                segment.close_file()
        self._left -= 1
        return self._check(operation, path)

    def end(self) -> None:
        self._one.fs.check_fault = self._check  # type: ignore[method-assign]


def started_again(damage: Callable[[OneLog], None]) -> OneLog:
    one = OneLog()
    for number in range(RECORDS):
        one.append(batch_of(bytes(150), timestamps=[START_MS + number]))
    one.manager.close(one.now_ms)
    one.fs.process_death()
    damage(one)
    one.open()
    one.log.load()
    return one


def nothing(one: OneLog) -> None:
    pass


def an_offset_index(one: OneLog) -> None:
    """One flipped bit sends whoever looks for the wanted record behind it."""
    base = max(base for base in bases_of(one) if base <= WANTED)
    path = f"{one.log.folder}/{base:020d}.index"
    entries = list(ENTRY.iter_unpack(one.fs.read_file(path)))
    before = max((offset for offset, _ in entries if offset <= WANTED - base), default=-1)
    for number, (offset, _) in enumerate(entries):
        for bit in range(8):
            if offset > WANTED - base > before < offset ^ 1 << bit <= WANTED - base:
                one.fs.flip_bit(path, number * ENTRY.size + 3, bit)
                return
    pytest.fail(f"no such bit in {entries}")


def bases_of(one: OneLog) -> list[int]:
    return sorted(int(name[:20]) for name in one.names(".log"))


@pytest.mark.parametrize(
    ("work", "damage"),
    [
        (read, nothing),
        (read, an_offset_index),
        (read_a_batch_too_many, nothing),
        (read_a_batch_too_many, an_offset_index),
        (find_by_time, nothing),
        (find_newest, nothing),
        (scrub, nothing),
        (scrub, an_offset_index),
    ],
    ids=lambda one: one.__name__,
)
def test_what_a_thread_finds_is_the_same(
    work: Callable[[Log], object], damage: Callable[[OneLog], None]
) -> None:
    expected = work(started_again(nothing).log)
    for number in range(200):
        one = started_again(damage)
        closing = Closing(one, number)
        found = work(one.log)
        closing.end()
        assert found == expected, f"closed before operation {number}"
        if not closing.has_struck:
            assert number > 1, "nothing was read"
            return
    pytest.fail("there is no end to it")


def test_an_index_file_that_was_found_to_lie_is_not_believed_when_it_is_read_again() -> None:
    one = started_again(an_offset_index)
    expected = read(one.log)
    for segment in one.log.segments[:-1]:
        segment.close_file()
    assert read(one.log) == expected == read(started_again(nothing).log)


def test_the_scrubber_leaves_no_indexes_in_memory() -> None:
    """Of all segments together they would be half a percent of what is on the disk."""
    one = started_again(nothing)
    read(one.log)
    in_use = [segment for segment in one.log.segments[:-1] if segment.offset_index is not None]
    for segment in in_use:
        segment.open_file()
    scrub(one.log)
    assert [
        segment for segment in one.log.segments[:-1] if segment.offset_index is not None
    ] == in_use
