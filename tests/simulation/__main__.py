"""Run one seed and tell its story: python -m tests.simulation --seed N --steps M [--trace]."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.cell import Cell
from tests.simulation.world import Violation

STORY_LINES = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--trace", action="store_true", help="print the story as it happens")
    parser.add_argument("--no-settle", action="store_true", help="leave the cell as it is then")
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        cell = Cell(seed, story=print if arguments.trace else None)
        started = time.perf_counter()
        try:
            cell.start()
            cell.run(arguments.steps)
            if not arguments.no_settle:
                cell.settle()
        except Violation as violation:
            failures += 1
            if arguments.count == 1 and not arguments.trace:
                print("\n".join(list(cell.world.notes)[-STORY_LINES:]))
            print(f"seed {seed}: {violation}")
            continue
        took_s = time.perf_counter() - started
        world = cell.world
        print(
            f"seed {seed}: {world.steps} steps, {world.now_us / 1e6:.1f} s of the cell in "
            f"{took_s:.2f} s ({world.steps / took_s:,.0f} steps/s), digest {world.digest:08x}"
        )
        if arguments.count == 1:
            for name, count in sorted(world.counters.items()):
                print(f"  {count:>7} {name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
