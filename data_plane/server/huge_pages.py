"""The interpreter's heap in huge pages, once, when a broker has started.

A broker that waits for single messages begins each wake with cold caches, and what it runs then
lies in some thousand small pages: looking up where these are is a good part of the wake. Most of
that heap is made during the start and lives for ever (code, types, modules, configurations).
Linux 6.1 can move it into huge pages from within (MADV_COLLAPSE); ADR 23 has what that saves.

Only what is mostly in use already is moved, so that memory grows by little, and nothing is asked
of memory that comes later. Where the system administrator has turned huge pages
off ("never"), or the kernel is older or another one, nothing happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
# madvise(2); the standard library has names for other advice only.
MADV_COLLAPSE = 25
# An entry of /proc/self/pagemap: 8 bytes a page, this bit when the page is there.
PAGEMAP_ENTRY_BYTES = 8
PAGE_PRESENT = 1 << 63
# Of a huge page: below this, moving it would take much more memory than there is to move.
SHARE_IN_USE_MIN = 0.75
# A kernel that has to make room for each huge page first must not hold up the start.
SECONDS_MAX = 0.2


def move_heap() -> int | None:
    """Move what is in use of this process's private memory into huge pages. Returns how many bytes
    these have; None where there are none to be had. Takes some milliseconds for each of them, in
    which other threads that ask for memory stand still."""
    huge_bytes = _huge_page_bytes()
    if huge_bytes is None:
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    moved_bytes = 0
    deadline_s = time.monotonic() + SECONDS_MAX
    try:
        maps = Path("/proc/self/maps").read_text()
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            for address in _huge_parts(maps, huge_bytes):
                if time.monotonic() > deadline_s:
                    break
                if _share_in_use(pagemap.fileno(), address, huge_bytes) < SHARE_IN_USE_MIN:
                    continue
                # It may find no room, or not know the advice: all stays as it is then.
                if madvise(address, huge_bytes, MADV_COLLAPSE) == 0:
                    moved_bytes += huge_bytes
    except OSError:
        # No /proc, or not for us.
        return None
    return moved_bytes


def _huge_parts(maps: str, huge_bytes: int) -> Iterator[int]:
    """Where the heap could have a huge page."""
    for start, end in heap_ranges(maps):
        first = -(-start // huge_bytes) * huge_bytes
        yield from range(first, end - huge_bytes + 1, huge_bytes)


def heap_ranges(maps: str) -> Iterator[tuple[int, int]]:
    """The addresses [start, end) of private memory that belongs to no file, of the lines of
    /proc/self/maps (proc(5))."""
    for line in maps.splitlines():
        addresses, permissions, _, _, inode, *name = line.split(maxsplit=5)
        if permissions == "rw-p" and inode == "0" and (not name or name[0] == "[heap]"):
            start, _, end = addresses.partition("-")
            yield int(start, 16), int(end, 16)


def _share_in_use(pagemap_fd: int, address: int, size: int) -> float:
    """Which part of the pages of [address, address + size) is in memory."""
    pages = size // mmap.PAGESIZE
    position = address // mmap.PAGESIZE * PAGEMAP_ENTRY_BYTES
    entries = array("Q", os.pread(pagemap_fd, pages * PAGEMAP_ENTRY_BYTES, position))
    return sum(1 for entry in entries if entry & PAGE_PRESENT) / pages


def _huge_page_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        if "[never]" not in (SETTINGS / "enabled").read_text():
            return int((SETTINGS / "hpage_pmd_size").read_text())
    return None
