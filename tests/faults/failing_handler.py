"""A member of a group whose handler fails at random, as a process that may be killed at any moment.

Usage: python -m tests.faults.failing_handler BOOTSTRAP SUBSCRIPTION FILE [BATCHES]

It handles what it gets in batches: a line for each delivery goes to FILE, what has failed is
nacked, and when the brokers have that, the batch is committed. So after a kill a delivery may be
handled again, and none is skipped. A line is `NUMBER ATTEMPT PARTITION OFFSET LATE`; LATE is in
milliseconds from the nack before and its delay to the delivery's timestamp, and - for a first
attempt. Whether an attempt of a message fails is random, and the same whoever handles it. With
BATCHES it kills itself with -9 between the nacks and the commit of the last of so many batches with
failures: whoever goes on nacks all of that batch again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import zlib
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

ATTEMPTS = 4
FAILING_PERCENT = 20
BACKOFF = "exponential:1s..4s"
DELAYS_MS = (1000, 2000, 4000)
BATCH_MESSAGES_MAX = 500
NACKED_SECONDS_MAX = 120


def fails(number: int, attempt: int) -> bool:
    return zlib.crc32(b"%d:%d" % (number, attempt)) % 100 < FAILING_PERCENT


def deliveries_of(number: int) -> int:
    """How often a message is delivered."""
    attempt = 1
    while attempt < ATTEMPTS and fails(number, attempt):
        attempt += 1
    return attempt


def dies(number: int) -> bool:
    return fails(number, deliveries_of(number))


class Handler:
    def __init__(
        self, bootstrap: str, subscription: str, file: str, batches: str | None = None
    ) -> None:
        self._subscription = subscription
        # Until it kills itself.
        self._batches_left = None if batches is None else int(batches)
        self._lines = open(file, "ab", buffering=0)  # noqa: SIM115
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer(
            {
                **common,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": NACKED_SECONDS_MAX * 1000,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": subscription,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 300,
            }
        )
        self._consumer.subscribe([subscription])

    def run(self) -> None:
        while True:
            batch = [m for m in self._consumer.consume(BATCH_MESSAGES_MAX, 0.1) if _is_one(m)]
            if batch:
                self._handle(batch)

    def _handle(self, batch: Sequence[Message]) -> None:
        lines = bytearray()
        has_failed = False
        for message in batch:
            number = int(message.value() or b"")
            found: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
            attempt = int(found.get("tw-attempt", b"1"))
            late = "-"
            if attempt > 1:
                nacked_ms, delay_ms = int(found["tw-reason"]), DELAYS_MS[attempt - 2]
                late = str(message.timestamp()[1] - nacked_ms - delay_ms)
            lines += (
                f"{number} {attempt} {message.partition()} {message.offset()} {late}\n".encode()
            )
            if fails(number, attempt):
                has_failed = True
                self._nack(message.partition() or 0, message.offset() or 0)
        self._lines.write(lines)
        assert self._producer.flush(NACKED_SECONDS_MAX) == 0
        if has_failed and self._batches_left is not None:
            self._batches_left -= 1
            if not self._batches_left:
                os.kill(os.getpid(), signal.SIGKILL)
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The next batch commits it, or whoever has the partitions then gets it again.
            print("not committed:", error, file=sys.stderr, flush=True)

    def _nack(self, partition: int, offset: int) -> None:
        reason = b"%d" % (time.time_ns() // 1_000_000)
        self._producer.produce(
            self._subscription,
            partition=partition | 1,
            headers=[("tw-nack", b"%d:%d" % (partition, offset)), ("tw-reason", reason)],
            on_delivery=_told,
        )


def _told(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise SystemExit(f"a nack was refused: {error}")


def _is_one(message: Message) -> bool:
    error = message.error()
    if error is not None and error.fatal():
        raise SystemExit(str(error))
    return error is None


if __name__ == "__main__":
    Handler(*sys.argv[1:]).run()
