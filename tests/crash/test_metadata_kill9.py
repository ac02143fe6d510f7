"""kill -9 while topics come, change and go: every acknowledged change is there afterwards.

One administrator works through a plan of its own, one change at a time, so that what must be there
is known exactly: the state after the last acknowledged change, or after the one that was under way.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.broker_process import BrokerProcess

# Topic → (partitions, retention.ms).
State = dict[str, tuple[int, str]]
DEFAULT_RETENTION_MS = "1209600000"
TIMEOUT_S = 10


class Administrator:
    """Changes topics until the broker is gone; knows what must be there."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._random = random.Random(seed)
        self._made = 0
        self.acknowledged: State = {}
        self.possible: State = {}
        self.changes = 0

    def work(self) -> None:
        """Until a change fails because the broker is gone."""
        while True:
            try:
                self.work_once()
            except KafkaException:
                return

    def work_once(self) -> None:
        """Make one change and have it acknowledged."""
        self._change()
        self.acknowledged = self.possible
        self.changes += 1

    def _change(self) -> None:
        state = dict(self.acknowledged)
        futures: Mapping[Any, Any]
        kind = self._random.choice(["create", "create", "grow", "configure", "delete"])
        if kind == "create" or not state:
            self._made += 1
            name = f"topic-{self._made}"
            state[name] = (self._random.randint(1, 5), DEFAULT_RETENTION_MS)
            self.possible = state
            futures = self._client.create_topics(
                [NewTopic(name, state[name][0], 1)], request_timeout=TIMEOUT_S
            )
        elif kind == "grow":
            name = self._random.choice(sorted(state))
            state[name] = (state[name][0] + 1, state[name][1])
            self.possible = state
            futures = self._client.create_partitions(
                [NewPartitions(name, state[name][0])], request_timeout=TIMEOUT_S
            )
        elif kind == "delete":
            name = self._random.choice(sorted(state))
            del state[name]
            self.possible = state
            futures = self._client.delete_topics([name], request_timeout=TIMEOUT_S)
        else:
            name = self._random.choice(sorted(state))
            retention_ms = str(self._random.randint(1, 10**9))
            state[name] = (state[name][0], retention_ms)
            self.possible = state
            resource = ConfigResource(ResourceType.TOPIC, name)
            resource.add_incremental_config(
                ConfigEntry(
                    "retention.ms", retention_ms, incremental_operation=AlterConfigOpType.SET
                )
            )
            futures = self._client.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)
        for future in futures.values():
            future.result(TIMEOUT_S + 5)

    def check(self) -> None:
        """After a restart: what is there is one of the two states that may be."""
        found: State = {}
        topics = self._client.list_topics(timeout=30).topics
        for name, topic in topics.items():
            resource = ConfigResource(ResourceType.TOPIC, name)
            (future,) = self._client.describe_configs([resource]).values()
            found[name] = (len(topic.partitions), future.result(30)["retention.ms"].value)
        assert found in (self.acknowledged, self.possible)
        self.acknowledged = self.possible = found


def run_rounds(folder: Path, rounds: int, seed: int) -> None:
    chooser = random.Random(seed)
    print(f"seed {seed}")
    with BrokerProcess(folder) as broker:
        administrator = Administrator(broker.bootstrap, seed)
        for _ in range(rounds):
            # However slow the machine is, there is something to survive.
            administrator.work_once()
            killer = threading.Timer(chooser.uniform(0.05, 0.5), broker.kill9)
            killer.start()
            administrator.work()
            killer.join()
            broker.start()
            administrator.check()


@pytest.mark.timeout(300)
def test_acknowledged_changes_survive_kill9(tmp_path: Path) -> None:
    run_rounds(tmp_path, 6, seed=int.from_bytes(os.urandom(4), "big"))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_acknowledged_changes_survive_many_kills(tmp_path: Path) -> None:
    run_rounds(tmp_path, 300, seed=int.from_bytes(os.urandom(4), "big"))
