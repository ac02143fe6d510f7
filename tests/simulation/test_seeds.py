"""Histories of whole cells: fixed seeds in every run, thousands at night."""

from __future__ import annotations

import pytest

from tests.simulation.cell import Options
from tests.simulation.known_seeds import KNOWN_SEEDS, KNOWN_SEEDS_WITH_EXTRAS
from tests.simulation.mutant import PLAIN
from tests.simulation.runs import STEPS, check_seeds

# About two minutes of two processors in every run.
EVERYDAY_CHUNKS = 16
EVERYDAY_SEEDS_PER_CHUNK = 15
NIGHTLY_FIRST_SEED = 10_000
NIGHTLY_CHUNKS = 50
NIGHTLY_SEEDS_PER_CHUNK = 40


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(EVERYDAY_CHUNKS))
def test_seeds(chunk: int) -> None:
    first = 1 + chunk * EVERYDAY_SEEDS_PER_CHUNK
    check_seeds(range(first, first + EVERYDAY_SEEDS_PER_CHUNK))


@pytest.mark.parametrize(("seed", "steps", "what"), KNOWN_SEEDS)
def test_known_seed(seed: int, steps: int, what: str) -> None:
    check_seeds([seed], steps, PLAIN)


@pytest.mark.parametrize(("seed", "extras", "what"), KNOWN_SEEDS_WITH_EXTRAS)
def test_known_seed_with_extras(seed: int, extras: frozenset[str], what: str) -> None:
    check_seeds([seed], STEPS, Options(extras=extras))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("chunk", range(NIGHTLY_CHUNKS))
def test_many_seeds(chunk: int) -> None:
    first = NIGHTLY_FIRST_SEED + chunk * NIGHTLY_SEEDS_PER_CHUNK
    check_seeds(range(first, first + NIGHTLY_SEEDS_PER_CHUNK), STEPS)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(20_000, 20_040))
def test_long_history(seed: int) -> None:
    check_seeds([seed], 40_000)
