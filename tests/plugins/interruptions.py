"""Prints, per fault, how long producing was interrupted: median and maximum over all that was seen.

Tests of tests/faults note figures with `record_property("interruption", [fault, seconds])`; pytest
carries them to the controlling process with the report of the test.
"""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest

PROPERTY = "interruption"


class Interruptions:
    """Listens to the reports of all workers; lives in the controlling process only."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list):
                fault, seconds = value
                self._seconds[str(fault)].append(float(seconds))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        terminalreporter.write_sep("=", "producing interrupted, per partition")
        terminalreporter.write_line(f"{'fault':<52} {'seen':>6} {'median s':>9} {'max s':>9}")
        for fault, seconds in sorted(self._seconds.items()):
            terminalreporter.write_line(
                f"{fault:<52} {len(seconds):>6} {statistics.median(seconds):>9.2f}"
                f" {max(seconds):>9.2f}"
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Interruptions(), "tidewheel-interruptions")
