"""A seed is a history: the same again in this process, and in another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.runs import run_seed

ROOT = Path(__file__).parents[2]
STEPS = 3000


@pytest.mark.parametrize("seed", [3, 17, 42, 99])
def test_a_seed_is_the_same_history_again(seed: int) -> None:
    first = run_seed(seed, STEPS)
    second = run_seed(seed, STEPS)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.counters == second.counters


def test_different_seeds_are_different_histories() -> None:
    assert run_seed(1, 500, settles=False).digest != run_seed(2, 500, settles=False).digest


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_another_process_tells_the_same(hash_seed: str) -> None:
    """Hashes of strings differ between processes; nothing may depend on them."""
    expected = run_seed(7, STEPS)
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7", "--steps", str(STEPS)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert f"{expected.digest:08x}" in result.stdout, result.stdout[-2000:] + result.stderr[-2000:]
