"""Running seeds: one history from start to rest, and what came of it."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.simulation.cell import Cell, Options
from tests.simulation.world import Violation

STEPS = 5000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed ended. `failure` is None when all invariants held."""

    seed: int
    steps: int
    digest: int
    counters: Counter[str]
    failure: str | None
    story: tuple[str, ...] = ()


def run_seed(
    seed: int,
    steps: int = STEPS,
    options: Options | None = None,
    *,
    settles: bool = True,
    story: Callable[[str], None] | None = None,
) -> Outcome:
    """One history. A bug of the broker that shows as an exception is a failure like any other."""
    cell = Cell(seed, options, story)
    failure: str | None = None
    try:
        cell.start()
        cell.run(steps)
        if settles:
            cell.settle()
    except Violation as violation:
        failure = str(violation)
    except Exception:
        failure = traceback.format_exc()
    finally:
        cell.close()
    world = cell.world
    notes = () if failure is None else tuple(world.notes)
    return Outcome(seed, world.steps, world.digest, world.counters, failure, notes)


def check_seeds(
    seeds: Iterable[int], steps: int = STEPS, options: Options | None = None
) -> Counter[str]:
    """Run them all; returns what they reached, raises Violation with the command that shows it."""
    reached: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        outcome = run_seed(seed, steps, options)
        reached.update(outcome.counters)
        if outcome.failure is not None:
            failures.append(
                f"{outcome.failure}\n"
                f"    python -m tests.simulation --seed {seed} --steps {steps} --trace"
            )
    if failures:
        raise Violation("\n".join(failures))
    return reached
