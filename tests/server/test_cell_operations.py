"""CellOperations as a control plane meets it: a real broker, gRPC over mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from data_plane.contract import cell_admin_pb2 as admin_messages
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from data_plane.server.tenant_records import PRODUCE_BYTES_MAX
from data_plane.wire.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 20.0
Event = messages.Event
Actor = messages.Actor


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


def caller(name: str = "alice", tenant: str = "default") -> messages.Caller:
    return messages.Caller(tenant=tenant, principal=f"User:{name}")


def peek(cell: CellOperationsStub, topic: str, name: str = "alice", **fields: Any) -> Any:
    request = messages.PeekRequest(caller=caller(name), topic=topic, **fields)
    return cell.Peek(request, timeout=DEADLINE_S)


def send(cell: CellOperationsStub, topic: str, *values: bytes, name: str = "alice") -> Any:
    records = [messages.Record(key=b"k", value=value) for value in values]
    request = messages.ProduceRequest(
        caller=caller(name), topic=topic, partition=0, records=records
    )
    return cell.Produce(request, timeout=DEADLINE_S)


def offsets(response: messages.PeekResponse) -> list[int]:
    assert not response.HasField("failure"), response.failure
    return [record.offset for record in response.records]


def test_records_are_appended_and_read_on_behalf_of_a_principal(
    broker: BrokerProcess, cell: CellOperationsStub, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("peeked", 1)])["peeked"].result(DEADLINE_S)
    header = messages.Header(key="h", value=b"v")
    record = messages.Record(key=b"k", value=b"first", headers=[header], timestamp_ms=5)
    request = messages.ProduceRequest(
        caller=caller(), topic="peeked", partition=0, records=[record]
    )
    assert cell.Produce(request, timeout=DEADLINE_S).base_offset == 0
    assert send(cell, "peeked", b"second", b"third").base_offset == 1
    # A client's, packed: what a peek begins with may be in the middle of it.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "gzip"})
    for number in range(3, 8):
        producer.produce("peeked", b"%d" % number, timestamp=1_000 + number)
    assert producer.flush(DEADLINE_S) == 0
    everything = peek(cell, "peeked")
    assert offsets(everything) == list(range(8))
    assert (everything.next_offset, everything.end_offset, everything.log_start_offset) == (8, 8, 0)
    first = everything.records[0]
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"first", 5)
    assert list(first.headers) == [header]
    assert not first.is_cut
    assert not everything.records[3].HasField("key")
    assert offsets(peek(cell, "peeked", offset=5)) == [5, 6, 7]
    assert offsets(peek(cell, "peeked", last=2)) == [6, 7]
    assert offsets(peek(cell, "peeked", last=99)) == list(range(8))
    part = peek(cell, "peeked", offset=2, records_max=3)
    assert (offsets(part), part.next_offset) == ([2, 3, 4], 5)
    cut = peek(cell, "peeked", records_max=1, value_bytes_max=2).records[0]
    assert (cut.value, cut.value_bytes, cut.is_cut) == (b"fi", 5, True)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "peekers"})
    consumer.assign([TopicPartition("peeked", 0, 0)])
    assert [each.value() for each in consumer.consume(3, DEADLINE_S)] == [
        b"first",
        b"second",
        b"third",
    ]
    consumer.close()


def test_a_peek_by_time_and_what_is_larger_than_it_may_be(
    cell: CellOperationsStub, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("times", 1)])["times"].result(DEADLINE_S)
    for number in (1, 2, 3):
        record = messages.Record(value=b"x" * 5_000, timestamp_ms=1_000 * number)
        request = messages.ProduceRequest(
            caller=caller(), topic="times", partition=0, records=[record]
        )
        cell.Produce(request, timeout=DEADLINE_S)
    assert offsets(peek(cell, "times", timestamp_ms=1_500)) == [1, 2]
    assert offsets(peek(cell, "times", timestamp_ms=9_000)) == []
    small = peek(cell, "times", bytes_max=1_000)
    assert offsets(small) == [0]
    assert (small.records[0].is_cut, small.records[0].value_bytes) == (True, 5_000)
    assert small.ByteSize() < 1_200
    assert small.next_offset == 1
    assert offsets(peek(cell, "times", bytes_max=6_000)) == [0]


def test_a_principal_gets_no_more_than_his_client_would(
    broker: BrokerProcess, cell: CellOperationsStub, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("secret", 1)])["secret"].result(DEADLINE_S)
    acl = AclBinding(
        ResourceType.TOPIC,
        "secret",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result(DEADLINE_S)
    assert send(cell, "secret", b"1").base_offset == 0
    assert offsets(peek(cell, "secret")) == [0]
    for refused in (peek(cell, "secret", "bob"), send(cell, "secret", b"2", name="bob")):
        assert refused.failure.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert offsets(peek(cell, "secret")) == [0]
    # The same words whether it is another's or nobody's.
    for response in (peek(cell, "nowhere"), send(cell, "nowhere", b"1")):
        assert response.failure.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elsewhere = messages.PeekRequest(caller=caller(tenant="nobodys"), topic="secret")
    with pytest.raises(grpc.RpcError) as refusal:
        cell.Peek(elsewhere, timeout=DEADLINE_S)
    assert refusal.value.code() == grpc.StatusCode.NOT_FOUND


def describe(cell: CellOperationsStub, group: str) -> messages.DescribeGroupResponse:
    request = messages.DescribeGroupRequest(caller=caller(), group_id=group)
    return cell.DescribeGroup(request, timeout=DEADLINE_S)


def reset(
    cell: CellOperationsStub, group: str, *targets: messages.OffsetTarget, **fields: Any
) -> messages.ResetOffsetsResponse:
    request = messages.ResetOffsetsRequest(
        caller=caller(), group_id=group, targets=targets, **fields
    )
    return cell.ResetOffsets(request, timeout=DEADLINE_S)


def to(partition: int, **where: Any) -> messages.OffsetTarget:
    return messages.OffsetTarget(topic="lagging", partition=partition, **where)


def committed(cell: CellOperationsStub, group: str) -> dict[int, tuple[int, int]]:
    """By partition: the offset, and how far it is behind."""
    offsets = describe(cell, group).offsets
    return {one.partition: (one.committed_offset, one.lag) for one in offsets}


def test_groups_are_listed_with_members_and_lag_and_reset_when_nobody_is_in(
    broker: BrokerProcess, cell: CellOperationsStub, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("lagging", 2)])["lagging"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("lagging", b"x", partition=number % 2, timestamp=1_000 * (number + 1))
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "laggards",
            "client.id": "one",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["lagging"])
    assert len(consumer.consume(10, DEADLINE_S)) == 10
    moved = [TopicPartition("lagging", 0, 2), TopicPartition("lagging", 1, 5)]
    consumer.commit(offsets=moved, asynchronous=False)
    described = describe(cell, "laggards")
    assert (described.group.state, described.group.protocol_type) == ("Stable", "consumer")
    (member,) = described.members
    assert member.client_id == "one"
    assert [(one.topic, sorted(one.partitions)) for one in member.assigned] == [("lagging", [0, 1])]
    assert committed(cell, "laggards") == {0: (2, 3), 1: (5, 0)}
    assert described.offsets[0].leader == 0
    listed = cell.ListGroups(messages.ListGroupsRequest(caller=caller()), timeout=DEADLINE_S)
    assert "laggards" in [group.group_id for group in listed.groups]
    refused = reset(cell, "laggards", to(0, earliest=True))
    assert refused.failure.error_code == ErrorCode.NON_EMPTY_GROUP
    assert committed(cell, "laggards") == {0: (2, 3), 1: (5, 0)}
    consumer.close()
    tried = reset(cell, "laggards", to(0, earliest=True), validate_only=True)
    assert [one.offset for one in tried.results] == [0]
    assert committed(cell, "laggards")[0] == (2, 3)
    late = (to(0, timestamp_ms=1 << 50), to(1, timestamp_ms=3_500))
    tried = reset(cell, "laggards", *late, validate_only=True)
    assert [one.offset for one in tried.results] == [5, 1]
    done = reset(cell, "laggards", to(0, latest=True), to(1, timestamp_ms=3_500))
    assert [one.offset for one in done.results] == [5, 1]
    assert committed(cell, "laggards") == {0: (5, 0), 1: (1, 4)}
    assert [one.offset for one in reset(cell, "laggards", to(0, offset=99)).results] == [5]
    assert reset(cell, "laggards", to(0, offset=3), to(1, forget=True)).results[0].offset == 3
    assert committed(cell, "laggards") == {0: (3, 2)}
    # A client begins there.
    again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "laggards"})
    again.subscribe(["lagging"])
    (message,) = again.consume(1, DEADLINE_S)
    assert (message.partition(), message.offset()) == (0, 3)
    again.close()


@pytest.mark.parametrize(
    ("request_made", "status"),
    [
        (messages.PeekRequest(topic="t"), "INVALID_ARGUMENT"),
        (messages.PeekRequest(caller=caller(), topic="t", partition=-1), "INVALID_ARGUMENT"),
        (messages.PeekRequest(caller=caller(), topic="t", timestamp_ms=-1), "INVALID_ARGUMENT"),
        (messages.PeekRequest(caller=caller(), topic="t", records_max=1_001), "INVALID_ARGUMENT"),
        (messages.PeekRequest(caller=caller(), topic="t", bytes_max=1 << 30), "INVALID_ARGUMENT"),
        (messages.ProduceRequest(caller=caller(), topic="t", partition=0), "INVALID_ARGUMENT"),
        (
            messages.ProduceRequest(
                caller=caller(), topic="t", partition=0, records=[messages.Record(value=b"x")] * 101
            ),
            "INVALID_ARGUMENT",
        ),
        (
            messages.ProduceRequest(
                caller=caller(),
                topic="t",
                partition=0,
                records=[messages.Record(value=bytes(PRODUCE_BYTES_MAX))],
            ),
            "RESOURCE_EXHAUSTED",
        ),
    ],
)
def test_what_is_asked_for_too_much_is_refused(
    cell: CellOperationsStub, request_made: Any, status: str
) -> None:
    call = cell.Peek if isinstance(request_made, messages.PeekRequest) else cell.Produce
    with pytest.raises(grpc.RpcError) as refusal:
        call(request_made, timeout=DEADLINE_S)
    assert refusal.value.code().name == status


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
