"""Requests sent before the answers to earlier ones are there, more than one read of them holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from data_plane.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.registry import ApiKey
from tests.conformance.raw_client import RawClient

NameMaker = Callable[[str], str]
VERSION = 4
MESSAGE_BYTES = 700_000
REQUESTS = 20


@pytest.mark.parametrize("batches", [1, 3, 9])
def test_large_answers_to_pipelined_fetches_all_come(
    bootstrap: str, name: NameMaker, batches: int
) -> None:
    topic = name("large")
    with RawClient(bootstrap) as client:
        # In a cell it shall be led by the broker that is asked.
        here = CreatableReplicaAssignment(partition_index=0, broker_ids=[client.broker_id()])
        wanted_topic = CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[here]
        )
        creation = CreateTopicsRequest(topics=[wanted_topic], timeout_ms=20_000)
        assert client.ask(ApiKey.CREATE_TOPICS, 7, creation).topics[0].error_code == 0
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 1, "linger.ms": 0})
    for _ in range(batches):
        producer.produce(topic, bytes(MESSAGE_BYTES), partition=0)
    assert producer.flush(30) == 0
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50_000_000,
        isolation_level=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    with RawClient(bootstrap) as client:
        # Read as fast as they are sent, answers never wait in the broker, which must go on all the
        # same; there is one answer for each, in full.
        client.send([(ApiKey.FETCH, VERSION, request)] * REQUESTS)
        for _ in range(REQUESTS):
            answer = client.receive(ApiKey.FETCH, VERSION)
            records = answer.responses[0].partitions[0].records
            assert len(records) > batches * MESSAGE_BYTES
