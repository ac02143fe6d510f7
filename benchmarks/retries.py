"""`./tidewheel bench retries`: retries on one broker with all features.

    steady     so many messages a second are nacked, each for two seconds: how late they come back
    nacks      messages are nacked in batches as fast as one producer sends them: how many a second
    kills      messages that fail for ever, while the broker is killed with -9 as soon as some of
               their nacks are acknowledged, and started again: how many attempts it forgets

How late a message comes back is the timestamp of its delivery beside the time at which its nack
was given to the client, and the delay: the way to the broker is in it. Clients and the broker share
the machine's cores. `--write` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel
from benchmarks.delays import HEAD, percentile_of
from benchmarks.side_by_side import Marks, benchmark_folder, write_document
from stack.broker_process import WITH_FEATURES, BrokerLaunch
from stack.help import CommandParser, positive_number, write_any_text

MARKS: Final = Marks("<!-- retries table: begin -->", "<!-- retries table: end -->")
VALUE: Final = b".".ljust(100, b".")
DELAY_MS: Final = 2_000
WAIT_SECONDS_MAX: Final = 600.0
PACE_SECONDS: Final = 0.01
KILLED_MESSAGES: Final = 20
# A broker that has noted no date before a kill trusts none for a while afterwards.
SETTINGS: Final = {"log.flush.offset.checkpoint.interval.ms": "200"}


def launch(**given: Any) -> BrokerLaunch:
    return replace(BrokerLaunch(**given), module=WITH_FEATURES)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench retries", description=__doc__)
    parser.add_argument("--rate", type=positive_number, default=5_000, help="nacked a second")
    parser.add_argument("--seconds", type=positive_number, default=20, help="of the steady load")
    parser.add_argument("--nacks", type=positive_number, default=500_000)
    parser.add_argument("--kills", type=positive_number, default=500)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    lines = [*HEAD]
    print(*HEAD, sep="\n", flush=True)
    for row in _measure(options.rate, options.seconds, options.nacks, options.kills):
        lines.append(f"| {row[0]} | {row[1]} | {row[2]} |")
        print(lines[-1], flush=True)
    if options.write:
        write_document(lines, MARKS)


def _measure(rate: int, seconds: int, nacks: int, kills: int) -> Iterator[tuple[str, str, str]]:
    with benchmark_folder() as folder:
        broker = Tidewheel(folder / "tidewheel", SETTINGS, launch=launch)  # type: ignore[arg-type]
        broker.start()
        try:
            yield from _steady(broker, rate, seconds)
            yield from _nacks(broker, nacks)
            yield from _kills(broker, kills)
        finally:
            broker.stop()


class Subscription:
    """A topic with one partition and a subscription over it; partition 1 of that is for nacks."""

    def __init__(self, broker: Tidewheel, topic: str, messages: int, **policy: str) -> None:
        self._bootstrap = broker.bootstrap
        self.name = f"{topic}.handler"
        configs = {"tidewheel.headers": "true", "retention.ms": "-1"}
        self._create(NewTopic(topic, 1, 1, config=configs))
        # Everything fails here, at which retries would pause.
        own = {f"tidewheel.retry.{key}": value for key, value in policy.items()}
        own["tidewheel.retry.breaker"] = "false"
        self._create(NewTopic(self.name, -1, -1, config={"tidewheel.source": topic, **own}))
        self._refused: list[str] = []
        self.acknowledged = 0
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": 5_000,
                "queue.buffering.max.messages": 100_000,
            }
        )
        for _ in range(messages):
            self._send(topic, 0, VALUE, [])
        self.flush()

    def _create(self, topic: NewTopic) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([topic])[topic.topic].result(30)

    def nack(self, partition: int, offset: int) -> None:
        self._send(self.name, 1, None, [("tw-nack", b"%d:%d" % (partition, offset))])

    def _send(self, topic: str, partition: int, value: bytes | None, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, partition=partition, headers=headers, on_delivery=self._told
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        self.acknowledged += 1
        if error is not None:
            self._refused.append(str(error))

    def flush(self, seconds: float = WAIT_SECONDS_MAX) -> None:
        if self._producer.flush(seconds) or self._refused:
            raise SystemExit(f"records were not taken: {self._refused[:1]}")

    def poll(self, seconds: float) -> None:
        """Serve acknowledgements."""
        self._producer.poll(seconds)

    def reader(self, *partitions: int) -> Consumer:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "bench", "log_level": 0}
        consumer = Consumer({**settings, "reconnect.backoff.max.ms": 100, "fetch.wait.max.ms": 50})
        consumer.assign([TopicPartition(self.name, index, 0) for index in partitions])
        return consumer


def _header(message: Message, name: str) -> bytes:
    headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
    return headers[name]


def _steady(broker: Tidewheel, rate: int, seconds: int) -> Iterator[tuple[str, str, str]]:
    count = rate * seconds
    subscription = Subscription(broker, "steady", count, backoff=f"fixed:{DELAY_MS}ms")
    nacked_ms: list[int] = []
    begun = time.monotonic()
    while len(nacked_ms) < count:
        due = min(count, int(rate * (time.monotonic() - begun)))
        for offset in range(len(nacked_ms), due):
            nacked_ms.append(now_ms())
            subscription.nack(0, offset)
        subscription.poll(PACE_SECONDS)
    subscription.flush()
    late: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with closing(subscription.reader(1)) as consumer:
        while len(late) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(late)} of {count} messages came back")
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    offset = int(_header(message, "tw-source").rsplit(b"/", 1)[1])
                    late.append(message.timestamp()[1] - nacked_ms[offset] - DELAY_MS)
    late.sort()
    if late[0] < 0:
        raise SystemExit(f"a message came back {-late[0]} ms early")
    for share in (0.5, 0.99, 1.0):
        name = "worst" if share == 1.0 else f"p{100 * share:g}"
        yield f"{rate:,} nacked a second: late, {name}", "ms", f"{percentile_of(late, share):,.0f}"


def _nacks(broker: Tidewheel, count: int) -> Iterator[tuple[str, str, str]]:
    subscription = Subscription(broker, "many", count, backoff="fixed:1d")
    begun = time.monotonic()
    for offset in range(count):
        subscription.nack(0, offset)
    subscription.flush()
    took = time.monotonic() - begun
    yield "nacked by one producer", "messages", f"{count:,}"
    yield "nacks, of one partition", "msg/s", f"{count / took:,.0f}"


def _kills(broker: Tidewheel, kills: int) -> Iterator[tuple[str, str, str]]:
    """Each delivery is nacked as soon as it has come."""
    policy = {"backoff": "fixed:5ms", "attempts.max": "0"}
    subscription = Subscription(broker, "killed", KILLED_MESSAGES, **policy)
    time.sleep(1)
    attempts: dict[bytes, int] = {}
    forgotten = deliveries = 0
    with closing(subscription.reader(0, 1)) as consumer:

        def handle_for(seconds: float, nacks: int) -> None:
            nonlocal forgotten, deliveries
            deadline = time.monotonic() + seconds
            wanted = subscription.acknowledged + nacks
            while subscription.acknowledged < wanted and time.monotonic() < deadline:
                for message in consumer.consume(100, 0.01):
                    if message.error() is not None:
                        continue
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    source = b"killed/0/%d" % offset
                    attempt = 1
                    if partition:
                        source = _header(message, "tw-source")
                        attempt = int(_header(message, "tw-attempt"))
                    forgotten += attempt != attempts.get(source, 0) + 1
                    attempts[source] = attempt
                    deliveries += 1
                    subscription.nack(partition, offset)
                subscription.poll(0)
            if subscription.acknowledged < wanted:
                raise SystemExit(f"no nacks were taken for {seconds:g} s")

        for _ in range(kills):
            handle_for(WAIT_SECONDS_MAX, KILLED_MESSAGES // 2)
            broker.kill()
            broker.start()
        handle_for(WAIT_SECONDS_MAX, 2 * KILLED_MESSAGES)
    if len(attempts) < KILLED_MESSAGES:
        raise SystemExit(f"only {len(attempts)} of {KILLED_MESSAGES} messages have come")
    yield "kill -9 of the broker", "kills", f"{kills:,}"
    yield "deliveries meanwhile", "messages", f"{deliveries:,}"
    yield "attempts forgotten", "messages", f"{forgotten:,}"
