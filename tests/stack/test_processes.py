"""Processes are told apart by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from stack.processes import ProcessIdentity, identify


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_running_process_is_alive_until_it_is_killed() -> None:
    with sleeper() as child:
        identity = identify(child.pid)
        assert identity is not None
        assert identity.is_alive()
        assert identity.signal(signal.SIGKILL)
        assert identity.wait_gone(5)
        # Not collected yet: a zombie is as gone as can be.
        assert not identity.is_alive()
        assert identify(child.pid) is None


def test_what_does_not_end_when_it_is_asked_to_is_killed() -> None:
    with sleeper() as child:
        identity = identify(child.pid)
        assert identity is not None
        # It may take this one as long as it likes.
        assert identity.end(signal.SIGCONT, 0)
        assert child.wait() == -signal.SIGKILL
        assert identity.end(signal.SIGTERM, 0)


def test_a_reused_pid_is_another_process() -> None:
    identity = identify(os.getpid())
    assert identity is not None
    earlier = ProcessIdentity(identity.pid, identity.started + "0")
    assert not earlier.is_alive()
    assert not earlier.signal(signal.SIGTERM)
    assert earlier.wait_gone(0)


def test_waiting_for_a_living_process_ends_in_time() -> None:
    with sleeper() as child:
        identity = identify(child.pid)
        assert identity is not None
        assert not identity.wait_gone(0.1)
        child.kill()


def test_no_process_has_no_identity() -> None:
    assert identify(2**22 + 1) is None
