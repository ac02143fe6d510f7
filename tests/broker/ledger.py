"""A second coordinator, beside that of groups: accounts that get sums, some of them within
transactions. Small, and with all that a coordinator's log offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from data_plane.broker.coordinators.coordinator_log import CoordinatorLog
from data_plane.broker.coordinators.internal_topic import (
    BrokerInternalTopic,
    InternalTopicSettings,
    LoggedBatch,
    Producer,
)
from data_plane.broker.services import Services
from data_plane.cell.metadata import TRANSACTIONS_TOPIC
from data_plane.wire.control_batches import EndTransactionMarker
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, Record

LEDGER_TOPIC = InternalTopicSettings(
    name=TRANSACTIONS_TOPIC,
    partitions_property="offsets.topic.num.partitions",
    replication_factor_property="offsets.topic.replication.factor",
    segment_bytes_property="offsets.topic.segment.bytes",
    codec_property="",
    timeout_property="offsets.commit.timeout.ms",
)
COORDINATOR_EPOCH = 3

Entry = tuple[str, int]
OnDone = Callable[[ErrorCode], None]


@dataclass
class Book:
    """One partition's sums, by account; those of open transactions apart, by producer."""

    sums: dict[str, int] = field(default_factory=dict)
    open: dict[int, list[Entry]] = field(default_factory=dict)

    def enter(self, entry: Entry, producer: Producer | None) -> None:
        if producer is None:
            account, amount = entry
            self.sums[account] = self.sums.get(account, 0) + amount
        else:
            self.open.setdefault(producer.producer_id, []).append(entry)

    def end(self, producer: Producer, *, is_commit: bool) -> None:
        for entry in self.open.pop(producer.producer_id, ()):
            if is_commit:
                self.enter(entry, None)


def fold(batches: Iterator[LoggedBatch]) -> Book:
    book = Book()
    for batch in batches:
        for record in batch.records:
            book.enter(_decode(record), batch.producer)
        if batch.marker is not None:
            assert batch.producer is not None
            book.end(batch.producer, is_commit=batch.marker.is_commit)
    return book


def _decode(record: Record) -> Entry:
    assert record.key is not None
    assert record.value is not None
    return bytes(record.key).decode(), int(bytes(record.value))


class Ledger:
    """A component. Requests are answered with an error code, once."""

    kind = "accounts"

    def __init__(self, services: Services) -> None:
        topic = BrokerInternalTopic(services, LEDGER_TOPIC)
        self._services = services
        self.log: CoordinatorLog[Book] = CoordinatorLog(services, topic, self)
        self.books: dict[int, Book] = {}
        # Calls of what the log wants, by name.
        self.calls: list[tuple[str, int]] = []

    def start(self, now_ms: int) -> None:
        self.log.start(now_ms)

    def tick(self, now_ms: int) -> None:
        self.log.now_ms = now_ms

    def next_deadline_ms(self) -> int | None:
        return None

    def stop(self, now_ms: int) -> None:
        self.log.stop(now_ms)

    # Requests

    def add(
        self,
        account: str,
        amount: int,
        now_ms: int,
        on_done: OnDone,
        *,
        producer: Producer | None = None,
        partition: int = 0,
    ) -> None:
        book = self.books.get(partition)
        if book is None:
            on_done(ErrorCode.NOT_COORDINATOR)
            return
        # A record of its own for each sum: compaction would keep the newest one of a key only.
        record = NewRecord(now_ms, account.encode(), b"%d" % amount)
        settled = partial(self._added, book, (account, amount), producer, on_done)
        epoch = self.log.led[partition]
        self.log.append(partition, epoch, [record], now_ms, settled, producer)

    def _added(
        self,
        book: Book,
        entry: Entry,
        producer: Producer | None,
        on_done: OnDone,
        error: ErrorCode,
        now_ms: int,
    ) -> None:
        if error is ErrorCode.NONE:
            book.enter(entry, producer)
        on_done(error)

    def end(
        self,
        producer: Producer,
        now_ms: int,
        on_done: OnDone,
        *,
        is_commit: bool = True,
        partition: int = 0,
    ) -> None:
        book = self.books.get(partition)
        if book is None:
            on_done(ErrorCode.NOT_COORDINATOR)
            return

        def settled(error: ErrorCode, now_ms: int) -> None:
            if error is ErrorCode.NONE:
                book.end(producer, is_commit=is_commit)
            on_done(error)

        marker = EndTransactionMarker(is_commit, COORDINATOR_EPOCH)
        epoch = self.log.led[partition]
        self.log.append_marker(partition, epoch, marker, producer, now_ms, settled)

    def tell(
        self, account: str, now_ms: int, on_done: Callable[[int | None], None], partition: int = 0
    ) -> None:
        """The account's sum; None when another broker may know better."""
        if partition not in self.books:
            on_done(None)
            return

        def confirmed(found: frozenset[int]) -> None:
            book = self.books.get(partition)
            on_done(book.sums.get(account, 0) if book is not None and partition in found else None)

        self.log.confirm([partition], now_ms, confirmed)

    # What the log wants

    def fold(self, batches: Iterator[LoggedBatch]) -> Book:
        return fold(batches)

    def start_loading(self, partition: int, epoch: int) -> bool:
        self.calls.append(("start_loading", partition))
        assert partition not in self.books
        return True

    def load(self, partition: int, epoch: int, folded: Book, now_ms: int) -> None:
        self.calls.append(("load", partition))
        assert partition not in self.books
        self.books[partition] = folded

    def load_failed(self, partition: int, epoch: int) -> None:
        self.calls.append(("load_failed", partition))

    def unload(self, partition: int, now_ms: int) -> None:
        self.calls.append(("unload", partition))
        self.books.pop(partition, None)

    def begin_anew(self) -> None:
        self.calls.append(("begin_anew", -1))
        assert not self.books
