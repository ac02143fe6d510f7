"""The benchmarks' memory: free again, but for a page of every block."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from benchmarks.resident_memory import BLOCK_BYTES, available_bytes, resident_memory


def held_bytes() -> int:
    """What this process holds in mappings that shall have no huge pages: no other has that flag,
    so that no neighbour is joined with them."""
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    total = 0
    for mapping in mappings:
        flags = re.search(r"^VmFlags: (.*)$", mapping, re.M)
        if flags is not None and "nh" in flags[1].split():
            found = re.search(r"^Anonymous: +([0-9]+) kB$", mapping, re.M)
            assert found is not None
            total += int(found[1]) << 10
    return total


@pytest.mark.parametrize("extra", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 7])
def test_a_page_of_every_block_is_held(extra: int) -> None:
    blocks = 100
    before = held_bytes()
    with resident_memory(blocks * BLOCK_BYTES + extra):
        held = held_bytes() - before
    assert held == (blocks + (extra > 0)) * mmap.PAGESIZE
    assert held_bytes() == before


def test_there_is_memory() -> None:
    assert BLOCK_BYTES < available_bytes() < 1 << 50
