"""Requests with very many items: handled in slices, answered as if they had not been."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.coordinators import group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.request.large_requests import LARGE_BYTES, SLICE_ITEMS_MAX
from data_plane.broker.topics.auto_creation import NAMES_MAX
from data_plane.cell.changes import RegisterBroker
from data_plane.cell.metadata import BrokerImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer
from tests.broker.broker_player import NODE_ID

NAMES = [f"name-{number:06}" for number in range(LARGE_BYTES // 10)]


@pytest.fixture
def broker() -> AdminPlayer:
    return AdminPlayer()


def answer(broker: AdminPlayer, api_key: ApiKey, version: int, message: Any) -> tuple[Any, int]:
    """The response, and how often threads and the loop took turns until it came."""
    pending = broker.send(api_key, version, message)
    assert not pending.is_answered
    turns_count = 0
    while not pending.is_answered:
        broker.executor.run_one()
        broker.services.wakes.run(broker.now_ms)
        turns_count += 1
    assert not broker.executor.queue
    return pending.response, turns_count


def metadata_request(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
    )


@pytest.mark.parametrize("version", [1, 4, 12, 13])
def test_metadata_of_many_topics(broker: AdminPlayer, version: int) -> None:
    broker.create_topic("here", 3)
    few = broker.send(ApiKey.METADATA, version, metadata_request("here")).response
    # Named twice, answered once.
    request = metadata_request(*NAMES, "here", *NAMES[:500])
    response, turns_count = answer(broker, ApiKey.METADATA, version, request)
    assert turns_count >= len(NAMES) // SLICE_ITEMS_MAX
    assert response.brokers == few.brokers
    assert response.topics[0] == few.topics[0]
    assert [topic.name for topic in response.topics[1:]] == NAMES
    assert {topic.error_code for topic in response.topics[1:]} == {
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    }


def test_metadata_by_many_ids(broker: AdminPlayer) -> None:
    topic_id = broker.create_topic("here", 3)
    ids = [UUID(int=number) for number in range(1, 3000)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=one) for one in [*ids, topic_id]]
    )
    response, _ = answer(broker, ApiKey.METADATA, 12, request)
    assert response.topics[0].name == "here"
    assert [topic.topic_id for topic in response.topics[1:]] == ids


def test_metadata_that_is_not_well_formed(broker: AdminPlayer) -> None:
    request = metadata_request(*NAMES)
    assert request.topics is not None
    request.topics[7] = MetadataRequestTopic(name=None)
    response, _ = answer(broker, ApiKey.METADATA, 12, request)
    assert {topic.error_code for topic in response.topics} == {int(ErrorCode.INVALID_REQUEST)}
    assert len(response.topics) == len(NAMES)


def test_describe_configs_of_one_topic_very_often(broker: AdminPlayer) -> None:
    broker.create_topic("here")
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="here", configuration_keys=None
    )
    few = DescribeConfigsRequest(resources=[resource])
    request = DescribeConfigsRequest(resources=[resource] * LARGE_BYTES)
    response, _ = answer(broker, ApiKey.DESCRIBE_CONFIGS, 1, request)
    assert response == broker.send(ApiKey.DESCRIBE_CONFIGS, 1, few).response


def with_groups(broker: AdminPlayer) -> None:
    broker.services.groups = GroupService(broker.services)
    broker.services.components.append(broker.services.groups)
    group_handlers.register(broker.services.handlers)
    broker.services.groups.start(broker.now_ms)
    image = broker.services.store.apply(
        (RegisterBroker(BrokerImage(NODE_ID, "host", 9092, None, is_fenced=False)),),
        broker.services.image.version,
        "register",
    )
    broker.services.apply_image(image, broker.now_ms)


def test_coordinators_of_many_groups(broker: AdminPlayer) -> None:
    """The first slice makes the topic, and the others wait for that."""
    with_groups(broker)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[*NAMES, *NAMES[:9]])
    response, turns_count = answer(broker, ApiKey.FIND_COORDINATOR, 4, request)
    assert turns_count > len(NAMES) // SLICE_ITEMS_MAX
    assert [one.key for one in response.coordinators] == NAMES


@pytest.mark.parametrize("api_key", [ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS])
def test_many_groups(broker: AdminPlayer, api_key: ApiKey) -> None:
    with_groups(broker)
    request: Any = DescribeGroupsRequest(groups=NAMES)
    if api_key is ApiKey.DELETE_GROUPS:
        request = DeleteGroupsRequest(groups_names=NAMES)
    response, turns_count = answer(broker, api_key, 1, request)
    assert turns_count > len(NAMES) // SLICE_ITEMS_MAX
    groups = response.groups if api_key is ApiKey.DESCRIBE_GROUPS else response.results
    assert [group.group_id for group in groups] == NAMES


def test_a_frame_that_cannot_be_read_closes_the_connection(broker: AdminPlayer) -> None:
    data = bytearray(b"\0\x03\0\x04" + bytes(4) + b"\xff\xff" + b"\0\1\0\0" + bytes(LARGE_BYTES))
    pending = broker.send_bytes(ApiKey.METADATA, 4, data)
    broker.run_jobs()
    assert not pending.is_answered
    (reason,) = broker.close_reasons
    assert "MetadataRequest" in reason or "items" in reason


def test_nobody_waits_for_it_any_more(broker: AdminPlayer) -> None:
    gone = broker.connect()
    pending = broker.send(ApiKey.METADATA, 4, metadata_request(*NAMES), connection=gone)
    broker.executor.run_one()
    broker.services.wakes.run(broker.now_ms)
    gone.gate.close()
    broker.run_jobs()
    assert not pending.is_answered
    assert len(broker.services.request_work) == 0


def test_one_request_makes_no_more_topics_than_may_be_in_the_making(broker: AdminPlayer) -> None:
    """What its first slices ask for is there before the last ones are handled."""
    pending = broker.send(ApiKey.METADATA, 12, metadata_request(*NAMES))
    broker.run_jobs()
    assert len(pending.response.topics) == len(NAMES) > 2 * NAMES_MAX
    assert 0 < len(broker.services.image.topics_of("default")) <= NAMES_MAX


@pytest.mark.parametrize("version", [1, 7, 11])
def test_offsets_of_many_partitions(broker: AdminPlayer, version: int) -> None:
    """The same answers as to small requests; a partition that is named again and again is refused,
    wherever its namesakes stand."""
    broker.create_topic("here", 3)
    indexes = [1, *range(LARGE_BYTES // 10), 1, 1]
    topics = {"here": indexes, "there": [0], **{name: [0, 1] for name in NAMES[:500]}}

    def request(wanted: dict[str, list[int]]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1)
                        for index in partitions
                    ],
                )
                for name, partitions in wanted.items()
            ],
        )

    response, turns_count = answer(broker, ApiKey.LIST_OFFSETS, version, request(topics))
    assert turns_count > (len(indexes) + 1000) // SLICE_ITEMS_MAX
    assert [topic.name for topic in response.topics] == list(topics)
    few = broker.send(
        ApiKey.LIST_OFFSETS, version, request({"here": [1, 0, 2, 3, 1], "there": [0]})
    ).response

    def by_index(topic: Any) -> dict[int, Any]:
        return {one.partition_index: one for one in topic.partitions}

    here = by_index(response.topics[0])
    assert sorted(here) == list(range(LARGE_BYTES // 10))
    assert here[1].error_code == ErrorCode.INVALID_REQUEST
    assert {index: here[index] for index in range(4)} == by_index(few.topics[0])
    assert response.topics[1] == few.topics[1]
