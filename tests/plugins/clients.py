"""Lets go of the librdkafka clients that a test has left in a reference cycle.

An exception that a test has looked at (`pytest.raises(…) as refused`) holds the frames that it
passed through, one of which holds the exception: a cycle, and whatever these frames have at hand is
in it. The garbage collector comes by in its own time, which in a long run is minutes. Until then
the threads of a client in there go on trying to reach its broker, which is gone; they take the
processor from other tests, write to stderr, and are met by whoever looks at this process.

A client is known by its threads, so that a test without one costs next to nothing. What a fixture
of a wider scope holds is not garbage and stays. On systems without /proc nothing is done.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

TASKS = Path("/proc/self/task")
NAME_PREFIX = "rdk:"


def client_threads() -> frozenset[str]:
    """The ids of librdkafka's threads in this process."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for task in TASKS.iterdir():
            # A thread that is at its end is no file any more.
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().startswith(NAME_PREFIX):
                    found.add(task.name)
    return frozenset(found)


class Clients:
    """One process's."""

    def __init__(self) -> None:
        # Those of fixtures: they were there after collecting, too.
        self._known = frozenset[str]()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        try:
            return (yield)
        finally:
            left = client_threads()
            if left - self._known:
                gc.collect()
                left = client_threads()
            self._known = left


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Clients(), "tidewheel-clients")
