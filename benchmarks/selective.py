"""`./tidewheel bench selective`: one record in a hundred is wanted, here and on Apache Kafka.

A topic of four partitions is filled with records of 200 bytes that have a header `tw-tag`, in
batches as a busy producer makes them. On Tidewheel a client reads a subscription, whose filter
leaves 1 % of them; on Apache Kafka the same client reads all, and looks at the header of each. The
rows are what that takes for a million records of the topic: time, what the client gets over the
network, and the processor time of client and broker. The subscription is read twice: at first the
index of tags is made meanwhile, later it is there.

Then what tags cost when they are sent: the same records are produced to a topic that reads headers
(`tidewheel.headers=true`) and to one that does not, and, beside them, to Apache Kafka's.

Nothing here passes or fails. The options are those of `./tidewheel bench`.
"""

from __future__ import annotations

import json
import resource
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import ApacheKafka, Tidewheel
from benchmarks.compare import PARTITIONS, Broker
from benchmarks.process_figures import cpu_seconds
from benchmarks.side_by_side import (
    Load,
    Marks,
    Row,
    benchmark_folder,
    drop_topic,
    parse_arguments,
    run_comparison,
)
from stack.broker_process import BrokerLaunch

MARKS = Marks("<!-- selective table: begin -->", "<!-- selective table: end -->")
RECORDS = 1_000_000
VALUE = b"v" * 200
ONE_IN = 100
TAG, WANTED, COMMON = "tw-tag", b"wanted", b"common"
STALL_S_MAX = 60
ANSWER_S = 30


@dataclass(frozen=True)
class Launch(BrokerLaunch):
    """A broker with all features."""

    module: str = "features"


def _make_topic(broker: Broker, configs: dict[str, str], partitions: int = PARTITIONS) -> str:
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    replicas = -1 if partitions < 0 else 1
    admin.create_topics([NewTopic(name, partitions, replicas, config=configs)])[name].result(
        ANSWER_S
    )
    return name


def _headers_of(broker: Broker) -> dict[str, str]:
    return {"tidewheel.headers": "true"} if isinstance(broker, Tidewheel) else {}


def _send(broker: Broker, topic: str, codec: str, count: int) -> float:
    """Returns seconds until all are acknowledged."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 1_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def done(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    began = time.monotonic()
    for number in range(count):
        tag = COMMON if number % ONE_IN else WANTED
        partition = number // 1_000 % PARTITIONS
        producer.produce(topic, VALUE, partition=partition, headers=[(TAG, tag)], on_delivery=done)
        if not number % 1_000:
            producer.poll(0)
    left = producer.flush(STALL_S_MAX)
    if left or failed:
        raise SystemExit(f"{left} messages not sent, {len(failed)} failed {failed[:1]}")
    return time.monotonic() - began


def _read(broker: Broker, topic: str, count: int) -> list[float]:
    """Read until all that is wanted was there. Returns, for a million records of the topic:
    seconds, megabytes that came over the network, processor seconds of client and broker."""
    received = 0

    def note(statistics: str) -> None:
        nonlocal received
        received = json.loads(statistics)["rx_bytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"benchmark-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "check.crcs": False,
            "statistics.interval.ms": 100,
            "stats_cb": note,
            "fetch.queue.backoff.ms": 1,
        }
    )
    wanted = count // ONE_IN
    partitions = range(0, 2 * PARTITIONS, 2) if isinstance(broker, Tidewheel) else range(PARTITIONS)
    before = resource.getrusage(resource.RUSAGE_SELF)
    broker_before_s, began = cpu_seconds(broker.pid), time.monotonic()
    consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
    progress_s = began
    while wanted:
        for message in consumer.consume(10_000, 0.1):
            progress_s = time.monotonic()
            wanted -= (TAG, WANTED) in (message.headers() or [])
        if time.monotonic() - progress_s > STALL_S_MAX:
            raise SystemExit(f"{wanted} records of {topic} did not come")
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    broker_s = cpu_seconds(broker.pid) - broker_before_s
    until_s = time.monotonic() + 0.3
    while time.monotonic() < until_s:
        # The next statistics.
        consumer.poll(0.1)
    consumer.close()
    client_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    millions = count / 1e6
    return [one / millions for one in (seconds, received / 1e6, client_s, broker_s)]


def select_load(codec: str, count: int) -> Load[Broker]:
    label = "1 % wanted" + ("" if codec == "none" else f", {codec}")
    topics: dict[str, str] = {}

    def topic_of(broker: Broker) -> str:
        if broker.name not in topics:
            source = _make_topic(broker, _headers_of(broker))
            _send(broker, source, codec, count)
            topics[broker.name] = source
            if isinstance(broker, Tidewheel):
                configs = {"tidewheel.source": source, "tidewheel.filter": WANTED.decode()}
                topics[broker.name] = _make_topic(broker, configs, -1)
        return topics[broker.name]

    rows = [
        Row(f"{label}: {when}{figure}", unit, "")
        for when in ("", "again: ")
        for figure, unit in (
            ("time", "s"),
            ("received", "MB"),
            ("client CPU", "s"),
            ("broker CPU", "s"),
        )
    ]

    def run(broker: Broker) -> list[float]:
        topic = topic_of(broker)
        first = _read(broker, topic, count)
        # What indexes sealed segments looks at them in the time of one tick.
        return first + _read(broker, topic, count)

    return Load(f"select-{codec}", tuple(rows), run)


def produce_load(
    name: str, configs: Callable[[Broker], dict[str, str]], count: int
) -> Load[Broker]:
    def run(broker: Broker) -> list[float]:
        topic = _make_topic(broker, configs(broker))
        before_s = cpu_seconds(broker.pid)
        seconds = _send(broker, topic, "none", count)
        cpu_s = cpu_seconds(broker.pid) - before_s
        drop_topic(broker, topic)
        return [count / seconds, cpu_s / (count / 1e6)]

    rows = (
        Row(f"produce with tags, {name}: throughput", "msg/s", ""),
        Row(f"produce with tags, {name}: broker CPU for a million", "s", ""),
    )
    return Load(f"produce-{name}", rows, run)


def main() -> None:
    arguments = parse_arguments(__doc__, "./tidewheel bench selective")
    count = max(ONE_IN, int(RECORDS * arguments.scale))
    loads = [
        select_load("none", count),
        select_load("lz4", count),
        produce_load("headers on", _headers_of, count),
        produce_load("headers off", lambda _broker: {}, count),
    ]
    with benchmark_folder() as folder:
        brokers: list[Broker] = [Tidewheel(folder / "tidewheel", launch=Launch)]
        if arguments.against is not None:
            brokers.append(Tidewheel(folder / "against", checkout=arguments.against, launch=Launch))
        elif not arguments.ours_only:
            brokers.append(ApacheKafka(folder / "kafka", arguments.cache))
        try:
            for broker in brokers:
                broker.start()
            run_comparison(arguments, loads, brokers, MARKS)
        finally:
            for broker in brokers:
                broker.kill()


if __name__ == "__main__":
    main()
