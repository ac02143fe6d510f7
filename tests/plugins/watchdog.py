"""Ends the process of a test that goes on after its time-out, and says on stderr where it stands.

pytest-timeout raises in the main thread, which cannot help when that thread is in C and holds the
interpreter, or when the exception is swallowed where it is raised. The run would go on for ever
without a word. Here a thread that needs no interpreter waits DELAY_S longer than the time-out; then
it writes the stacks of all threads and ends the process. A worker's end is told as the failure of
its test, and another worker takes over.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

# Enough for the time-out to be reported and the test's fixtures to stop their processes.
DELAY_S = 60.0


def time_out_s(item: pytest.Item) -> float:
    """The test's own time-out, or else the run's, as pytest-timeout takes them; 0 when none."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and (marker.args or "timeout" in marker.kwargs):
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    wanted = item.config.getoption("timeout", None)
    return float(item.config.getini("timeout") or 0 if wanted is None else wanted)


class Watchdog:
    """One process's."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        # Now it is still that of the process; tests get one that is captured.
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        time_s = time_out_s(item)
        if time_s > 0:
            faulthandler.dump_traceback_later(time_s + self._delay_s, file=self._stderr, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_unconfigure(self) -> None:
        os.close(self._stderr)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("watchdog_delay_s", "seconds after a test's time-out", default=str(DELAY_S))


def pytest_configure(config: pytest.Config) -> None:
    watchdog = Watchdog(float(config.getini("watchdog_delay_s")))
    config.pluginmanager.register(watchdog, "tidewheel-watchdog")
