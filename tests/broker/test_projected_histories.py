"""Clients read projected partitions over random histories, and see exactly what a model says.

Batches of all codecs, transactions that end either way, seeks, restarts and a cold cache come in
any order. A client moves as Kafka's clients do: behind the last batch that it got. At every point
what it was given since it began or sought is what the projection shows of [begin, position),
nothing twice and nothing out of order; and no fetch leaves it where it was while there is something
ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.fetch import (
    fetch_handler,
    fetch_poll,
    fetch_reads,
    fetch_scans,
    large_fetches,
    projected_reads,
)
from data_plane.wire.compression import Compression
from data_plane.wire.control_batches import ControlType, read_control_type
from data_plane.wire.records import decode_batch, is_crc_valid, iter_batch_headers
from tests.broker.broker_player import Pending
from tests.broker.test_projected_fetches import DOUBLES, EVENS, KEPTS, ProjectingPlayer
from tests.projections import KEEP

PRODUCERS = (1, 2)
READ_COMMITTED = 1
IDS_SINCE_VERSION = 13


@dataclass
class ModelRecord:
    offset: int
    key: bytes
    # The transaction that it is of: its number and whether it was aborted, None while it is open.
    transaction: int | None = None


@dataclass
class Model:
    records: list[ModelRecord] = field(default_factory=list)
    # Of each transaction: whether it was committed. Those that are open are not in here.
    outcomes: dict[int, bool] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    next_transaction: int = 0

    def shown(
        self, shows: Callable[[ModelRecord], bool], start: int, end: int, isolation_level: int
    ) -> list[int]:
        return [
            record.offset
            for record in self.records
            if start <= record.offset < end
            and shows(record)
            and (
                isolation_level != READ_COMMITTED
                or record.transaction is None
                or self.outcomes.get(record.transaction, False)
            )
        ]


SHOWS: dict[str, Callable[[ModelRecord], bool]] = {
    EVENS: lambda record: record.offset % 2 == 0,
    KEPTS: lambda record: record.key == KEEP,
    DOUBLES: lambda record: True,
    "orders": lambda record: True,
}

KEYS = st.lists(st.sampled_from([KEEP, b"drop", b"drop"]), min_size=1, max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("append"), KEYS, st.sampled_from(Compression)),
    # Where a filter is selective nearly nothing passes.
    st.tuples(st.just("append"), st.lists(st.just(b"drop"), min_size=1, max_size=9), st.just(0)),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), KEYS),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("fetch"), st.integers(0, 2), st.sampled_from([1, 150, 1 << 20])),
    st.tuples(st.just("park"), st.integers(0, 2), st.sampled_from([1, 300])),
    st.tuples(st.just("seek"), st.integers(0, 2), st.integers(0, 60)),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("cool"), st.booleans(), st.none()),
)


class Client:
    """Reads one topic's partition 0, in a session or without."""

    def __init__(self, world: World, topic: str, isolation_level: int, version: int) -> None:
        self.world = world
        self.topic = topic
        self.isolation_level = isolation_level
        self.version = version
        self.has_session = bool((version + isolation_level) % 2)
        self.begin = self.position = 0
        self.got: list[int] = []
        self.parked: Pending | None = None
        self.reconnect()

    def reconnect(self) -> None:
        self.connection = self.world.broker.connect()
        self.session: tuple[int, int] | None = None
        self.named = -1
        self.parked = None

    def seek(self, offset: int) -> None:
        self.finish()
        self.begin = self.position = offset
        self.got = []

    def send(self, max_wait_ms: int, min_bytes: int, partition_max_bytes: int) -> Pending:
        wanted = {(self.topic, 0): self.position}
        options: dict[str, Any] = {}
        if self.has_session:
            session_id, epoch = self.session or (0, 0)
            options = {"session_id": session_id, "session_epoch": epoch}
            if self.session is not None and self.named == self.position:
                wanted = {}
            self.named = self.position
        return self.world.broker.fetch(
            wanted,
            version=self.version,
            isolation_level=self.isolation_level,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            partition_max_bytes=partition_max_bytes,
            connection=self.connection,
            **options,
        )

    def fetch(self, partition_max_bytes: int = 1 << 20) -> None:
        """Without waiting for more than what is there."""
        self.finish()
        # What a session does not name it asks for with the sizes of before.
        self.named = -1
        before, end = self.position, self.readable_end()
        self.take(self.send(0, 1, partition_max_bytes))
        assert self.position > before or before >= end, f"{self.topic} stays at {before} of {end}"

    def park(self, min_bytes: int) -> None:
        self.finish()
        self.parked = self.send(500, min_bytes, 1 << 20)

    def finish(self) -> None:
        parked, self.parked = self.parked, None
        if parked is not None:
            # Long requests are parsed by threads, and begin to wait after that.
            for _ in range(2):
                self.world.broker.pass_time(500)
                if not parked.is_answered:
                    self.world.broker.run_jobs()
            self.take(parked)

    def readable_end(self) -> int:
        partition = self.world.broker.partition("orders")
        if self.isolation_level == READ_COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark

    def take(self, poll: Pending) -> None:
        broker = self.world.broker
        if not poll.is_answered:
            broker.run_jobs()
            broker.pass_time(0)
            broker.run_jobs()
        response = poll.response
        assert response.error_code == 0
        if self.has_session:
            epoch = 1 if self.session is None else self.session[1] + 1
            self.session = response.session_id, epoch
        for topic in response.responses:
            for part in topic.partitions:
                assert part.error_code == 0
                self.deliver(part)
        self.check()

    def deliver(self, part: Any) -> None:
        data = bytes(part.records or b"")
        aborted = sorted(part.aborted_transactions or [], key=lambda one: -int(one.first_offset))
        aborted_producers: set[int] = set()
        for header in iter_batch_headers(data, 0, len(data)):
            assert header.record_count
            assert is_crc_valid(data, header)
            assert header.next_offset > self.position, "a client would go back"
            while aborted and aborted[-1].first_offset <= header.last_offset:
                aborted_producers.add(aborted.pop().producer_id)
            records = decode_batch(data, header.position)
            if header.is_control:
                if read_control_type(records[0]) is ControlType.ABORT:
                    aborted_producers.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted_producers):
                self.got += [one.offset for one in records if one.offset >= self.position]
            self.position = header.next_offset

    def check(self) -> None:
        expected = self.world.model.shown(
            SHOWS[self.topic], self.begin, self.position, self.isolation_level
        )
        assert self.got == expected


class World:
    def __init__(self) -> None:
        self.model = Model()
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.broker = ProjectingPlayer()
        self.clients: list[Client] = []

    def add(self, keys: list[bytes], transaction: int | None = None) -> None:
        offset = self.broker.partition("orders").log.log_end_offset - len(keys)
        self.model.records += [
            ModelRecord(offset + number, key, transaction) for number, key in enumerate(keys)
        ]

    def run(self, kind: str, first: Any, second: Any) -> None:
        broker, model = self.broker, self.model
        if kind == "append":
            broker.append(*first, codec=second)
            self.add(first)
        elif kind == "send":
            if first not in model.open:
                model.open[first] = model.next_transaction
                model.next_transaction += 1
            broker.append_in_transaction(first, self.sequences[first], *second)
            self.sequences[first] += len(second)
            self.add(second, model.open[first])
        elif kind == "end":
            if first in model.open:
                model.outcomes[model.open.pop(first)] = second
                broker.end_transaction(first, is_commit=second)
        elif kind == "fetch":
            self.clients[first].fetch(second)
        elif kind == "park":
            self.clients[first].park(second)
        elif kind == "seek":
            self.clients[first].seek(min(second, self.clients[first].readable_end()))
        elif kind == "cool":
            broker.fs.is_cache_cold = first
        else:
            for client in self.clients:
                client.finish()
            self.broker = broker.restarted()
            for client in self.clients:
                client.reconnect()

    def finish(self) -> None:
        for client in self.clients:
            client.finish()
            rounds = 0
            while client.position < client.readable_end():
                client.fetch()
                rounds += 1
            assert client.position == client.readable_end()
        assert self.broker.sessions.cold_reads.held.used == 0


@pytest.mark.parametrize("in_slices", [False, True])
@settings(max_examples=60)
@given(
    steps=st.lists(STEPS, min_size=5, max_size=40),
    readers=st.lists(
        st.tuples(
            st.sampled_from(sorted(SHOWS)),
            st.sampled_from([0, 1]),
            st.sampled_from([7, 12, 13, 18]),
        ),
        min_size=3,
        max_size=3,
    ),
    sizes=st.tuples(st.sampled_from([200, 1_000, 1 << 20]), st.sampled_from([0, 300, 32 << 10])),
)
def test_clients_see_what_the_projection_shows(
    in_slices: bool,
    steps: list[tuple[str, Any, Any]],
    readers: list[tuple[str, int, int]],
    sizes: tuple[int, int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (fetch_scans, projected_reads):
            patch.setattr(module, "SLICE_BYTES_MAX", sizes[0])
        patch.setattr(fetch_scans, "LOOP_SCAN_BYTES_MAX", sizes[1])
        patch.setattr(projected_reads, "SLICE_UNPACKED_BYTES_MAX", sizes[0])
        if in_slices:
            patch.setattr(fetch_handler, "LARGE_FETCH_BYTES", 0)
            patch.setattr(fetch_poll, "LOOKED_AT_MAX", 1)
            patch.setattr(fetch_reads, "LOOKED_AT_MAX", 1)
            patch.setattr(large_fetches, "LOOKED_AT_MAX", 1)
        world = World()
        world.clients = [Client(world, *reader) for reader in readers]
        for step in steps:
            world.run(*step)
        world.finish()
