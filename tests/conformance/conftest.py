"""One broker process per test module; or a cell, by TIDEWHEEL_CONFORMANCE_BROKERS=3; or any broker,
by TIDEWHEEL_CONFORMANCE_BOOTSTRAP.

Pointing the last one at an Apache Kafka shows whether a case asks for what Kafka does.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.faults.cell import Cell

SETTINGS = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Records carry timestamps of 2023; the first look at retention, minutes after the start, would
    # take them away from under a reader.
    "log.retention.check.interval.ms": "86400000",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of the broker under test."""
    given = os.environ.get("TIDEWHEEL_CONFORMANCE_BOOTSTRAP")
    if given:
        yield given
        return
    folder: Path = tmp_path_factory.mktemp("broker")
    brokers = int(os.environ.get("TIDEWHEEL_CONFORMANCE_BROKERS", "1"))
    if brokers > 1:
        with Cell(folder, brokers=brokers, settings=SETTINGS) as cell:
            # One address: clients find the others.
            yield cell.bootstrap.split(",")[0]
        return
    with BrokerProcess(folder, set=SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def name() -> Callable[[str], str]:
    """Makes a name for a topic or group that no other test has."""

    def make(kind: str) -> str:
        return f"{kind}-{uuid.uuid4().hex[:10]}"

    return make
