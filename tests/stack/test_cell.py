"""A stack of several brokers and its own Postgres: every way to start, grow, lose and find it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.admin_connection import AdminConnection
from stack.errors import StackError
from stack.postgres import PostgresServer
from stack.reassign import (
    Move,
    alter,
    moving,
    replicas_of,
    running_brokers,
    wait_until_done,
)
from tests.stack.test_up import COMMAND, TIMEOUT_S, Stacks, accepts_connections, until


class Cells(Stacks):
    """Stacks as a newcomer starts them: three brokers."""

    def up(self, data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        self._folders.append(data)
        options = ("--no-control-plane", "--data", data, "--port", 0)
        return self.run("up", "--detach", *options, *arguments)

    def cli(self, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the SDK on the stack's brokers."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "tidewheel.cli.main", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "TIDEWHEEL_URL": self.status(data)["bootstrap"]},
            check=False,
        )


@pytest.fixture
def cells() -> Iterator[Cells]:
    made = Cells()
    yield made
    made.close()


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


def send(bootstrap: str, topic: str, value: bytes) -> None:
    problems: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(30) == 0
    assert problems == [None]


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def racks(bootstrap: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    nodes = admin.describe_cluster().result(30).nodes
    return [node.rack for node in sorted(nodes, key=lambda node: node.id)]


def replicas(cells: Cells, data: Path) -> list[dict[str, Any]]:
    result = cells.cli(data, "partitions", "--json")
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def ended_parts(data: Path) -> set[str]:
    """The parts of which the supervisor's log says that they have ended."""
    # The last line may only be half there.
    lines = (data / "logs" / "stack.log").read_text().split("\n")[:-1]
    return {entry["part"] for entry in map(json.loads, lines) if entry["event"] == "part_ended"}


def is_worked_in(folder: Path) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder):
                return True
    return False


@pytest.mark.timeout(240)
def test_three_brokers_are_found_again_and_grow_and_shrink(cells: Cells, tmp_path: Path) -> None:
    started = cells.up(tmp_path)
    assert started.returncode == 0, started.stderr
    status = cells.status(tmp_path)
    assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3]
    assert status["bootstrap"] in started.stdout
    assert accepts_connections(status["postgres"]["port"])
    for broker in status["brokers"]:
        assert accepts_connections(broker["port"])
        assert accepts_connections(broker["inter_broker_port"])
        # The database's password is in no command line.
        assert "postgresql" not in " ".join(psutil.Process(broker["pid"]).cmdline())
    assert racks(status["bootstrap"]) == ["RACK1", "RACK2", "RACK3"]
    create_topic(status["bootstrap"], "orders", 3)
    assert all(len(p["replicas"]) == 3 for p in replicas(cells, tmp_path))
    send(status["bootstrap"], "orders", b"before")
    misspelt = cells.run("reassign", "order", "--to", "1,2", "--url", status["bootstrap"])
    assert misspelt.returncode == 1
    assert misspelt.stderr == 'tidewheel: Topic "order" does not exist\n'

    assert cells.run("down", "--data", tmp_path).returncode == 0
    assert not psutil.pid_exists(status["postgres"]["pid"])
    assert not any(psutil.pid_exists(broker["pid"]) for broker in status["brokers"])

    refused = cells.up(tmp_path, "--brokers", 2)
    assert refused.returncode == 2
    assert "data of broker 3" in refused.stderr
    own_racks = ("--set", "broker.rack=room-{id}")
    assert cells.up(tmp_path, "--brokers", 4, *own_racks).returncode == 0
    status = cells.status(tmp_path)
    assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3, 4]
    assert racks(status["bootstrap"]) == [f"room-{broker_id}" for broker_id in range(1, 5)]
    send(status["bootstrap"], "orders", b"after")
    assert set(read_all(status["bootstrap"], "orders", 2)) == {b"before", b"after"}

    moved = cells.run(
        *("reassign", "orders", "--partition", 0, "--to", "4,1,2", "--wait", "--json"),
        *("--url", status["bootstrap"]),
    )
    assert moved.returncode == 0, moved.stderr
    assert json.loads(moved.stdout)["partitions"] == [{"partition": 0, "replicas": [4, 1, 2]}]
    fewer = cells.run("reassign", "orders", "--to", "1,2", "--url", status["bootstrap"])
    assert (fewer.returncode, "3 replicas need as many brokers" in fewer.stderr) == (2, True)
    none = ("reassign", "orders", "--to", "1,2", "--replicas", 0, "--url", status["bootstrap"])
    assert cells.run(*none).returncode == 2
    assert all(len(p["replicas"]) == 3 for p in replicas(cells, tmp_path))
    elected = cells.run("reassign", "--elect-preferred", "--url", status["bootstrap"])
    assert elected.returncode == 0, elected.stderr
    assert all(p["leader"] == p["replicas"][0] for p in replicas(cells, tmp_path))
    full = cells.run("down", "--broker", 4, "--remove", "--data", tmp_path)
    assert full.returncode == 1
    assert "drain 4" in full.stderr
    drained = cells.cli(tmp_path, "drain", "4")
    assert drained.returncode == 0, drained.stderr
    assert not any(4 in p["replicas"] for p in replicas(cells, tmp_path))
    removed = cells.run("down", "--broker", 4, "--remove", "--data", tmp_path)
    assert removed.returncode == 0, removed.stderr
    assert "has left the cell" in removed.stdout
    assert not (tmp_path / "broker-4").exists()
    assert [broker["id"] for broker in cells.status(tmp_path)["brokers"]] == [1, 2, 3]
    assert set(read_all(status["bootstrap"], "orders", 2)) == {b"before", b"after"}


@pytest.mark.timeout(180)
def test_parts_that_die_are_reported_and_started_again(cells: Cells, tmp_path: Path) -> None:
    assert cells.up(tmp_path).returncode == 0
    status = cells.status(tmp_path)
    victim = status["brokers"][1]
    os.kill(victim["pid"], signal.SIGKILL)
    os.kill(status["postgres"]["pid"], signal.SIGKILL)
    # `status` looks for itself; the supervisor notices with its next look.
    until(lambda: ended_parts(tmp_path) == {"broker-2", "postgres"})
    status_now = cells.status(tmp_path)
    assert [broker["id"] for broker in status_now["brokers"]] == [1, 3]
    assert status_now["postgres"] is None
    shown = cells.run("status", "--data", tmp_path)
    assert shown.returncode == 0
    for part in ("broker 2", "postgres"):
        assert f"  {part}   not running" in shown.stdout
    assert cells.status(tmp_path)["brokers_not_running"] == [2]
    # Elsewhere the brokers would not find it.
    with socket.create_server(("127.0.0.1", status["postgres"]["port"])):
        elsewhere = cells.run("up", "--add", "postgres", "--data", tmp_path)
        assert elsewhere.returncode == 1
        assert f"Port {status['postgres']['port']}" in elsewhere.stderr
    assert cells.status(tmp_path)["postgres"] is None
    # One that could not be started is not taken for one that runs. Helpers of the killed one that
    # have not noticed yet would keep this one from starting, too.
    until(lambda: not is_worked_in(tmp_path / "postgres" / "data"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    other = PostgresServer(tmp_path / "postgres", port=port)
    other.start()
    twice = cells.run("up", "--add", "postgres", "--data", tmp_path)
    assert (twice.returncode, "already runs in" in twice.stderr) == (1, True)
    other.stop()

    for part in ("postgres", "2"):
        again = cells.run("up", "--add", part, "--data", tmp_path)
        assert again.returncode == 0, again.stderr
    twice = cells.run("up", "--add", 2, "--data", tmp_path)
    assert (twice.returncode, "runs already" in twice.stderr) == (1, True)
    after = cells.status(tmp_path)
    assert [b["port"] for b in after["brokers"]] == [b["port"] for b in status["brokers"]]
    create_topic(after["bootstrap"], "orders", 3)

    for arguments in (["--broker", 9], ["--broker", 9, "--remove"]):
        unknown = cells.run("down", *arguments, "--data", tmp_path)
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert "roker 9" in unknown.stderr
    stopped = cells.run("down", "--broker", 3, "--data", tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert [broker["id"] for broker in cells.status(tmp_path)["brokers"]] == [1, 2]
    assert cells.run("up", "--add", 3, "--data", tmp_path).returncode == 0
    added = cells.run("up", "--add", "--data", tmp_path)
    assert "Broker 4 is up" in added.stdout


@pytest.mark.timeout(180)
def test_the_command_line_sends_and_reads_while_the_store_is_away(
    cells: Cells, tmp_path: Path
) -> None:
    assert cells.up(tmp_path).returncode == 0
    status = cells.status(tmp_path)
    create_topic(status["bootstrap"], "orders", 1)
    # All replicas know of the topic then; who has not heard of it by now does not before the store
    # is back.
    send(status["bootstrap"], "orders", b"before")
    os.kill(status["postgres"]["pid"], signal.SIGKILL)
    until(lambda: json.loads(cells.cli(tmp_path, "brokers", "--json").stdout)["controller"] == -1)
    for arguments, says in (
        (("produce", "orders", "while it is away"), "Sent 1 message"),
        (("consume", "orders", "--until-end", "--values"), "while it is away"),
        (("partitions", "orders"), "orders"),
        (("topics",), "orders"),
        (("topics", "describe", "orders"), "orders"),
    ):
        result = cells.cli(tmp_path, *arguments)
        assert result.returncode == 0, result.stderr
        assert says in result.stdout
    unknown = cells.cli(tmp_path, "partitions", "no-such-topic")
    assert (unknown.returncode, "does not exist" in unknown.stderr) == (1, True)


@pytest.mark.timeout(180)
def test_a_move_to_a_broker_that_is_gone_is_not_waited_for(cells: Cells, tmp_path: Path) -> None:
    assert cells.up(tmp_path).returncode == 0
    bootstrap = cells.status(tmp_path)["bootstrap"]
    for topic in ("orders", "other"):
        create_topic(bootstrap, topic, 1)
    assert cells.run("down", "--broker", 3, "--data", tmp_path).returncode == 0
    running = cells.status(tmp_path)["bootstrap"]
    with AdminConnection(running) as connection:
        until(lambda: running_brokers(connection) == {1, 2})
        for topic in ("orders", "other"):
            alter(connection, [Move(topic, 0, (1, 2))])
            wait_until_done(connection, topic, 0)
        alter(connection, [Move(topic, 0, (1, 2, 3)) for topic in ("orders", "other")])
        with pytest.raises(StackError, match=r"Broker 3 does not run, so 1 .* --cancel"):
            wait_until_done(connection, "orders", 1)
        cancelled = cells.run("reassign", "other", "--cancel", "--url", running)
        assert "Called off: other-0" in cancelled.stdout
        assert [(item.topic, item.adding) for item in moving(connection)] == [("orders", (3,))]
        assert cells.run("up", "--add", 3, "--data", tmp_path).returncode == 0
        wait_until_done(connection, "orders", 1)
        assert replicas_of(connection, "orders") == {0: (1, 2, 3)}


@pytest.mark.timeout(180)
def test_a_cell_that_lost_its_supervisor_is_stopped(cells: Cells, tmp_path: Path) -> None:
    assert cells.up(tmp_path, "--brokers", 2).returncode == 0
    status = cells.status(tmp_path)
    os.kill(status["supervisor_pid"], signal.SIGKILL)
    until(lambda: cells.status(tmp_path)["supervisor_pid"] is None)
    refused = cells.up(tmp_path)
    assert refused.returncode == 1
    assert str(status["postgres"]["pid"]) in refused.stderr
    assert cells.run("down", "--data", tmp_path).returncode == 0
    pids = [status["postgres"]["pid"], *(broker["pid"] for broker in status["brokers"])]
    until(lambda: not any(map(psutil.pid_exists, pids)))
    assert cells.up(tmp_path).returncode == 0
    assert len(cells.status(tmp_path)["brokers"]) == 2


@pytest.mark.timeout(180)
def test_a_lost_store_is_rebuilt_from_what_the_brokers_have(cells: Cells, tmp_path: Path) -> None:
    assert cells.up(tmp_path).returncode == 0
    status = cells.status(tmp_path)
    create_topic(status["bootstrap"], "orders", 3)
    send(status["bootstrap"], "orders", b"kept")
    assert cells.run("down", "--data", tmp_path).returncode == 0
    status_again = cells.status(tmp_path)
    assert status_again["running"] is False

    (tmp_path / "postgres").rename(tmp_path / "postgres-lost")
    recovered = cells.run("cell", "recover", "--data", tmp_path)
    assert recovered.returncode == 0, recovered.stderr
    assert "Recovered from" in recovered.stdout
    assert cells.up(tmp_path).returncode == 0
    bootstrap = cells.status(tmp_path)["bootstrap"]
    assert read_all(bootstrap, "orders", 1) == [b"kept"]
    send(bootstrap, "orders", b"new")


def test_ctrl_c_stops_the_brokers_one_by_one_and_then_postgres(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "up", "--no-control-plane", "--data", str(tmp_path), "--port", "0"],
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
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert "Stopped. The data stays." in output
    stopped = []
    for broker_id in (1, 2, 3):
        text = (tmp_path / "logs" / f"broker-{broker_id}.log").read_text()
        entries = [json.loads(line) for line in text.splitlines()]
        moments = {entry["event"]: entry["timestamp"] for entry in entries}
        stopped.append((moments["stopping"], moments["stopped"]))
    assert [stop for pair in stopped for stop in pair] == sorted(
        stop for pair in stopped for stop in pair
    ), "one after the other"
    log = (tmp_path / "postgres" / "postgres.log").read_text()
    assert "database system is shut down" in log


def test_a_single_broker_does_not_become_a_cell(cells: Cells, tmp_path: Path) -> None:
    assert cells.up(tmp_path, "--brokers", 1).returncode == 0
    assert cells.status(tmp_path)["postgres"] is None
    grown = cells.run("up", "--add", "--data", tmp_path)
    assert (grown.returncode, "cannot grow" in grown.stderr) == (1, True)
    cells.run("down", "--data", tmp_path)
    refused = cells.up(tmp_path, "--brokers", 3)
    assert refused.returncode == 2
    assert "single broker" in refused.stderr
    # Without a number it is found again as it was.
    assert cells.up(tmp_path).returncode == 0
    assert len(cells.status(tmp_path)["brokers"]) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["up", "--add", "four"], "no broker id"),
        (["up", "--add", "--set", "a=b", "--brokers", "3"], "leave --brokers, --set out"),
        (["up", "--add", "2", "--first-id", "4", "--detach"], "leave --first-id, --detach out"),
        (["down", "--remove"], "--broker"),
        (["reassign"], "TOPIC --to"),
        (["reassign", "orders", "--to", "a,b"], "broker ids"),
        (["reassign", "--list", "--cancel"], "do not go together"),
        (["reassign", "orders", "--to", "1,2", "--cancel"], "do not go together"),
        (["cell", "recover"], "no cell"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(
    cells: Cells, tmp_path: Path, arguments: list[str], word: str
) -> None:
    data = [] if arguments[0] == "reassign" else ["--data", str(tmp_path)]
    url = ["--url", "127.0.0.1:1"] if arguments[0] == "reassign" else []
    result = cells.run(*arguments, *data, *url)
    assert result.returncode == 2
    assert word in result.stderr
    assert "Traceback" not in result.stderr
