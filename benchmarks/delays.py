"""`./tidewheel bench delays`: delayed messages on one broker with all features.

    steady     messages that are due one after the other, so many a second: how late they are
    burst      messages that are all due in the same millisecond: how many are delivered a second,
               and what a message to another topic takes meanwhile, beside alone
    pending    messages for next year: how much more memory the broker has with them, and how long
               it takes from a kill -9 until it answers, and until a message that is due then is
               delivered

How late a message is says its timestamp, the time of its delivery, beside the time in its value.
Clients and the broker share the machine's cores. `--write` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel
from benchmarks.process_figures import memory_bytes
from benchmarks.side_by_side import Marks, benchmark_folder, write_document
from stack.broker_process import WITH_FEATURES, BrokerLaunch
from stack.help import CommandParser, positive_number, write_any_text

MARKS: Final = Marks("<!-- delays table: begin -->", "<!-- delays table: end -->")
PADDING: Final = b".".ljust(80, b".")
YEAR_MS: Final = 365 * 86_400_000
WAIT_SECONDS_MAX: Final = 600.0
# Until the first of what is produced is due, beside the time that producing takes.
LEAD_MS: Final = 3_000
# Far below what librdkafka gets into a broker.
PRODUCED_PER_SECOND_MIN: Final = 50_000
ALONE_SECONDS: Final = 5.0
SINGLE_INTERVAL_SECONDS: Final = 0.005
POLL_SECONDS: Final = 0.05
HEAD: Final = ["| figure | unit | Tidewheel |", "|---|---|---|"]


def _launch(**given: Any) -> BrokerLaunch:
    return replace(BrokerLaunch(**given), module=WITH_FEATURES)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench delays", description=__doc__)
    parser.add_argument("--rate", type=positive_number, default=10_000, help="due a second")
    parser.add_argument("--seconds", type=positive_number, default=20, help="of the steady load")
    parser.add_argument("--burst", type=positive_number, default=1_000_000)
    parser.add_argument("--pending", type=positive_number, default=10_000_000)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    lines = [*HEAD]
    print(*HEAD, sep="\n", flush=True)
    for row in _measure(options.rate, options.seconds, options.burst, options.pending):
        lines.append(f"| {row[0]} | {row[1]} | {row[2]} |")
        print(lines[-1], flush=True)
    if options.write:
        write_document(lines, MARKS)


def _measure(rate: int, seconds: int, burst: int, pending: int) -> Iterator[tuple[str, str, str]]:
    with benchmark_folder() as folder:
        broker = Tidewheel(folder / "tidewheel", launch=_launch)  # type: ignore[arg-type]
        broker.start()
        try:
            yield from _steady(broker, rate, seconds)
            yield from _burst(broker, burst)
            yield from _pending(broker, pending)
        finally:
            broker.stop()


def _make_topic(broker: Tidewheel, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"tidewheel.headers": "true", "retention.ms": "-1"}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)


class Sender:
    """Sends delayed messages to a topic's partition, and counts those that were refused."""

    def __init__(self, broker: Tidewheel, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "log_level": 0,
                "linger.ms": 20,
                "batch.num.messages": 5_000,
                "queue.buffering.max.messages": 200_000,
            }
        )
        self._refused: list[str] = []

    def send(self, due_ms: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("tw-deliver-at", b"%d" % due_ms)]
        value = b"%d " % due_ms + PADDING
        while True:
            try:
                self._producer.produce(
                    self._topic, value, partition=0, headers=headers, on_delivery=self._told
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))

    def end(self) -> None:
        if self._producer.flush(WAIT_SECONDS_MAX) or self._refused:
            raise SystemExit(f"messages were not taken: {self._refused[:1]}")


def _read(broker: Tidewheel, topic: str, count: int) -> list[tuple[int, int]]:
    """(due, delivered) in ms of so many messages, as they come."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(found) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(found)} of {count} messages of {topic} were delivered")
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                due_ms = int((message.value() or b"").split(b" ", 1)[0])
                found.append((due_ms, message.timestamp()[1]))
    consumer.close()
    return found


def _wait_for_end(broker: Tidewheel, topic: str, end_offset: int) -> None:
    """Until the log has so many records. Nobody reads: that would take the interpreter from the
    thread that measures, and the processor from the broker."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "log_level": 0}
    consumer = Consumer(settings)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while consumer.get_watermark_offsets(TopicPartition(topic, 0))[1] < end_offset:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all messages of {topic} were delivered")
        time.sleep(POLL_SECONDS)
    consumer.close()


def percentile_of(ordered: Sequence[float], share: float) -> float:
    """Of ascending values; 1.0 is the last one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _steady(broker: Tidewheel, rate: int, seconds: int) -> Iterator[tuple[str, str, str]]:
    count = rate * seconds
    _make_topic(broker, "steady")
    sender = Sender(broker, "steady")
    first_ms = now_ms() + LEAD_MS + 1_000 * count // PRODUCED_PER_SECOND_MIN
    for number in range(count):
        sender.send(first_ms + 1_000 * number // rate)
    sender.end()
    late = sorted(delivered - due_ms for due_ms, delivered in _read(broker, "steady", count))
    if late[0] < 0:
        raise SystemExit(f"a message was delivered {-late[0]} ms early")
    for share in (0.5, 0.99, 1.0):
        name = "worst" if share == 1.0 else f"p{100 * share:g}"
        yield f"{rate:,} due a second: late, {name}", "ms", f"{percentile_of(late, share):,.0f}"


def _burst(broker: Tidewheel, count: int) -> Iterator[tuple[str, str, str]]:
    _make_topic(broker, "burst")
    _make_topic(broker, "others")
    alone = sorted(_send_singly(broker, ALONE_SECONDS))
    sender = Sender(broker, "burst")
    due_ms = now_ms() + LEAD_MS + 1_000 * count // PRODUCED_PER_SECOND_MIN
    for _ in range(count):
        sender.send(due_ms)
    sender.end()
    if now_ms() >= due_ms:
        raise SystemExit("the burst was due before all of it was produced")
    time.sleep((due_ms - now_ms()) / 1_000)
    with _singly(broker) as beside:
        _wait_for_end(broker, "burst", 2 * count)
    found = [delivered for _, delivered in _read(broker, "burst", count)]
    yield "due in one millisecond", "messages", f"{count:,}"
    took_ms = max(1, max(found) - due_ms)
    yield "delivered in a burst", "msg/s", f"{1_000 * count / took_ms:,.0f}"
    for name, took in (("alone", alone), ("meanwhile", sorted(beside))):
        yield f"another topic's messages, p99 {name}", "ms", f"{percentile_of(took, 0.99):.2f}"


def _send_singly(broker: Tidewheel, seconds: float) -> list[float]:
    """Milliseconds that each message to another topic took."""
    end = threading.Event()
    timer = threading.Timer(seconds, end.set)
    timer.start()
    return _send_until(broker, end)


def _send_until(broker: Tidewheel, end: threading.Event) -> list[float]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce("others", PADDING)
    producer.flush(WAIT_SECONDS_MAX)
    refused: list[str] = []
    took: list[float] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    while not end.is_set():
        began = time.perf_counter()
        producer.produce("others", PADDING, on_delivery=told)
        if producer.flush(WAIT_SECONDS_MAX) or refused:
            raise SystemExit(f"a message to another topic was not taken: {refused}")
        took.append(1_000 * (time.perf_counter() - began))
        time.sleep(SINGLE_INTERVAL_SECONDS)
    return took


@contextmanager
def _singly(broker: Tidewheel) -> Iterator[list[float]]:
    """The list fills when the block has ended."""
    end, took = threading.Event(), list[float]()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(_send_until, broker, end)
        try:
            yield took
        finally:
            end.set()
        took.extend(sending.result())


def _pending(broker: Tidewheel, count: int) -> Iterator[tuple[str, str, str]]:
    _make_topic(broker, "pending")
    broker.stop()
    broker.start()
    before = memory_bytes(broker.pid)["rss_anon"]
    sender = Sender(broker, "pending")
    first_ms = now_ms() + YEAR_MS
    for number in range(count):
        # In no order.
        sender.send(first_ms + number * 7_919 % 86_400_000)
    sender.end()
    # Runs are merged.
    time.sleep(ALONE_SECONDS)
    after = memory_bytes(broker.pid)["rss_anon"]
    yield "pending", "messages", f"{count:,}"
    yield "more memory with them (RssAnon)", "MB", f"{(after - before) / 1e6:,.1f}"
    broker.kill()
    started = broker.start()
    yield "kill -9 to the first answer", "s", f"{started:.2f}"
    _make_topic(broker, "due")
    sender = Sender(broker, "due")
    due_ms = now_ms() + 1
    sender.send(due_ms)
    sender.end()
    ((_, delivered),) = _read(broker, "due", 1)
    yield "a message that is due right then, late", "ms", f"{delivered - due_ms:,}"
