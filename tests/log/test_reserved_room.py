"""Room that is reserved ahead of writes, on the real file system: nobody reads any of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from data_plane.log import file_system
from data_plane.log.file_system import OsFileSystem
from data_plane.log.log import Log
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LOCK_FILE, LogManager
from data_plane.log.segment import RESERVE_FROM_BYTES, RESERVED_BYTES_MAX
from tests.log.one_log import SMALL, START_MS, TOPIC_ID, batch_of

SECTOR_BYTES = 512
BATCH = bytes(batch_of(bytes(1_000_000)))
BATCH_BYTES = len(BATCH)
# What a file system may take for its own, block by block.
SLACK_BYTES = 64 << 10


def open_manager(folder: Path, segment_bytes: int = 1 << 30) -> LogManager:
    manager = LogManager(
        [folder],
        default_config=replace(SMALL, segment_bytes=segment_bytes),
        fs=OsFileSystem(),
        now_ms=START_MS,
        maintenance=MaintenanceConfig(scrub_interval_ms=-1),
    )
    assert manager.start(START_MS) == []
    return manager


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        batch = bytearray(BATCH)
        log.append_as_leader(batch, 0, len(batch), leader_epoch=0, now_ms=START_MS)


def sizes(log: Log, index: int = -1) -> tuple[int, int]:
    """(size, bytes allocated) of a segment's file."""
    stat = os.stat(log.segments[index].path())
    return stat.st_size, stat.st_blocks * SECTOR_BYTES


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    with (tmp_path / "probe").open("wb") as probe:
        if not file_system.OsFile("probe", probe.fileno()).reserve(0, 1):
            pytest.skip("this file system reserves nothing")
    (tmp_path / "probe").unlink()
    return open_manager(tmp_path)


def test_a_segment_that_grows_has_room_ahead_and_its_own_size(manager: LogManager) -> None:
    log = manager.create(TOPIC_ID, "flights", 0, manager.default_config)
    fill(log, RESERVE_FROM_BYTES // BATCH_BYTES)
    size, allocated = sizes(log)
    assert allocated <= size + SLACK_BYTES
    fill(log, 1)
    size, allocated = sizes(log)
    assert size == log.segments[-1].size == log.log_end_offset * BATCH_BYTES
    assert size + RESERVE_FROM_BYTES // 5 < allocated <= size * 3 // 2 + SLACK_BYTES
    fill(log, 40)
    size, allocated = sizes(log)
    assert allocated <= size + RESERVED_BYTES_MAX + SLACK_BYTES
    manager.close(START_MS)


def test_a_sealed_segment_gives_back_what_it_did_not_use(manager: LogManager) -> None:
    log = manager.create(TOPIC_ID, "flights", 0, manager.default_config)
    fill(log, 10)
    mapped = log.read(3, 1 << 20, max_offset=10, at_least_one_batch=True)
    before = [bytes(one) for one in mapped.buffers]
    log.roll()
    size, allocated = sizes(log, 0)
    assert size == 10 * BATCH_BYTES
    assert allocated <= size + SLACK_BYTES
    # A mapping of it goes on.
    assert [bytes(one) for one in mapped.buffers] == before
    manager.close(START_MS)


@pytest.mark.parametrize("is_clean", [True, False])
def test_reserved_room_is_no_part_of_the_log_after_a_restart(
    tmp_path: Path, manager: LogManager, is_clean: bool
) -> None:
    log = manager.create(TOPIC_ID, "flights", 0, manager.default_config)
    fill(log, 6)
    if is_clean:
        manager.close(START_MS)
    else:
        # As a process that is gone leaves it; its lock goes with it.
        (tmp_path / LOCK_FILE).unlink()
    again = open_manager(tmp_path)
    log = again.get(TOPIC_ID, 0)
    assert log.log_end_offset == 6
    fill(log, 1)
    size, allocated = sizes(log)
    assert size == 7 * BATCH_BYTES < allocated
    again.close(START_MS)


def test_without_room_to_reserve_writing_goes_on(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def refuse(_fd: int, _mode: int, position: int, size: int) -> int:
        asked.append((position, size))
        return -1

    monkeypatch.setattr(file_system, "_FALLOCATE", refuse)
    log = manager.create(TOPIC_ID, "flights", 0, manager.default_config)
    fill(log, 12)
    assert log.log_end_offset == 12
    assert sizes(log)[0] == 12 * BATCH_BYTES
    # Nobody asks for each write again.
    assert len(asked) == 1
    log.roll()
    fill(log, 1)
    assert log.log_end_offset == 13
    manager.close(START_MS)
