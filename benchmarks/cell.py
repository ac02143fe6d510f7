"""A cell of three Tidewheel brokers beside an Apache Kafka of three: `./tidewheel bench cell`.

Both get the same loads in turn (ours, theirs, ours, theirs, …), on topics with three replicas and
min.insync.replicas=2, everything with acks=all. The table has medians and ratios ours/Kafka;
absolute figures are of the machine. `--write` puts it into docs/benchmarks.md, between marks of its
own; `--only`, `--rounds`, `--scale`, `--ours-only` and `--against` as with single brokers.

Failover is measured by a client: it sends to the partitions of a topic at a steady pace, the leader
of one is killed with kill -9, and the figure is the longest time without an acknowledgement on a
partition that the dead broker led. It includes what the client library needs to find the new one.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import defaultdict
from functools import partial

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cells import BROKERS, Cell, KafkaCell, TidewheelCell
from benchmarks.side_by_side import (
    SHORT_TURNS,
    Load,
    Marks,
    Row,
    benchmark_folder,
    client,
    drop_topic,
    parse_arguments,
    run_comparison,
)

MARKS = Marks("<!-- cell: begin -->", "<!-- cell: end -->")
PARTITIONS = 6
PRODUCERS = 2
IDLE_S = 10
PACE_PER_S = 200
FAILOVER_WARM_UP_S = 3.0
FAILOVER_WATCHED_S = 20.0
"""Longer than Kafka's broker.session.timeout.ms and what its clients need on top."""


def fresh_topic(cell: Cell) -> str:
    """A new topic whose leaders are spread over all brokers, as every broker says: one that was
    started a moment ago may not know it yet, and a client may ask any of them."""
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": cell.bootstrap})
    topic = NewTopic(name, PARTITIONS, BROKERS)
    admin.create_topics([topic])[name].result(30)
    deadline = time.monotonic() + 30
    for broker in cell.bootstrap.split(","):
        while len({leader for leader in leaders(broker, name).values() if leader > 0}) < BROKERS:
            if time.monotonic() > deadline:
                found = leaders(broker, name)
                raise RuntimeError(f"{cell.name}: {name} has leaders {found}, says {broker}")
            time.sleep(0.2)
    return name


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Partition → leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {partition: info.leader for partition, info in found.items()}


def in_sync(cell: Cell, topic: str) -> bool:
    """Whether every replica of a topic is in its ISR."""
    admin = AdminClient({"bootstrap.servers": cell.bootstrap})
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return all(len(info.isrs) == BROKERS for info in found.values())


def produce_load(size: int, count: int) -> Load[Cell]:
    """Throughput, and the whole cell's processor time, of `count` messages of `size` bytes."""

    def run(cell: Cell) -> list[float]:
        topic = fresh_topic(cell)
        before = cell.cpu_seconds()
        figures = client(
            "produce", cell, topic, acks="all", size=size, count=count, clients=PRODUCERS
        )
        cpu_s = cell.cpu_seconds() - before
        drop_topic(cell, topic)
        return [figures["messages_per_s"], cpu_s / (count * size / 1e9)]

    label = f"produce {size} B, 3 replicas"
    rows = (
        Row(f"{label}: throughput", "msg/s", "≥ 2.0"),
        Row(f"{label}: CPU of the cell", "s/GB", "≤ 0.3"),
    )
    return Load(f"produce-{size}", rows, run, turns=SHORT_TURNS)


def latency_load(rate: int, seconds: int) -> Load[Cell]:
    """Latencies at `rate` messages of 100 bytes per second."""
    keys = ("ack_p50_ms", "ack_p99_ms", "end_to_end_p50_ms", "end_to_end_p99_ms")

    def run(cell: Cell) -> list[float]:
        topic = fresh_topic(cell)
        before = cell.cpu_seconds()
        figures = client(
            "latency", cell, topic, acks="all", rate=rate, count=rate * seconds, size=100
        )
        cpu_s = cell.cpu_seconds() - before
        drop_topic(cell, topic)
        return [*(figures[key] for key in keys), cpu_s / ((seconds + 2) * rate) * 1e6]

    label = f"{rate:,} msg/s, 3 replicas"
    rows = (
        Row(f"{label}: acknowledgement p50", "ms", "≤ 0.7"),
        Row(f"{label}: acknowledgement p99", "ms", "≤ 0.5"),
        Row(f"{label}: end-to-end p50", "ms", ""),
        Row(f"{label}: end-to-end p99", "ms", ""),
        Row(f"{label}: CPU of the cell per 1,000 messages", "ms", ""),
    )
    return Load(f"latency-{rate}", rows, run)


def idle_load() -> Load[Cell]:
    """Memory and processor time while nobody asks for anything."""

    def run(cell: Cell) -> list[float]:
        before = cell.cpu_seconds()
        time.sleep(IDLE_S)  # idling is what is measured
        return [cell.resident_bytes() / 2**20, (cell.cpu_seconds() - before) / IDLE_S * 100]

    rows = (
        Row("idle: resident memory of the cell", "MiB", "≤ 0.3"),
        Row("idle: CPU of the cell", "% of a core", ""),
    )
    return Load("idle", rows, run)


def failover_load() -> Load[Cell]:
    """How long a partition acknowledges nothing when its leader is killed."""

    def run(cell: Cell) -> list[float]:
        topic = fresh_topic(cell)
        leader_of = leaders(cell.bootstrap, topic)
        victim = leader_of[0]
        led = [p for p, leader in leader_of.items() if leader == victim]
        with Pace(cell.bootstrap, topic) as pace:
            time.sleep(FAILOVER_WARM_UP_S)
            killed_at = time.monotonic()
            cell.kill_broker(victim)
            pace.wait_for(led, killed_at, FAILOVER_WATCHED_S)
        cell.start_broker(victim)
        deadline = time.monotonic() + 60
        while not in_sync(cell, topic) and time.monotonic() < deadline:
            time.sleep(0.5)
        drop_topic(cell, topic)
        return [max(pace.longest_gap_s(partition, killed_at) for partition in led)]

    rows = (Row("kill -9 of a leader: no acknowledgement for", "s", "≤ 0.5"),)
    return Load("failover", rows, run)


class Pace(threading.Thread):
    """Sends to all partitions in turn at a steady pace, and notes when what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="pace", daemon=True)
        self._topic = topic
        self._done = threading.Event()
        self._acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Pace:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._done.set()
        self.join()
        self._producer.flush(60)

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._done.is_set():
            partition = sent % PARTITIONS
            self._producer.produce(
                self._topic,
                b"x" * 100,
                partition=partition,
                on_delivery=partial(self._answered, partition),
            )
            sent += 1
            while (left := began + sent / PACE_PER_S - time.monotonic()) > 0:
                self._producer.poll(left)

    def _answered(self, partition: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._acknowledged_at[partition].append(time.monotonic())

    def wait_for(self, partitions: list[int], since: float, seconds_max: float) -> None:
        """Return a second after all of these have acknowledged what was sent after `since`.

        What was under way may be answered after the kill; a second of answers is none of that."""
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            recent = [p for p in partitions if self._is_steady(p, since)]
            if len(recent) == len(partitions):
                return
            time.sleep(0.1)

    def _is_steady(self, partition: int, since: float) -> bool:
        now = time.monotonic()
        times = [t for t in self._acknowledged_at[partition] if t > max(since + 1, now - 1)]
        return len(times) > PACE_PER_S / PARTITIONS / 2 and now > since + 2

    def longest_gap_s(self, partition: int, since: float) -> float:
        """The longest time between two acknowledgements from `since` on."""
        times = [since, *(t for t in self._acknowledged_at[partition] if t > since)]
        if len(times) < 2:
            raise RuntimeError(f"partition {partition} never acknowledged anything again")
        return max(after - before for before, after in itertools.pairwise(times))


def loads(scale: float) -> list[Load[Cell]]:
    """All loads; `scale` shrinks the message counts for a quick look."""
    return [
        idle_load(),
        produce_load(100, int(2_000_000 * scale)),
        produce_load(1024, int(500_000 * scale)),
        # The first is one that both can keep up with on two cores.
        latency_load(200, max(5, int(30 * scale))),
        latency_load(1000, max(2, int(15 * scale))),
        failover_load(),
    ]


def main() -> None:
    arguments = parse_arguments(__doc__, "./tidewheel bench cell")
    with benchmark_folder() as folder:
        # Postgres runs as somebody else when root starts it.
        folder.chmod(0o755)
        cells: list[Cell] = [TidewheelCell(folder / "tidewheel")]
        if arguments.against is not None:
            cells.append(TidewheelCell(folder / "against", arguments.against))
        elif not arguments.ours_only:
            cells.append(KafkaCell(folder / "kafka", arguments.cache))
        try:
            for cell in cells:
                cell.start()
            run_comparison(arguments, loads(arguments.scale), cells, MARKS)
        finally:
            for cell in cells:
                cell.close()


if __name__ == "__main__":
    main()
