"""`up`, `down` and `status` with real brokers: every way to start, find, stop and lose a stack. Its
control plane has tests of its own (test_control_plane.py)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stack.broker_process import STOP_TIMEOUT_S

COMMAND = [sys.executable, "-P", "-m", "stack"]
TIMEOUT_S = 60


class Stacks:
    """Runs the stack's commands, and stops every stack that a test has left running."""

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    def up(self, data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        self._folders.append(data)
        options = ("--data", data, "--port", 0, "--brokers", 1, "--no-control-plane")
        return self.run("up", "--detach", *options, *arguments)

    def status(self, data: Path) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.run("status", "--json", "--data", data).stdout)
        return result

    def close(self) -> None:
        for folder in self._folders:
            self.run("down", "--data", folder)


@pytest.fixture
def stacks() -> Iterator[Stacks]:
    made = Stacks()
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def accepts_connections(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_detached_stack_is_found_and_stopped(stacks: Stacks, tmp_path: Path) -> None:
    started = stacks.up(tmp_path, "--first-id", 5)
    assert started.returncode == 0, started.stderr
    status = stacks.status(tmp_path)
    (broker,) = status["brokers"]
    assert broker["id"] == 5
    assert status["running"] is True
    assert status["bootstrap"] == f"127.0.0.1:{broker['port']}"
    assert status["bootstrap"] in started.stdout
    assert psutil.Process(broker["pid"]).cmdline()[-1].isdigit()
    assert accepts_connections(broker["port"])
    assert accepts_connections(broker["metrics_port"])
    assert stacks.run("status", "--data", tmp_path).returncode == 0

    again = stacks.up(tmp_path)
    assert again.returncode == 1
    assert "already runs" in again.stderr
    assert f"down --data {shlex.quote(str(tmp_path))}" in again.stderr
    assert f"up --add --data {shlex.quote(str(tmp_path))}" in again.stderr
    assert status["bootstrap"] in again.stderr

    stopped = stacks.run("down", "--data", tmp_path)
    assert stopped.returncode == 0
    assert not psutil.pid_exists(broker["pid"])
    assert not accepts_connections(broker["port"])
    assert stacks.status(tmp_path)["running"] is False
    assert stacks.run("status", "--data", tmp_path).returncode == 1
    assert stacks.run("down", "--data", tmp_path).returncode == 0

    other = stacks.up(tmp_path, "--first-id", 1)
    assert other.returncode == 2
    assert "data of broker 5" in other.stderr
    assert stacks.up(tmp_path).returncode == 0
    assert stacks.status(tmp_path)["brokers"][0]["id"] == 5


def test_what_the_banner_says_to_try_works(stacks: Stacks, tmp_path: Path) -> None:
    banner = stacks.up(tmp_path).stdout.splitlines()
    lines = [shlex.split(line) for line in banner if "TIDEWHEEL_URL" in line]
    assert [words[2] for words in lines] == ["topics", "produce", "consume"]
    for assignment, _program, *arguments in lines:
        name, _, value = assignment.partition("=")
        # `consume` goes on for ever otherwise.
        extra = ["--until-end"] if arguments[0] == "consume" else []
        result = subprocess.run(
            [sys.executable, "-P", "-m", "tidewheel.cli.main", *arguments, *extra],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, name: value},
            check=False,
        )
        assert result.returncode == 0, result.stderr
    assert "a first message" in result.stdout
    assert "customer-1" in result.stdout


def test_the_banner_stops_what_it_started_whatever_the_folder_is_called(
    stacks: Stacks, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder; with 'quotes'"
    banner = stacks.up(folder).stdout.splitlines()
    (line,) = [line for line in banner if " down --data " in line]
    _program, *arguments = shlex.split(line)
    stopped = stacks.run(*arguments)
    assert (stopped.returncode, stopped.stdout.split(".")[0]) == (0, "Stopped")


def test_the_data_is_found_again_and_two_stacks_live_side_by_side(
    stacks: Stacks, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for data in (one, two):
        assert stacks.up(data).returncode == 0
    first, other = stacks.status(one), stacks.status(two)
    assert first["cluster_id"] != other["cluster_id"]
    assert first["bootstrap"] != other["bootstrap"]
    stacks.run("down", "--data", one)
    assert stacks.status(two)["running"] is True
    assert stacks.up(one).returncode == 0
    assert stacks.status(one)["cluster_id"] == first["cluster_id"]


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_port_that_is_taken_is_named_with_one_that_is_free(
    stacks: Stacks, tmp_path: Path, detach: list[str]
) -> None:
    data = tmp_path / "made" / "for it"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = stacks.run("up", "--data", data, "--port", port, "--brokers", 1, *detach)
    assert result.returncode == 1
    assert f"Port {port} is in use" in result.stderr
    assert "--port" in result.stderr
    assert not list(tmp_path.iterdir()), "nothing is left of it"


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_an_unknown_property_is_an_error_that_names_it(
    stacks: Stacks, tmp_path: Path, detach: list[str]
) -> None:
    arguments = ["--data", tmp_path, "--port", 0, "--brokers", 1, "--set", "no.such.property=1"]
    result = stacks.run("up", *arguments, *detach)
    assert result.returncode == 2
    assert "no.such.property" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert stacks.status(tmp_path)["running"] is False


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--brokers", "33"], "32"),
        (["--brokers", "0"], "at least 1"),
        (["--set", "num.partitions"], "KEY=VALUE"),
        (["--set", "=3"], "KEY=VALUE"),
        (["--port", "65536", "--brokers", "1"], "65536"),
        (["--port", "-1"], "-1"),
        (["--first-id", "-1"], "--first-id"),
        (["--first-id", "2147483646"], "2147483647"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    stacks: Stacks, tmp_path: Path, arguments: list[str], word: str
) -> None:
    result = stacks.run("up", "--data", tmp_path / "data", *arguments)
    assert result.returncode == 2
    assert word in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_property_that_is_wrong_for_another_broker_is_found_before_anything_is_made(
    stacks: Stacks, tmp_path: Path, detach: list[str]
) -> None:
    # What broker 7 gets is the largest that can be, what broker 8 gets is one more.
    arguments = ["--first-id", 7, "--brokers", 2, "--port", 0, *detach]
    data = tmp_path / "data"
    wrong = "message.max.bytes=214748364{id}"
    result = stacks.run("up", "--data", data, *arguments, "--set", wrong)
    assert result.returncode == 2
    assert result.stderr.startswith("tidewheel: Broker 8 cannot be started so: --set: Invalid")
    assert "2147483648" in result.stderr
    assert not data.exists()


def test_a_folder_without_a_name_is_not_the_current_one(tmp_path: Path) -> None:
    for command in ("up", "down", "status"):
        result = subprocess.run(
            [*COMMAND, command, "--data", ""],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 2
        assert "the name of a folder is missing" in result.stderr


def test_a_start_that_failed_does_not_decide_what_the_folder_is_for(
    stacks: Stacks, tmp_path: Path
) -> None:
    refused = stacks.up(tmp_path, "--set", "no.such.property=1")
    assert refused.returncode == 2
    # A cell is as welcome as before: the next thing that it does not like is the property.
    cell = stacks.up(tmp_path, "--brokers", 2, "--set", "no.such.property=1")
    assert (cell.returncode, "no.such.property" in cell.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_output_that_cannot_be_written_is_said_without_a_traceback(
    tmp_path: Path, arguments: list[str]
) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, "status", "--data", str(tmp_path), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "tidewheel: No space left on device\n"


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_what_a_start_cannot_write_is_named(
    stacks: Stacks, tmp_path: Path, detach: list[str]
) -> None:
    # In the way of the file that takes its place.
    (tmp_path / "metadata-store").mkdir()
    result = stacks.run("up", "--data", tmp_path, "--port", 0, "--brokers", 1, *detach)
    assert result.returncode == 1
    assert result.stderr == f"tidewheel: {tmp_path / 'metadata-store'}: Is a directory\n"


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            *(*COMMAND, "up", "--no-control-plane", "--data", str(tmp_path)),
            *("--port", "0", "--brokers", "1"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C" in line:
                break
        yield process
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_foreground_stack_stops_cleanly(
    stacks: Stacks, foreground: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    (broker,) = stacks.status(tmp_path)["brokers"]
    # As a terminal does it: to the whole process group.
    os.killpg(foreground.pid, number)
    output, errors = foreground.communicate(timeout=TIMEOUT_S)
    assert foreground.returncode == 0, errors
    assert "Stopped. The data stays." in output
    assert errors == ""
    assert not psutil.pid_exists(broker["pid"])
    assert "stopped" in Path(broker["log"]).read_text()


def test_a_second_ctrl_c_kills_what_does_not_stop(
    stacks: Stacks, foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    (broker,) = stacks.status(tmp_path)["brokers"]
    os.kill(broker["pid"], signal.SIGSTOP)
    foreground.send_signal(signal.SIGINT)
    assert foreground.stdout is not None
    while not foreground.stdout.readline().startswith("Stopping"):
        assert foreground.poll() is None
    asked_s = time.monotonic()
    foreground.send_signal(signal.SIGINT)
    foreground.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - asked_s < STOP_TIMEOUT_S / 2
    assert not psutil.pid_exists(broker["pid"])


def test_a_stack_whose_reader_goes_away_stops(
    stacks: Stacks, foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert foreground.stdout is not None
    (broker,) = stacks.status(tmp_path)["brokers"]
    foreground.stdout.close()
    with open(broker["log"], "a") as log:
        log.write("something to show\n")
    assert foreground.wait(TIMEOUT_S) == 1
    assert foreground.stderr is not None
    assert foreground.stderr.read() == ""
    assert not psutil.pid_exists(broker["pid"])


def test_a_stack_that_is_stopping_says_so(stacks: Stacks, tmp_path: Path) -> None:
    assert stacks.up(tmp_path).returncode == 0
    (broker,) = stacks.status(tmp_path)["brokers"]
    assert stacks.status(tmp_path)["stopping"] is False
    os.kill(broker["pid"], signal.SIGSTOP)
    down = subprocess.Popen([*COMMAND, "down", "--data", tmp_path], stdout=subprocess.PIPE)
    try:
        until(lambda: stacks.status(tmp_path)["stopping"])
        shown = stacks.run("status", "--data", tmp_path).stdout
        assert shown.startswith(f"Stopping, data in {tmp_path}\n  broker 1 ")
        assert "just stopping" in stacks.up(tmp_path).stderr
        assert "is stopping" in stacks.run("up", "--add", "--data", tmp_path).stderr
    finally:
        os.kill(broker["pid"], signal.SIGCONT)
        output, _ = down.communicate(timeout=TIMEOUT_S)
    assert output.startswith(b"Stopped.")
    assert stacks.status(tmp_path)["stopping"] is False


def test_down_stops_a_foreground_stack(
    stacks: Stacks, foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert stacks.run("down", "--data", tmp_path).returncode == 0
    foreground.communicate(timeout=TIMEOUT_S)
    assert foreground.returncode == 0


def test_the_last_broker_that_dies_is_reported_and_started_again(
    stacks: Stacks, foreground: subprocess.Popen[str], tmp_path: Path
) -> None:
    (broker,) = stacks.status(tmp_path)["brokers"]
    os.kill(broker["pid"], signal.SIGKILL)
    again = broker

    def serves_again() -> bool:
        nonlocal again
        again = next(iter(stacks.status(tmp_path)["brokers"]), broker)
        return bool(again["port"]) and again["pid"] != broker["pid"]

    until(serves_again)
    assert again["port"] == broker["port"]
    assert again["pid"] != broker["pid"]
    foreground.send_signal(signal.SIGINT)
    output, errors = foreground.communicate(timeout=TIMEOUT_S)
    assert foreground.returncode == 0
    assert "signal 9" in errors
    assert broker["log"] in errors
    assert "No broker is left; broker 1 is started again in 1 s" in errors
    assert f"Broker 1 is up at 127.0.0.1:{broker['port']}" in output


def test_a_stack_that_lost_its_supervisor_is_still_found_and_stopped(
    stacks: Stacks, tmp_path: Path
) -> None:
    assert stacks.up(tmp_path).returncode == 0
    status = stacks.status(tmp_path)
    (broker,) = status["brokers"]
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: stacks.status(tmp_path)["supervisor_pid"] is None)
    assert stacks.status(tmp_path)["running"] is True

    refused = stacks.up(tmp_path)
    assert refused.returncode == 1
    assert str(broker["pid"]) in refused.stderr
    assert stacks.status(tmp_path)["running"] is True

    assert stacks.run("down", "--data", tmp_path).returncode == 0
    until(lambda: not psutil.pid_exists(broker["pid"]))
    assert stacks.up(tmp_path).returncode == 0


def test_what_a_killed_stack_left_behind_does_not_matter(stacks: Stacks, tmp_path: Path) -> None:
    assert stacks.up(tmp_path).returncode == 0
    status = stacks.status(tmp_path)
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    os.kill(status["brokers"][0]["pid"], signal.SIGKILL)
    until(lambda: stacks.status(tmp_path)["running"] is False)

    # Another process has the pid by now: it must be neither believed nor signalled.
    state = json.loads((tmp_path / "stack.json").read_text())
    state["supervisor"]["pid"] = state["brokers"][0]["pid"] = os.getpid()
    (tmp_path / "stack.json").write_text(json.dumps(state))
    assert stacks.status(tmp_path)["running"] is False
    assert "No stack runs" in stacks.run("down", "--data", tmp_path).stdout
    assert stacks.up(tmp_path).returncode == 0
