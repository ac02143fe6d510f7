"""CellOperations as a control plane meets it: a real broker, gRPC over mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from data_plane.contract import cell_admin_pb2 as admin_messages
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 20.0
Event = messages.Event
Actor = messages.Actor


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, set=settings(authority.issue("broker", "IP:127.0.0.1"))) as started:
        yield started


@pytest.fixture
def opened(broker: BrokerProcess, authority: Authority) -> Iterator[grpc.Channel]:
    files = authority.issue("control-plane", "DNS:control-plane")
    with channel(broker.cell_admin_port, files) as opened:
        yield opened


@pytest.fixture
def cell(opened: grpc.Channel) -> CellOperationsStub:
    return CellOperationsStub(opened)


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def events_of(
    stream: Iterator[messages.WatchResponse], name: str, count: int
) -> list[messages.Event]:
    """The next ones of a topic."""
    events = (event for response in stream for event in response.events)
    return list(islice((event for event in events if event.name == name), count))


def test_changes_of_kafka_clients_and_of_the_control_plane_are_told_with_who_made_them(
    opened: grpc.Channel, cell: CellOperationsStub, admin: AdminClient
) -> None:
    stream = cell.Watch(messages.WatchRequest(), timeout=DEADLINE_S)
    begun = next(stream)
    admin.create_topics([NewTopic("seen", 1)])["seen"].result(DEADLINE_S)
    admin.create_partitions([NewPartitions("seen", 3)])["seen"].result(DEADLINE_S)
    declared = admin_messages.Resource(
        resource_id="top_declared",
        generation=4,
        tenant="default",
        name="declared",
        topic=admin_messages.Topic(partitions=2),
    )
    request = admin_messages.ApplyRequest(resources=[declared])
    CellAdminStub(opened).Apply(request, timeout=DEADLINE_S)
    admin.delete_topics(["seen"])["seen"].result(DEADLINE_S)
    by_kafka = Actor(source=Actor.KAFKA, tenant="default", principal="User:ANONYMOUS")
    (applied,) = events_of(stream, "declared", 1)
    assert (applied.kind, applied.change) == (Event.TOPIC, Event.MADE)
    assert (applied.resource_id, applied.generation) == ("top_declared", 4)
    assert applied.owner == admin_messages.API
    assert (applied.actor.source, applied.actor.principal) == (Actor.CELL_ADMIN, "control-plane")
    assert applied.item.resource.topic.partitions == applied.item.partitions == 2
    # Again from where it began, as one that was cut off would: the same, and nothing left out.
    go_on = messages.WatchRequest(after_version=begun.version, store_id=begun.store_id)
    again = cell.Watch(go_on, timeout=DEADLINE_S)
    made, grown, gone = events_of(again, "seen", 3)
    assert [made.change, grown.change, gone.change] == [Event.MADE, Event.CHANGED, Event.DELETED]
    assert made.actor == grown.actor == gone.actor == by_kafka
    assert made.topic_id == grown.topic_id == gone.topic_id
    assert made.version < grown.version < gone.version
    assert not gone.HasField("item")
    stream.cancel()
    again.cancel()


def test_a_topic_that_a_clients_metadata_request_makes_is_his(
    broker: BrokerProcess, cell: CellOperationsStub, admin: AdminClient
) -> None:
    stream = cell.Watch(messages.WatchRequest(), timeout=DEADLINE_S)
    next(stream)
    admin.list_topics("by-itself", timeout=DEADLINE_S)
    (made,) = events_of(stream, "by-itself", 1)
    assert made.actor.principal == "User:ANONYMOUS"
    stream.cancel()


def used(samples: list[messages.UsageSample], topic: str) -> tuple[int, int, int]:
    """Batches and records that came in, and whether bytes did."""
    rows = [row for sample in samples for row in sample.topics if row.topic == topic]
    total_bytes = sum(row.bytes_in for row in rows)
    records = sum(row.records_in for row in rows)
    assert all(row.tenant == "default" and len(row.topic_id) == 16 for row in rows)
    return sum(row.batches_in for row in rows), records, total_bytes


def read_usage(
    cell: CellOperationsStub, last: messages.UsageSample | None = None
) -> list[messages.UsageSample]:
    request = messages.ReadUsageRequest()
    if last is not None:
        request.incarnation, request.sequence = last.incarnation, last.sequence
    return list(cell.ReadUsage(request, timeout=DEADLINE_S))


def test_use_is_counted_once_over_a_clean_stop_and_a_kill(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("broker", "IP:127.0.0.1")
    with BrokerProcess(tmp_path, set=settings(files)) as broker:
        sent = produce(broker, "used", 5)
        consume(broker, "used", 5)
        broker.stop()
        broker.start()
        with channel(broker.cell_admin_port, files) as opened:
            first = read_usage(CellOperationsStub(opened))
        assert first[-1].is_final
        assert not any(sample.HasField("lost") for sample in first)
        batches, records, size = used(first, "used")
        assert (records, batches > 0, size > sent) == (5, True, True)
        given = [row.bytes_out for sample in first for row in sample.topics]
        assert sum(given) >= size
        assert max(row.requests for sample in first for row in sample.tenants) > 0
        # What is in a sample when it is killed is there afterwards; the rest is said to be lost.
        produce(broker, "used", 3)
        with channel(broker.cell_admin_port, files) as opened:
            request = messages.ReadUsageRequest(
                incarnation=first[-1].incarnation, sequence=first[-1].sequence, follow=True
            )
            stream = CellOperationsStub(opened).ReadUsage(request, timeout=DEADLINE_S)
            followed: list[messages.UsageSample] = []
            while used(followed, "used")[1] < 3:
                followed.append(next(stream))
            stream.cancel()
        assert any(row.storage_bytes > 0 for sample in followed for row in sample.topics)
        broker.kill9()
        broker.start()
        produce(broker, "used", 2)
        broker.stop()
        broker.start()
        with channel(broker.cell_admin_port, files) as opened:
            rest = read_usage(CellOperationsStub(opened), followed[-1])
            everything = read_usage(CellOperationsStub(opened))
        killed = next(sample for sample in everything if sample.HasField("lost"))
        assert killed.lost.reason == messages.LostUsage.KILLED
        assert killed.lost.duration_ms == 10_000
        assert killed.incarnation not in (first[-1].incarnation, followed[-1].incarnation)
        assert used(everything, "used")[1] == 10
        assert first + followed + rest == everything
        keys = [(sample.incarnation, sample.sequence) for sample in everything]
        assert len(set(keys)) == len(keys)
        assert [sample.sequence for sample in everything] == list(range(1, len(everything) + 1))


def produce(broker: BrokerProcess, topic: str, count: int) -> int:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"value %d" % number)
    assert producer.flush(DEADLINE_S) == 0
    return sum(len(b"value %d" % number) for number in range(count))


def consume(broker: BrokerProcess, topic: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(count, DEADLINE_S)) == count
    consumer.close()


def test_a_broker_that_stops_ends_the_stream_at_once(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("stopped")
    files = authority.issue("broker", "IP:127.0.0.1")
    with (
        BrokerProcess(folder, set=settings(files)) as broker,
        channel(broker.cell_admin_port, files) as opened,
    ):
        stream = CellOperationsStub(opened).Watch(messages.WatchRequest(), timeout=DEADLINE_S)
        begun = next(stream)
        broker.stop()
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "the broker stops" in str(ended.value.details())
        broker.start()
        with channel(broker.cell_admin_port, files) as anew:
            request = messages.WatchRequest(after_version=begun.version, store_id=begun.store_id)
            stream = CellOperationsStub(anew).Watch(request, timeout=DEADLINE_S)
            assert next(stream).version == begun.version
            stream.cancel()
