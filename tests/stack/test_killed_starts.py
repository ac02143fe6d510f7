"""A supervisor that is killed or stopped while it starts its parts leaves nothing that nobody
finds; what goes wrong beside a stack does not end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stack import inspect
from stack.broker_process import BrokerLaunch, BrokerProcess
from stack.errors import StackError
from stack.events import StackEvent
from stack.folder import StackFolder
from stack.options import StackOptions
from stack.postgres import find_leftover, stop_leftover
from stack.processes import identify
from stack.requests import Action
from stack.supervisor import Supervisor
from tests.stack.test_cell import Cells
from tests.stack.test_up import COMMAND, TIMEOUT_S, until


@pytest.fixture
def cells() -> Iterator[Cells]:
    made = Cells()
    yield made
    made.close()


# A supervisor that waits for its test at a moment that the test wants to look at: however slow the
# test is, it goes no further. `hold` does that; `{patch}` says when.
HELD = """
import sys
from stack import broker_process, postgres, supervisor
from stack.__main__ import main

def hold(*_arguments):
    print("held", flush=True)
    sys.stdin.readline()

{patch}
sys.exit(main())
"""
WHEN_ALL_BROKERS_ARE_STARTED = "supervisor.wait_for_word = hold"
WHEN_POSTGRES_IS_STARTED = "postgres.PostgresServer._is_ready = hold"
BEFORE_AND_AFTER_A_BROKER_IS_STARTED = """
class Held(broker_process.BrokerProcess):
    def __init__(self, launch):
        hold()
        super().__init__(launch)
        hold()
supervisor.BrokerProcess = Held
"""


@contextlib.contextmanager
def a_start(data: Path, *options: str, held: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """`up` with this folder, which is killed at last; `held` says when its supervisor is held."""
    command = COMMAND
    if held is not None:
        command = [sys.executable, "-P", "-c", HELD.format(patch=held)]
    with subprocess.Popen(
        [*command, "up", "--data", str(data), "--port", "0", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def starting(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A cell that is about to start in `tmp_path`; as a parameter: when its supervisor is held."""
    held = getattr(request, "param", None)
    with a_start(tmp_path, "--no-control-plane", held=held) as process:
        yield process


def state_of(data: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((data / "stack.json").read_text())
    except FileNotFoundError:
        return {"brokers": [], "postgres": None, "is_up": False}
    return state


def wait_until_held(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "held\n":
        assert line, "it has ended"


def let_go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def has_served(data: Path, broker_id: int) -> bool:
    # The last line may only be half there.
    lines = (data / "logs" / f"broker-{broker_id}.log").read_text().split("\n")[:-1]
    return any(json.loads(line)["event"] == "ready" for line in lines)


def running_in(data: Path) -> list[str]:
    """The command lines of the processes that name the folder `data`."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            if str(data) in command:
                found.append(command)
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("starting", [WHEN_ALL_BROKERS_ARE_STARTED], indirect=True, ids=["held"])
def test_what_a_killed_start_left_is_seen_and_stopped(
    cells: Cells, starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait_until_held(starting)
    state = state_of(tmp_path)
    assert (len(state["brokers"]), state["is_up"]) == (3, False)
    # Brokers that have not said yet that they serve would end by themselves.
    until(lambda: all(has_served(tmp_path, broker_id) for broker_id in (1, 2, 3)))
    starting.kill()
    starting.wait(TIMEOUT_S)
    pids = [state["postgres"]["pid"], *(broker["pid"] for broker in state["brokers"])]

    seen = cells.run("status", "--data", tmp_path)
    assert (seen.returncode, "but parts of one" in seen.stdout) == (1, True)
    assert f"down --data {tmp_path} stops them" in seen.stdout
    assert all(f"pid {pid}" in seen.stdout for pid in pids)
    refused = cells.up(tmp_path)
    assert refused.returncode == 1
    assert all(str(pid) in refused.stderr for pid in pids)
    stopped = cells.run("down", "--data", tmp_path)
    assert "Stopped broker 1, broker 2, broker 3, Postgres" in stopped.stdout
    assert not any(map(identify, pids))
    assert not (tmp_path / "stack.json").exists()
    assert cells.up(tmp_path).returncode == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("starting", [WHEN_POSTGRES_IS_STARTED], indirect=True, ids=["held"])
def test_a_postgres_that_no_state_file_names_is_stopped(
    cells: Cells, starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    wait_until_held(starting)
    starting.kill()
    starting.wait(TIMEOUT_S)
    until(lambda: find_leftover(tmp_path / "postgres") is not None)
    leftover = find_leftover(tmp_path / "postgres")
    assert leftover is not None
    (tmp_path / "stack.json").unlink()
    assert "down" in cells.up(tmp_path).stderr
    assert "Stopped Postgres" in cells.run("down", "--data", tmp_path).stdout
    assert leftover.wait_gone(0)
    assert "No stack runs" in cells.run("down", "--data", tmp_path).stdout
    assert running_in(tmp_path) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "starting", [BEFORE_AND_AFTER_A_BROKER_IS_STARTED], indirect=True, ids=["held"]
)
def test_a_broker_that_no_state_file_names_ends_by_itself(
    cells: Cells, starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    # It waits for a metadata store that is not there any more when it starts.
    wait_until_held(starting)
    assert stop_leftover(tmp_path / "postgres")
    let_go_on(starting)
    wait_until_held(starting)
    # Started right before the supervisor is killed, and not written down yet.
    assert state_of(tmp_path)["brokers"] == []
    assert [command for command in running_in(tmp_path) if "-m features" in command] != []
    starting.kill()
    starting.wait(TIMEOUT_S)
    until(lambda: running_in(tmp_path) == [])
    (tmp_path / "stack.json").unlink()
    assert cells.up(tmp_path).returncode == 0


@pytest.mark.timeout(120)
def test_down_stops_a_stack_that_is_starting(
    cells: Cells, starting: subprocess.Popen[str], tmp_path: Path
) -> None:
    until(lambda: bool(state_of(tmp_path)["brokers"]))
    pids = [broker["pid"] for broker in state_of(tmp_path)["brokers"]]
    again = cells.run("up", "--data", tmp_path)
    stopped = cells.run("down", "--data", tmp_path)
    assert "Stopped" in stopped.stdout
    _, errors = starting.communicate(timeout=TIMEOUT_S)
    # It depends on the machine whether it was up by then.
    assert (starting.returncode, "Stopped before" in errors) in ((130, True), (0, False))
    assert again.returncode == 1
    assert "just starting" in again.stderr or "already runs" in again.stderr
    assert not any(map(identify, pids))
    assert find_leftover(tmp_path / "postgres") is None
    assert not (tmp_path / "stack.json").exists()


def test_down_waits_for_nobody_who_has_the_folder(cells: Cells, tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    lock = folder.lock()
    assert lock is not None
    busy = cells.run("down", "--data", tmp_path)
    assert (busy.returncode, "just starting or stopping" in busy.stderr) == (1, True)
    os.close(lock)


def test_nothing_is_stopped_while_somebody_else_has_the_folder(tmp_path: Path) -> None:
    # Between the look at the lock and the stopping another `up` may have begun.
    folder = StackFolder(tmp_path)
    lock = folder.lock()
    assert lock is not None
    with pytest.raises(StackError, match="just starting or stopping"):
        inspect._stop_orphans(folder, None)
    os.close(lock)
    assert inspect._stop_orphans(folder, None) == []
    assert not folder.is_locked()


def test_a_state_file_that_cannot_be_written_ends_no_stack(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, brokers=1, port=0)
    reported: list[StackEvent] = []
    with Supervisor(options) as supervisor:
        (tmp_path / "stack.json").unlink()
        in_the_way = tmp_path / "stack.json"
        in_the_way.mkdir()
        (tmp_path / "request.json").write_text(
            json.dumps({"id": "a5", "action": Action.STOP, "part": "broker-9"})
        )
        assert supervisor.watch(reported.append)
        assert [str(event) for event in reported] == ["Broker 9 does not run; 1 does."]
        in_the_way.rmdir()
        assert supervisor.watch(reported.append)
        state = StackFolder(tmp_path).read_state()
        assert state == supervisor.state


def test_requests_that_fail_are_answered(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, brokers=1, port=0)
    with Supervisor(options) as supervisor:
        for action, part, says in (
            (Action.START, "broker-1", "runs already"),
            (Action.START, "postgres", "no Postgres of its own"),
            (Action.STOP, "broker-1", "the last broker"),
        ):
            (tmp_path / "request.json").write_text(
                json.dumps({"id": "a5", "action": action, "part": part})
            )
            assert supervisor.watch(lambda event: None)
            answer = json.loads((tmp_path / "answer-a5.json").read_text())
            assert answer["exit_status"] == 1
            assert says in answer["error"]


def test_a_new_broker_gets_a_port_that_no_other_of_the_stack_has(tmp_path: Path) -> None:
    supervisor = Supervisor(StackOptions(tmp_path, port=9092))
    supervisor._last_ports = {1: 9092, 2: 9093, 3: 9094, 4: 9095}
    # Broker 2 was removed, with its folder; its port is the first that is free again.
    assert supervisor._port_of(5, [1, 3, 4]) == 9093
    assert supervisor._port_of(5, [1, 2, 3, 4]) == 9096
    assert supervisor._port_of(3, [1, 3, 4]) == 9094
    assert Supervisor(StackOptions(tmp_path, port=0))._port_of(1, []) == 0
    # Nobody knows yet where broker 5 serves, but where it is going to.
    launch = BrokerLaunch(
        *(5, tmp_path, tmp_path / "log", "id"), port=9096, prefix=(sys.executable, "-c", "")
    )
    supervisor.brokers.append(BrokerProcess(launch))
    assert supervisor._port_of(6, [1, 2, 3, 4]) == 9097
    supervisor.stop()


def test_what_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "STOP_TIMEOUT_S", 0.1)
    deaf = (
        "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        identity = identify(process.pid)
        assert identity is not None
        inspect._stop(identity)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
