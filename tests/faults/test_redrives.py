"""Dead letters are put back in a cell of three, whose brokers are killed meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from data_plane.wire.errors import ErrorCode
from stack.broker_process import WITH_FEATURES
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.faults.cell import Cell
from tests.faults.test_retried_messages import headers_of
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

PARTITIONS = 2
MESSAGES = 3_000
# Of each partition: it takes some seconds.
RATE_MAX = 150
SECONDS_MAX = 120.0
DEADLINE_S = 10.0
CALLER = messages.Caller(tenant="default", principal="User:alice")
OVER = ("done", "cancelled", "gone")


class Operator:
    """Asks whoever leads a partition of `pay.dlq`, for as long as it takes."""

    def __init__(self, cell: Cell, authority: Authority, channels: ExitStack) -> None:
        self._cell = cell
        self._files = authority.issue("control-plane", "DNS:control-plane")
        self._channels = channels

    def _stubs(self) -> Iterator[CellOperationsStub]:
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            for process in self._cell.processes.values():
                if process.ready is not None:
                    opened = channel(process.ready.cell_admin_port, self._files)
                    yield CellOperationsStub(self._channels.enter_context(opened))
            time.sleep(0.1)
        raise AssertionError("nobody answers")

    def begin(self, partition: int, operation_id: str, filter: str) -> messages.Redrive:
        request = messages.BeginRedriveRequest(
            caller=CALLER,
            topic="pay.dlq",
            partition=partition,
            id=operation_id,
            selection=messages.DeadLetterSelection(filter=filter),
            rate_max=RATE_MAX,
        )
        for stub in self._stubs():
            try:
                answer = stub.BeginRedrive(request, timeout=DEADLINE_S)
            except grpc.RpcError:
                continue
            if not answer.HasField("failure"):
                return answer.redrive
            assert answer.failure.error_code != ErrorCode.INVALID_REQUEST, answer.failure.message
        raise AssertionError

    def look(self, partition: int, operation_id: str) -> messages.Redrive:
        request = messages.ListRedrivesRequest(caller=CALLER, topic="pay.dlq", partition=partition)
        for stub in self._stubs():
            try:
                answer = stub.ListRedrives(request, timeout=DEADLINE_S)
            except grpc.RpcError:
                continue
            for one in answer.redrives:
                if one.id == operation_id:
                    return one
        raise AssertionError


def read_all(bootstrap: str, topic: str, partitions: list[int]) -> list[tuple[bytes, bytes]]:
    """(value, how often it was redriven), up to the present ends."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    places = [TopicPartition(topic, index) for index in partitions]
    ends = {}
    for place in places:
        first, end = reader.get_watermark_offsets(place, timeout=30)
        if end > first:
            ends[place.partition] = end
    reader.assign([TopicPartition(topic, index, 0) for index in partitions])
    found = []
    end_s = time.monotonic() + SECONDS_MAX
    while any(one.offset < ends.get(one.partition, 0) for one in reader.position(places)):
        assert time.monotonic() < end_s
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            headers = dict(headers_of(message))
            found.append((message.value() or b"", headers.get("tw-redriven", b"")))
    reader.close()
    return found


@pytest.mark.timeout(300)
def test_what_is_chosen_comes_back_once_whoever_is_killed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    given = settings(authority.issue("broker", "IP:127.0.0.1"))
    with (
        Cell(tmp_path / "cell", module=WITH_FEATURES, settings=given) as cell,
        ExitStack() as channels,
    ):
        bootstrap = cell.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        orders = NewTopic("orders", PARTITIONS, 3, config={"tidewheel.headers": "true"})
        admin.create_topics([orders])["orders"].result()
        pay = NewTopic("pay", -1, -1, config={"tidewheel.source": "orders"})
        admin.create_topics([pay])["pay"].result()
        bury(bootstrap)
        cell.wait_for(
            lambda: (
                "pay.dlq" in admin.list_topics(timeout=10).topics
                and len(read_all(bootstrap, "pay.dlq", list(range(PARTITIONS)))) == MESSAGES
            ),
            "all dead letters",
        )
        operator = Operator(cell, authority, channels)
        for partition in range(PARTITIONS):
            operator.begin(partition, "one", "even")
        killed = set()
        for topic in ("pay.dlq", "pay"):
            time.sleep(1.0)
            leader = cell.leaders(topic)[0 if topic == "pay.dlq" else 1]
            moved = operator.look(0, "one").moved
            cell.kill9(leader)
            # Asked again it is the same one.
            operator.begin(0, "one", "even")
            cell.start(leader)
            killed.add(leader)
            assert operator.look(0, "one").moved >= moved
        ended = []
        for partition in range(PARTITIONS):
            end = time.monotonic() + SECONDS_MAX
            while (one := operator.look(partition, "one")).status not in OVER:
                assert time.monotonic() < end, one
                time.sleep(0.2)
            ended.append(one)
        assert [one.status for one in ended] == ["done"] * PARTITIONS
        assert sum(one.moved for one in ended) == MESSAGES // 2
        found = read_all(bootstrap, "pay", [2 * index + 1 for index in range(PARTITIONS)])
        even = ((str(number).encode(), b"1") for number in range(0, MESSAGES, 2))
        assert Counter(found) == Counter(even)
        assert len(read_all(bootstrap, "pay.dlq", list(range(PARTITIONS)))) == MESSAGES


def bury(bootstrap: str) -> None:
    """Messages of `orders` become dead letters at once."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    refused = []

    def told(error: object, _: object) -> None:
        if error is not None:
            refused.append(str(error))

    for number in range(MESSAGES):
        tag = b"odd" if number % 2 else b"even"
        producer.produce(
            "orders",
            str(number).encode(),
            # Neighbours in a partition have different tags.
            partition=number // 2 % PARTITIONS,
            headers=[("tw-tag", tag)],
            on_delivery=told,
        )
    assert producer.flush(60) == 0
    for partition in range(PARTITIONS):
        for offset in range(MESSAGES // PARTITIONS):
            producer.produce(
                "pay",
                partition=2 * partition + 1,
                headers=[("tw-dead-letter", f"{2 * partition}:{offset}".encode())],
                on_delivery=told,
            )
    assert producer.flush(60) == 0
    assert not refused
