"""The main job, whole: real flights through a real broker, and what happens when it goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stack.demo import run
from stack.demo.declined import ATTEMPTS
from stack.demo.flights import FLIGHTS_COUNT

COMMAND = [sys.executable, "-P", "-m", "stack", "demo"]
TIMEOUT_S = 240
# Eight processes start, and their machine may have other things to do.
pytestmark = pytest.mark.timeout(300)
# Of United, from Newark and LaGuardia, as the package has them.
UNITED_COUNT = 54_131
# Of these: those that were cancelled, and those that left three hours late or more.
CANCELLED_COUNT, LATE_COUNT = 642, 557
# Each twentieth of those that go as fast as they can.
DEPARTURES_COUNT = (FLIGHTS_COUNT - run.PACED_COUNT) // 20


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the demo keeps its data; the demo itself has to leave it empty."""
    with tempfile.TemporaryDirectory(prefix="tw-") as folder:
        yield Path(folder)
        assert list(Path(folder).glob("tidewheel-demo-*")) == []


def start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the demo ended without saying {words!r}")


def broker_of(process: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(process.pid).children()
    (broker,) = [child for child in children if "features" in child.cmdline()]
    return broker


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_every_flight_arrives_as_sent_in_order(scratch: Path) -> None:
    with start(scratch, "--json", "--partitions", "4") as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors + output
    outcome = json.loads(output)
    verdict = outcome["verdict"]
    assert outcome["ok"] is True
    assert verdict["sent"] == verdict["received"] == FLIGHTS_COUNT
    assert sum(outcome["partition_messages"]) == FLIGHTS_COUNT
    assert len(outcome["partition_messages"]) == 4
    assert outcome["lag"] == 0
    payments = outcome["payments"]
    # What of the file are flights of United from Newark and LaGuardia.
    assert payments["counted"] == payments["verdict"]["received"] == UNITED_COUNT
    assert payments["verdict"]["sent"] == UNITED_COUNT
    assert payments["verdict"]["unknown"] == 0
    declined = payments["declined"]
    assert declined["declined"] == CANCELLED_COUNT + LATE_COUNT
    assert (declined["paid"], declined["dead"]) == (LATE_COUNT, CANCELLED_COUNT)
    assert declined["retries"] == LATE_COUNT + (ATTEMPTS - 1) * CANCELLED_COUNT
    assert declined["redriven"] == CANCELLED_COUNT
    faults = ("unaccounted", "wrong_attempts", "dead_twice", "early", "not_redriven")
    assert [declined[fault] for fault in faults] == [0, 0, 0, 0, 0]
    departures = outcome["departures"]
    assert departures["sent"] == departures["received"] == DEPARTURES_COUNT
    assert (departures["early"], departures["repeated"]) == (0, 0)
    received = outcome["received_by"]
    assert sum(received.values()) == FLIGHTS_COUNT + verdict["redelivered"]
    assert set(received) == {"consumer-1", "consumer-2", "consumer-3"}
    assert min(received.values()) > 0
    assert 0 < outcome["latency_ms"]["p50"] <= outcome["latency_ms"]["p99"]
    what = [event["what"].partition(" is ")[2] for event in outcome["cell_history"]]
    assert what == ["killed (kill -9)", "", "started again", "in sync again"]
    assert outcome["is_healed"] is True
    assert 0 < outcome["interrupted_s"] < 30
    # Two tenants with a topic of the same name, neither of which has seen the other.
    assert (outcome["tenant"], outcome["topic"]) == ("east", "flights")
    assert "flights" in outcome["topics"]
    beside = outcome["beside"]
    assert (beside["slug"], beside["topics"], beside["messages"]) == ("west", ["flights"], 20_000)
    assert beside["verdict"]["received"] == 20_000
    assert "tws_" not in output + errors


@pytest.mark.slow
def test_one_broker_is_enough(scratch: Path) -> None:
    with start(scratch, "--json", "--brokers", "1") as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors + output
    outcome = json.loads(output)
    assert outcome["verdict"]["received"] == FLIGHTS_COUNT
    assert outcome["cell_history"] == []


def test_a_broker_that_dies_fails_the_demo(scratch: Path) -> None:
    with start(scratch, "--brokers", "1") as process:
        wait_for(process, "join the group")
        broker_of(process).kill()
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "the middle of the demo" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_its_cell(scratch: Path, number: signal.Signals) -> None:
    with start(scratch) as process:
        wait_for(process, "join the group")
        children = children_of(process)
        # Three brokers, Postgres and its helpers.
        assert len(children) > 4
        process.send_signal(number)
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, errors + output
    assert not [child for child in children if child.is_running()]
    assert "Traceback" not in errors


def test_a_stack_that_stops_for_a_signal_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes while the demo looks after its brokers."""

    class Running:
        expected_end = ""
        requested = False

        async def run(self) -> None:
            await asyncio.Event().wait()

        def last_words(self) -> list[str]:
            return ["what the brokers logged"]

        def watch(self, _report: object) -> bool:
            self.requested = True
            return False

    monkeypatch.setattr(run, "_limit_cleaning_up", lambda _supervisor: None)
    everything: Any = Running()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run._supervised(everything, everything, everything))


def test_without_brokers_there_is_no_demo(scratch: Path) -> None:
    with start(scratch, "--bootstrap", "127.0.0.1:1") as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert "127.0.0.1:1" in errors
    assert "Traceback" not in errors
