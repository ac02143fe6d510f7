"""A live broker under hostile bytes: its memory stays bounded and its other clients are served.

While strangers send damaged frames, lies about sizes, halves of frames, or nothing at all, a
well-behaved client goes on producing and consuming. Afterwards the broker's anonymous memory has
grown by less than a named bound, and its log has named the strangers and the reasons.

Bounds held against here:
- MEMORY_GROWTH_BYTES_MAX: after any number of damaged frames, one after the other;
- IDLE_CONNECTION_BYTES_MAX: for each connection that is open and silent;
- HALF_FRAMES_BYTES_MAX (data_plane/server/receive_buffers.py): all half frames together, and
  HALF_FRAME_CLAIM_BYTES_MAX for one whose sender claims 100 MB and sends ten bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.process_figures import memory_bytes, open_descriptors
from tests.broker_process import BrokerProcess
from tests.wire.frame_corpus import hostile_request_frames

MEMORY_GROWTH_BYTES_MAX = 64 << 20
IDLE_CONNECTION_BYTES_MAX = 8 << 10
HALF_FRAME_CLAIM_BYTES_MAX = 16 << 10
FRAMES_PER_CONNECTION = 20
TOPIC = "served-all-the-while"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"auto.create.topics.enable": "false", "logging.format": "json"}
    with BrokerProcess(tmp_path, set=settings) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        yield process


class WellBehaved(threading.Thread):
    """A client that sends and reads numbered messages, `at_least` and until told to stop."""

    def __init__(
        self, bootstrap: str, at_least: int, security: Mapping[str, str] | None = None
    ) -> None:
        """`security` are librdkafka's settings of it."""
        super().__init__()
        self._at_least = at_least
        self._settings = {"bootstrap.servers": bootstrap, **(security or {})}
        self.finished = threading.Event()
        self.served = 0
        self.problem: str | None = None

    def run(self) -> None:
        producer = Producer({**self._settings, "linger.ms": 0})
        consumer = Consumer({**self._settings, "group.id": "w", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while not self.finished.is_set() or self.served < self._at_least:
            wanted = b"%d" % self.served
            producer.produce(TOPIC, wanted, partition=0)
            if producer.flush(20):
                self.problem = f"message {self.served} was not acknowledged"
                break
            message = consumer.poll(20)
            if message is None or message.value() != wanted:
                self.problem = f"message {self.served} did not come back: {message}"
                break
            self.served += 1
        consumer.close()


@contextlib.contextmanager
def served_meanwhile(
    broker: BrokerProcess,
    at_least: int,
    bootstrap: str = "",
    security: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Fails unless a well-behaved client got `at_least` round trips while the block ran."""
    client = WellBehaved(bootstrap or broker.bootstrap, at_least, security)
    client.start()
    try:
        yield
    finally:
        client.finished.set()
        client.join()
    assert client.problem is None, client.problem


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=30)


def send_and_drain(broker: BrokerProcess, data: bytes) -> str:
    """Send from a connection of its own, read until the broker ends it; the peer's name."""
    with connect(broker) as connection:
        host, port = connection.getsockname()
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        return f"{host}:{port}"


def run_hostile_frames(broker: BrokerProcess, seed: int, frames: int) -> None:
    rng = random.Random(seed)
    before = memory_bytes(broker.pid)["rss_anon"]
    pending: list[bytes] = []
    for frame in hostile_request_frames(rng, count=frames):
        pending.append(frame)
        if len(pending) == FRAMES_PER_CONNECTION:
            send_and_drain(broker, b"".join(pending))
            pending.clear()
    grown = memory_bytes(broker.pid)["rss_anon"] - before
    assert grown < MEMORY_GROWTH_BYTES_MAX, f"{grown / 2**20:.0f} MiB more than before"


def chosen_seed() -> int:
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    return seed


@pytest.mark.timeout(300)
def test_damaged_frames(broker: BrokerProcess) -> None:
    with served_meanwhile(broker, at_least=10):
        run_hostile_frames(broker, chosen_seed(), 10_000)
    assert_strangers_are_named(broker)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_million_damaged_frames(broker: BrokerProcess) -> None:
    with served_meanwhile(broker, at_least=1000):
        run_hostile_frames(broker, chosen_seed(), 1_000_000)
    assert_strangers_are_named(broker)


def assert_strangers_are_named(broker: BrokerProcess) -> None:
    """The log has lines that name a peer's address and say what was wrong with its bytes."""
    reasons = [
        line["reason"]
        for line in map(json.loads, broker.log_lines())
        if line.get("peer") and line.get("reason")
    ]
    assert len(reasons) >= 10
    assert all(len(reason) > 10 for reason in reasons), "a reason is a sentence, not a code"
    assert not re.search("Traceback", broker.log_text()), "a handler failed on damaged bytes"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 200 << 20])
def test_impossible_size_closes_the_connection_and_is_logged(
    broker: BrokerProcess, size: int
) -> None:
    with served_meanwhile(broker, at_least=1):
        peer = send_and_drain(broker, struct.pack(">i", size) + b"\0" * 100)
    (line,) = [
        line
        for line in map(json.loads, broker.log_lines())
        if line.get("peer") == peer and "reason" in line
    ]
    assert str(size) in line["reason"]


def test_claimed_sizes_reserve_nothing(broker: BrokerProcess) -> None:
    """500 connections claim frames of 90 MB each and send ten bytes."""
    count = 500
    with contextlib.ExitStack() as stack:
        before = memory_bytes(broker.pid)["rss_anon"]
        for _ in range(count):
            connection = stack.enter_context(connect(broker))
            connection.sendall(struct.pack(">i", 90_000_000) + b"\0\0\0\x0d\0\0\0\0\0\0")
        with served_meanwhile(broker, at_least=1):
            pass
        grown = memory_bytes(broker.pid)["rss_anon"] - before
    assert grown < count * HALF_FRAME_CLAIM_BYTES_MAX, f"{grown / count:.0f} bytes each"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_idle_connections(broker: BrokerProcess) -> None:
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"needs {count + 500} descriptors, the hard limit here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    before = memory_bytes(broker.pid)["rss_anon"]
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(count):
            stack.enter_context(connect(broker))
        with served_meanwhile(broker, at_least=10):
            pass
        assert open_descriptors(broker.pid) >= count
        grown = memory_bytes(broker.pid)["rss_anon"] - before
        assert grown < count * IDLE_CONNECTION_BYTES_MAX, f"{grown / count:.0f} bytes each"
    with served_meanwhile(broker, at_least=1):
        pass
