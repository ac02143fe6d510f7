"""Files beside a segment: read only where they were made of its batches, and gone with them."""

from __future__ import annotations

import random

import pytest

from data_plane.log.segment import Segment
from data_plane.log.side_files import Prefix, read_side_file, write_side_file
from data_plane.wire.records import BATCH_HEADER_BYTES, iter_batch_headers
from tests.log.one_log import OneLog, batch_of

NAME = "made"


def prefix_of(segment: Segment, count: int) -> Prefix:
    """Its first `count` batches."""
    file = segment.open_file()
    data = bytes(file.read_at(0, segment.size))
    header = list(iter_batch_headers(data, 0, len(data)))[count - 1]
    at = header.position
    return Prefix(header.end_position, header.next_offset, at, data[at : at + BATCH_HEADER_BYTES])


@pytest.fixture
def one() -> OneLog:
    """With three batches in each of its segments."""
    log = OneLog()
    for _ in range(3):
        log.fill(3)
        log.log.roll()
    return log


def read(segment: Segment) -> tuple[Prefix, bytes] | None:
    found = read_side_file(segment, NAME)
    return None if found is None else (found[0], bytes(found[1]))


def test_what_was_written_is_read(one: OneLog) -> None:
    first, second = one.log.segments[:2]
    assert read(first) is None
    prefix = prefix_of(first, 2)
    write_side_file(first, NAME, prefix, b"content")
    assert read(first) == (prefix, b"content")
    assert read(second) is None
    assert read_side_file(first, "other") is None
    whole = prefix_of(first, 3)
    write_side_file(first, NAME, whole, b"more")
    assert read(first) == (whole, b"more")


@pytest.mark.parametrize("at", [0, 5, 30, 90, 100])
def test_what_is_not_whole_is_not_read(one: OneLog, at: int) -> None:
    segment = one.log.segments[0]
    write_side_file(segment, NAME, prefix_of(segment, 2), b"a longer content")
    (name,) = one.names(".side")
    content = one.content(name)
    file = one.fs.open(f"{one.log.folder}/{name}")
    file.write_at(at, bytes([content[at] ^ 1]))
    assert read(segment) is None
    file.write_at(at, content[at : at + 1])
    assert read(segment) is not None
    file.truncate(at)
    assert read(segment) is None
    file.close()


def test_it_is_of_no_other_batches(one: OneLog) -> None:
    one.log.truncate_to(9)
    one.fill(2)
    segment = one.log.active
    write_side_file(segment, NAME, prefix_of(segment, 2), b"old")
    one.log.truncate_to(10)
    assert read(one.log.active) is None
    one.epoch += 1
    one.fill(3)
    assert one.log.active.base_offset == 9
    assert read(one.log.active) is None
    # What it was made of is still there.
    write_side_file(one.log.active, NAME, prefix_of(one.log.active, 1), b"new")
    one.log.truncate_to(10)
    assert read(one.log.active) is not None


def test_it_lasts_through_a_kill_and_a_restart(one: OneLog) -> None:
    segment = one.log.segments[1]
    write_side_file(segment, NAME, prefix_of(segment, 3), b"content")
    for open_again in (one.restart, one.kill):
        open_again()
        found = read(one.log.segments[1])
        assert found is not None
        assert found[1] == b"content"


@pytest.mark.parametrize("seed", range(8))
def test_power_loss_leaves_none_of_what_may_be_lost(seed: int) -> None:
    """Of one epoch, and in another order, the same batches may come again."""
    one = OneLog(segment_bytes=100_000)
    for name in (b"A", b"B", b"C"):
        one.append(batch_of(name))
    write_side_file(one.log.active, NAME, prefix_of(one.log.active, 3), b"A before B")
    one.lose_power(random.Random(seed))
    if not one.log.is_loaded:
        one.log.load()
    one.log.truncate_to(0)
    for name in (b"B", b"A", b"C"):
        one.append(batch_of(name))
    assert read(one.log.active) is None


def test_it_goes_with_its_segment(one: OneLog) -> None:
    first = one.log.segments[0]
    write_side_file(first, NAME, prefix_of(first, 3), b"content")
    one.set_config(retention_bytes=0)
    one.log.apply_retention(one.now_ms)
    one.log.flush()
    one.log.delete_pending_segments()
    assert one.names(".side") == []
    # Who comes late leaves nothing that counts.
    write_side_file(first, NAME, Prefix(1, 1, 0, bytes(BATCH_HEADER_BYTES)), b"late")
    assert one.names(".side") == []


def test_compaction_takes_it_away() -> None:
    one = OneLog(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01, segment_bytes=400
    )
    for _ in range(8):
        one.append(batch_of(bytes(100), keys=[b"k"]))
    one.log.roll()
    one.checkpoint()
    for segment in one.log.segments[:-1]:
        write_side_file(segment, NAME, prefix_of(segment, 1), b"content")
    assert one.names(".side")
    job = one.log.compaction_job(one.now_ms)
    assert job is not None
    job.run()
    job.finish()
    left = {name.partition(".")[0] for name in one.names(".side")}
    assert f"{one.log.segments[0].base_offset:020d}" not in left
    assert left <= {f"{segment.base_offset:020d}" for segment in one.log.segments[1:]}
