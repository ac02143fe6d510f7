"""The benchmarks' memory: free again, but for a page of every block."""

from __future__ import annotations

import json
import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.resident_memory import BLOCK_BYTES, available_bytes, resident_memory


def held_bytes() -> int:
    """What this process holds in mappings that shall have no huge pages: no other of its mappings
    has that flag, so that no neighbour is joined with them."""
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    total = 0
    for mapping in mappings:
        flags = re.search(r"^VmFlags: (.*)$", mapping, re.M)
        if flags is not None and "nh" in flags[1].split():
            found = re.search(r"^Anonymous: +([0-9]+) kB$", mapping, re.M)
            assert found is not None
            total += int(found[1]) << 10
    return total


def held_while_resident(size: int) -> list[int]:
    """`held_bytes` before, in and after resident_memory."""
    before = held_bytes()
    with resident_memory(size):
        within = held_bytes()
    return [before, within, held_bytes()]


@pytest.mark.parametrize("extra", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 7])
def test_a_page_of_every_block_is_held(extra: int) -> None:
    blocks = 100
    # In a process of its own: the stacks of other tests' threads have the same flag, and grow.
    call = f"held_while_resident({blocks * BLOCK_BYTES + extra})"
    asked = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import *; print({call})"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    held = (blocks + (extra > 0)) * mmap.PAGESIZE
    assert json.loads(asked.stdout) == [0, held, 0]


def test_there_is_memory() -> None:
    assert BLOCK_BYTES < available_bytes() < 1 << 50
