"""Message ids while leaders are killed: clients that each send all of the same ids, and that begin
anew, store each of them once.

TIDEWHEEL_SEED repeats a choice of faults.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stack.broker_process import WITH_FEATURES
from tests.faults.cell import Cell

TOPIC = "payments"
PARTITIONS = 3
CLIENTS = (
    {"enable.idempotence": True, "compression.type": "lz4"},
    {"enable.idempotence": True, "linger.ms": 2},
    {"enable.idempotence": False, "acks": "all", "retries": 100, "compression.type": "zstd"},
)
ANSWERED_SECONDS_MAX = 180.0
READ_SECONDS_MAX = 60.0


class Client(threading.Thread):
    """Sends all ids, in an order of its own, and waits for the answers."""

    def __init__(self, bootstrap: str, number: int, count: int, pause_s: float) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        settings = CLIENTS[number % len(CLIENTS)]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "delivery.timeout.ms": int(ANSWERED_SECONDS_MAX * 1000),
                "log_level": 0,
                **settings,
            }
        )
        self._numbers = list(range(count))
        # Those of a client that begins anew come in the order in which it sent them.
        random.Random(number // 2).shuffle(self._numbers)
        self._pause_s = pause_s
        self.problems: list[str] = []

    def run(self) -> None:
        def answered(error: object, _: object) -> None:
            if error is not None:
                self.problems.append(str(error))

        for place, number in enumerate(self._numbers):
            headers: list[tuple[str, str | bytes | None]] = [("tw-id", b"payment-%d" % number)]
            while True:
                try:
                    self._producer.produce(
                        TOPIC,
                        b"%d" % number,
                        partition=number % PARTITIONS,
                        headers=headers,
                        on_delivery=answered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if place % 200 == 0:
                self._producer.poll(0)
                time.sleep(self._pause_s)
        if self._producer.flush(ANSWERED_SECONDS_MAX):
            self.problems.append("some messages are not answered")


def read_all(bootstrap: str, count: int) -> Counter[int]:
    """How often each was stored."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: Counter[int] = Counter()
    until = time.monotonic() + READ_SECONDS_MAX
    quiet_at = None
    while time.monotonic() < until and (quiet_at is None or time.monotonic() < quiet_at):
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found[int(message.value() or b"")] += 1
        if len(found) == count and quiet_at is None:
            # Should some have been stored twice.
            quiet_at = time.monotonic() + 2
    consumer.close()
    return found


def run_killed(folder: Path, *, count: int, kills: int, pause_s: float) -> None:
    """Four clients send all ids at once, leaders are killed, and then all is sent once more."""
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    chooser = random.Random(seed)
    with Cell(folder, module=WITH_FEATURES) as cell:
        configs = {"tidewheel.headers": "true", "dedup.window.ms": "86400000"}
        cell.create_topic(TOPIC, PARTITIONS, configs=configs)
        clients = [Client(cell.bootstrap, number, count, pause_s) for number in range(4)]
        for client in clients:
            client.start()
        for _ in range(kills):
            time.sleep(chooser.uniform(0.3, 1.5))
            leaders = sorted({one for one in cell.leaders(TOPIC).values() if one > 0})
            victim = chooser.choice(leaders or cell.ids)
            cell.kill9(victim)
            time.sleep(chooser.choice([0.1, 1.0]))
            cell.start(victim)
            is_at_work = any(client.is_alive() for client in clients)
            print(f"kill -9 of broker {victim}; clients at work: {is_at_work}", flush=True)
            cell.wait_until_in_sync(TOPIC)
        again = Client(cell.bootstrap, 4, count, 0)
        again.start()
        for client in (*clients, again):
            client.join(ANSWERED_SECONDS_MAX)
            assert not client.is_alive()
            assert not client.problems, client.problems[:3]
        found = read_all(cell.bootstrap, count)
        repeated = {number: times for number, times in found.items() if times > 1}
        missing = [number for number in range(count) if number not in found]
        assert not repeated, f"{len(repeated)} were stored more than once: {list(repeated)[:5]}"
        assert not missing, f"{len(missing)} are lost: {missing[:5]}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_id_is_stored_once_while_leaders_are_killed(tmp_path: Path) -> None:
    run_killed(tmp_path, count=6_000, kills=3, pause_s=0.6)
