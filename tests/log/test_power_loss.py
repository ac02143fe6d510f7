"""Power loss at any moment of a random workload, on the real log code over a simulated disk."""

from __future__ import annotations

import os
import random

import pytest

from tests.log.world import World

EVERYDAY_SEEDS = 60


def run_seed(seed: int) -> None:
    try:
        World(random.Random(seed), maps_files=bool(seed & 1)).run(120)
    except BaseException:
        print(f"seed {seed}")
        raise


@pytest.mark.parametrize("part", range(4))
def test_a_random_workload_survives_power_loss(part: int) -> None:
    for seed in range(part, EVERYDAY_SEEDS, 4):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(8))
def test_many_random_workloads_survive_power_loss(part: int) -> None:
    for seed in range(1000 + part, 1800, 8):
        run_seed(seed)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_endless_random_workloads_survive_power_loss() -> None:
    for _ in range(20_000):
        run_seed(int.from_bytes(os.urandom(6), "big"))
