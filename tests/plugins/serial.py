"""Runs tests marked `serial` alone, although the workers of a run work side by side.

Every test holds a shared file lock while it runs, a serial one an exclusive lock. All pass through
a turnstile first, where a waiting serial test stops those that come after it; without it, two busy
workers could keep it waiting for ever. The locks are taken around pytest's whole protocol for one
test, so that waiting does not count against the test's time-out.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

VARIABLE = "TIDEWHEEL_TEST_LOCKS"


class SerialTests:
    """One process's handles on the run's two lock files."""

    def __init__(self, folder: Path) -> None:
        self._turnstile = (folder / "turnstile").open("w")
        self._stage = (folder / "stage").open("w")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        alone = item.get_closest_marker("serial") is not None
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        fcntl.flock(self._stage, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._turnstile, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            fcntl.flock(self._stage, fcntl.LOCK_UN)

    def pytest_unconfigure(self) -> None:
        self._turnstile.close()
        self._stage.close()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="tidewheel-test-locks-")
        os.environ[VARIABLE] = folder.name
        config.add_cleanup(folder.cleanup)
    config.pluginmanager.register(SerialTests(Path(os.environ[VARIABLE])), "tidewheel-serial")
