"""Moving the heap into huge pages: which memory that is, and that nothing else happens to it."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from data_plane.server import huge_pages
from data_plane.server.huge_pages import heap_ranges, move_heap
from tests.broker_process import ROOT

MAPS = """\
55d0c1a00000-55d0c1a01000 r--p 00000000 fe:00 1315 /usr/bin/python3.11
55d0c1c00000-55d0c2600000 rw-p 00000000 00:00 0 [heap]
7f1000000000-7f1000200000 rw-p 00000000 00:00 0 
7f1000400000-7f1000500000 rw-p 00001000 fe:00 77 /usr/lib/some library.so (deleted)
7f1000600000-7f1000700000 rw-s 00000000 00:01 1034 /dev/zero (deleted)
7f1000800000-7f1000900000 ---p 00000000 00:00 0 
7f1000a00000-7f1000b00000 r--s 00000000 fe:00 42 /data/topic-0/00000000000000000000.log
7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0 [stack]
7ffd10100000-7ffd10104000 r--p 00000000 00:00 0 [vvar]
"""  # noqa: W291 -- as the kernel writes it

# In a process of its own: the heap of the one that runs the tests is none of ours.
MOVE_ONE_FULL_AND_ONE_SPARSE = """
import mmap, re
from data_plane.server.huge_pages import move_heap

SIZE = 16 << 20
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
full, sparse = mmap.mmap(-1, SIZE, flags=PRIVATE), mmap.mmap(-1, SIZE, flags=PRIVATE)
line = bytes(range(256))
for start in range(0, SIZE, len(line)):
    full[start : start + len(line)] = line
# Half of the pages of each huge page: less than what is worth moving.
for page in range(0, SIZE // mmap.PAGESIZE, 2):
    sparse[page * mmap.PAGESIZE] = 1

def figure(name):
    text = open("/proc/self/smaps_rollup").read()
    return int(re.search(rf"^{name}: +(\\d+) kB", text, re.M)[1]) << 10

before = figure("Anonymous")
moved = move_heap()
grown = figure("Anonymous") - before
assert all(full[start : start + 256] == line for start in range(0, SIZE, 256)), "only moved"
assert all(sparse[page * mmap.PAGESIZE] == (page + 1) % 2 for page in range(64))
print(moved, figure("AnonHugePages"), grown)
"""


def test_the_heap_is_private_memory_without_a_file() -> None:
    assert list(heap_ranges(MAPS)) == [
        (0x55D0C1C00000, 0x55D0C2600000),
        (0x7F1000000000, 0x7F1000200000),
    ]


def test_what_is_in_use_moves_and_what_is_not_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MOVE_ONE_FULL_AND_ONE_SPARSE],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    moved, in_huge_pages, grown = done.stdout.split()
    if moved in ("None", "0"):
        pytest.skip("this kernel moves no memory into huge pages")
    # The full one and what the interpreter has, as far as the kernel has room; not the sparse one,
    # unless the system has filled that with huge pages of its own accord.
    if "[always]" not in (huge_pages.SETTINGS / "enabled").read_text():
        assert int(moved) < 26 << 20
    assert int(in_huge_pages) > 0
    # A quarter of what was moved at most, and in practice next to nothing.
    assert int(grown) <= int(moved) // 4


def test_nothing_moves_where_the_administrator_wants_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    monkeypatch.setattr(huge_pages, "SETTINGS", tmp_path)
    assert move_heap() is None


def test_nothing_moves_where_the_kernel_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "SETTINGS", tmp_path / "absent")
    assert move_heap() is None


def test_a_start_waits_for_so_long_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "SECONDS_MAX", -1)
    assert move_heap() in (None, 0)


def test_pages_in_use_are_counted() -> None:
    pages = 64
    memory = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # One page for each that is touched, whatever this system does otherwise.
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(16):
        memory[page * mmap.PAGESIZE] = 1
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    address = ctypes.addressof(view)
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        share = huge_pages._share_in_use(pagemap.fileno(), address, len(memory))
    assert share == 16 / pages
