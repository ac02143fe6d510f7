"""The last append, which readers at the log end get from memory: what the disk would give, or the
disk is asked."""

from __future__ import annotations

import pytest

from data_plane.log.batch_walk import BadRange
from data_plane.log.errors import CorruptSegment
from data_plane.log.file_system import Buffer
from data_plane.log.log_appends import TAIL_BYTES_MAX
from tests.log.one_log import OneLog, batch_of


def read(one: OneLog, offset: int, max_bytes: int = 1 << 20) -> list[Buffer]:
    log = one.log
    end = log.log_end_offset
    return log.read(offset, max_bytes, max_offset=end, at_least_one_batch=True).buffers


def test_all_readers_at_the_log_end_share_one_copy_of_the_last_append() -> None:
    one = OneLog()
    one.append(batch_of(b"a"))
    one.append(batch_of(b"b", b"c"))
    first, second = read(one, 1), read(one, 1)
    assert first[0] is second[0]
    (stored,) = read(one, 0)
    assert bytes(stored).endswith(bytes(first[0]))


def test_a_truncated_append_is_not_served_though_the_log_end_is_the_same_again() -> None:
    one = OneLog(segment_bytes=100_000)
    one.append(batch_of(b"a"))
    one.append(batch_of(b"old"), commit=False)
    one.log.truncate_to(1)
    assert read(one, 1) == []
    assert one.log.read(1, 1 << 20, max_offset=99, at_least_one_batch=True).buffers == []
    large = batch_of(b"n" * TAIL_BYTES_MAX)
    one.append(large)
    (found,) = read(one, 1)
    assert bytes(found)[16:] == bytes(large)[16:]


def test_a_small_limit_is_kept_and_a_bad_batch_is_refused() -> None:
    one = OneLog()
    one.append(batch_of(b"a"))
    one.append(batch_of(b"b"))
    (tail,) = read(one, 1)
    log = one.log
    nothing = log.read(1, len(tail) - 1, max_offset=2, at_least_one_batch=False)
    assert nothing.buffers == []
    segment = log.segments[-1]
    segment.add_bad_ranges([BadRange(segment.size - len(tail), segment.size, "flipped")])
    with pytest.raises(CorruptSegment):
        read(one, 1)
