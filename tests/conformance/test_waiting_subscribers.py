"""Groups of every client read subscriptions of which next to nothing matches: one record in a
million, nothing for a while and then one, members that join, and patterns of topics.

Each client is a program that prints `got PARTITION OFFSET VALUE`, and is killed when the test has
seen enough (python_readers.py and the `projected` programs of the other languages).
"""

from __future__ import annotations

import contextlib
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.conformance import programs
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_projections import CLIENTS
from tests.conformance.test_subscriptions import create

PYTHON_READERS = Path(__file__).with_name("python_readers.py")
FOR_EVER = "1000000000"
START_S_MAX = 60
ROUNDS = 5
QUIET_S = 3.0
MINUTE_S = 60.0
PARTITIONS = 2
MILLION = 1_000_000
# sarama has no subscriptions by pattern.
WITH_PATTERNS = [client for client in CLIENTS if client != "sarama"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("waiting")
    with BrokerProcess(folder, set=SETTINGS, module="features") as broker:
        yield broker.bootstrap


def command(client: str, bootstrap: str, topic: str, group: str) -> list[str]:
    others: dict[str, Callable[[], list[str]]] = {
        "java": lambda: programs.java_command("Projected"),
        "franz-go": lambda: [*programs.go_command(), "projected"],
        "sarama": programs.sarama_command,
        "kafkajs": lambda: programs.node_command("projected.js"),
    }
    if client not in others:
        return [sys.executable, str(PYTHON_READERS), client, bootstrap, topic, group]
    return [*others[client](), bootstrap, topic, group, FOR_EVER, "0", "0", "read_uncommitted"]


class Member:
    """A reader that runs: what it has got, and when each line came."""

    def __init__(self, client: str, bootstrap: str, topic: str, group: str, folder: Path) -> None:
        self.client = client
        self._errors = folder / f"{client}-{time.monotonic_ns()}.err"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command(client, bootstrap, topic, group),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        # (partition, offset, value, when it came)
        self.got: list[tuple[int, int, str, float]] = []
        self._lines: queue.SimpleQueue[tuple[int, int, str, float]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _, partition, offset, value = line.rstrip("\n").split(" ", 3)
            self._lines.put((int(partition), int(offset), value, time.monotonic()))

    def take(self, timeout_s: float) -> tuple[int, int, str, float]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(
                f"{self.client} got no more after {len(self.got)}: {self}"
            ) from None
        self.got.append(line)
        return line

    def take_all(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.got.append(self._lines.get_nowait())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __str__(self) -> str:
        return f"code {self._process.poll()}, {self._errors.read_text()[-2000:]}"


@contextlib.contextmanager
def running(
    clients: list[str], bootstrap: str, topic: str, folder: Path, group: str = ""
) -> Iterator[list[Member]]:
    members: list[Member] = []
    try:
        for client in clients:
            members.append(Member(client, bootstrap, topic, group or f"{client}-{topic}", folder))
        yield members
    finally:
        for member in members:
            member.end()


def send(bootstrap: str, topic: str, partition: int, values: list[str], tag: str) -> None:
    """In one go; they are acknowledged when it returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
    headers: list[tuple[str, str | bytes | None]] = [("tw-tag", tag.encode())]
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def haystack(bootstrap: str) -> int:
    """A million records of which one matches: its offset."""
    create(bootstrap, "haystack", 1, headers="true")
    create(bootstrap, "needle", source="haystack", filter="needle")
    offset = MILLION * 7 // 10
    send(bootstrap, "haystack", 0, ["hay"] * offset, "hay")
    send(bootstrap, "haystack", 0, ["the needle"], "needle")
    send(bootstrap, "haystack", 0, ["hay"] * (MILLION - offset - 1), "hay")
    return offset


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", CLIENTS)
def test_one_in_a_million(bootstrap: str, haystack: int, client: str, tmp_path: Path) -> None:
    with running([client], bootstrap, "needle", tmp_path) as (member,):
        assert member.take(START_S_MAX)[:3] == (0, haystack, "the needle")


def wait_and_match(bootstrap: str, topic: str, folder: Path, quiet_s: float, rounds: int) -> None:
    """Nothing matches for a while, then one record does: every client has it at once."""
    create(bootstrap, topic, 1, headers="true")
    create(bootstrap, f"{topic}-rare", source=topic, filter="rare")
    send(bootstrap, topic, 0, ["first"], "rare")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})

    def produce(value: str, tag: str) -> float:
        producer.produce(topic, value, partition=0, headers=[("tw-tag", tag.encode())])
        assert producer.flush(10) == 0
        return time.monotonic()

    with running(list(CLIENTS), bootstrap, f"{topic}-rare", folder) as members:
        for member in members:
            assert member.take(START_S_MAX)[2] == "first"
        waits: dict[str, list[float]] = {client: [] for client in CLIENTS}
        for number in range(rounds):
            until_s = time.monotonic() + quiet_s
            while time.monotonic() < until_s:
                produce("noise", "common")
                time.sleep(0.02)
            committed_s = produce(f"match {number}", "rare")
            for member in members:
                _, _, value, came_s = member.take(10)
                assert value == f"match {number}"
                waits[member.client].append(came_s - committed_s)
    late = {client: seen for client, seen in waits.items() if statistics.median(seen) > 0.1}
    assert not late, late


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_for_a_while_and_then_one(bootstrap: str, tmp_path: Path) -> None:
    wait_and_match(bootstrap, "quiet", tmp_path, QUIET_S, ROUNDS)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nothing_for_a_minute_and_then_one(bootstrap: str, tmp_path: Path) -> None:
    wait_and_match(bootstrap, "quiet-for-a-minute", tmp_path, MINUTE_S, 3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", CLIENTS)
def test_more_members_join(bootstrap: str, client: str, tmp_path: Path) -> None:
    """They take over a part: each record that matches is read, and no other. There are three in
    all, since the assignor of kafkajs gives a first of two members all even partitions."""
    topic = f"shared-by-{client}"
    create(bootstrap, topic, PARTITIONS, headers="true")
    create(bootstrap, f"{topic}-some", source=topic, filter="some")
    expected: set[tuple[int, int]] = set()
    ends = [0] * PARTITIONS

    def produce(count: int) -> None:
        for index in range(PARTITIONS):
            send(bootstrap, topic, index, ["no"] * count, "none")
            send(bootstrap, topic, index, ["yes"] * count, "some")
            ends[index] += 2 * count
            expected.update((2 * index, ends[index] - one) for one in range(1, count + 1))

    def read(members: list[Member]) -> None:
        deadline_s = time.monotonic() + START_S_MAX
        while True:
            for member in members:
                member.take_all()
            got = {line[:2] for member in members for line in member.got}
            if got == expected:
                return
            assert got < expected
            assert time.monotonic() < deadline_s, [str(member) for member in members]
            time.sleep(0.05)

    group = f"group-{client}"
    produce(50)
    with running([client], bootstrap, f"{topic}-some", tmp_path, group) as first:
        read(first)
        with running([client] * 2, bootstrap, f"{topic}-some", tmp_path, group) as later:
            members = [*first, *later]
            deadline_s = time.monotonic() + START_S_MAX
            while not any(member.got for member in later):
                assert time.monotonic() < deadline_s, [str(member) for member in later]
                produce(5)
                read(members)
            produce(50)
            read(members)
    assert {line[2] for member in members for line in member.got} == {"yes"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", WITH_PATTERNS)
def test_a_pattern_does_not_take_in_subscriptions(
    bootstrap: str, client: str, tmp_path: Path
) -> None:
    topic = f"patterned-{client}"
    create(bootstrap, topic, 1, headers="true")
    create(bootstrap, f"{topic}-all", source=topic)
    values = [f"value {number}" for number in range(20)]
    send(bootstrap, topic, 0, values, "any")
    with running([client], bootstrap, f"^{topic}.*", tmp_path, f"by-{client}") as (member,):
        for _ in values:
            member.take(START_S_MAX)
        # What would come of the subscription has come when this has.
        send(bootstrap, topic, 0, ["last"], "any")
        while member.take(START_S_MAX)[2] != "last":
            pass
        time.sleep(1)
        member.take_all()
    assert Counter(line[2] for line in member.got) == Counter([*values, "last"])
