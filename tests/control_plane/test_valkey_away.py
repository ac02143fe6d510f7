"""A worker whose Valkey goes away again and again, with tasks in its hands, goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.child import Child, child_environment
from stack.valkey import ValkeyServer
from tests.kept_port import KeptPort

KILLS = 12
SECONDS_MAX = 60.0
# Each task waits for five seconds for a database, so that some are in its hands at any time.
NOBODY = "postgresql://127.0.0.1:1/nobody"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_worker_outlives_its_valkey(tmp_path: Path) -> None:
    kept = KeptPort()
    valkey = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log", port=kept.port)
    valkey.start()
    environment = child_environment(
        {
            "DJANGO_SETTINGS_MODULE": "control_plane.settings.development",
            "DATABASE_URL": NOBODY,
            "VALKEY_URL": valkey.url,
        }
    )
    log = tmp_path / "worker.log"
    command = [sys.executable, "-P", "-m", "control_plane.work"]
    worker = Child("The worker", command, log, environment)

    def tasks() -> int:
        return log.read_text().count("raised unexpected: OperationalError")

    def until(what: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + SECONDS_MAX
        while not what():
            assert worker.poll() is None, f"it ended with status {worker.poll()}"
            assert time.monotonic() < deadline_s, log.read_text()[-3000:]
            time.sleep(0.05)

    def wait_for_task() -> None:
        before = tasks()
        until(lambda: tasks() > before)

    try:
        until(lambda: worker.look_said() is not None)
        for number in range(KILLS):
            wait_for_task()
            valkey.kill_now()
            valkey.stop()
            time.sleep(0.1 * (number % 4))
            valkey.start()
        wait_for_task()
        assert "Unrecoverable" not in log.read_text()
    finally:
        worker.kill()
        valkey.stop()
