"""Free memory that the machine keeps while brokers are measured.

A virtual machine may give free memory back to its host within seconds, in blocks of 2 MiB. Whoever
uses it next is charged for getting it again: appending to a file took 2.9 s/GB of system time on
such a machine where it took 0.3 in memory that had stayed, and producing 1 KiB costs a broker about
1. Which broker pays is chance.

So memory is touched once, and then all but one page of every block is freed: what is left over is
free to the page cache and to everybody else, but not a free block.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK_BYTES = 2 << 20
# The rest is what brokers and clients ask for while it is touched.
SHARE_OF_AVAILABLE = 0.85
_ZEROS = bytes(1 << 20)


def available_bytes() -> int:
    """What could be allocated without swapping, from /proc/meminfo."""
    found = re.search(r"^MemAvailable: +([0-9]+) kB$", Path("/proc/meminfo").read_text(), re.M)
    if found is None:
        raise OSError("/proc/meminfo does not name MemAvailable")
    return int(found[1]) << 10


@contextmanager
def resident_memory(size: int) -> Iterator[None]:
    """Have `size` bytes of free memory that stay with the machine; a 512th of it is kept in use."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, max(BLOCK_BYTES, size), flags=flags) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for offset in range(0, len(memory), len(_ZEROS)):
            count = min(len(_ZEROS), len(memory) - offset)
            memory[offset : offset + count] = _ZEROS[:count]
        for offset in range(0, len(memory), BLOCK_BYTES):
            count = min(BLOCK_BYTES, len(memory) - offset) - mmap.PAGESIZE
            if count > 0:
                memory.madvise(mmap.MADV_DONTNEED, offset + mmap.PAGESIZE, count)
        yield
