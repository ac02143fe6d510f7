"""Adds up how long each room's tests took, and prints the table before pytest's closing line.

A room is the folder under tests/. Times are those of the tests with their set-up and tear-down,
summed over all workers, so that two workers for one minute are two minutes here. It also knows
which files are long, and has them begin first.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

LONG_FILES = ("tests/crash/", "tests/log/test_sync_sites.py", "tests/stack/", "tests/faults/")
"""These take minutes. They go first, so that no worker begins one when the other is done."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first; otherwise the (random) order stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))


def room_of(node_id: str) -> str:
    """`tests/log/test_x.py::test_y` → `log`; files directly in tests/ are the room `tests`."""
    parts = node_id.split("::", 1)[0].split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else parts[0]


class RoomTimes:
    """Listens to the reports of all workers; lives in the controlling process only."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        room = room_of(report.nodeid)
        self._seconds[room] += report.duration
        if report.skipped:
            self._skipped[room] += 1
        elif report.failed:
            self._failed[room] += 1
        elif report.when == "call":
            self._tests[room] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._seconds) == 0:
            return
        terminalreporter.write_sep("=", "minutes per room")
        terminalreporter.write_line(
            f"{'room':<20} {'minutes':>8} {'passed':>8} {'failed':>8} {'skipped':>8}"
        )
        for room, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(
                f"{room:<20} {seconds / 60:>8.2f} {self._tests[room]:>8}"
                f" {self._failed[room]:>8} {self._skipped[room]:>8}"
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RoomTimes(), "tidewheel-room-times")
