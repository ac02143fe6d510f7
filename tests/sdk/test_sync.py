"""The blocking client, on the memory broker and on a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tidewheel import ProducerRecord, TopicPartition, from_json, sync, to_json
from tidewheel.errors import ClientClosed, DeserializationFailed, SerializationFailed, TopicExists
from tidewheel.testing import MemoryBroker, VirtualClock
from tidewheel.testing.transport import MemoryTransport

from tests.sdk.conftest import QUICK

MakeClient = Callable[[], sync.Client]


@pytest.fixture(params=["memory", "broker"])
def make_client(request: pytest.FixtureRequest) -> MakeClient:
    if request.param == "memory":
        broker = MemoryBroker(VirtualClock(autojump=True))
        return lambda: sync.Client("m:1", consumer=QUICK, transport=MemoryTransport(broker))
    address = request.getfixturevalue("bootstrap")
    return lambda: sync.Client(address, consumer=QUICK)


def test_send_and_iterate(make_client: MakeClient, name: str) -> None:
    with make_client() as client:
        client.admin.create_topic(name, partitions=2)
        topic = client.topic(name, value_serializer=to_json)
        receipt = topic.send({"n": 0}, key="k", tags=["a"])
        assert receipt.offset == 0
        assert topic.send_many(({"n": n} for n in range(1, 2500)), key=lambda v: "k").sent == 2499
        topic.enqueue({"n": 2500}, key="k")
        topic.flush(10)
        consumer = client.subscribe(name, group=name, value_deserializer=from_json)
        assert [next(consumer).value["n"] for _ in range(2501)] == list(range(2501))
        consumer.close()
        assert client.admin.group_offsets(name) == {TopicPartition(name, receipt.partition): 2500}
        again = client.subscribe(name, group=name, value_deserializer=from_json)
        assert next(again).value == {"n": 2500}


def test_application_code_runs_on_the_callers_thread(make_client: MakeClient, name: str) -> None:
    threads = set()

    def noted(value: Any) -> Any:
        threads.add(threading.current_thread())
        return value

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        noted(None)
        return count - 1

    with make_client() as client:
        client.admin.create_topic(name, partitions=3)
        topic = client.topic(name, partitioner=choose, value_serializer=noted)
        assert topic.send(b"1").partition == 2
        topic.send_many([ProducerRecord(b"2"), b"3"])
        consumer = client.subscribe(name, value_deserializer=noted)
        assert [next(consumer).value for _ in range(3)] == [b"1", b"2", b"3"]
    assert threads == {threading.current_thread()}


def test_batches_commit_and_seek(make_client: MakeClient, name: str) -> None:
    with make_client() as client:
        client.admin.create_topic(name, partitions=1)
        client.topic(name).send_many([b"%d" % n for n in range(100)])
        place = TopicPartition(name, 0)
        with client.subscribe(name, group=name, commit="manual") as consumer:
            batches = consumer.batches(30, wait_s=5)
            assert [m.value for m in next(batches)] == [b"%d" % n for n in range(30)]
            consumer.commit()
            assert client.admin.group_offsets(name) == {place: 30}
            consumer.seek(place, 90)
            assert next(consumer).offset == 90
            consumer.seek_to_beginning()
            assert next(consumer).offset == 0
            consumer.seek_to_end()
            assert next(consumer.batches(wait_s=0.2)) == []
        assert client.admin.lag(name)[0].messages == 70
        assert client.admin.reset_offsets(name, name, 5) == {place: 5}


def test_errors_arrive_in_the_caller(make_client: MakeClient, name: str) -> None:
    client = make_client()
    with pytest.raises(ClientClosed):
        client.topic(name).send(b"x")
    with client:
        client.admin.create_topic(name, partitions=1)
        with pytest.raises(TopicExists):
            client.admin.create_topic(name)
        with pytest.raises(SerializationFailed):
            client.topic(name, value_serializer=to_json).send(object())
        client.send(name, "{")
        client.send(name, "1")
        consumer = client.subscribe(name, value_deserializer=from_json)
        with pytest.raises(DeserializationFailed):
            next(consumer)
        assert next(consumer).value == 1
    with pytest.raises(ClientClosed):
        client.topic(name).send(b"x")
