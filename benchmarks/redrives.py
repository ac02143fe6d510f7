"""`./tidewheel bench redrives`: dead letters that are put back by a filter, on one broker with all
features.

Every second message of a topic is tagged; all of them become dead letters, and an operation without
a rate puts those back that have the tag. How long it takes the operation says itself: from its
beginning to its end, by the broker's clock. Clients and the broker share the machine's cores.
`--write` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.brokers import Tidewheel
from benchmarks.delays import HEAD
from benchmarks.reconnects import make_certificate
from benchmarks.retries import VALUE, launch
from benchmarks.side_by_side import Marks, benchmark_folder, write_document
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from stack.help import CommandParser, positive_number, write_any_text

MARKS: Final = Marks("<!-- redrives table: begin -->", "<!-- redrives table: end -->")
WAIT_SECONDS_MAX: Final = 300.0
LOOK_SECONDS: Final = 0.05
CALL_SECONDS_MAX: Final = 10.0
WHERE: Final = {
    "caller": messages.Caller(tenant="default", principal="User:bench"),
    "topic": "pay.dlq",
    "partition": 0,
}


def main() -> None:
    write_any_text()
    parser = CommandParser(prog="./tidewheel bench redrives", description=__doc__)
    parser.add_argument("--letters", type=positive_number, default=200_000)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    lines = [*HEAD]
    print(*HEAD, sep="\n", flush=True)
    for row in _measure(options.letters):
        lines.append(f"| {row[0]} | {row[1]} | {row[2]} |")
        print(lines[-1], flush=True)
    if options.write:
        write_document(lines, MARKS)


def _measure(letters: int) -> Iterator[tuple[str, str, str]]:
    with benchmark_folder() as folder:
        certificate = make_certificate(folder)
        settings = {
            "cell.admin.listener": "127.0.0.1:0",
            "cell.admin.tls.certificate": f"{certificate}.crt",
            "cell.admin.tls.key": f"{certificate}.key",
            "cell.admin.tls.ca": f"{certificate}.crt",
        }
        broker = Tidewheel(folder / "tidewheel", settings, launch=launch)  # type: ignore[arg-type]
        broker.start()
        try:
            _bury(broker, letters)
            with _channel(broker, certificate) as channel:
                yield from _redrive(CellOperationsStub(channel), letters)
        finally:
            broker.stop()


def _bury(broker: Tidewheel, letters: int) -> None:
    """Messages become dead letters."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    orders = NewTopic("orders", 1, 1, config={"tidewheel.headers": "true"})
    admin.create_topics([orders])["orders"].result(30)
    configs = {"tidewheel.source": "orders", "tidewheel.retry.breaker": "false"}
    admin.create_topics([NewTopic("pay", -1, -1, config=configs)])["pay"].result(30)
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 100_000})
    refused: list[str] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    def send(topic: str, partition: int, value: bytes | None, header: tuple[str, bytes]) -> None:
        while True:
            try:
                producer.produce(
                    topic, value, partition=partition, headers=[header], on_delivery=told
                )
            except BufferError:
                producer.poll(0.05)
            else:
                producer.poll(0)
                return

    for number in range(letters):
        send("orders", 0, VALUE, ("tw-tag", b"odd" if number % 2 else b"even"))
    producer.flush(WAIT_SECONDS_MAX)
    for offset in range(letters):
        send("pay", 1, None, ("tw-dead-letter", b"0:%d" % offset))
    if producer.flush(WAIT_SECONDS_MAX) or refused:
        raise SystemExit(f"records were not taken: {refused[:1]}")


def _channel(broker: Tidewheel, certificate: Path) -> grpc.Channel:
    assert broker.process is not None
    assert broker.process.ready is not None
    own, key = Path(f"{certificate}.crt").read_bytes(), Path(f"{certificate}.key").read_bytes()
    credentials = grpc.ssl_channel_credentials(own, key, own)
    return grpc.secure_channel(f"127.0.0.1:{broker.process.ready.cell_admin_port}", credentials)


def _redrive(operations: CellOperationsStub, letters: int) -> Iterator[tuple[str, str, str]]:
    _wait_for_letters(operations, letters)
    selection = messages.DeadLetterSelection(filter="odd")
    wanted: Any = messages.BeginRedriveRequest(**WHERE, id="bench", selection=selection)
    answer = operations.BeginRedrive(wanted, timeout=CALL_SECONDS_MAX)
    if answer.HasField("failure"):
        raise SystemExit(answer.failure.message)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        listed = operations.ListRedrives(
            messages.ListRedrivesRequest(**WHERE), timeout=CALL_SECONDS_MAX
        )
        (one,) = listed.redrives
        if one.status == "done":
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"it does not end: {one}")
        time.sleep(LOOK_SECONDS)
    if one.moved != letters // 2:
        raise SystemExit(f"{one.moved} of {letters // 2} were moved")
    took_s = (one.ended_ms - one.begun_ms) / 1000
    yield "dead letters looked at", "messages", f"{one.looked:,}"
    yield "redriven by a filter", "msg/s", f"{one.moved / took_s:,.0f}"
    yield "looked at by a filter", "msg/s", f"{one.looked / took_s:,.0f}"


def _wait_for_letters(operations: CellOperationsStub, letters: int) -> None:
    """Until all have arrived."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        wanted = messages.PeekRequest(**WHERE, records_max=1)
        found = operations.Peek(wanted, timeout=CALL_SECONDS_MAX)
        if not found.HasField("failure") and found.end_offset >= letters:
            return
        time.sleep(LOOK_SECONDS)
    raise SystemExit("not all dead letters have arrived")
