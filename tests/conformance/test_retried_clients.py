"""Every client is a handler that fails: it reads a subscription as a group, nacks by plain Produce,
gets the messages again with their attempt, and reads its dead letters.

What becomes of a message is in its value: `done:` is handled at once, `once:` fails at the first
attempt, `fail:` at each, `dead:` is made a dead letter. A program prints a line a delivery: `got
PARTITION OFFSET ATTEMPT REASON VALUE`, of which the last two are headers of a nack before (- for
none) and the message's value.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.conformance import programs
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_projections import CLIENTS
from tests.conformance.test_subscriptions import create

PYTHON_HANDLERS = Path(__file__).with_name("python_handlers.py")
PARTITIONS = 2
ATTEMPTS = 3
POLICY = {"retry.backoff": "fixed:1s", "retry.attempts.max": str(ATTEMPTS)}
OF_EACH_KIND = 5
DELIVERIES = {"done": 1, "once": 2, "fail": ATTEMPTS, "dead": 1}
DIE = {"fail": ATTEMPTS, "dead": 1}
SECONDS_MAX = 120
VALUES = [f"{kind}:{number}" for number in range(OF_EACH_KIND) for kind in DELIVERIES]

# (attempt, reason, value): how often it came.
Deliveries = Counter[tuple[int, str, str]]


def command(client: str) -> list[str]:
    others: dict[str, Callable[[], list[str]]] = {
        "java": lambda: programs.java_command("Retried"),
        "franz-go": lambda: [*programs.go_command(), "retried"],
        "sarama": lambda: programs.sarama_command("retried"),
        "kafkajs": lambda: programs.node_command("retried.js"),
    }
    if client not in others:
        return [sys.executable, str(PYTHON_HANDLERS), client]
    return others[client]()


def run_all(arguments: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    """All programs at once: what each printed, in words."""
    running = {
        client: subprocess.Popen(
            [*command(client), *own], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for client, own in arguments.items()
    }
    lines: dict[str, list[list[str]]] = {}
    try:
        for client, process in running.items():
            out, err = process.communicate(timeout=SECONDS_MAX)
            assert process.returncode == 0, f"{client}: {out}\n{err}"
            lines[client] = [line.split(" ", 5) for line in out.splitlines()]
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    return lines


def counted(lines: list[list[str]]) -> Deliveries:
    return Counter((int(attempt), reason, value) for _, _, _, attempt, reason, value in lines)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_client_nacks_and_reads_again(tmp_path: Path) -> None:
    for client in CLIENTS:
        command(client)
    with BrokerProcess(tmp_path, set=SETTINGS, module="features") as broker:
        bootstrap = broker.bootstrap
        create(bootstrap, "orders", PARTITIONS, headers="true")
        for client in CLIENTS:
            create(bootstrap, f"{client}-pay", -1, source="orders", **POLICY)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number, value in enumerate(VALUES):
            producer.produce("orders", value, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        count = str(OF_EACH_KIND * sum(DELIVERIES.values()))
        handled = run_all(
            {one: [bootstrap, f"{one}-pay", f"{one}-pay", count, "handle"] for one in CLIENTS}
        )
        expected: Deliveries = Counter()
        for value in VALUES:
            for attempt in range(1, DELIVERIES[value.partition(":")[0]] + 1):
                reason = "-" if attempt == 1 else f"failed-{attempt - 1}"
                expected[attempt, reason, value] += 1
        for client, lines in handled.items():
            assert counted(lines) == expected, client
            for _, index, _, delivery, _, _ in lines:
                assert int(index) % 2 == (delivery != "1"), client
        letters = Counter(
            (attempt, f"failed-{attempt}", f"{kind}:{number}")
            for kind, attempt in DIE.items()
            for number in range(OF_EACH_KIND)
        )
        for client in CLIENTS:
            wait_for_messages(bootstrap, f"{client}-pay.dlq", letters.total())
        count = str(letters.total())
        dead = run_all(
            {one: [bootstrap, f"{one}-pay.dlq", f"{one}-dlq", count, "read"] for one in CLIENTS}
        )
        for client, lines in dead.items():
            assert counted(lines) == letters, client


def wait_for_messages(bootstrap: str, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tools"})
    deadline_s = time.monotonic() + SECONDS_MAX
    found = -1
    while found < count:
        assert time.monotonic() < deadline_s, f"{found} in {topic}, not {count}"
        time.sleep(0.1)
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, index), 10)[1]
                for index in range(PARTITIONS)
            ]
        except KafkaException:  # It is not made yet.
            continue
        found = sum(ends)
    consumer.close()
