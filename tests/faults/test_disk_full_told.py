"""The disk of a broker that is alone is full: everybody who looks is told which, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import disks

STACK = [sys.executable, "-P", "-m", "stack"]
CLIENT = [sys.executable, "-m", "tidewheel.cli.main"]
TIMEOUT_S = 120
DISK_MEBIBYTES = 40
# Messages wait for 30 s in vain; whoever is told why need not.
TOLD_WITHIN_S = 25
MESSAGES = ["one", "two", "three"]
LARGE_BYTES = 300_000


class Newcomer:
    """Somebody who types commands."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = ""

    def stack(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([*STACK, *words])

    def up(self) -> None:
        sizes = ("log.segment.bytes=1048576", "log.index.size.max.bytes=65536")
        settings = [word for size in sizes for word in ("--set", size)]
        words = ["--data", str(self.data), "--brokers", "1", "--port", "0", "--detach"]
        words.append("--no-control-plane")
        done = self.stack("up", *words, *settings)
        assert done.returncode == 0, done.stderr
        self.url = self.status()["bootstrap"]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.stack("status", "--data", str(self.data), "--json").stdout
        )
        return found

    def client(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return self._run([*CLIENT, *words], given)

    def _run(self, words: list[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=given,
            env={**os.environ, "TIDEWHEEL_URL": self.url},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def page(self, path: str) -> str:
        """Of the broker's HTTP port, whatever its status is."""
        (broker,) = self.status()["brokers"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker['metrics_port']}/{path}") as got:
                return str(got.read().decode())
        except urllib.error.HTTPError as refused:
            return refused.read().decode()


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    with disks.small_disk(tmp_path / "small", DISK_MEBIBYTES) as disk:
        newcomer = Newcomer(disk / "data")
        newcomer.up()
        yield newcomer
        newcomer.stack("down", "--data", str(newcomer.data))


@pytest.mark.skipif(bool(disks.why_unavailable()), reason=disks.why_unavailable() or "available")
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_full_disk_is_named_by_everything_that_is_asked(newcomer: Newcomer) -> None:
    directory = str(newcomer.data / "broker-1")
    assert newcomer.client("topics", "create", "orders", "--partitions", "1").returncode == 0
    assert newcomer.client("produce", "orders", *MESSAGES).returncode == 0
    filler = disks.fill(newcomer.data.parent)
    large = os.urandom(LARGE_BYTES).hex()

    def told(*words: str, given: str | None = None) -> None:
        """A command fails in good time, with directory and remedy."""
        started_s = time.monotonic()
        done = newcomer.client(*words, given=given)
        assert done.returncode == 1, done
        assert time.monotonic() - started_s < TOLD_WITHIN_S, done
        assert directory in done.stderr
        assert "full or has failed" in done.stderr
        assert "make room there" in done.stderr

    told("produce", "orders", given=large)
    told("produce", "orders", "another")
    told("consume", "orders", "--until-end")
    listed = newcomer.client("partitions", "--troubled")
    assert "no leader" in listed.stdout
    assert directory in listed.stderr

    health = json.loads(newcomer.page("healthz"))
    assert health["status"] == "failed"
    (offline,) = health["offline_log_directories"]
    assert (offline["directory"], "make room" in offline["what_to_do"]) == (directory, True)
    assert "tidewheel_offline_log_directories 1.0" in newcomer.page("metrics").splitlines()
    status = newcomer.stack("status", "--data", str(newcomer.data)).stdout
    assert f"failed: {directory} is offline" in status
    assert "No space left on device" in status
    assert f"down --data {newcomer.data}" in status

    # Who does as told has everything back.
    filler.unlink()
    assert newcomer.stack("down", "--data", str(newcomer.data)).returncode == 0
    newcomer.up()
    read = newcomer.client("consume", "orders", "--until-end", "--values")
    assert read.stdout.splitlines()[: len(MESSAGES)] == MESSAGES
    assert newcomer.client("produce", "orders", "and on").returncode == 0
    assert newcomer.client("partitions", "--troubled").stdout == "No partition is in trouble.\n"
    assert json.loads(newcomer.page("healthz"))["status"] == "ok"
