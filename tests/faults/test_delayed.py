"""Delayed messages while brokers, all brokers and Postgres are killed: each comes exactly once, and
never early.

All are sent with the time at which they are due, spread evenly over a while in which the cell is
killed at random. A reader reads along, and another one reads all of it in the end.
TIDEWHEEL_SEED repeats a choice of faults.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stack.broker_process import WITH_FEATURES
from tests.faults.cell import Cell

TOPIC = "reminders"
PARTITIONS = 6
# Which one it is, and when it is due.
VALUE = struct.Struct(">Iq")
STALLED_SECONDS_MAX = 90.0
ANSWERED_SECONDS_MAX = 180.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Reader:
    """Reads all partitions from their starts on, and counts what it gets."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self.times = bytearray(count)
        self.read_count = 0
        self.early: list[int] = []
        self.lateness_ms: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])

    def step(self) -> int:
        """Take what there is; how many messages came."""
        messages = self._consumer.consume(1000, 0.1)
        came_ms = now_ms()
        found = [message for message in messages if message.error() is None]
        for message in found:
            number, due_ms = VALUE.unpack(message.value() or b"")
            delivered_ms = message.timestamp()[1]
            if min(delivered_ms, came_ms) < due_ms:
                self.early.append(number)
            self.lateness_ms.append(delivered_ms - due_ms)
            self.times[number] += 1
        self.read_count += len(found)
        return len(found)

    def read(self, count: int) -> None:
        """Until so many came, or none for STALLED_SECONDS_MAX."""
        stalled_at = time.monotonic() + STALLED_SECONDS_MAX
        while self.read_count < count and time.monotonic() < stalled_at:
            if self.step():
                stalled_at = time.monotonic() + STALLED_SECONDS_MAX

    def check(self) -> None:
        """Nothing more comes; each came once, and not early."""
        quiet_at = time.monotonic() + 2
        while time.monotonic() < quiet_at:
            self.step()
        self._consumer.close()
        missing, repeated = self.times.count(0), sum(times > 1 for times in self.times)
        assert (missing, repeated, len(self.early)) == (0, 0, 0), (
            f"{missing} of {len(self.times)} never came, {repeated} came more than once, and "
            f"{len(self.early)} early: {self.early[:10]}"
        )

    def lateness(self) -> str:
        """In words."""
        ordered = sorted(self.lateness_ms)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        return f"lateness in ms: p50 {p50}, p99 {p99}, max {ordered[-1]}"


class ReadingAlong(threading.Thread):
    """A reader while things happen."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(name="reading-along", daemon=True)
        self._reader = reader
        self._is_over = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._reader.step()
        except BaseException as failure:
            self._failure = failure

    def end(self) -> None:
        self._is_over.set()
        self.join()
        if self._failure is not None:
            raise self._failure


class Killer:
    """Faults, by a seed; each mends what it did after a while."""

    def __init__(self, cell: Cell, chooser: random.Random) -> None:
        self._cell = cell
        self._chooser = chooser
        # Each kind once, in random order, then any.
        self._next: list[Callable[[], str]] = []

    def strike(self) -> str:
        """Do something bad, and mend it; what it was."""
        if not self._next:
            self._next = [self._kill_leader, self._kill_store, self._kill_all]
            self._chooser.shuffle(self._next)
        return self._next.pop()()

    def _kill_leader(self) -> str:
        leaders = sorted({leader for leader in self._cell.leaders(TOPIC).values() if leader > 0})
        victim = self._chooser.choice(leaders or self._cell.ids)
        self._cell.kill9(victim)
        self._wait()
        self._cell.start(victim)
        return f"kill -9 of broker {victim}, a leader"

    def _kill_store(self) -> str:
        self._cell.postgres.kill_now()
        self._wait()
        self._cell.postgres.start()
        return "kill -9 of Postgres"

    def _kill_all(self) -> str:
        self._cell.kill9(*self._cell.ids)
        with_store = self._chooser.random() < 0.5
        if with_store:
            self._cell.postgres.kill_now()
        self._wait()
        if with_store:
            self._cell.postgres.start()
        for broker_id in self._cell.ids:
            self._cell.start(broker_id)
        return f"kill -9 of all brokers{', and of Postgres' if with_store else ''}"

    def _wait(self) -> None:
        time.sleep(self._chooser.choice([0.1, 1.0, 3.0]))


def send_all(bootstrap: str, count: int, due_from_ms: int, spread_s: float) -> None:
    """Messages that are due evenly over `spread_s`, in no order."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "delivery.timeout.ms": int(ANSWERED_SECONDS_MAX * 1000),
            "log_level": 0,
        }
    )
    failed: list[str] = []

    def answered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    numbers = list(range(count))
    random.Random(count).shuffle(numbers)
    for place, number in enumerate(numbers):
        due_ms = due_from_ms + int(number * spread_s * 1000 / count)
        value = VALUE.pack(number, due_ms)
        headers: list[tuple[str, str | bytes | None]] = [("tw-deliver-at", b"%d" % due_ms)]
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value,
                    partition=number % PARTITIONS,
                    headers=headers,
                    on_delivery=answered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if place % 500 == 0:
            producer.poll(0)
    assert producer.flush(ANSWERED_SECONDS_MAX) == 0
    assert not failed, f"{len(failed)} were refused: {failed[0]}"


def run_killed(folder: Path, *, count: int, spread_s: float, sending_s: float) -> None:
    """`count` messages that are due over `spread_s`, from `sending_s` after the first is sent."""
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    chooser = random.Random(seed)
    strikes = 0
    with Cell(folder, module=WITH_FEATURES) as cell:
        cell.create_topic(TOPIC, PARTITIONS, configs={"tidewheel.headers": "true"})
        due_from_ms = now_ms() + int(sending_s * 1000)
        send_all(cell.bootstrap, count, due_from_ms, spread_s)
        print(f"sent in {(now_ms() - due_from_ms) / 1000 + sending_s:.1f} s", flush=True)
        along = ReadingAlong(reader := Reader(cell.bootstrap, count))
        along.start()
        killer = Killer(cell, chooser)
        while now_ms() < due_from_ms + spread_s * 1000 or strikes < 3:
            time.sleep(chooser.uniform(0.5, 4.0))
            print(f"{killer.strike()}; {reader.read_count} came", flush=True)
            strikes += 1
            cell.wait_until_in_sync(TOPIC)
        along.end()
        reader.read(count)
        print(f"{strikes} faults; {reader.lateness()}")
        reader.check()
        again = Reader(cell.bootstrap, count)
        again.read(count)
        again.check()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_comes_once_while_everything_is_killed(tmp_path: Path) -> None:
    run_killed(tmp_path, count=20_000, spread_s=40.0, sending_s=5.0)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_a_million_due_within_ten_minutes(tmp_path: Path) -> None:
    run_killed(tmp_path, count=1_000_000, spread_s=600.0, sending_s=120.0)
