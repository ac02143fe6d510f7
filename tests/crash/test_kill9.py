"""kill -9 at random moments under load: nothing acknowledged is lost, repeated or reordered.

Three idempotent producers write to four partitions while a committer commits offsets; the broker
is killed at a random moment of each round and started again on the same files. After the last
round the clients' histories are held against the logs, and each stored log is walked batch by
batch with its checksums, as a reader who trusts nobody would.

The page cache survives kill -9: what this proves is recovery, not syncing. Power loss is tested in
tests/log on a simulated disk.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from crc32c import crc32c

from data_plane.wire.records import read_batch_header
from tests.broker_process import BrokerProcess
from tests.crash.history import Writer, check

PARTITIONS = 4
BATCH_HEADER_BYTES = 61
# The checksum covers a batch from its attributes on.
CRC_COVERS_FROM = 21
WRITERS = 3
TOPIC = "payments"
# Small segments, so that rolls, deletions of index files and snapshots are among what is cut off.
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "4096",
    "group.initial.rebalance.delay.ms": "0",
}


def run_rounds(folder: Path, rounds: int, seed: int) -> None:
    """`rounds` kills; the seed decides the moments (the machine's own timing varies them more)."""
    chooser = random.Random(seed)
    with BrokerProcess(folder, set=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        writers = [Writer(n, broker.bootstrap, TOPIC, PARTITIONS) for n in range(WRITERS)]
        committer = Committer(broker.bootstrap)
        for _ in range(rounds):
            until = time.monotonic() + chooser.uniform(0.02, 0.6)
            while time.monotonic() < until:
                for writer in writers:
                    writer.send(50)
                committer.commit_next()
            broker.kill9()
            check_files(broker.data_dir)
            broker.start()
            committer.check()
        for writer in writers:
            writer.finish(120)
        checked = check(writers, broker.bootstrap, TOPIC, PARTITIONS)
        assert checked >= rounds, "the load reached the broker"
        committer.check()
        committer.close()


class Committer:
    """Commits ascending offsets of one group; a committed offset may never go back."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "committer",
                "enable.auto.commit": False,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._next = 1
        self._acknowledged = 0

    def commit_next(self) -> None:
        position = TopicPartition(TOPIC, 0, self._next)
        try:
            (answer,) = self._consumer.commit(offsets=[position], asynchronous=False)
        except KafkaException:
            # Not acknowledged: it may or may not be stored. The next one is higher either way.
            self._next += 1
            return
        if answer.error is None:
            self._acknowledged = self._next
        self._next += 1

    def check(self) -> None:
        (stored,) = self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
        assert stored.error is None, stored.error
        found = max(0, stored.offset)
        assert self._acknowledged <= found < self._next, (
            f"offset {self._acknowledged} was acknowledged, {found} is stored"
        )

    def close(self) -> None:
        self._consumer.close()


def check_files(data_dir: Path) -> None:
    """Whatever is on disk right after the kill: valid batches, at most a torn one behind them."""
    for path in data_dir.glob("topics/*/Partition-*/*.log"):
        data = path.read_bytes()
        position = 0
        last_offset = int(path.stem) - 1
        while len(data) - position >= BATCH_HEADER_BYTES:
            header = read_batch_header(data, position)
            end = position + header.size
            if end > len(data):
                break
            assert header.base_offset > last_offset, f"{path} at {position}: offset order"
            assert crc32c(data[position + CRC_COVERS_FROM : end]) == header.crc, (
                f"{path} at {position}: checksum"
            )
            last_offset = header.last_offset
            position = end


@pytest.mark.timeout(600)
def test_fifty_kills_under_load(tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    run_rounds(tmp_path, 50, seed)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_five_hundred_kills_under_load(tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEWHEEL_SEED", random.randrange(2**32)))
    print(f"TIDEWHEEL_SEED={seed}")
    run_rounds(tmp_path, 500, seed)
