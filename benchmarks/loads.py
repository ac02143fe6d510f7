"""The client side of the benchmarks: one librdkafka load per process, one JSON line of figures.

Run as `python -m benchmarks.loads KIND --bootstrap HOST:PORT …`; compare.py does. The client's own
processor time is not counted, only its wall time: on two cores a single client is often the limit,
for both brokers alike.

- produce: `clients` producer processes send `count` messages together, as fast as they can.
- consume: `clients` consumer processes read a filled topic of `count` messages, each its own
  partitions, from the beginning.
- latency: sends at a fixed rate with the send time in the payload and consumes in the same
  process; reports percentiles of acknowledgement and end-to-end latency.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.direct_producer import PARTITION_UA, DirectProducer

POLL_BATCH_MESSAGES = 10_000
STALL_SECONDS_MAX = 60

# In the processes of a share: where they wait for each other before they begin.
_ALL_READY: Barrier | None = None


def payload_of(size: int) -> bytes:
    """`size` bytes that a codec can shrink about by half, as JSON events are."""
    chooser = random.Random(size)
    words = [chooser.randbytes(4).hex().encode() for _ in range(size // 8 + 1)]
    return b"".join(words)[:size]


def entrance(arguments: argparse.Namespace) -> dict[str, str | int | float | bool]:
    """librdkafka's settings of where clients connect, and how they log in if they have to."""
    login = json.loads(arguments.login.read_text()) if arguments.login else {}
    return {"bootstrap.servers": arguments.bootstrap, **login}


def producer_config(arguments: argparse.Namespace) -> dict[str, str | int | float | bool]:
    """librdkafka's settings, the same for both brokers."""
    return {
        **entrance(arguments),
        "acks": arguments.acks,
        "compression.type": arguments.codec,
        "linger.ms": arguments.linger_ms,
        "batch.size": arguments.batch_bytes,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }


class Share(NamedTuple):
    """What one client has sent or read, and when, in seconds of the machine's monotonic clock."""

    messages: int
    began: float
    ended: float


def run_shares(
    arguments: argparse.Namespace, work: Callable[[argparse.Namespace, int], Share]
) -> dict[str, float]:
    """Messages per second of all clients, from when the first begins to when the last ends."""
    context = get_context("spawn")
    all_ready = context.Barrier(arguments.clients)
    with ProcessPoolExecutor(arguments.clients, context, _know, (all_ready,)) as pool:
        running = [pool.submit(work, arguments, index) for index in range(arguments.clients)]
        shares = [one.result() for one in running]
    seconds = max(share.ended for share in shares) - min(share.began for share in shares)
    messages = sum(share.messages for share in shares)
    if messages < arguments.count:
        raise SystemExit(f"{messages} of {arguments.count} messages went through")
    return {"seconds": seconds, "messages_per_s": messages / seconds}


def _know(all_ready: Barrier) -> None:
    global _ALL_READY
    _ALL_READY = all_ready


def run_produce(arguments: argparse.Namespace) -> dict[str, float]:
    """Messages per second from the first send to the last acknowledgement."""
    return run_shares(arguments, send_share)


def run_consume(arguments: argparse.Namespace) -> dict[str, float]:
    """Messages per second from the first that some consumer received to the last."""
    return run_shares(arguments, read_share)


def send_share(arguments: argparse.Namespace, index: int) -> Share:
    """Send this client's share of the messages."""
    value = payload_of(arguments.size)
    with DirectProducer(producer_config(arguments), arguments.topic, value) as producer:
        # One message first: topic look-up and connection are not part of the figure.
        producer.send(1)
        producer.flush(30)
        share = len(range(index, arguments.count, arguments.clients))
        turn = arguments.turn or share
        partition = PARTITION_UA
        assert _ALL_READY is not None
        _ALL_READY.wait(STALL_SECONDS_MAX)
        began = time.monotonic()
        for first in range(0, share, turn):
            if arguments.turn:
                partition = (first // turn + index) % arguments.partitions
            producer.send(min(turn, share - first), partition)
        left = producer.flush(STALL_SECONDS_MAX)
        ended = time.monotonic()
        if left or producer.failed:
            why = f" ({producer.first_failure})" if producer.failed else ""
            raise SystemExit(f"{left} messages not sent, {producer.failed} failed{why}")
    return Share(share, began, ended)


def read_share(arguments: argparse.Namespace, index: int) -> Share:
    """Read every partition of consumer `index` from its beginning to its end."""
    consumer = Consumer(
        {
            **entrance(arguments),
            "group.id": f"benchmark-{os.getpid()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # Without these two the client itself stalls between fetches.
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            # What stays in the processor's cache until the application takes it. A queue that does
            # not is refilled from memory, which halves the client's rate, and the more so the
            # faster the broker fills it.
            "queued.max.messages.kbytes": 8_192,
            "fetch.message.max.bytes": 1_048_576,
            "check.crcs": False,
        }
    )
    try:
        found = consumer.list_topics(arguments.topic, timeout=30).topics[arguments.topic]
        mine = [
            TopicPartition(arguments.topic, partition, 0)
            for partition in sorted(found.partitions)
            if partition % arguments.clients == index
        ]
        left = sum(consumer.get_watermark_offsets(one)[1] for one in mine)
        assert _ALL_READY is not None
        _ALL_READY.wait(STALL_SECONDS_MAX)
        consumer.assign(mine)
        messages = left
        began, last_progress = 0.0, time.monotonic()
        while left > 0:
            taken = consumer.consume(min(left, POLL_BATCH_MESSAGES), timeout=0.1)
            if taken:
                last_progress = time.monotonic()
                # The figure counts from the first messages on, not the client's start.
                began = began or last_progress
                left -= len(taken)
            elif time.monotonic() - last_progress > STALL_SECONDS_MAX:
                raise SystemExit(f"stalled {left} messages before the end")
        return Share(messages, began, last_progress)
    finally:
        consumer.close()


def percentiles_of(samples_s: list[float]) -> dict[str, float]:
    """p50, p99 and the maximum, in milliseconds."""
    ordered = sorted(samples_s)

    def pick_ms(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000

    return {"p50_ms": pick_ms(0.50), "p99_ms": pick_ms(0.99), "max_ms": ordered[-1] * 1000}


def run_latency(arguments: argparse.Namespace) -> dict[str, float]:
    """Acknowledgement and end-to-end latency at `rate` messages per second."""
    config = producer_config(arguments) | {"linger.ms": 0}
    producer = Producer(config)
    consumer = Consumer(
        {
            **entrance(arguments),
            "group.id": f"benchmark-{os.getpid()}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(arguments.topic, timeout=30).topics[arguments.topic]
    ends = [
        TopicPartition(
            arguments.topic,
            p,
            consumer.get_watermark_offsets(TopicPartition(arguments.topic, p))[1],
        )
        for p in partitions.partitions
    ]
    consumer.assign(ends)
    end_to_end: list[float] = []
    acknowledged: list[float] = []
    warm_up = arguments.rate * 2
    wanted = arguments.count + warm_up
    done = threading.Event()

    def read() -> None:
        seen = 0
        while seen < wanted and not done.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            now = time.monotonic()
            seen += 1
            value = message.value()
            assert value is not None
            if seen > warm_up:
                end_to_end.append(now - struct.unpack_from("d", value)[0])

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(1.0)  # the reader's first fetch; not part of any figure
    filler = payload_of(max(0, arguments.size - 8))

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            acknowledged.append(time.monotonic() - struct.unpack_from("d", value)[0])

    began = time.monotonic()
    for index in range(wanted):
        due = began + index / arguments.rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(min(left, 0.001))
        value = struct.pack("d", time.monotonic()) + filler
        producer.produce(arguments.topic, value, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush(STALL_SECONDS_MAX)
    reader.join(10)
    done.set()
    reader.join()
    consumer.close()
    if len(end_to_end) < arguments.count:
        raise SystemExit(f"only {len(end_to_end)} of {arguments.count} messages came back")
    figures = {f"end_to_end_{k}": v for k, v in percentiles_of(end_to_end).items()}
    return figures | {f"ack_{k}": v for k, v in percentiles_of(acknowledged[warm_up:]).items()}


KINDS = {"produce": run_produce, "consume": run_consume, "latency": run_latency}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--login", type=Path, help="settings of librdkafka, as JSON")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message's value")
    parser.add_argument("--rate", type=int, default=1000, help="messages per second (latency)")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--linger-ms", type=float, default=5)
    parser.add_argument("--batch-bytes", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4, help="of the topic (produce)")
    parser.add_argument(
        "--turn",
        type=int,
        default=0,
        help="messages to one partition before the next has its turn; 0: the client's choice",
    )
    parser.add_argument("--clients", type=int, default=1, help="processes (produce, consume)")
    arguments = parser.parse_args()
    json.dump(KINDS[arguments.kind](arguments), sys.stdout)
    print()


if __name__ == "__main__":
    main()
