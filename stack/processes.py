"""Which process is which: a process id together with when that process started.

Process ids are used again after a while. A pid that was written to a file is therefore worth
nothing by itself; with the start time it names one process for ever, across reboots too. Zombies
count as dead: they serve nobody, whoever forgets to collect them.

This module signals only what it has identified. It knows nothing of brokers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals

POLL_S = 0.02
KILL_TIMEOUT_S = 10.0
"""For what is killed to be gone."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. `started` is opaque: only equality means something."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        return _started(self.pid) == self.started

    def signal(self, number: Signals) -> bool:
        """Send a signal. False when the process is gone (or its pid is another's by now)."""
        if not self.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process is gone. False when it still lives after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True

    def end(self, number: Signals, timeout_s: float) -> bool:
        """Ask it with a signal to end, and kill it when it takes too long. False when it lives even
        then."""
        self.signal(number)
        if self.wait_gone(timeout_s):
            return True
        self.signal(SIGKILL)
        return self.wait_gone(KILL_TIMEOUT_S)


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a running process, None when there is none with this pid."""
    started = _started(pid)
    return None if started is None else ProcessIdentity(pid, started)


def runs_in(pid: int, program: str, folder: Path) -> bool:
    """Whether a process is this program with its data in this folder, as far as its command line
    shows."""
    command = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return program in command and str(folder) in command


def _started(pid: int) -> str | None:
    return _started_linux(pid) if sys.platform == "linux" else _started_ps(pid)


def _started_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; the fields behind it are the third on.
    fields = stat.rpartition(")")[2].split()
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{_boot_id()}:{start_ticks}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]


def _started_ps(pid: int) -> str | None:
    result = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = result.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
