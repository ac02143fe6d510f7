"""All planted bugs, and how to try them: python -m tests.simulation.mutants [--only NAME]."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mutant import Mutant, hunt
from tests.simulation.mutants_broker import BROKER_MUTANTS
from tests.simulation.mutants_cell import CELL_MUTANTS
from tests.simulation.mutants_follower import FOLLOWER_MUTANTS
from tests.simulation.mutants_replica import REPLICA_MUTANTS

# Planted bugs that no check has caught within some tens of seeds: a second guard in the code
# catches what they let through, or three things have to happen within a second. Not part of the
# tests; to be tried with --only after the workload or a check has become better.
NOT_FOUND_YET = frozenset(
    {
        "answers of any request taken",
        "ISR of a deposed leader",
        "append in any epoch",
        "divergence by offset only",
        "fetch before the sync",
        "own epoch unknown",
        "progress survives epochs",
        "stale broker epoch joins",
    }
)

ALL_MUTANTS: tuple[Mutant, ...] = (
    *REPLICA_MUTANTS,
    *FOLLOWER_MUTANTS,
    *CELL_MUTANTS,
    *BROKER_MUTANTS,
)

MUTANTS: tuple[Mutant, ...] = tuple(one for one in ALL_MUTANTS if one.name not in NOT_FOUND_YET)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those with this in their name")
    arguments = parser.parse_args()
    survivors = 0
    for mutant in ALL_MUTANTS if arguments.only else MUTANTS:
        if arguments.only not in mutant.name:
            continue
        started = time.perf_counter()
        tried, killed = hunt(mutant)
        took_s = time.perf_counter() - started
        if killed is None or killed.failure is None:
            survivors += 1
            print(f"LIVES   {mutant.name}: {tried} seeds, {took_s:.1f} s")
        else:
            reason = killed.failure.strip().splitlines()[-1][:150]
            print(f"killed  {mutant.name}: seed {killed.seed}, {tried} tried, {took_s:.1f} s")
            print(f"            {reason}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
