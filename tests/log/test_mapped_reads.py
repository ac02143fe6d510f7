"""Large reads come from the mapping, without a copy, exactly while their bytes are in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.log import segment as segment_module
from data_plane.log.file_system import OsFileSystem
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.reads import ReadResult
from data_plane.log.segment import WouldBlock
from tests.log.one_log import SMALL, START_MS, TOPIC_ID, OneLog, batch_of

VALUE_BYTES = 100_000
BATCHES = 30
READ_BYTES = 1 << 20


@pytest.fixture(params=["sealed", "active"])
def filled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLog]:
    """A log whose first 30 batches lie in a segment that is sealed, or takes appends."""
    monkeypatch.setattr(segment_module, "HOT_TAIL_BYTES", 0)
    one = OneLog(maps_files=True, segment_bytes=1 << 30)
    one.fill(BATCHES, VALUE_BYTES)
    if request.param == "sealed":
        one.set_config(segment_bytes=1 << 20)
        one.fill(1, VALUE_BYTES)
        assert len(one.log.segments) == 2
    yield one
    one.manager.close(one.now_ms)


def read(one: OneLog, offset: int, max_bytes: int = READ_BYTES) -> ReadResult:
    return one.log.read(
        offset, max_bytes, max_offset=one.log.log_end_offset, at_least_one_batch=True
    )


def test_a_large_read_is_a_view_of_the_mapping(filled: OneLog) -> None:
    first = filled.log.segments[0]
    result = read(filled, 3)
    assert not result.is_cold
    assert result.next_offset == 3 + READ_BYTES // (VALUE_BYTES + 100)
    (data,) = result.buffers
    assert isinstance(data, memoryview)
    mapping = first._mapping
    assert mapping is not None
    assert data.obj is mapping.view(0, 1).obj
    expected = bytes(filled.content("0" * 20 + ".log"))
    assert bytes(data) in expected
    assert data[:8] == (3).to_bytes(8, "big")


def test_what_is_not_in_memory_is_read_elsewhere(filled: OneLog) -> None:
    hot = read(filled, 5)
    filled.fs.is_cache_cold = True
    with pytest.raises(WouldBlock):
        filled.log.segments[0].fetch_hot(0, 1 << 20)
    cold = read(filled, 5)
    assert cold.is_cold
    again = filled.log.read_cold(
        5, READ_BYTES, max_offset=filled.log.log_end_offset, at_least_one_batch=True
    )
    assert [bytes(one) for one in again.buffers] == [bytes(one) for one in hot.buffers]
    assert again.next_offset == hot.next_offset


def take_all_descriptors(one: OneLog) -> None:
    """Have the LRU close what the log has open, and with it the mapping."""
    other = one.manager.create(UUID(int=4), "other", 0, one.config)
    one.manager.directories[0].open_files.entries_max = 1
    for _ in range(2):
        other.active.close_file()
        one.manager.directories[0].open_files.closed(other.active)
        other.active.open_file()
    assert all(segment.file is None and segment._mapping is None for segment in one.log.segments)


@pytest.mark.parametrize("offset", [1, 7, BATCHES - 1])
@pytest.mark.parametrize("is_closed", [False, True])
def test_what_was_mapped_is_never_cut(filled: OneLog, is_closed: bool, offset: int) -> None:
    """Not even when nothing of the mapping is left but what is on its way to a client."""
    data = read(filled, 5).buffers[0]
    before = bytes(data)
    if is_closed:
        take_all_descriptors(filled)
    filled.log.truncate_to(offset)
    filled.fill(3, VALUE_BYTES)
    assert bytes(data) == before
    assert filled.log.log_end_offset == offset + 3


def test_the_simulated_disk_knows_whose_mapping_is_left() -> None:
    one = OneLog(maps_files=True, segment_bytes=1 << 30)
    file = one.fs.open("/data/file", create=True)
    file.write_at(0, bytes(100))
    assert file.map(60) is not None
    assert file.map(40) is not None
    file.truncate(60)
    with pytest.raises(AssertionError, match="was mapped"):
        file.truncate(59)
    one.fs.process_death()
    one.fs.open("/data/file").truncate(10)


@pytest.mark.parametrize("is_closed", [False, True])
def test_truncation_gives_a_mapped_segment_a_new_file(tmp_path: Path, is_closed: bool) -> None:
    fs = OsFileSystem()
    manager = LogManager(
        [tmp_path],
        default_config=replace(SMALL, segment_bytes=1 << 30),
        fs=fs,
        now_ms=START_MS,
        maintenance=MaintenanceConfig(scrub_interval_ms=-1),
    )
    assert manager.start(START_MS) == []
    log = manager.create(TOPIC_ID, "flights", 0, manager.default_config)
    for _ in range(BATCHES):
        batch = batch_of(b"." * VALUE_BYTES, timestamps=[START_MS])
        log.append_as_leader(batch, 0, len(batch), leader_epoch=0, now_ms=START_MS)
    result = log.read(5, READ_BYTES, max_offset=BATCHES, at_least_one_batch=True)
    data = result.buffers[0]
    before = bytes(data)
    inode = os.stat(log.segments[0].path()).st_ino
    if is_closed:
        # As the LRU does; the bytes are still on their way.
        log.segments[0].release()
    log.truncate_to(2)
    # Touching a mapping whose file was cut would end this process.
    assert os.stat(log.segments[0].path()).st_ino != inode
    batch = batch_of(b"!" * VALUE_BYTES, timestamps=[START_MS])
    log.append_as_leader(batch, 0, len(batch), leader_epoch=1, now_ms=START_MS)
    assert bytes(data) == before
    manager.close(START_MS)
