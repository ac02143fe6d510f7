"""The benchmarks' memory: free again, but for a page of every block."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from benchmarks.resident_memory import BLOCK_BYTES, available_bytes, resident_memory


def anonymous_bytes() -> int:
    """What this process holds that is no file's, counted page by page."""
    found = re.search(
        r"^Anonymous: +([0-9]+) kB$", Path("/proc/self/smaps_rollup").read_text(), re.M
    )
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize("extra", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 7])
def test_a_page_of_every_block_is_held(extra: int) -> None:
    blocks = 100
    before = anonymous_bytes()
    with resident_memory(blocks * BLOCK_BYTES + extra):
        held = anonymous_bytes() - before
    # The interpreter's own memory moves by a little, too.
    slack = 64 * mmap.PAGESIZE
    assert blocks * mmap.PAGESIZE <= held <= blocks * mmap.PAGESIZE + slack


def test_there_is_memory() -> None:
    assert BLOCK_BYTES < available_bytes() < 1 << 50
