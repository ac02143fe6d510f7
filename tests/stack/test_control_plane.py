"""`up` with a control plane: what it starts, tells, loses and stops."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tidewheel.rest import Rest

from stack.control_plane import FIRST_PERSON
from tests.stack.test_killed_starts import a_start, let_go_on, running_in, wait_until_held
from tests.stack.test_up import COMMAND, TIMEOUT_S, Stacks, accepts_connections, until

# Several processes import much, on a machine that does other things meanwhile.
START_TIMEOUT_S = 180
PARTS = ("valkey", "control-plane", "worker")
# After all processes have been started, before any has said that it serves.
WHILE_PARTS_START = """
from stack import control_plane
begin = control_plane.ControlPlane._begin_part

def begin_and_hold(self, part):
    child = begin(self, part)
    hold()
    return child

control_plane.ControlPlane._begin_part = begin_and_hold
"""
BEFORE_THE_CELL_IS_TOLD = """
from stack import control_plane
control_plane.cell_of = hold
"""


class Wholes(Stacks):
    """Stacks of one broker with a control plane."""

    def up(self, data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        self._folders.append(data)
        options = ("--data", data, "--port", 0, "--brokers", 1)
        return self.run("up", "--detach", *options, *arguments)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )


@pytest.fixture
def stacks() -> Iterator[Wholes]:
    made = Wholes()
    yield made
    made.close()


def admin_of(status: dict[str, Any], data: Path) -> Rest:
    """The first person, logged in to the control plane of a stack."""
    url = status["control_plane"]["url"]
    body = {"email": FIRST_PERSON, "password": password_in(data)}
    answer = Rest(url).ask("POST", "/_allauth/app/v1/auth/login", body)
    assert answer.status == 200, answer.body
    return Rest(url, {"X-Session-Token": answer.body["meta"]["session_token"]})


def password_in(data: Path) -> str:
    return (data / "control-plane" / "password").read_text().strip()


def parts_of(status: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = status["control_plane"]["parts"]
    return parts


def is_reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


@pytest.mark.timeout(240)
def test_a_stack_comes_with_a_control_plane_and_goes_with_it(
    stacks: Wholes, tmp_path: Path
) -> None:
    started = stacks.up(tmp_path)
    assert started.returncode == 0, started.stderr
    status = stacks.status(tmp_path)
    url, parts = status["control_plane"]["url"], parts_of(status)
    assert set(parts) == set(PARTS)
    assert f"{url}/api/v1\n" in started.stdout
    assert f"{url}/api/v1/docs\n" in started.stdout
    assert password_in(tmp_path) in started.stdout
    assert is_reachable(url)
    for part in parts.values():
        # Neither secrets nor passwords are for everybody to see.
        words = " ".join(psutil.Process(part["pid"]).cmdline())
        assert password_in(tmp_path) not in words
        assert "postgresql://" not in words
        assert stat.S_IMODE(Path(part["log"]).stat().st_mode) == 0o600
    for path in (tmp_path / "control-plane").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    person = admin_of(status, tmp_path)
    (cell,) = person.items("/api/v1/cells")
    (broker,) = status["brokers"]
    assert cell["admin_endpoints"] == [f"127.0.0.1:{broker['cell_admin_port']}"]
    assert cell["bootstrap_servers"] == f"127.0.0.1:{broker['listeners']['SASL_PLAINTEXT']}"
    made = person.post("/api/v1/organizations", {"name": "Acme", "slug": "acme"}).body
    assert made["cell"]["name"] == "local"

    assert stacks.run("down", "--data", tmp_path).returncode == 0
    assert started_with(tmp_path) == []
    assert not any(psutil.pid_exists(part["pid"]) for part in parts.values())

    # Found again, with the cell where it is now, and without another first person.
    assert stacks.up(tmp_path).returncode == 0
    again = stacks.status(tmp_path)
    person = admin_of(again, tmp_path)
    (cell,) = person.items("/api/v1/cells")
    assert cell["admin_endpoints"] == [f"127.0.0.1:{again['brokers'][0]['cell_admin_port']}"]
    (organization,) = person.items("/api/v1/organizations")
    assert organization["id"] == made["id"]


@pytest.mark.timeout(240)
def test_parts_that_end_are_told_and_started_again_where_they_were(
    stacks: Wholes, tmp_path: Path
) -> None:
    assert stacks.up(tmp_path).returncode == 0
    before = stacks.status(tmp_path)
    for part in parts_of(before).values():
        os.kill(part["pid"], signal.SIGKILL)
    until(lambda: not any(parts_of(stacks.status(tmp_path)).values()))
    shown = stacks.run("status", "--data", tmp_path)
    assert shown.returncode == 0, "brokers go on"
    for name in ("control plane", "worker", "valkey"):
        assert f"  {name:<8}   not running   log " in shown.stdout
    stack_log = tmp_path / "logs" / "stack.log"
    until(lambda: stack_log.read_text().count('"part_ended"') == len(PARTS))

    refused = stacks.run("up", "--add", "worker", "--data", tmp_path)
    assert (refused.returncode, "up --add valkey" in refused.stderr) == (1, True)
    for part in PARTS:
        again = stacks.run("up", "--add", part, "--data", tmp_path)
        assert again.returncode == 0, again.stderr
    twice = stacks.run("up", "--add", "worker", "--data", tmp_path)
    assert (twice.returncode, "runs already" in twice.stderr) == (1, True)
    after = stacks.status(tmp_path)
    assert after["control_plane"]["url"] == before["control_plane"]["url"]
    assert parts_of(after)["valkey"]["port"] == parts_of(before)["valkey"]["port"]
    assert is_reachable(after["control_plane"]["url"])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_control_plane_without_its_supervisor_is_found_and_stopped(
    stacks: Wholes, tmp_path: Path
) -> None:
    assert stacks.up(tmp_path).returncode == 0
    status = stacks.status(tmp_path)
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: stacks.status(tmp_path)["supervisor_pid"] is None)
    refused = stacks.up(tmp_path)
    assert refused.returncode == 1
    for part in parts_of(status).values():
        assert str(part["pid"]) in refused.stderr
    stopped = stacks.run("down", "--data", tmp_path)
    assert stopped.returncode == 0
    for name in ("the control plane", "the worker", "Valkey", "broker 1", "Postgres"):
        assert name in stopped.stdout
    assert started_with(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "patch", [WHILE_PARTS_START, BEFORE_THE_CELL_IS_TOLD], ids=["parts", "cell"]
)
def test_a_killed_start_leaves_nothing_that_down_does_not_stop(
    stacks: Wholes, tmp_path: Path, patch: str
) -> None:
    with a_start(tmp_path, "--brokers", "1", held=patch) as process:
        wait_until_held(process)
        before = running_in(tmp_path)
        process.kill()
        process.wait(TIMEOUT_S)
    assert any("valkey" in words for words in before)
    assert stacks.run("down", "--data", tmp_path).returncode == 0
    # Who has not served yet finds by himself that nobody waits for him.
    until(lambda: not started_with(tmp_path))
    assert stacks.up(tmp_path).returncode == 0


def started_with(data: Path) -> list[int]:
    """The processes that were told of the folder `data`, by their environments too."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join([*process.cmdline(), *process.environ().values()])
        except psutil.Error:
            continue
        if process.pid != os.getpid() and str(data) in words:
            found.append(process.pid)
    return found


@pytest.mark.timeout(120)
def test_a_start_that_is_called_off_stops_what_it_has_started(tmp_path: Path) -> None:
    with a_start(tmp_path, "--brokers", "1", held=WHILE_PARTS_START) as process:
        wait_until_held(process)
        process.terminate()
        for _ in range(2):
            let_go_on(process)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert started_with(tmp_path) == []


@pytest.mark.timeout(120)
def test_a_preparation_that_fails_is_shown(tmp_path: Path) -> None:
    environment = os.environ | {"CONTROL_PLANE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x"}
    result = subprocess.run(
        [*COMMAND, "up", "--detach", "--data", tmp_path, "--port", "0", "--brokers", "1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 1
    assert "Preparing the control plane ended with status 1" in result.stderr
    assert "refused" in result.stderr
    assert started_with(tmp_path) == []


def test_without_one_there_is_none(stacks: Wholes, tmp_path: Path) -> None:
    started = stacks.up(tmp_path, "--no-control-plane")
    assert "api/v1" not in started.stdout
    status = stacks.status(tmp_path)
    assert (status["control_plane"], status["postgres"]) == (None, None)
    refused = stacks.run("up", "--add", "worker", "--data", tmp_path)
    assert (refused.returncode, "no control plane" in refused.stderr) == (1, True)
    assert accepts_connections(status["brokers"][0]["port"])
