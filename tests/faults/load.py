"""The load that runs while faults happen: idempotent writers, a group of readers, their histories.

    with Load(bootstrap, TOPIC, partitions=6) as load:
        load.run_for(2)
        …the fault…
    load.check()

Each writer and each reader is a librdkafka client in a thread of its own. Writers send at a steady
pace, so that the longest time without any acknowledgement on a partition tells how long producing
was interrupted there. Leaving the block stops the writers, waits until all that was sent is
answered, and lets the readers read to the end; `check` then holds the histories against the log.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient

from tests.faults.checker import (
    UNKNOWN_OFFSET,
    Assigned,
    Committed,
    Delivered,
    Log,
    Message,
    ReaderEvent,
    WriterHistory,
    judge,
    judge_readers,
)

PAYLOAD = struct.Struct(">II")
FILLER = bytes(80)
MESSAGES_PER_S = 100
"""Of each writer. Over six partitions that is an acknowledgement each 30 ms with two writers."""

ANSWERED_SECONDS_MAX = 90.0
READ_SECONDS_MAX = 60.0
STALLED_SECONDS_MAX = 30.0
COMMIT_INTERVAL_S = 0.2

# A person's settings, where tests need them shorter: requests to a broker that is paused or cut off
# would otherwise wait for half a minute, whatever the cell does.
IMPATIENT = {"request.timeout.ms": "3000", "socket.timeout.ms": "4000"}


class Writer(threading.Thread):
    """One idempotent producer, acks=all, and what it was told and when."""

    def __init__(
        self, writer_id: int, bootstrap: str, topic: str, partitions: int, settings: dict[str, str]
    ) -> None:
        super().__init__(name=f"writer-{writer_id}", daemon=True)
        self.history = WriterHistory(writer_id)
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self.failures: list[str] = []
        self.partitions = partitions
        self._topic = topic
        self._done = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"writer-{writer_id}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                # librdkafka tells of every lost connection; here they are the point.
                "log_level": 0,
                **settings,
            }
        )

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._done.is_set():
            self._send(sent % self.partitions)
            sent += 1
            left = began + sent / MESSAGES_PER_S - time.monotonic()
            self._producer.poll(max(0.0, left))
            while (left := began + sent / MESSAGES_PER_S - time.monotonic()) > 0:
                self._producer.poll(left)

    def _send(self, partition: int) -> None:
        number = self.history.sent.get(partition, 0)
        value = PAYLOAD.pack(self.history.writer, number) + FILLER
        try:
            self._producer.produce(
                self._topic,
                value,
                partition=partition,
                on_delivery=partial(self._answered, partition, number),
            )
        except (BufferError, KafkaException) as error:
            self.failures.append(f"number {number} to partition {partition}: {error}")
            return
        self.history.sent[partition] = number + 1

    def _answered(
        self, partition: int, number: int, error: KafkaError | None, message: KafkaMessage
    ) -> None:
        if error is not None:
            self.failures.append(f"number {number} to partition {partition}: {error}")
            return
        offset = message.offset()
        # A repeated batch that the broker knows only as one of the earlier ones is acknowledged
        # without an offset.
        known = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
        self.history.acknowledged[partition][number] = known
        self.acknowledged_at[partition].append(time.monotonic())

    def known_partitions(self) -> int:
        """How many partitions the topic has; what its producer has asked for, it knows, too."""
        metadata = self._producer.list_topics(self._topic, timeout=10)
        return len(metadata.topics[self._topic].partitions)

    def finish(self) -> None:
        """Stop sending and wait until all that was sent is answered."""
        self._done.set()
        self.join()
        left = self._producer.flush(ANSWERED_SECONDS_MAX)
        assert left == 0, f"{self.name}: {left} messages never answered"


class Reader(threading.Thread):
    """One member of the group; notes all it sees into the common list of events."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, settings: dict[str, str], events: Events
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._topic = topic
        self._events = events
        self._done = threading.Event()
        self._uncommitted: dict[int, int] = {}
        self.errors: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": f"{topic}-readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1000,
                "fetch.queue.backoff.ms": 10,
                "log_level": 0,
                **settings,
            }
        )

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            # Nobody waits for what a thread raises; the check tells of it.
            self.errors.append(f"ended by {error!r}")
            raise

    def _read(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        commit_at = time.monotonic() + COMMIT_INTERVAL_S
        while not self._done.is_set():
            message = self._consumer.poll(0.05)
            if message is not None:
                self._take(message)
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + COMMIT_INTERVAL_S
        self._commit()
        self._consumer.close()

    def _take(self, message: KafkaMessage) -> None:
        error = message.error()
        if error is not None:
            self.errors.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self._events.add(
            Delivered(self.name, partition, offset, Message(*PAYLOAD.unpack_from(value)))
        )
        self._uncommitted[partition] = offset + 1

    def _commit(self) -> None:
        if not self._uncommitted:
            return
        wanted = [TopicPartition(self._topic, p, o) for p, o in self._uncommitted.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            # Not acknowledged. What is read next is committed with the next attempt.
            self.errors.append(str(error))
            return
        for answer in answers:
            if answer.error is None:
                self._events.add(Committed(self.name, answer.partition, answer.offset))
                if self._uncommitted.get(answer.partition) == answer.offset:
                    del self._uncommitted[answer.partition]

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._events.add(Assigned(self.name, tuple(p.partition for p in partitions)))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._forget(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._uncommitted.pop(partition.partition, None)

    def finish(self) -> None:
        """Commit, leave the group."""
        self._done.set()
        self.join(READ_SECONDS_MAX)
        assert not self.is_alive(), f"{self.name} does not leave:\n{self._where()}"

    def fared(self, events: list[ReaderEvent]) -> str:
        """What it has seen, in words."""
        own = [event for event in events if event.reader == self.name]
        records = sum(isinstance(event, Delivered) for event in own)
        assigned = [event.partitions for event in own if isinstance(event, Assigned)]
        return (
            f"{self.name}: {records} records, assigned {assigned[-3:]}, errors {self.errors[-5:]}"
        )

    def _where(self) -> str:
        frame = sys._current_frames().get(self.ident or -1)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-3:])


class Events:
    """What all readers saw, in the order of time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[ReaderEvent] = []
        self._read_up_to: dict[int, int] = defaultdict(int)

    def add(self, event: ReaderEvent) -> None:
        with self._lock:
            self._events.append(event)
            if isinstance(event, Delivered):
                here = self._read_up_to[event.partition]
                self._read_up_to[event.partition] = max(here, event.offset + 1)

    def all(self) -> list[ReaderEvent]:
        with self._lock:
            return list(self._events)

    def read_up_to(self) -> dict[int, int]:
        """The offset behind the last one read, by partition."""
        with self._lock:
            return dict(self._read_up_to)


class Load:
    """Writers and readers on one topic. See the module's text."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        writers: int = 2,
        readers: int = 2,
        settings: dict[str, str] | None = None,
    ) -> None:
        given = settings or {}
        self.topic = topic
        self.partitions = partitions
        self._bootstrap = bootstrap
        self.events = Events()
        self.writers = [Writer(n, bootstrap, topic, partitions, given) for n in range(writers)]
        socket_settings = {k: v for k, v in given.items() if k != "request.timeout.ms"}
        self._reader_settings = socket_settings
        self.readers = [
            Reader(f"reader-{n}", bootstrap, topic, socket_settings, self.events)
            for n in range(readers)
        ]

    def __enter__(self) -> Load:
        for thread in (*self.writers, *self.readers):
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
            return
        for writer in self.writers:
            writer._done.set()
        for reader in self.readers:
            reader._done.set()
        for thread in (*self.writers, *self.readers):
            thread.join(5)

    def _finish(self) -> None:
        for writer in self.writers:
            writer.finish()
        self._wait_until_read()
        for reader in self.readers:
            reader.finish()

    def _wait_until_read(self) -> None:
        wanted = self.acknowledged_ends()
        deadline = time.monotonic() + READ_SECONDS_MAX
        while any(self.events.read_up_to().get(p, 0) < end for p, end in wanted.items()):
            if time.monotonic() > deadline:
                # The check says what is missing, and where.
                return
            time.sleep(0.05)

    def grow(self, partitions: int) -> None:
        """From now on the writers write to this many partitions."""
        self.partitions = partitions
        for writer in self.writers:
            writer.partitions = partitions

    def acknowledged_ends(self) -> dict[int, int]:
        """The offset behind the last acknowledged record, by partition."""
        ends: dict[int, int] = defaultdict(int)
        for writer in self.writers:
            for partition, offsets in writer.history.acknowledged.items():
                if offsets:
                    ends[partition] = max(ends[partition], max(offsets.values()) + 1)
        return dict(ends)

    def acknowledged(self) -> int:
        """How many messages have been acknowledged so far."""
        # Copied at once: the writers' threads may find a new partition in the middle of this.
        return sum(len(times) for w in self.writers for times in list(w.acknowledged_at.values()))

    def run_until_acknowledged(self, count: int, seconds_max: float = STALLED_SECONDS_MAX) -> None:
        """Return when `count` more messages have been acknowledged."""
        goal, deadline = self.acknowledged() + count, time.monotonic() + seconds_max
        while self.acknowledged() < goal:
            assert time.monotonic() < deadline, (
                f"{goal - self.acknowledged()} of {count} messages are not acknowledged after "
                f"{seconds_max:.0f} s; failures: {[w.failures[:3] for w in self.writers]}"
            )
            time.sleep(0.02)

    def run_until_every_partition_moves(self, seconds_max: float = STALLED_SECONDS_MAX) -> None:
        """Return when each partition has acknowledged something sent from now on."""
        began, waiting = time.monotonic(), set(range(self.partitions))
        while waiting:
            assert time.monotonic() < began + seconds_max, (
                f"partitions {sorted(waiting)} acknowledge nothing for {seconds_max:.0f} s"
            )
            time.sleep(0.02)
            waiting = {p for p in waiting if self._last_acknowledged_at(p) <= began}

    def _last_acknowledged_at(self, partition: int) -> float:
        times = [w.acknowledged_at[partition] for w in self.writers]
        return max((found[-1] for found in times if found), default=0.0)

    def interruptions(self, since: float, until: float) -> dict[int, float]:
        """Per partition the longest time between two acknowledgements in a span of time."""
        longest = {}
        for partition in range(self.partitions):
            times = sorted(t for w in self.writers for t in list(w.acknowledged_at[partition]))
            inside = [t for t in times if since <= t <= until]
            points = [since, *inside, until]
            pairs = itertools.pairwise(points)
            longest[partition] = max(after - before for before, after in pairs)
        return longest

    def check(self, *, may_fail: bool = False) -> Log:
        """Hold all histories against the log; fails with what is wrong. The log.

        `may_fail`: messages may have been given up (never acknowledged); without it none may."""
        failures = [failure for writer in self.writers for failure in writer.failures]
        assert may_fail or not failures, failures[:5]
        log = {
            partition: read_partition(self._bootstrap, self.topic, partition, self._reader_settings)
            for partition in range(self.partitions)
        }
        problems = judge([writer.history for writer in self.writers], log)
        if self.readers:
            events = self.events.all()
            if found := judge_readers(events, log):
                problems += [*found, *self._what_readers_saw(events)]
        assert not problems, "\n".join(problems)
        assert self.acknowledged() > 0, "the load reached the brokers"
        return log

    def _what_readers_saw(self, events: list[ReaderEvent]) -> list[str]:
        """How each reader fared, for whoever has to find out why something was not read."""
        group = f"{self.topic}-readers"
        settings: dict[str, str | int | float] = {"bootstrap.servers": self._bootstrap}
        admin = AdminClient({**settings, **self._reader_settings, "log_level": 0})
        try:
            now = admin.describe_consumer_groups([group])[group].result(30)
            there = f"state {now.state}, members {[m.client_id for m in now.members]}"
        except KafkaException as error:
            there = f"not described: {error}"
        return [f"the group afterwards: {there}", *(one.fared(events) for one in self.readers)]


def read_partition(
    bootstrap: str, topic: str, partition: int, settings: Mapping[str, str] = {}
) -> list[Message]:
    """All records of a partition; fails when an offset is missing."""
    with _consumer(bootstrap, settings) as consumer:
        where = TopicPartition(topic, partition, 0)
        low, end = consumer.get_watermark_offsets(where, timeout=30)
        assert low == 0, f"{topic}-{partition} begins at {low}"
        consumer.assign([where])
        records: list[Message] = []
        while len(records) < end:
            # It waits until it has that many.
            batch = consumer.consume(min(1000, end - len(records)), timeout=10)
            assert batch, f"{topic}-{partition}: stalled at {len(records)} of {end}"
            for message in batch:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset == len(records), f"{topic}-{partition}: no offset {len(records)}"
                records.append(Message(*PAYLOAD.unpack_from(value)))
        return records


@contextlib.contextmanager
def _consumer(bootstrap: str, more: Mapping[str, str]) -> Iterator[Consumer]:
    settings: Mapping[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "fault-checker",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer({**settings, **more, "log_level": 0})
    try:
        yield consumer
    finally:
        consumer.close()
