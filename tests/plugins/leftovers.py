"""A test run that leaves processes behind fails, and the processes are stopped.

Whatever a test starts inherits an environment variable that names this run, daemons included, so
the processes of other runs and other programs are never taken for ours. Processes that a test
should have stopped get a moment to end by themselves, because the last test may just have asked
them to. What clears its environment is not seen.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

MARKER = "TIDEWHEEL_TEST_RUN"
GRACE_S = 3.0
LEFTOVERS = pytest.StashKey[list[str]]()


def processes_marked(run: str) -> list[psutil.Process]:
    """All processes other than this one whose initial environment names the run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARKER) == run:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"pid {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"pid {process.pid}"


def stop_leftovers(run: str, grace_s: float = GRACE_S) -> list[str]:
    """Wait for the run's processes to end, kill those that do not, and describe the killed."""
    deadline = time.monotonic() + grace_s
    remaining = processes_marked(run)
    while remaining and time.monotonic() < deadline:
        time.sleep(0.05)
        remaining = processes_marked(run)
    descriptions = [_describe(process) for process in remaining]
    for process in remaining:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(remaining, timeout=grace_s)
    return descriptions


class Leftovers:
    """The controlling process's side: looks once, when all workers have gone."""

    def __init__(self, run: str) -> None:
        self._run = run

    # After xdist has ended its workers, which no wrapper does; before the terminal's wrapper
    # prints the summary.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        found = stop_leftovers(self._run)
        session.config.stash[LEFTOVERS] = found
        if found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        found = config.stash.get(LEFTOVERS, [])
        if found:
            terminalreporter.write_sep("=", "processes left behind", red=True)
            for line in found:
                terminalreporter.write_line(line)
            terminalreporter.write_line("The run failed because tests did not stop these.")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    run = uuid.uuid4().hex
    os.environ[MARKER] = run
    config.pluginmanager.register(Leftovers(run), "tidewheel-leftovers")
