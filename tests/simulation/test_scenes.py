"""Directed histories end well on sound code, and get to where they want to go."""

from __future__ import annotations

import pytest

from tests.simulation import scenes
from tests.simulation.runs import run_seed
from tests.simulation.stage import Play

STEPS = 7000
# Chance decides who is elected: a play need not get there with every seed.
SEEDS = range(1, 7)
NIGHTLY_SEEDS = range(30_000, 30_020)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("play", list(scenes.PLAYS), ids=lambda play: play.__name__)
def test_ends_well(play: Play) -> None:
    for seed in SEEDS:
        outcome = run_seed(seed, STEPS, scenes.options(play))
        assert outcome.failure is None, outcome.failure
        if any(name.startswith("play: ") for name in outcome.counters):
            return
    raise AssertionError("it does not get there")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("play", list(scenes.PLAYS), ids=lambda play: play.__name__)
def test_ends_well_always(play: Play) -> None:
    for seed in NIGHTLY_SEEDS:
        outcome = run_seed(seed, 2 * STEPS, scenes.options(play))
        assert outcome.failure is None, outcome.failure
