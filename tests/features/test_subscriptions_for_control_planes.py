"""Control planes and subscriptions: CellAdmin declares them, and over them CellOperations has the
partitions, ends and leaders that clients see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from data_plane.contract import cell_admin_pb2 as admin_messages
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub
from data_plane.wire.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.certificates import WHY_NO_CERTIFICATES, Authority
from tests.server.control_plane import channel, settings

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

DEADLINE_S = 20.0
ALICE = messages.Caller(tenant="default", principal="User:alice")
# Of the source's partitions 0 and 1.
ENDS = (3, 2)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    """A broker with `pay` over `orders`, which has ENDS records, every other one a `checkout`."""
    folder: Path = tmp_path_factory.mktemp("subscribed")
    authority = Authority(folder / "ca")
    of_broker = settings(authority.issue("broker", "IP:127.0.0.1"))
    files = authority.issue("control-plane", "DNS:control-plane")
    with BrokerProcess(folder / "broker", set=of_broker, module="features") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        source = NewTopic("orders", 2, config={"tidewheel.headers": "true"})
        filtered = {"tidewheel.source": "orders", "tidewheel.filter": "checkout"}
        for topic in (source, NewTopic("pay", -1, -1, config=filtered)):
            admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition, end in enumerate(ENDS):
            for offset in range(end):
                tag = b"refund" if offset % 2 else b"checkout"
                value = f"{partition}-{offset}"
                producer.produce("orders", value, partition=partition, headers=[("tw-tag", tag)])
        assert producer.flush(DEADLINE_S) == 0
        for group in ("movers", "readers"):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
            consumer.commit(offsets=[TopicPartition("pay", 0, 1)], asynchronous=False)
            consumer.close()
        with channel(broker.cell_admin_port, files) as opened:
            yield opened


@pytest.fixture
def cell(opened: grpc.Channel) -> CellOperationsStub:
    return CellOperationsStub(opened)


def reset(cell: CellOperationsStub, group: str, **where: Any) -> list[int]:
    """The offsets that a group gets of the partitions 0 to 3."""
    targets = [messages.OffsetTarget(topic="pay", partition=index, **where) for index in range(4)]
    request = messages.ResetOffsetsRequest(caller=ALICE, group_id=group, targets=targets)
    results = cell.ResetOffsets(request, timeout=DEADLINE_S).results
    assert [result.partition for result in results] == [0, 1, 2, 3]
    assert not any(result.HasField("failure") for result in results), results
    return [result.offset for result in results]


def test_positions_are_reset_within_what_the_partitions_show(cell: CellOperationsStub) -> None:
    assert reset(cell, "movers", latest=True) == [ENDS[0], 0, ENDS[1], 0]
    assert reset(cell, "movers", offset=1) == [1, 0, 1, 0]
    assert reset(cell, "movers", offset=99) == [ENDS[0], 0, ENDS[1], 0]
    assert reset(cell, "movers", earliest=True) == [0, 0, 0, 0]
    assert reset(cell, "movers", timestamp_ms=1) == [0, 0, 0, 0]


def test_a_group_s_lag_is_behind_what_the_partitions_show(cell: CellOperationsStub) -> None:
    assert reset(cell, "readers", offset=1) == [1, 0, 1, 0]
    request = messages.DescribeGroupRequest(caller=ALICE, group_id="readers")
    offsets = cell.DescribeGroup(request, timeout=DEADLINE_S).offsets
    assert [(one.topic, one.partition) for one in offsets] == [("pay", index) for index in range(4)]
    assert [one.end_offset for one in offsets] == [ENDS[0], 0, ENDS[1], 0]
    # Of partition 0 the record at offset 2 is left; the others match nothing any more.
    assert [one.lag for one in offsets] == [1, 0, 0, 0]
    assert [one.oldest_timestamp_ms > 0 for one in offsets] == [True, False, False, False]
    assert {one.oldest_timestamp_ms for one in offsets[1:]} == {-1}
    assert len({one.leader for one in offsets}) == 1
    assert offsets[0].leader >= 0


def test_a_peek_shows_what_matches(cell: CellOperationsStub) -> None:
    shown = []
    for partition in range(4):
        request = messages.PeekRequest(caller=ALICE, topic="pay", partition=partition)
        response = cell.Peek(request, timeout=DEADLINE_S)
        assert not response.HasField("failure"), response.failure
        shown.append([record.value for record in response.records])
        assert response.end_offset == (0 if partition % 2 else ENDS[partition // 2])
    assert shown == [[b"0-0", b"0-2"], [], [b"1-0"], []]


def test_nothing_is_appended(cell: CellOperationsStub) -> None:
    for partition in range(2):
        request = messages.ProduceRequest(
            caller=ALICE, topic="pay", partition=partition, records=[messages.Record(value=b"1")]
        )
        failure = cell.Produce(request, timeout=DEADLINE_S).failure
        assert failure.error_code == ErrorCode.INVALID_RECORD


def topic(name: str, generation: int, partitions: int, **configs: str) -> admin_messages.Resource:
    named = {f"tidewheel.{key}": value for key, value in configs.items()}
    return admin_messages.Resource(
        resource_id=f"top_{name}",
        generation=generation,
        tenant="default",
        name=name,
        topic=admin_messages.Topic(partitions=partitions, configs=named),
    )


def apply(opened: grpc.Channel, resource: admin_messages.Resource) -> admin_messages.Result:
    request = admin_messages.ApplyRequest(resources=[resource])
    (result,) = CellAdminStub(opened).Apply(request, timeout=DEADLINE_S).results
    return result


def test_what_is_declared_without_partitions_has_those_that_follow_from_its_source(
    opened: grpc.Channel,
) -> None:
    done = admin_messages.Result.DONE
    assert apply(opened, topic("flights", 1, 2, headers="true")).outcome == done
    read = {"source": "flights", "filter": "late"}
    assert apply(opened, topic("late", 1, 0, **read)).outcome == done
    assert apply(opened, topic("flights", 2, 3, headers="true")).outcome == done
    # It has grown, and what is declared is in force all the same.
    read["filter"] = "late or cancelled"
    assert apply(opened, topic("late", 2, 0, **read)).outcome == done
    assert apply(opened, topic("late", 2, 0, **read)).outcome == admin_messages.Result.UNCHANGED
    listed = CellAdminStub(opened).List(admin_messages.ListRequest(), timeout=DEADLINE_S).items
    (late,) = (item for item in listed if item.resource.name == "late")
    assert (late.partitions, late.resource.topic.partitions) == (6, 0)
    assert late.configs["tidewheel.filter"] == "late or cancelled"
    with pytest.raises(grpc.RpcError) as refusal:
        apply(opened, topic("plain", 1, 0))
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
