"""Run one seed and tell its story: python -m tests.simulation --seed N --steps M [--trace]."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.runs import STEPS, run_seed

STORY_LINES = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trace", action="store_true", help="print the story as it happens")
    parser.add_argument("--no-settle", action="store_true", help="do not heal and check at the end")
    parser.add_argument("--quiet", action="store_true", help="only failures and the sum")
    arguments = parser.parse_args()
    failures = 0
    steps = 0
    reached: Counter[str] = Counter()
    started = time.perf_counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        begun = time.perf_counter()
        outcome = run_seed(
            seed,
            arguments.steps,
            settles=not arguments.no_settle,
            story=print if arguments.trace else None,
        )
        reached.update(outcome.counters)
        steps += outcome.steps
        if outcome.failure is not None:
            failures += 1
            if arguments.count == 1 and not arguments.trace:
                print("\n".join(outcome.story[-STORY_LINES:]))
            print(f"seed {seed}: {outcome.failure}")
        elif not arguments.quiet:
            took_s = time.perf_counter() - begun
            print(f"seed {seed}: {outcome.steps} steps, {took_s:.2f} s, {outcome.digest:08x}")
    took_s = time.perf_counter() - started
    for name, count in sorted(reached.items()):
        print(f"{count:>9} {name}")
    print(
        f"{arguments.count} seeds, {failures} failed, {steps} steps in {took_s:.1f} s "
        f"({steps / took_s:,.0f} steps/s)"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
