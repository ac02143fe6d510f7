"""How many functions a broker calls for one message: `./tidewheel bench calls`.

A broker runs under Python's profiler. A client sends one message of 100 bytes, waits until it is
acknowledged and until a consumer that waited for it has it, and sends the next one. That is done
with FEW messages and, with a broker of its own, with MANY; what the second one calls more, divided
by what it was sent more, is what one message costs. Functions of Python and of C count alike.

What it shows: whether the way of a message has grown. It hardly depends on the machine or on what
else runs there, so two checkouts can be compared on a busy one, and one call more is seen.
What it does not show: time. A call may cost 30 ns or 30 µs; what the compiled kernel does counts as
one call, and what the operating system does not at all. Nothing is batched: with many messages in
flight a broker calls far less for each.

Functions that are called for fewer than three messages in five are left out: they run by the clock,
or once in many messages.

In a cell of three brokers every message is acknowledged by all; the figures are those of the
leader of its partition, and of one follower. `--only`, `--rounds` and `--against` as with the other
benchmarks; Apache Kafka has no such figure.
"""

from __future__ import annotations

import pstats
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel
from benchmarks.cells import BROKERS, TidewheelCell
from benchmarks.side_by_side import HEAD, Row, benchmark_folder, parse_arguments, render_row
from stack.broker_process import BrokerLaunch

FEW = 200
MANY = 1_200
PAUSE_S = 0.003
"""For the consumer's next fetch to be there, and to wait, before the next message."""
CALLED_AT_LEAST = 0.6
"""Of all messages, for a function to count."""
TOLD_AT_LEAST = 0.2
ANSWER_S = 30

Function = tuple[str, str]
"""Its file and its name."""
Calls = Counter[Function]
Costs = dict[Function, float]
"""Calls for one message."""


class ProfiledLaunch(BrokerLaunch):
    """A broker that writes down in its data folder, as it ends, what its loop's thread called."""

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("-m")
        command[at:at] = ["-m", "cProfile", "-o", str(profile_of(self.data))]
        return command


def profile_of(data: Path) -> Path:
    return data.with_name(f"{data.name}.profile")


def read_calls(data: Path) -> Calls:
    """What the broker of a data folder has called, once it has ended."""
    calls: Calls = Counter()
    stats = pstats.Stats(str(profile_of(data))).stats  # type: ignore[attr-defined]
    for (file, _line, name), (_primitive_calls, count, *_) in stats.items():
        # Of some C functions the name has an address.
        calls[file, name.partition(" at 0x")[0].strip("<>")] += count
    return calls


def calls_a_message(few: Calls, many: Calls) -> Costs:
    """What one message costs, function by function."""
    costs = {key: (many[key] - few[key]) / (MANY - FEW) for key in many}
    return {key: cost for key, cost in costs.items() if cost >= CALLED_AT_LEAST}


def send_one_by_one(bootstrap: str, topic: str, acks: str, count: int) -> None:
    """Each message is sent when the one before is acknowledged and read."""
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark-calls",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for number in range(count):
            producer.produce(
                topic,
                b"x" * 100,
                partition=0,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
            left = producer.flush(ANSWER_S)
            message = consumer.poll(ANSWER_S)
            if left or failures or message is None or message.error() is not None:
                said = "nothing" if message is None else message.error()
                raise SystemExit(f"Message {number}: {left} left, {failures}, read: {said}")
            time.sleep(PAUSE_S)
    finally:
        consumer.close()


def fresh_topic(bootstrap: str, replicas: int) -> tuple[str, int]:
    """A new topic of one partition, and who leads it."""
    name = f"benchmark-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(30)
    return name, admin.list_topics(name, timeout=30).topics[name].partitions[0].leader


def calls_of_broker(folder: Path, checkout: Path | None, acks: str, count: int) -> list[Calls]:
    """Of a broker of its own that gets `count` messages."""
    broker = Tidewheel(folder, checkout=checkout, launch=ProfiledLaunch)
    try:
        broker.start()
        topic, _ = fresh_topic(broker.bootstrap, 1)
        send_one_by_one(broker.bootstrap, topic, acks, count)
        broker.stop()
    finally:
        broker.kill()
    return [read_calls(folder / "data")]


def calls_of_cell(folder: Path, checkout: Path | None, acks: str, count: int) -> list[Calls]:
    """Of the leader in a cell of its own that gets `count` messages, and of a follower."""
    cell = TidewheelCell(folder, checkout, launch=ProfiledLaunch)
    try:
        cell.start()
        topic, leader = fresh_topic(cell.bootstrap, BROKERS)
        send_one_by_one(cell.bootstrap, topic, acks, count)
        cell.stop()
    finally:
        cell.close()
    follower = leader % BROKERS + 1
    return [read_calls(folder / f"broker-{broker_id}") for broker_id in (leader, follower)]


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured together: one row for each broker whose calls `run` returns."""

    name: str
    acks: str
    run: Callable[[Path, Path | None, str, int], list[Calls]]
    labels: tuple[str, ...]


CASES = (
    Case("single-1", "1", calls_of_broker, ("one message, acks=1",)),
    Case("single-all", "all", calls_of_broker, ("one message, acks=all",)),
    Case(
        "cell",
        "all",
        calls_of_cell,
        ("one message, 3 replicas: leader", "one message, 3 replicas: a follower"),
    ),
)


def measure(case: Case, checkout: Path | None) -> list[Costs]:
    """What one message costs each of the brokers of a case."""
    with benchmark_folder() as folder:
        few = case.run(folder / "few", checkout, case.acks, FEW)
        many = case.run(folder / "many", checkout, case.acks, MANY)
    return [calls_a_message(*both) for both in zip(few, many, strict=True)]


def differences(ours: Costs, other: Costs) -> list[str]:
    """The names that one calls and the other does not, or not as often; the largest first. What
    has only moved to another module is passed over."""
    changed: dict[str, float] = defaultdict(float)
    for costs, sign in ((ours, 1), (other, -1)):
        for (_file, name), cost in costs.items():
            changed[name] += sign * cost
    lines = sorted(changed.items(), key=lambda item: (-abs(item[1]), item[0]))
    return [f"  {change:+6.2f}  {name}" for name, change in lines if abs(change) >= TOLD_AT_LEAST]


def main() -> None:
    arguments = parse_arguments(__doc__, "./tidewheel bench calls")
    checkouts = [None] if arguments.against is None else [None, arguments.against]
    other = "-" if arguments.against is None else arguments.against.name
    print(HEAD.format(other=other), flush=True)
    told: list[str] = []
    for case in CASES:
        if arguments.only and not any(part in case.name for part in arguments.only):
            continue
        rounds = [[measure(case, one) for one in checkouts] for _ in range(arguments.rounds)]
        for number, label in enumerate(case.labels):
            samples = [
                [sum(of_round[which][number].values()) for of_round in rounds]
                for which in range(len(checkouts))
            ]
            print(render_row(Row(label, "calls", ""), samples), flush=True)
            if arguments.against is not None:
                ours, others = rounds[-1][0][number], rounds[-1][1][number]
                told += [f"{label}, ours more or less:", *differences(ours, others)]
    print(*told, sep="\n")


if __name__ == "__main__":
    main()
