"""Both adapters of the disk do what the port says, and the simulated one forgets as it promises."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_plane.log.file_system import FileSystem, OsFileSystem, SyncSite
from data_plane.log.mappings import PAGE_BYTES
from data_plane.log.sim_file_system import Fault, PowerLoss, SimFileSystem

SITE = SyncSite.APPEND_DATA


@pytest.fixture(params=["os", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    """An adapter and an empty folder in it."""
    if request.param == "os":
        yield OsFileSystem(), str(tmp_path)
        return
    fs = SimFileSystem(maps_files=True)
    fs.make_directory("/data")
    yield fs, "/data"


def test_bytes_are_read_as_written(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    file = fs.open(f"{folder}/a", create=True)
    file.write_at(0, b"0123456789")
    file.write_at(3, memoryview(b"xyz"))
    assert bytes(file.read_at(2, 5)) == b"2xyz6"
    assert bytes(file.read_at(8, 100)) == b"89"
    assert file.size() == fs.size(f"{folder}/a") == 10
    file.truncate(4)
    assert fs.read_file(f"{folder}/a") == b"012x"
    fs.sync_data(file, SITE)
    file.close()


def test_a_read_that_cannot_block_is_whole_or_nothing(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    file = fs.open(f"{folder}/a", create=True)
    file.write_at(0, bytes(100_000))
    data = file.read_at_nowait(10, 80_000)
    assert data is None or len(data) == 80_000
    assert file.read_at_nowait(99_990, 20) is None
    file.close()


def test_a_mapping_sees_the_bytes_it_was_made_for(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    file = fs.open(f"{folder}/a", create=True)
    file.write_at(0, b"mapped bytes")
    mapping = file.map(12)
    file.write_at(12, b" and later ones")
    assert mapping is not None
    assert mapping.size == 12
    assert bytes(mapping.view(0, 12)) == b"mapped bytes"
    file.close()
    view = mapping.view(0, 6)
    del mapping
    assert bytes(view) == b"mapped"


def test_a_mapping_knows_what_is_in_memory(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    file = fs.open(f"{folder}/a", create=True)
    size = 20 * PAGE_BYTES + 17
    file.write_at(0, bytes(size))
    mapping = file.map(size)
    assert mapping is not None
    for start, end in ((0, size), (1, 2), (PAGE_BYTES - 1, PAGE_BYTES + 1), (size - 1, size)):
        assert mapping.is_in_memory(start, end)
    file.close()


def test_what_has_left_memory_is_not_in_memory(tmp_path: Path) -> None:
    fs = OsFileSystem()
    size = 64 * PAGE_BYTES
    file = fs.open(f"{tmp_path}/a", create=True)
    file.write_at(0, bytes(size))
    fs.sync_data(file, SITE)
    try:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        mapping = file.map(size)
        assert mapping is not None
        is_in_memory = mapping.is_in_memory(0, size)
        # A moment later more may be there: to ask for it has the kernel read ahead.
        was_read = file.read_at_nowait(0, size) is not None
        # Files of a tmpfs, which knows no reads without waiting, never leave memory.
        assert was_read or is_in_memory == (not file.nowait_supported)
        file.read_at(0, size)
        assert mapping.is_in_memory(0, size)
    finally:
        file.close()


def test_names_change_as_asked(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    assert fs.make_directory(f"{folder}/sub")
    assert not fs.make_directory(f"{folder}/sub")
    with pytest.raises(FileNotFoundError):
        fs.make_directory(f"{folder}/none/sub")
    for name in ("b", "a"):
        fs.open(f"{folder}/sub/{name}", create=True).close()
    fs.rename(f"{folder}/sub/a", f"{folder}/sub/c")
    assert fs.list_directory(f"{folder}/sub") == ["b", "c"]
    fs.sync_directory(f"{folder}/sub", SITE)
    with pytest.raises(OSError, match="empty"):
        fs.remove_directory(f"{folder}/sub")
    fs.unlink(f"{folder}/sub/b")
    fs.unlink(f"{folder}/sub/c")
    fs.remove_directory(f"{folder}/sub")
    for missing in (fs.read_file, fs.size, fs.list_directory, fs.unlink, fs.open):
        with pytest.raises(FileNotFoundError):
            missing(f"{folder}/sub")


def test_a_lock_is_held_by_one(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    lock = fs.lock(f"{folder}/.lock")
    assert lock is not None
    assert fs.lock(f"{folder}/.lock") is None
    lock.close()
    again = fs.lock(f"{folder}/.lock")
    assert again is not None
    again.close()


def test_everything_can_be_synced_at_once(disk: tuple[FileSystem, str]) -> None:
    fs, folder = disk
    if fs.can_sync_all:
        fs.sync_all(folder, SITE)


def test_the_boot_id_stays_while_the_machine_is_up(disk: tuple[FileSystem, str]) -> None:
    fs, _ = disk
    assert fs.boot_id() == fs.boot_id()


def test_a_system_that_has_no_boot_id_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        OsFileSystem.read_boot_id("/nowhere")


def outcomes(seeds: int) -> set[tuple[bool, bytes]]:
    """(name still there, content) after power loss, over many seeds."""
    found = set()
    for seed in range(seeds):
        fs = SimFileSystem()
        file = fs.open("/a", create=True)
        fs.sync_directory("/", SITE)
        file.write_at(0, b"1" * 512)
        fs.sync_data(file, SITE)
        file.write_at(0, b"2" * 1024)
        fs.rename("/a", "/b")
        fs.power_loss(random.Random(seed))
        name = "/a" if "a" in fs.list_directory("/") else "/b"
        found.add((name == "/a", fs.read_file(name)))
    return found


def test_power_loss_drops_tears_and_undoes_what_was_not_synced() -> None:
    found = outcomes(200)
    contents = {content for _, content in found}
    assert {undone for undone, _ in found} == {True, False}
    assert b"1" * 512 in contents
    assert b"2" * 1024 in contents
    assert b"1" * 512 + b"2" * 512 in contents, "sectors are not reordered"
    assert all(len(content) in (512, 1024) for content in contents)


def test_power_loss_keeps_what_was_synced() -> None:
    for seed in range(50):
        fs = SimFileSystem()
        fs.make_directory("/d")
        file = fs.open("/d/a", create=True)
        file.write_at(0, b"kept")
        fs.sync_data(file, SITE)
        fs.sync_directory("/d", SITE)
        fs.sync_directory("/", SITE)
        fs.power_loss(random.Random(seed))
        assert fs.read_file("/d/a") == b"kept"


def test_a_forgotten_sync_syncs_nothing() -> None:
    lost = 0
    for seed in range(50):
        fs = SimFileSystem()
        fs.forgotten_site = SITE
        fs.open("/a", create=True)
        fs.sync_directory("/", SITE)
        fs.power_loss(random.Random(seed))
        lost += not fs.list_directory("/")
    assert lost


def test_a_process_that_dies_loses_nothing() -> None:
    fs = SimFileSystem()
    file = fs.open("/a", create=True)
    file.write_at(0, b"x")
    fs.process_death()
    assert fs.read_file("/a") == b"x"
    with pytest.raises(AssertionError, match="before a crash"):
        file.read_at(0, 1)


def test_a_failed_write_stores_a_part() -> None:
    fs = SimFileSystem()
    file = fs.open("/a", create=True)
    fs.faults.append(Fault("write", "a", errno.EIO, partial_bytes=3, skip=1))
    file.write_at(0, b"first")
    with pytest.raises(OSError, match="Input/output"):
        file.write_at(5, b"second")
    assert fs.read_file("/a") == b"firstsec"


def test_a_full_disk_stores_what_fits() -> None:
    fs = SimFileSystem(capacity_bytes=8)
    file = fs.open("/a", create=True)
    file.write_at(0, b"12345")
    with pytest.raises(OSError, match="No space"):
        file.write_at(5, b"67890")
    assert fs.read_file("/a") == b"12345678"


def test_power_goes_before_the_operation_asked_for() -> None:
    fs = SimFileSystem()
    fs.power_loss_at = 2
    file = fs.open("/a", create=True)
    file.write_at(0, b"1")
    with pytest.raises(PowerLoss):
        file.write_at(1, b"2")
    assert fs.read_file("/a") == b"1"


def test_a_flipped_bit_stays_flipped() -> None:
    fs = SimFileSystem()
    file = fs.open("/a", create=True)
    file.write_at(0, b"\0\0")
    fs.sync_data(file, SITE)
    fs.flip_bit("/a", 1, 3)
    fs.sync_directory("/", SITE)
    fs.power_loss(random.Random(0))
    assert fs.read_file("/a") == b"\0\x08"
