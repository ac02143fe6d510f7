"""Clients of all kinds read projected partitions with isolation.level=read_committed.

They get the committed records that the projection shows, each once, nothing of what was aborted and
nothing from the first undecided transaction on; and they move over all of it. That takes a list of
aborted transactions that fits to batches which the projection has left out or written anew.

The broker has no transactions yet, so transactional batches and their markers are appended to its
logs while it is stopped, by the code that will append them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.log.config import LogConfig
from data_plane.log.log import COORDINATOR, Log
from data_plane.log.manager import LogManager
from data_plane.wire.compression import Compression
from data_plane.wire.control_batches import EndTransactionMarker, build_end_transaction_marker
from data_plane.wire.records import NewRecord, build_batch
from tests.broker_process import BrokerProcess
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_projections import (
    CLIENTS,
    COMMITTED,
    GAP_RECORDS,
    GAP_VALUE_BYTES,
    committed_offsets,
)
from tests.projections import DOUBLED, EVEN, KEEP, KEPT

SOURCE = "orders"
PARTITIONS = 2
TIMESTAMP_MS = 1_700_000_000_000
FIRST, SECOND, THIRD = 4001, 4002, 4003
COMMITS, ABORTS = True, False


class CommittedSource:
    """What is appended to one partition, and what of it is committed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sequences: dict[int, int] = {}
        self._pending: dict[int, list[tuple[int, bytes, str]]] = {}
        # (offset, key, value) of what a reader of committed records may see.
        self.committed: list[tuple[int, bytes, str]] = []
        self.stable_end = 0

    def send(
        self, keys: list[bytes], producer_id: int = -1, *, filling_bytes: int = 0, codec: int = 0
    ) -> None:
        """A batch, of a transaction of that producer or of none."""
        offset = self._log.log_end_offset
        sent = [(offset + index, key, f"v{offset + index}") for index, key in enumerate(keys)]
        filling = b"x" * filling_bytes
        records = [NewRecord(TIMESTAMP_MS, key, value.encode() + filling) for _, key, value in sent]
        is_transactional = producer_id >= 0
        batch = build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=self._sequences.get(producer_id, 0) if is_transactional else -1,
            is_transactional=is_transactional,
        )
        self._append(batch)
        if is_transactional:
            self._sequences[producer_id] = self._sequences.get(producer_id, 0) + len(keys)
            self._pending.setdefault(producer_id, []).extend(sent)
        else:
            self.committed += sent

    def end(self, producer_id: int, is_commit: bool) -> None:
        """The marker of its transaction."""
        marker = build_end_transaction_marker(
            EndTransactionMarker(is_commit, 0),
            timestamp=TIMESTAMP_MS,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self._append(marker)
        pending = self._pending.pop(producer_id)
        if is_commit:
            self.committed = sorted(self.committed + pending)

    def _append(self, batch: bytearray) -> None:
        log = self._log
        log.append_as_leader(
            batch,
            0,
            len(batch),
            leader_epoch=log.latest_epoch,
            now_ms=TIMESTAMP_MS,
            origin=COORDINATOR,
        )
        log.advance_high_watermark(log.log_end_offset)

    def hold_back(self) -> None:
        """What comes from here on is behind an undecided transaction."""
        self.stable_end = self._log.last_stable_offset
        self.committed = [one for one in self.committed if one[0] < self.stable_end]

    def shown(self, prefix: str) -> list[tuple[int, str]]:
        return [
            (offset, value)
            for offset, key, value in self.committed
            if prefix == DOUBLED or (offset % 2 == 0 if prefix == EVEN else key == KEEP)
        ]


def fill(source: CommittedSource) -> None:
    mixed = [KEEP, b"drop", KEEP, b"drop", KEEP]
    gap = [b"drop"] * GAP_RECORDS
    source.send(mixed)
    # Two transactions at a time, one of which is aborted, in batches of which all is shown, some
    # and nothing.
    for round_number in range(3):
        codec = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)[round_number]
        source.send(mixed, FIRST, codec=codec)
        source.send([KEEP] * 4, SECOND)
        source.send([b"drop"] * 3, SECOND)
        source.send(mixed, SECOND, codec=codec)
        source.send([KEEP] * 3, FIRST)
        source.end(SECOND, ABORTS if round_number != 1 else COMMITS)
        source.send(mixed)
        source.end(FIRST, COMMITS if round_number != 1 else ABORTS)
    # More of it than a fetch scans at once: nothing is shown, then nothing is committed.
    source.send(gap, filling_bytes=GAP_VALUE_BYTES)
    source.send([KEEP, *gap], FIRST, filling_bytes=GAP_VALUE_BYTES)
    source.send([KEEP] * GAP_RECORDS, FIRST, filling_bytes=GAP_VALUE_BYTES)
    source.end(FIRST, ABORTS)
    source.send(mixed, FIRST)
    source.end(FIRST, COMMITS)
    # Aborted to the last record, and then undecided.
    source.send(mixed, SECOND)
    source.end(SECOND, ABORTS)
    source.send(mixed, THIRD)
    source.send(mixed)
    source.hold_back()


@pytest.fixture(scope="module")
def projecting(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, dict[int, CommittedSource]]]:
    folder = tmp_path_factory.mktemp("projecting")
    with BrokerProcess(folder, set=SETTINGS, module="tests.projections") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [
            NewTopic(SOURCE, PARTITIONS, 1),
            NewTopic(EVEN + SOURCE, PARTITIONS, 1),
            NewTopic(KEPT + SOURCE, PARTITIONS, 1),
            NewTopic(DOUBLED + SOURCE, 2 * PARTITIONS, 1),
        ]
        for future in admin.create_topics(topics).values():
            future.result()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for index in range(PARTITIONS):
            producer.produce(SOURCE, b"first", KEEP, partition=index)
        assert producer.flush(30) == 0
        broker.stop()
        sources = append_to(broker.data_dir)
        broker.start()
        yield broker.bootstrap, sources


def append_to(data_dir: Path) -> dict[int, CommittedSource]:
    """Fill the source's partitions, each of which has one record."""
    logs = LogManager([data_dir], default_config=LogConfig(), now_ms=TIMESTAMP_MS)
    assert logs.start(TIMESTAMP_MS) == []
    sources = {}
    for log in logs.logs():
        if log.topic == SOURCE:
            source = sources[log.partition] = CommittedSource(log)
            source.committed.append((0, KEEP, "first"))
            fill(source)
    logs.close(TIMESTAMP_MS)
    assert len(sources) == PARTITIONS
    return sources


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("prefix", [EVEN, KEPT, DOUBLED])
@pytest.mark.parametrize("client", CLIENTS)
def test_all_that_is_committed_and_shown_and_nothing_else(
    projecting: tuple[str, dict[int, CommittedSource]], client: str, prefix: str
) -> None:
    bootstrap, sources = projecting
    step = 2 if prefix == DOUBLED else 1
    shown = {step * index: source.shown(prefix) for index, source in sources.items()}
    topic, group = prefix + SOURCE, f"{client}-{prefix}"
    count = sum(map(len, shown.values()))
    # Into the middle of an aborted batch.
    offset = 13
    ahead = [one for one in shown[0] if one[0] >= offset][:20]
    lines = CLIENTS[client](bootstrap, topic, group, count, offset, len(ahead), COMMITTED)
    for index, expected in shown.items():
        got = [
            (line[2], line[3].rstrip("x"))
            for line in lines
            if line[0] == "got" and line[1] == index
        ]
        assert got == expected
    again = [(line[2], line[3].rstrip("x")) for line in lines if line[0] == "again"]
    assert again[: len(ahead)] == ahead
    committed = committed_offsets(bootstrap, group, topic)
    for index, expected in shown.items():
        # Behind the last record that is shown, and never beyond the last stable offset.
        assert expected[-1][0] < committed[index] <= sources[index // step].stable_end
