"""Every client sends delayed messages, and every client reads them: hidden, then delivered once and
not early. What is hidden counts for no lag of those that commit what they have read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker_process import BrokerProcess
from tests.conformance import programs
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_projections import CLIENTS
from tests.conformance.test_subscriptions import create
from tests.conformance.test_waiting_subscribers import Member, running

PYTHON_PRODUCERS = Path(__file__).with_name("python_producers.py")
TOPIC = "reminders"
START_S_MAX = 60
DELAY_S = 8


def command(client: str) -> list[str]:
    others: dict[str, Callable[[], list[str]]] = {
        "java": lambda: programs.java_command("Delayed"),
        "franz-go": lambda: [*programs.go_command(), "delayed"],
        "sarama": lambda: programs.sarama_command("delayed"),
        "kafkajs": lambda: programs.node_command("delayed.js"),
    }
    if client not in others:
        return [sys.executable, str(PYTHON_PRODUCERS), client]
    return others[client]()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_client_sends_and_reads(tmp_path: Path) -> None:
    commands = {client: command(client) for client in CLIENTS}
    with BrokerProcess(tmp_path, set=SETTINGS, module="features") as broker:
        create(broker.bootstrap, TOPIC, 1, headers="true")
        with running(list(CLIENTS), broker.bootstrap, TOPIC, tmp_path) as members:
            send(commands, broker.bootstrap)
            for member in members:
                read(member)
            time.sleep(1)
            for member in members:
                member.take_all()
                values = [value for _, _, value, _ in member.got]
                assert sorted(values) == sorted(set(values)), f"{member.client} got some twice"
            for member in members:
                wait_for_no_lag(broker.bootstrap, f"{member.client}-{TOPIC}", member)


def send(commands: dict[str, list[str]], bootstrap: str) -> None:
    """By each client: one that is due long after the test, one soon, one at once. The values say
    when a message may come, by the clock of this machine, which is that of the broker."""
    for client, start in commands.items():
        due_ms = time.time_ns() // 1_000_000 + DELAY_S * 1000
        records = [f"{client}:never=45d", f"{client}:due:{due_ms}={DELAY_S}s", f"{client}:now="]
        done = subprocess.run(
            [*start, bootstrap, TOPIC, *records], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{client}: {done.stdout}\n{done.stderr}"


def read(member: Member) -> None:
    """All that come within the test, none of them early."""
    while len(member.got) < 2 * len(CLIENTS):
        _, offset, value, _ = member.take(START_S_MAX)
        now_ms = time.time_ns() // 1_000_000
        kind, _, due_ms = value.partition(":")[2].partition(":")
        assert kind != "never", f"{member.client} was shown {value} at {offset}"
        if kind == "due":
            assert now_ms >= int(due_ms), f"{member.client} got {value} early"


def wait_for_no_lag(bootstrap: str, group: str, member: Member) -> None:
    """The group comes to have committed all, as any of Kafka's tools counts it: the log ends with
    what was delivered last."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with_lag = Consumer({"bootstrap.servers": bootstrap, "group.id": "tools"})
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0)])
        (found,) = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
        _, end = with_lag.get_watermark_offsets(TopicPartition(TOPIC, 0), 30)
        if found.offset == end:
            break
        assert time.monotonic() < deadline_s, f"{member.client}: {found.offset} of {end}"
        time.sleep(0.1)
    with_lag.close()
