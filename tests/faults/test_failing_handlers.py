"""Handlers that fail at random, in processes that are killed with -9 as the brokers are: the exact
account of each message.

Whether an attempt fails is a function of the message and the attempt (failing_handler.py), so it is
known of each message how often it is delivered and whether it dies. A delivery that is handled
again after a kill has the place that it had; at any other place it would be one too many. The first
handlers die between the nacks of a batch and its commit, so that some messages are nacked twice.
TIDEWHEEL_SEED repeats a choice of faults.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.broker_process import WITH_FEATURES
from tests.faults import failing_handler
from tests.faults.cell import Cell
from tests.faults.failing_handler import ATTEMPTS, BACKOFF, deliveries_of, dies
from tests.faults.test_retried_messages import has_noted_a_date

PARTITIONS = 6
# Each of the first handlers kills itself in the last of so many batches with failures.
LAST_BATCHES = (5, 15)
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
}
STALLED_SECONDS_MAX = 90.0
# A delay is counted by leaders' clocks, which are rounded down and compared with the machine's each
# second; a handler's is the machine's.
CLOCKS_APART_MS = 3
# Longer than a dead letter that is sent twice would take.
LINGER_S = 3.0


class Handlers:
    """Their processes, and what they have written of deliveries."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        # Those that will kill themselves, in the last of so many batches.
        self._dying: dict[subprocess.Popen[bytes], int] = {}
        self._read_until: dict[Path, int] = {}
        self._files = 0
        self._errors = (folder / "handlers.err").open("ab")
        # (message, attempt): where it was delivered.
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        self.elsewhere: list[str] = []
        self.handled_again = 0
        self.late_ms: list[int] = []

    def start(self, batches: int | None = None) -> None:
        """With `batches` it kills itself in the last of so many."""
        file = self._folder / f"handled-{self._files}"
        self._files += 1
        self._read_until[file] = 0
        file.touch()
        command = [
            sys.executable,
            "-m",
            failing_handler.__name__,
            self._bootstrap,
            "pay",
            str(file),
        ]
        if batches is not None:
            command.append(str(batches))
        process = subprocess.Popen(command, stderr=self._errors)
        self._processes.append(process)
        if batches is not None:
            self._dying[process] = batches

    def kill_one(self, chooser: random.Random) -> None:
        """kill -9, and another one starts."""
        self.check()
        victim = self._processes.pop(chooser.randrange(len(self._processes)))
        victim.kill()
        victim.wait()
        # One that would have killed itself has one after it that will.
        self.start(self._dying.get(victim))

    def check(self) -> None:
        """Those that have killed themselves are replaced; no other may have ended."""
        for process in list(self._processes):
            if process in self._dying and process.poll() == -signal.SIGKILL:
                self._processes.remove(process)
                self.start()
        ended = [process for process in self._processes if process.poll() is not None]
        assert not ended, Path(self._errors.name).read_text()[-3000:]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._errors.close()

    def read(self) -> None:
        """What was written since; the last line of one that was killed may be torn."""
        for file, start in self._read_until.items():
            with file.open("rb") as lines:
                lines.seek(start)
                data = lines.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read_until[file] = start + len(whole)
            for line in whole.splitlines():
                self._note(line.split())

    def _note(self, words: list[bytes]) -> None:
        number, attempt, partition, offset = map(int, words[:4])
        place = partition, offset
        known = self.places.get((number, attempt))
        if known is None:
            self.places[number, attempt] = place
            if words[4] != b"-":
                self.late_ms.append(int(words[4]))
        elif known == place:
            self.handled_again += 1
        else:
            self.elsewhere.append(f"attempt {attempt} of {number} at {known} and at {place}")


def send_all(bootstrap: str, count: int, seconds: float, failed: list[str]) -> None:
    """Evenly over that time; what goes wrong is in `failed`."""

    def answered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    )
    begun = time.monotonic()
    sent = 0
    while sent < count:
        due = min(count, 1 + int(count * (time.monotonic() - begun) / seconds))
        for number in range(sent, due):
            producer.produce(
                "orders", b"%d" % number, partition=number % PARTITIONS, on_delivery=answered
            )
        sent = due
        producer.poll(0.01)
    if producer.flush(STALLED_SECONDS_MAX):
        failed.append("not all messages were acknowledged")


@contextlib.contextmanager
def sending(bootstrap: str, count: int, seconds: float) -> Iterator[None]:
    failed: list[str] = []
    thread = threading.Thread(target=send_all, args=(bootstrap, count, seconds, failed))
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failed, failed[:3]


def dead_letters(bootstrap: str, count: int) -> Counter[tuple[int, int]]:
    """(message, attempts) of each, until there are so many, and for a while longer."""
    found: Counter[tuple[int, int]] = Counter()
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "topic.metadata.refresh.interval.ms": 500}
    )
    reader.assign([TopicPartition("pay.dlq", index, 0) for index in range(PARTITIONS)])
    stalled = time.monotonic() + STALLED_SECONDS_MAX
    lingered: float | None = None
    while time.monotonic() < (stalled if lingered is None else lingered):
        for message in reader.consume(1000, 0.2):
            if message.error() is None:
                headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
                found[int(message.value() or b""), int(headers["tw-attempt"])] += 1
                stalled = time.monotonic() + STALLED_SECONDS_MAX
        if lingered is None and found.total() >= count:
            lingered = time.monotonic() + LINGER_S
    reader.close()
    return found


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    orders = NewTopic("orders", PARTITIONS, 3, config={"tidewheel.headers": "true"})
    admin.create_topics([orders])["orders"].result()
    policy = {
        "tidewheel.source": "orders",
        "tidewheel.retry.backoff": BACKOFF,
        "tidewheel.retry.attempts.max": str(ATTEMPTS),
    }
    admin.create_topics([NewTopic("pay", -1, -1, config=policy)])["pay"].result()


def run_killed(folder: Path, *, count: int, seconds: float, pause_s: float) -> None:
    """`count` messages sent over so long; after each pause a handler is killed, or a leader."""
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    chooser = random.Random(seed)
    wanted = {(n, a) for n in range(count) for a in range(1, deliveries_of(n) + 1)}
    kills: Counter[str] = Counter()
    with Cell(folder, module=WITH_FEATURES, settings=SETTINGS) as cell:
        make_topics(cell.bootstrap)
        handlers = Handlers(cell.bootstrap, folder)
        try:
            for batches in LAST_BATCHES:
                handlers.start(batches)
            begun = time.monotonic()
            with sending(cell.bootstrap, count, seconds):
                while time.monotonic() < begun + seconds or kills.total() < 4:
                    time.sleep(pause_s * chooser.uniform(0.5, 1.5))
                    if kills.total() % 2:
                        kill_a_leader(cell, chooser)
                        kills["leaders"] += 1
                    else:
                        handlers.kill_one(chooser)
                        kills["handlers"] += 1
                    handlers.read()
            wait_for(handlers, len(wanted))
        finally:
            handlers.end()
        took_s = time.monotonic() - begun
        late = sorted(handlers.late_ms)
        print(
            f"{count} messages, {len(wanted)} deliveries in {took_s:.1f} s, {dict(kills)} killed, "
            f"{handlers.handled_again} handled again; retries late by p50 {late[len(late) // 2]} "
            f"ms, p99 {late[len(late) * 99 // 100]} ms, worst {late[-1]} ms"
        )
        assert not handlers.elsewhere, handlers.elsewhere[:5]
        assert handlers.places.keys() == wanted
        assert late[0] >= -CLOCKS_APART_MS, "a retry came early"
        assert handlers.handled_again, "nobody has nacked twice"
        to_die = Counter((n, ATTEMPTS) for n in range(count) if dies(n))
        assert dead_letters(cell.bootstrap, to_die.total()) == to_die


def kill_a_leader(cell: Cell, chooser: random.Random) -> None:
    victim = chooser.choice(list(set(cell.leaders("pay").values())))
    deadline = time.monotonic() + STALLED_SECONDS_MAX
    while not has_noted_a_date(cell, victim):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cell.kill9(victim)
    time.sleep(chooser.choice([0.1, 1.0, 3.0]))
    cell.start(victim)
    cell.wait_until_in_sync("pay")


def wait_for(handlers: Handlers, count: int) -> None:
    """Until so many deliveries were handled, or none was for long."""
    seen, since = -1, time.monotonic()
    while len(handlers.places) < count and time.monotonic() - since < STALLED_SECONDS_MAX:
        handlers.check()
        handlers.read()
        if len(handlers.places) != seen:
            seen, since = len(handlers.places), time.monotonic()
        time.sleep(0.2)
    # What is too much comes a little later.
    time.sleep(LINGER_S)
    handlers.read()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_account_is_exact(tmp_path: Path) -> None:
    run_killed(tmp_path, count=10_000, seconds=12.0, pause_s=2.0)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_the_account_of_half_a_million_is_exact(tmp_path: Path) -> None:
    run_killed(tmp_path, count=500_000, seconds=240.0, pause_s=4.0)
