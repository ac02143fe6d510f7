"""The Java client and franz-go while the cell under them loses a broker, grows, and shrinks again.

Each is a program of its own (clients/): an idempotent producer and a group of one consumer that
write down what they were told. Its history is judged as those of librdkafka in the other tests.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest
from confluent_kafka.cimpl import NewPartitions
from tidewheel import sync

from stack.admin_connection import AdminConnection
from stack.reassign import alter, moving, plan_spread
from tests.conformance import programs
from tests.faults.cell import Cell
from tests.faults.checker import (
    Assigned,
    Committed,
    Delivered,
    Message,
    ReaderEvent,
    WriterHistory,
    judge,
    judge_readers,
)
from tests.faults.load import read_partition
from tests.faults.test_growth import held_by, knows_partitions

HERE = Path(__file__).resolve().parent / "clients"
TOPIC = "orders"
BEFORE, AFTER = 4, 8
WRITER = 7
MOVES_SECONDS_MAX = 40.0
END_SECONDS_MAX = 60.0


def java_command() -> list[str]:
    programs.require("java", "javac", "mvn")
    source = HERE / "java" / "Follow.java"
    pom = Path(programs.__file__).parent / "java" / "pom.xml"

    def build(folder: Path) -> None:
        goal = "dependency:copy-dependencies"
        command = ["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}/lib"]
        programs.execute(command)
        programs.execute(["javac", "-cp", f"{folder}/lib/*", "-d", str(folder), str(source)])

    folder = programs.built("java-follow", [source, pom], build)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return ["java", *options, "-cp", f"{folder}:{folder}/lib/*", "Follow"]


def go_command() -> list[str]:
    programs.require("go")
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]

    def build(folder: Path) -> None:
        programs.execute(["go", "build", "-o", str(folder / "follow"), "."], cwd=HERE / "go")

    return [str(programs.built("go-follow", sources, build) / "follow")]


class Follower:
    """One running program and its history."""

    def __init__(self, command: list[str], bootstrap: str) -> None:
        self.writer = WriterHistory(WRITER)
        self.events: list[ReaderEvent] = []
        self.failures: list[str] = []
        self.acknowledged_at: dict[int, float] = {}
        self.read_up_to: dict[int, int] = defaultdict(int)
        self.has_sent_all = threading.Event()
        self._process = subprocess.Popen(
            [*command, bootstrap, TOPIC, str(BEFORE), str(WRITER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            self._note(kind, rest)

    def _note(self, kind: str, rest: str) -> None:
        if kind == "F":
            self.failures.append(rest)
            return
        if kind == "A":
            partitions = tuple(int(part) for part in rest.split(",") if part)
            self.events.append(Assigned("follower", partitions))
            return
        partition, *numbers = map(int, rest.split())
        if kind == "K":
            number, offset = numbers
            self.writer.acknowledged[partition][number] = offset
            self.acknowledged_at[partition] = time.monotonic()
        elif kind == "S":
            (self.writer.sent[partition],) = numbers
        elif kind == "D":
            offset, writer, number = numbers
            self.events.append(Delivered("follower", partition, offset, Message(writer, number)))
            self.read_up_to[partition] = max(self.read_up_to[partition], offset + 1)
        elif kind == "C":
            self.events.append(Committed("follower", partition, *numbers))

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def run_until_every_partition_moves(self, partitions: int) -> None:
        """Return when each partition has been acknowledged something that was sent from now on."""
        for _ in range(2):
            # Twice: what is acknowledged first may have been sent before.
            began = time.monotonic()
            while not all(self.acknowledged_at.get(p, 0) > began for p in range(partitions)):
                assert self._process.poll() is None, "the client ended"
                assert time.monotonic() < began + MOVES_SECONDS_MAX, (
                    f"acknowledged {began - time.monotonic():.0f} s ago, by partition: "
                    f"{ {p: began - t for p, t in self.acknowledged_at.items()} }; "
                    f"failures {self.failures[:3]}"
                )
                time.sleep(0.05)

    def finish(self) -> None:
        """End sending, read to the end, and end."""
        self.say("stop producing")
        deadline = time.monotonic() + END_SECONDS_MAX
        while time.monotonic() < deadline:
            ends = {
                p: max(offsets.values(), default=-1) + 1
                for p, offsets in dict(self.writer.acknowledged).items()
            }
            if self.writer.sent and all(self.read_up_to[p] >= end for p, end in ends.items()):
                break
            time.sleep(0.1)
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(END_SECONDS_MAX) == 0
        # It ends with the program's output.
        self._listener.join()


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("command", [java_command, go_command], ids=["java", "franz-go"])
def test_a_client_follows(tmp_path: Path, command: Callable[[], list[str]]) -> None:
    program = command()
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, BEFORE)
        with Follower(program, cell.bootstrap) as client:
            client.run_until_every_partition_moves(BEFORE)
            victim = cell.leaders(TOPIC)[0]
            cell.kill9(victim)
            client.run_until_every_partition_moves(BEFORE)
            cell.start(victim)
            cell.wait_until_in_sync(TOPIC)

            cell.start(4)
            with AdminConnection(cell.bootstrap) as connection:
                alter(connection, plan_spread(TOPIC, range(BEFORE), cell.ids, 3))
                cell.wait_for(lambda: not moving(connection), "the spreading is done", 60)
            client.run_until_every_partition_moves(BEFORE)
            admin = cell.admin()
            admin.create_partitions([NewPartitions(TOPIC, AFTER)])[TOPIC].result(30)
            cell.wait_for(lambda: knows_partitions(cell, AFTER), "all tell of the new partitions")
            # Until the client has asked for metadata again.
            time.sleep(2.5)
            client.say(f"grow {AFTER}")
            client.run_until_every_partition_moves(AFTER)

            with sync.Client(cell.bootstrap) as sdk:
                sdk.admin.set_draining(4)
            cell.wait_for(lambda: held_by(cell, 4) == 0, "broker 4 is drained", 60)
            cell.stop(4)
            client.run_until_every_partition_moves(AFTER)
            client.finish()
        assert not client.failures, client.failures[:5]
        log = {p: read_partition(cell.bootstrap, TOPIC, p) for p in range(AFTER)}
        problems = judge([client.writer], log) + judge_readers(client.events, log)
        assert not problems, "\n".join(problems)
