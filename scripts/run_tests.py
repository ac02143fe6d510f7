"""`./tidewheel test`: runs the tests of a level, with the machine's cores put to use.

Levels: everyday (default), --all adds the tests marked `slow`, --nightly adds those marked
`nightly`. What follows `--` goes to pytest as it is; so do paths and node ids before it. The
table of minutes per room and the search for leftover processes are plugins in tests/plugins, so
that plain pytest has them too; pytest's closing line stays the last line of the run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stack.help import CommandParser, positive_number, write_any_text

ROOT = Path(__file__).resolve().parent.parent
SELECTIONS = {
    "everyday": "not slow and not nightly",
    "all": "not nightly",
    "nightly": "slow or not slow",
}
WORKERS_MAX = 2
# At night a property has thirty times the examples, and more of a test's time.
NIGHTLY_TIMEOUT_S = 3600


def pytest_arguments(level: str, workers: int, paths: list[str], extra: list[str]) -> list[str]:
    """The command line for pytest: options of ours first, so that the caller's win."""
    arguments = ["-m", SELECTIONS[level], "--durations=5", "--durations-min=5"]
    if level == "nightly":
        arguments.append(f"--timeout={NIGHTLY_TIMEOUT_S}")
    if workers > 1:
        # A file's tests stay together: they share the brokers that its fixtures start. Their order
        # is that of the collection, where the long ones are first.
        arguments += ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    return [*arguments, *paths, *extra]


def main() -> int:
    write_any_text()
    own, separator, extra = sys.argv[1:], "--", []
    if separator in own:
        cut = own.index(separator)
        own, extra = own[:cut], own[cut + 1 :]
    parser = CommandParser(
        prog="./tidewheel test",
        description="Run the tests. What follows `--` goes to pytest as it is.",
    )
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--all", action="store_true", help="Also what is slow.")
    level.add_argument("--nightly", action="store_true", help="Also what is open-ended.")
    parser.add_argument(
        *("-n", "--workers"), type=positive_number, metavar="N", help="Processes side by side."
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="Only these files, folders or tests."
    )
    options = parser.parse_args(own)
    for path in options.paths:
        # Beside its workers pytest would not say it.
        if not (ROOT / path.partition("::")[0]).exists():
            parser.error(f"There is no {path} here")
    name = "nightly" if options.nightly else "all" if options.all else "everyday"
    workers = options.workers or min(WORKERS_MAX, os.cpu_count() or 1)

    os.environ["TIDEWHEEL_TEST_LEVEL"] = name
    os.chdir(ROOT)
    arguments = pytest_arguments(name, workers, options.paths, extra)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


if __name__ == "__main__":
    sys.exit(main())
