"""10,000 partitions on one broker: start after a clean stop, start after kill -9, memory, files.

`python -m benchmarks.many_partitions [--partitions N]` prints one line a figure. Every partition
gets a message before each start, so that none is empty and every log has something to recover.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel
from benchmarks.process_figures import memory_bytes, open_descriptors
from benchmarks.side_by_side import benchmark_folder
from stack.help import CommandParser, positive_number, write_any_text

PARTITIONS_PER_TOPIC = 1000


def create_topics(bootstrap: str, partitions: int) -> list[str]:
    """Topics of 1,000 partitions each until there are `partitions`."""
    names = [f"many-{index}" for index in range(partitions // PARTITIONS_PER_TOPIC)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names], request_timeout=60
    ).values():
        future.result()
    return names


def touch_every_partition(bootstrap: str, names: list[str]) -> None:
    """One message into each partition; raises when one is not acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for name in names:
        for partition in range(PARTITIONS_PER_TOPIC):
            producer.produce(name, b"x" * 100, partition=partition, on_delivery=on_delivery)
            producer.poll(0)
    if producer.flush(120) or failures:
        raise SystemExit(f"not every partition took its message: {failures[:3]}")


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench partitions", description=__doc__)
    parser.add_argument(
        *("-p", "--partitions"),
        type=positive_number,
        default=10_000,
        metavar="N",
        help="How many.  [default: %(default)s]",
    )
    partitions = parser.parse_args().partitions
    with benchmark_folder() as folder:
        broker = Tidewheel(folder)
        try:
            broker.start()
            names = create_topics(broker.bootstrap, partitions)
            touch_every_partition(broker.bootstrap, names)
            report("while all were written", broker)
            broker.stop()
            print(f"start after a clean stop: {broker.start():.2f} s (wanted: ≤ 3 s)")
            report("after the clean start", broker)
            touch_every_partition(broker.bootstrap, names)
            broker.kill()
            print(f"start after kill -9: {broker.start():.2f} s (wanted: ≤ 10 s)")
            report("after the recovery", broker)
            touch_every_partition(broker.bootstrap, names)
            report("while all were written again", broker)
        finally:
            broker.kill()


def report(when: str, broker: Tidewheel) -> None:
    """Memory and descriptors at one moment."""
    memory = memory_bytes(broker.pid)
    print(
        f"{when}: RssAnon {memory['rss_anon'] / 1e6:.0f} MB (wanted: ≤ 200 MB), "
        f"{open_descriptors(broker.pid):,} descriptors (wanted: ≤ 20,000)",
        flush=True,
    )


if __name__ == "__main__":
    main()
