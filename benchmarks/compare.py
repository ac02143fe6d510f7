"""Tidewheel beside Apache Kafka: the table of docs/benchmarks.md.

`python -m benchmarks.compare` starts both brokers, gives each the same loads in turn (ours, theirs,
ours, theirs, …), takes the median of three rounds of every figure and prints ratios ours/Kafka.
Machines are noisy, so a ratio of two figures of one run is what can be quoted; absolute figures are
printed only to show the scale.

`--write` replaces docs/benchmarks.md's table; `--only NAME …` runs some of the loads; `--rounds N`.
Nothing here passes or fails: issues and documents say which ratio is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import ApacheKafka, Tidewheel, describe_machine
from benchmarks.process_figures import cpu_seconds, memory_bytes

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN_MARK, END_MARK = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = "| figure | unit | Tidewheel | Apache Kafka | ratio | wanted |\n|---|---|---|---|---|---|"
PARTITIONS = 4

Broker = Tidewheel | ApacheKafka


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the table. `wanted` is what issue and design ask of the ratio ours/Kafka."""

    name: str
    unit: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Load:
    """One load: run against one broker it yields one sample of each of its rows."""

    name: str
    rows: tuple[Row, ...]
    run: Callable[[Broker], list[float]]


def client(kind: str, broker: Broker, topic: str, **options: object) -> dict[str, float]:
    """Run one load in a process of its own and return its figures."""
    command = [sys.executable, "-m", "benchmarks.loads", kind]
    command += ["--bootstrap", broker.bootstrap, "--topic", topic]
    for option, value in options.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def fresh_topic(broker: Broker) -> str:
    """A new topic with four partitions."""
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    return name


def drop_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([name])[name].result(30)


def produce_load(size: int, acks: str, codec: str, count: int, wanted: tuple[str, str]) -> Load:
    """Throughput and broker processor time of producing `count` messages of `size` bytes."""
    label = f"produce {size} B, acks={acks}" + ("" if codec == "none" else f", {codec}")

    def run(broker: Broker) -> list[float]:
        topic = fresh_topic(broker)
        before = cpu_seconds(broker.pid)
        figures = client("produce", broker, topic, size=size, acks=acks, codec=codec, count=count)
        cpu_s = cpu_seconds(broker.pid) - before
        drop_topic(broker, topic)
        return [figures["messages_per_s"], cpu_s / (count * size / 1e9)]

    rows = (
        Row(f"{label}: throughput", "msg/s", wanted[0]),
        Row(f"{label}: broker CPU", "s/GB", wanted[1]),
    )
    return Load(f"produce-{size}-{acks}-{codec}", rows, run)


def consume_load(size: int, codec: str, count: int, wanted: tuple[str, str]) -> Load:
    """Throughput and broker processor time of reading a filled topic from its beginning."""
    label = f"consume {size} B" + ("" if codec == "none" else f", {codec}")
    filled: dict[str, str] = {}

    def run(broker: Broker) -> list[float]:
        if broker.name not in filled:
            filled[broker.name] = fresh_topic(broker)
            client("produce", broker, filled[broker.name], size=size, codec=codec, count=count)
        before = cpu_seconds(broker.pid)
        figures = client("consume", broker, filled[broker.name], count=count)
        cpu_s = cpu_seconds(broker.pid) - before
        return [figures["messages_per_s"], cpu_s / (count * size / 1e9)]

    rows = (
        Row(f"{label}: throughput", "msg/s", wanted[0]),
        Row(f"{label}: broker CPU", "s/GB", wanted[1]),
    )
    return Load(f"consume-{size}-{codec}", rows, run)


def latency_load(acks: str, seconds: int) -> Load:
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
    return Load(f"latency-{acks}", rows, run)


def restart_load() -> Load:
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


def loads(scale: float) -> list[Load]:
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
        consume_load(100, "none", small, ("≥ 1.0", "≤ 0.9")),
        consume_load(1024, "none", large, ("≥ 1.0", "≤ 0.9")),
        consume_load(1024, "lz4", large, reported),
        consume_load(1024, "zstd", large, reported),
        latency_load("1", max(2, int(15 * scale))),
        latency_load("all", max(2, int(15 * scale))),
    ]


def measure(
    brokers: list[Broker], chosen: list[Load], rounds: int
) -> list[tuple[Row, list[list[float]]]]:
    """For each row the samples of each broker, rounds taken in turn."""
    table = []
    for load in chosen:
        samples: list[list[list[float]]] = [[] for _ in brokers]
        for _ in range(rounds):
            for index, broker in enumerate(brokers):
                # What earlier loads wrote goes to the disk now: once the kernel begins to write
                # back, it takes processor time from whoever is measured then.
                os.sync()
                samples[index].append(load.run(broker))
        for position, row in enumerate(load.rows):
            figures = [[sample[position] for sample in of_broker] for of_broker in samples]
            table.append((row, figures))
            print(render_row(row, figures), flush=True)
    return table


def render_row(row: Row, figures: list[list[float]]) -> str:
    """One line of the Markdown table."""
    medians = [statistics.median(samples) for samples in figures]
    ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == 2 and medians[1] else "-"
    shown = [f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}" for value in medians]
    kafka = shown[1] if len(shown) == 2 else "-"
    return f"| {row.name} | {row.unit} | {shown[0]} | {kafka} | {ratio} | {row.wanted} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual messages")
    parser.add_argument("--only", nargs="*", help="names of loads, or parts of names")
    parser.add_argument("--ours-only", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--write", action="store_true", help="put the table into the document")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "tidewheel-benchmarks"
    )
    arguments = parser.parse_args()
    chosen = [
        load
        for load in loads(arguments.scale)
        if not arguments.only or any(part in load.name for part in arguments.only)
    ]
    with tempfile.TemporaryDirectory(prefix="tidewheel-benchmark-") as folder:
        brokers: list[Broker] = [Tidewheel(Path(folder) / "tidewheel")]
        if not arguments.ours_only:
            brokers.append(ApacheKafka(Path(folder) / "kafka", arguments.cache))
        try:
            for broker in brokers:
                broker.start()
            print(HEAD, flush=True)
            table = measure(brokers, chosen, arguments.rounds)
        finally:
            for broker in brokers:
                broker.kill()
    if arguments.write:
        lines = [HEAD, *(render_row(row, figures) for row, figures in table)]
        write_document(lines)


def write_document(lines: list[str]) -> None:
    """Replace what stands between the marks in docs/benchmarks.md."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN_MARK)
    _, _, after = rest.partition(END_MARK)
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    made = f"Made on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine}."
    body = "\n".join(["", made, "", *lines, ""])
    DOCUMENT.write_text(f"{before}{BEGIN_MARK}\n{body}\n{END_MARK}{after}")


if __name__ == "__main__":
    main()
