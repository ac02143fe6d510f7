"""Tidewheel beside Apache Kafka: the table of docs/benchmarks.md.

`python -m benchmarks.compare` starts both brokers, gives each the same loads in turn (ours, theirs,
ours, theirs, …), takes the median of three rounds of every figure and prints ratios ours/Kafka.
Machines are noisy, so a ratio of two figures of one run is what can be quoted; absolute figures are
printed only to show the scale.

`--write` replaces docs/benchmarks.md's table; `--only NAME …` runs some of the loads; `--rounds N`;
`--against CHECKOUT` compares with another version of Tidewheel.
Nothing here passes or fails: issues and documents say which ratio is wanted.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import ApacheKafka, Tidewheel
from benchmarks.process_figures import cpu_seconds, memory_bytes
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

MARKS = Marks("<!-- table: begin -->", "<!-- table: end -->")
PARTITIONS = 4
FILL_TURN_MESSAGES = 10_000
# One client for each core.
PRODUCERS = 2
CONSUMERS = 2
LATENCY_SECONDS = 5
# The clients are the limit, and what they do in half a second scatters by 15 % either way.
CONSUME_TURNS = 2 * SHORT_TURNS
LONGER_CONSUMING = 2

Broker = Tidewheel | ApacheKafka


def fresh_topic(broker: Broker) -> str:
    """A new topic with four partitions."""
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, PARTITIONS, 1)
    admin.create_topics([topic])[name].result(30)
    return name


def produce_load(
    size: int, acks: str, codec: str, count: int, wanted: tuple[str, str]
) -> Load[Broker]:
    """Throughput and broker processor time of producing `count` messages of `size` bytes."""
    label = f"produce {size} B, acks={acks}" + ("" if codec == "none" else f", {codec}")

    def run(broker: Broker) -> list[float]:
        topic = fresh_topic(broker)
        before = cpu_seconds(broker.pid)
        figures = client(
            "produce",
            broker,
            topic,
            size=size,
            acks=acks,
            codec=codec,
            count=count,
            clients=PRODUCERS,
        )
        cpu_s = cpu_seconds(broker.pid) - before
        drop_topic(broker, topic)
        return [figures["messages_per_s"], cpu_s / (count * size / 1e9)]

    rows = (
        Row(f"{label}: throughput", "msg/s", wanted[0]),
        Row(f"{label}: broker CPU", "s/GB", wanted[1]),
    )
    turns = SHORT_TURNS if codec == "none" else 1
    return Load(f"produce-{size}-{acks}-{codec}", rows, run, turns)


def fill(broker: Broker, topic: str, size: int, codec: str, count: int) -> None:
    """Fill all partitions alike, so that consumers have equal shares."""
    client(
        "produce",
        broker,
        topic,
        size=size,
        codec=codec,
        count=count,
        partitions=PARTITIONS,
        turn=FILL_TURN_MESSAGES,
    )


def consume_load(size: int, codec: str, count: int, wanted: tuple[str, str]) -> Load[Broker]:
    """Throughput and broker processor time of reading a filled topic from its beginning."""
    label = f"consume {size} B" + ("" if codec == "none" else f", {codec}")
    filled: dict[str, str] = {}

    def run(broker: Broker) -> list[float]:
        if broker.name not in filled:
            filled[broker.name] = fresh_topic(broker)
            fill(broker, filled[broker.name], size, codec, count)
        before = cpu_seconds(broker.pid)
        figures = client("consume", broker, filled[broker.name], count=count, clients=CONSUMERS)
        cpu_s = cpu_seconds(broker.pid) - before
        return [figures["messages_per_s"], cpu_s / (count * size / 1e9)]

    rows = (
        Row(f"{label}: throughput", "msg/s", wanted[0]),
        Row(f"{label}: broker CPU", "s/GB", wanted[1]),
    )
    return Load(f"consume-{size}-{codec}", rows, run, turns=CONSUME_TURNS)


def latency_load(acks: str, seconds: int) -> Load[Broker]:
    """Latencies at 1,000 messages of 100 bytes per second."""
    keys = ("end_to_end_p50_ms", "end_to_end_p99_ms", "ack_p50_ms", "ack_p99_ms")

    def run(broker: Broker) -> list[float]:
        topic = fresh_topic(broker)
        before = cpu_seconds(broker.pid)
        figures = client(
            "latency", broker, topic, acks=acks, rate=1000, count=1000 * seconds, size=100
        )
        cpu_s = cpu_seconds(broker.pid) - before
        drop_topic(broker, topic)
        return [*(figures[key] for key in keys), cpu_s / (seconds + 2) * 1000]

    label = f"1,000 msg/s, acks={acks}"
    rows = (
        Row(f"{label}: end-to-end p50", "ms", "≤ 0.7"),
        Row(f"{label}: end-to-end p99", "ms", "≤ 0.8"),
        Row(f"{label}: acknowledgement p50", "ms", ""),
        Row(f"{label}: acknowledgement p99", "ms", ""),
        Row(f"{label}: broker CPU per 1,000 messages", "ms", ""),
    )
    return Load(f"latency-{acks}", rows, run, turns=SHORT_TURNS)


def restart_load() -> Load[Broker]:
    """Stop and start again: time to the first answer, and memory after idling a little."""

    def run(broker: Broker) -> list[float]:
        broker.stop()
        ready_s = broker.start()
        time.sleep(3)  # idle memory is asked for: nothing is awaited here
        memory = memory_bytes(broker.pid)
        return [ready_s, memory["rss"] / 2**20, memory["rss_anon"] / 2**20]

    rows = (
        Row("restart: first answer after", "s", "ours ≤ 1 s"),
        Row("idle RSS after restart", "MiB", "ours ≤ 80 MB"),
        Row("idle RssAnon after restart", "MiB", ""),
    )
    return Load("restart", rows, run)


def loads(scale: float) -> list[Load[Broker]]:
    """All loads; `scale` shrinks the message counts for a quick look."""
    small, large = int(2_000_000 * scale), int(500_000 * scale)
    reported = ("", "")
    return [
        restart_load(),
        produce_load(100, "1", "none", small, ("≥ 1.1", "≤ 0.5")),
        produce_load(100, "all", "none", small, ("≥ 1.1", "≤ 0.5")),
        produce_load(1024, "1", "none", large, ("≥ 1.5", "≤ 0.5")),
        produce_load(1024, "all", "none", large, ("≥ 1.5", "≤ 0.5")),
        produce_load(1024, "all", "lz4", large, reported),
        produce_load(1024, "all", "zstd", large, reported),
        consume_load(100, "none", LONGER_CONSUMING * small, ("≥ 1.0", "≤ 0.9")),
        consume_load(1024, "none", large, ("≥ 1.0", "≤ 0.9")),
        consume_load(1024, "lz4", large, reported),
        consume_load(1024, "zstd", large, reported),
        latency_load("1", max(2, int(LATENCY_SECONDS * scale))),
        latency_load("all", max(2, int(LATENCY_SECONDS * scale))),
    ]


def main() -> None:
    arguments = parse_arguments(__doc__, "./tidewheel bench")
    with benchmark_folder() as folder:
        brokers: list[Broker] = [Tidewheel(folder / "tidewheel")]
        if arguments.against is not None:
            brokers.append(Tidewheel(folder / "against", checkout=arguments.against))
        elif not arguments.ours_only:
            brokers.append(ApacheKafka(folder / "kafka", arguments.cache))
        try:
            for broker in brokers:
                broker.start()
            run_comparison(arguments, loads(arguments.scale), brokers, MARKS)
        finally:
            for broker in brokers:
                broker.kill()


if __name__ == "__main__":
    main()
