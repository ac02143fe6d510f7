"""Every planted bug is found within its budget of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutant import Mutant, hunt
from tests.simulation.mutants import MUTANTS


def test_there_are_enough_and_each_has_its_name() -> None:
    assert len(MUTANTS) >= 100
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


# Those that the first seeds find, for every run.
QUICK = [mutant for mutant in MUTANTS if mutant.is_quick]
OTHERS = [mutant for mutant in MUTANTS if not mutant.is_quick]


def _find(mutant: Mutant) -> None:
    tried, killed = hunt(mutant)
    assert killed is not None, f"{mutant.name} ({mutant.wrong}) lives after {tried} seeds"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", OTHERS, ids=lambda mutant: mutant.name)
def test_is_killed(mutant: Mutant) -> None:
    _find(mutant)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_is_killed_at_once(mutant: Mutant) -> None:
    _find(mutant)
