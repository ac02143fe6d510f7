"""The test run's own plugins, tried on small runs: leftovers, serial tests, minutes per room,
tests that do not end, workers that die, clients in reference cycles."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.run_tests import pytest_arguments
from stack.processes import identify
from tests.plugins.rooms import room_of
from tests.repository.source_tree import ROOT

PLUGINS = ["rooms", "leftovers", "serial", "watchdog", "clients", "scheduling"]

SETTINGS = """
[pytest]
markers = serial: alone
timeout = 100
watchdog_delay_s = 0.5
"""

LEAVES_A_PROCESS = """
import subprocess, sys
def test_leaves_a_process():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=open({path!r}, "w"),
                             start_new_session=True)
    while not open({path!r}).read().strip():
        pass
    child.returncode = 0
"""

COUNTS_WHO_RUNS = """
import os, pathlib, time, pytest
FOLDER = pathlib.Path({folder!r})
def run(alone):
    mine = FOLDER / f"running-{{os.getpid()}}"
    mine.touch()
    # At the first test of each worker: the other one may come later.
    (FOLDER / f"begun-{{os.getpid()}}").touch()
    deadline = time.monotonic() + 20
    while len(list(FOLDER.glob("begun-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    others = len(list(FOLDER.glob("running-*"))) - 1
    mine.unlink()
    with (FOLDER / "seen").open("a") as seen:
        seen.write(f"{{'alone' if alone else 'beside'}} {{others}}\\n")
@pytest.mark.parametrize("n", range(8))
def test_beside(n): run(False)
@pytest.mark.serial
@pytest.mark.parametrize("n", range(4))
def test_alone(n): run(True)
"""

LEAVES_A_CLIENT = """
import gc
from confluent_kafka.admin import AdminClient
from tests.plugins.clients import client_threads
gc.disable()
def test_leaves_a_client():
    cycle = [AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})]
    cycle.append(cycle)
    assert client_threads()
def test_meets_none(): assert not client_threads()
"""

GOES_ON = """
import signal, time, pytest
@pytest.mark.timeout(1)
def test_goes_on():
    # As code in C that holds the interpreter, or that swallows what is raised in it.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)
def test_another(): time.sleep(2)
"""


# After four files that are done: when they were run again, the others would have nothing to do.
ENDS_ITS_WORKER = """
import os, time
def test_before(): pass
def test_ends_its_worker():
    time.sleep(0.5)
    os._exit(3)
def test_after(): pass
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Pytest with our plugins, in a project of its own."""
    (folder / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    for plugin in PLUGINS:
        command += ["-p", f"tests.plugins.{plugin}"]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_why_tests_are_skipped_is_said_in_a_line_each(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_it(): pytest.skip('needs a go on the PATH')\n"
    )
    options = shlex.split(settings["ini_options"]["addopts"])
    result = run_pytest(tmp_path, *[option for option in options if option.startswith("-r")])
    skipped = [line for line in result.stdout.splitlines() if line.startswith("SKIPPED")]
    assert len(skipped) == 1, result.stdout
    assert "needs a go on the PATH" in skipped[0]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_process_left_behind_fails_the_run_and_is_stopped(
    tmp_path: Path, workers: list[str]
) -> None:
    pid_file = tmp_path / "pid"
    (tmp_path / "test_it.py").write_text(LEAVES_A_PROCESS.format(path=str(pid_file)))
    result = run_pytest(tmp_path, *workers)
    assert result.returncode == 1, result.stdout
    assert "processes left behind" in result.stdout
    assert f"pid {pid_file.read_text().strip()}" in result.stdout
    assert "1 passed" in result.stdout.strip().splitlines()[-1]
    assert identify(int(pid_file.read_text())) is None


def test_a_run_that_leaves_nothing_passes_with_the_closing_line_last(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "log"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text("def test_it(): pass\n")
    result = run_pytest(tmp_path, "tests")
    assert result.returncode == 0, result.stdout
    lines = result.stdout.strip().splitlines()
    assert "1 passed" in lines[-1]
    (row,) = [line.split() for line in lines if line.startswith("log ")]
    assert row[2:] == ["1", "0", "0"]


def test_serial_tests_run_alone_and_others_side_by_side(tmp_path: Path) -> None:
    for name in ("one", "two"):
        text = COUNTS_WHO_RUNS.format(folder=str(tmp_path))
        (tmp_path / f"test_{name}.py").write_text(text)
    result = run_pytest(tmp_path, "-n", "2", "--dist", "loadfile")
    assert result.returncode == 0, result.stdout
    seen = (tmp_path / "seen").read_text().splitlines()
    assert len(seen) == 24
    assert seen.count("alone 0") == 8
    assert "beside 1" in seen


def test_a_test_that_does_not_end_is_ended_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(GOES_ON)
    result = run_pytest(tmp_path, "-n", "1")
    assert result.returncode == 1, result.stdout
    assert "crashed while running 'test_it.py::test_goes_on'" in result.stdout
    assert "in test_goes_on" in result.stderr
    assert "1 failed, 1 passed" in result.stdout.strip().splitlines()[-1]


def test_a_run_goes_on_without_a_worker_that_died(tmp_path: Path) -> None:
    for number in range(12):
        text = ENDS_ITS_WORKER if number == 6 else "def test_it(): pass\n"
        (tmp_path / f"test_{number:02}.py").write_text(text)
    result = run_pytest(tmp_path, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    assert "crashed while running 'test_06.py::test_ends_its_worker'" in result.stdout
    assert "1 failed, 13 passed" in result.stdout.strip().splitlines()[-1], result.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the plugin looks into /proc")
def test_a_client_in_a_reference_cycle_does_not_outlive_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LEAVES_A_CLIENT)
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout


def test_rooms_are_the_folders_under_tests() -> None:
    assert room_of("tests/log/test_append.py::test_x[a/b::c]") == "log"
    assert room_of("tests/test_top.py::test_x") == "tests"


def test_levels_select_what_they_say() -> None:
    assert pytest_arguments("everyday", 1, [], [])[:2] == ["-m", "not slow and not nightly"]
    assert pytest_arguments("all", 1, [], [])[:2] == ["-m", "not nightly"]
    assert pytest_arguments("nightly", 2, ["tests/log"], ["-x"])[-2:] == ["tests/log", "-x"]
    assert "--timeout=3600" in pytest_arguments("nightly", 2, [], [])
