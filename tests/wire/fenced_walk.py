"""Walks damaged records that end where readable memory ends: `python -m tests.wire.fenced_walk`.

A process of its own, because a compiled walk that reads one byte too many is killed by SIGSEGV.
Prints how many walks it made.
"""

from __future__ import annotations

import ctypes
import mmap

from data_plane.wire import kernel
from data_plane.wire.records import NewRecord, build_batch
from tests.wire.kernel_pairs import outcome

BASE_MS = 1_700_000_000_000


def fenced(size: int) -> memoryview:
    """`size` writable bytes with a page behind them that may not be touched. Never unmapped."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    fence = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return memoryview(pages)[mmap.PAGESIZE - size : mmap.PAGESIZE]


def main() -> None:
    records = [NewRecord(BASE_MS + time, b"key", b"value") for time in (0, 70, 9_000)]
    payload = bytes(build_batch(records)[61:])
    walks = 0
    for size in range(1, len(payload) + 1):
        room = fenced(size)
        for at in range(size):
            for value in (0, 1, 0x7E, 0x7F, 0x80, 0xFF):
                room[:] = payload[:size]
                room[at] = value
                outcome(kernel.walk_records, room, 0, size, 4, BASE_MS)
                walks += 1
    print(walks)


if __name__ == "__main__":
    main()
