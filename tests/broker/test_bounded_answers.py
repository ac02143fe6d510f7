"""Requests that ask for much with few bytes: names repeated, names of any length, many topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.coordinators.offset_fetch import without_repetitions
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics import auto_creation
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.placement import Placer
from data_plane.groups import partitioning
from data_plane.groups.coordinator import GroupCoordinator
from data_plane.groups.describe import GroupFilter
from data_plane.wire.errors import ErrorCode, MalformedFrame
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from data_plane.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from data_plane.wire.primitives import ARRAY_ITEMS_MAX, Reader, Writer
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, new_topic
from tests.broker.broker_player import NODE_ID

LONG_NAME = "n" * 20_000


@pytest.fixture
def player() -> AdminPlayer:
    player = AdminPlayer({"auto.create.topics.enable": "true"})
    player.create(new_topic("t", 2))
    return player


# Repeated names


def test_producers_of_a_partition_are_described_once(player: AdminPlayer) -> None:
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="t", partition_indexes=[1, 1, 0]),
            TopicRequest(name="u", partition_indexes=[0]),
            TopicRequest(name="t", partition_indexes=[1, 2]),
        ]
    )
    topics = player.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    assert [(one.name, [each.partition_index for each in one.partitions]) for one in topics] == [
        ("t", [1, 0, 2]),
        ("u", [0]),
    ]


def asked(group_id: str, *topics: tuple[str, list[int]]) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ],
    )


def test_offsets_are_told_once() -> None:
    everything = OffsetFetchRequestGroup(group_id="a", topics=None)
    groups = [
        asked("a", ("t", [1, 2, 1]), ("u", []), ("t", [2, 3])),
        everything,
        asked("b", ("t", [1])),
        OffsetFetchRequestGroup(group_id="a", topics=None),
        asked("a", ("t", [3]), ("u", [4])),
        asked("a", ("t", [1])),
        asked("c"),
    ]
    kept = without_repetitions(groups)
    assert [
        (
            group.group_id,
            None
            if group.topics is None
            else [(topic.name, topic.partition_indexes) for topic in group.topics],
        )
        for group in kept
    ] == [
        ("a", [("t", [1, 2]), ("u", []), ("t", [3])]),
        ("a", None),
        ("b", [("t", [1])]),
        ("a", [("u", [4])]),
        ("c", []),
    ]


def test_offsets_of_topics_with_ids_are_told_apart() -> None:
    topics = [
        OffsetFetchRequestTopics(topic_id=UUID(int=number), partition_indexes=[0])
        for number in (1, 2, 1)
    ]
    (kept,) = without_repetitions([OffsetFetchRequestGroup(group_id="a", topics=topics)])
    assert kept.topics is not None
    assert [topic.topic_id.int for topic in kept.topics] == [1, 2]


def test_offsets_are_told_to_each_member_that_asks() -> None:
    members = [("m", 1), ("m", 2), ("n", 1), ("m", 1)]
    groups = [
        OffsetFetchRequestGroup(
            group_id="a", topics=topics, member_id=member_id, member_epoch=epoch
        )
        for topics in (None, [OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        for member_id, epoch in members
    ]
    kept = [(group.member_id, group.member_epoch) for group in without_repetitions(groups)]
    assert kept == members[:3] * 2


def test_a_group_is_described_once() -> None:
    class Coordinator(GroupCoordinator):
        def __init__(self) -> None:
            pass

        def _shard_of(self, tenant: str, group_id: str) -> Any:
            return None, ErrorCode.NOT_COORDINATOR

    described = Coordinator().describe_groups("default", ["a", "b", "a"], 5).groups
    assert [group.group_id for group in described] == ["a", "b"]


# Names of any length


def test_long_names_are_not_repeated_in_full(player: AdminPlayer) -> None:
    request: Any = DescribeProducersRequest(
        topics=[TopicRequest(name=LONG_NAME, partition_indexes=[0])]
    )
    (topic,) = player.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    messages = [topic.partitions[0].error_message]
    request = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=LONG_NAME, partitions=[0])]
    )
    response = player.ask(ApiKey.ELECT_LEADERS, 2, request)
    messages.append(response.replica_election_results[0].partition_result[0].error_message)
    one = ReassignablePartition(partition_index=0, replicas=[NODE_ID])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=LONG_NAME, partitions=[one])]
    )
    response = player.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    messages.append(response.responses[0].partitions[0].error_message)
    for message in messages:
        assert "nnn…" in message
        assert len(message) < 400


def test_long_group_ids_are_not_remembered() -> None:
    known = partitioning._remembered_partition.cache_info().currsize
    long_id = "long" * 100
    partition = partitioning.partition_for_group("default", long_id, 50)
    assert partition == abs(partitioning.java_string_hash(long_id)) % 50
    assert partitioning._remembered_partition.cache_info().currsize == known
    partitioning.partition_for_group("default", "a short one that nobody else asks for", 50)
    assert partitioning._remembered_partition.cache_info().currsize == known + 1


def test_filters_are_read_once_for_all_groups() -> None:
    class Filter(list[str]):
        reads = 0

        def __iter__(self) -> Any:
            Filter.reads += 1
            return super().__iter__()

    request = ListGroupsRequest(states_filter=Filter(["Stable"]), types_filter=Filter(["classic"]))
    group: Any = SimpleNamespace(state=SimpleNamespace(value="Empty"))
    groups = GroupFilter(request)
    assert not any(groups.passes(group) for _ in range(9))
    assert Filter.reads == 2


# Many topics


def ask_about(player: AdminPlayer, *names: str, connection: ConnectionInfo | None = None) -> None:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    player.send(ApiKey.METADATA, 9, request, connection=connection)


def names_of(player: AdminPlayer) -> set[str]:
    return set(player.services.image.topics_of("default"))


def test_topics_asked_for_together_are_made_in_one_commit(
    player: AdminPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def counted(brokers: Any, image: MetadataImage) -> Any:
        counts.append(1)
        return Placer(brokers, image)

    monkeypatch.setattr("data_plane.broker.topics.requested_replicas.Placer", counted)
    version = player.services.image.version
    names = [f"new-{number}" for number in range(40)]
    # The second request is one for what is being made already, and one more.
    ask_about(player, *names, "a.b", "a_b")
    ask_about(player, *names, "late")
    player.run_jobs()
    assert names_of(player) == {"t", "late", "a.b", *names}
    assert player.services.image.version <= version + 2
    assert len(counts) == 2
    # What has been made or refused may be asked for again.
    ask_about(player, "a_b", "later")
    player.run_jobs()
    assert names_of(player) == {"t", "late", "later", "a.b", *names}


def test_topics_that_could_not_be_made_may_be_asked_for_again(
    player: AdminPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")

    with monkeypatch.context() as patch:
        patch.setattr("data_plane.broker.topics.auto_creation.NewPartitions", refuse)
        ask_about(player, "a", "b")
        player.run_jobs()
    assert names_of(player) == {"t"}
    ask_about(player, "a", "b")
    player.run_jobs()
    assert names_of(player) == {"t", "a", "b"}


def test_topics_under_way_are_bounded(player: AdminPlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_creation, "NAMES_MAX", 5)
    ask_about(player, *"abc")
    ask_about(player, *"cdefg")
    player.run_jobs()
    assert names_of(player) == set("tabcde")
    ask_about(player, *"fg")
    player.run_jobs()
    assert names_of(player) == set("tabcdefg")


def test_no_tenant_has_more_topics_under_way_than_it_leaves_the_others(
    player: AdminPlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_creation, "NAMES_MAX", 12)
    player.make_tenant("acme")
    acme = player.connect()
    acme.namespace = "acme"
    names = [f"a{number}" for number in range(20)]
    ask_about(player, *names, connection=acme)
    ask_about(player, *names, connection=acme)
    ask_about(player, *"bcdefgh")
    player.run_jobs()
    made = player.services.image.topics_of("acme")
    assert set(made) == set(names[:6])
    assert names_of(player) == {"t", *"bcd"}
    assert auto_creation.auto_creation_of(player.services).budget.used == 0


def test_a_large_topic_is_made_beside_none_whoever_asks() -> None:
    player = AdminPlayer({"auto.create.topics.enable": "true", "num.partitions": "8000"})
    player.make_tenant("acme")
    ask_about(player, *"ab")
    player.run_jobs()
    while not player.services.images.is_settled:
        player.pass_time(1)
        player.run_jobs()
    assert names_of(player) == {"a"}


def test_partitions_under_way_are_bounded() -> None:
    player = AdminPlayer({"auto.create.topics.enable": "true", "num.partitions": "4000"})
    ask_about(player, *"abc")
    player.run_jobs()
    while not player.services.images.is_settled:
        player.pass_time(1)
        player.run_jobs()
    assert names_of(player) == set("ab")


# Tagged fields


def test_tagged_fields_count_as_items_of_a_frame() -> None:
    writer = Writer()
    writer.write_uvarint(ARRAY_ITEMS_MAX + 1)
    reader = Reader(writer.buf + bytes(4 * ARRAY_ITEMS_MAX))
    with pytest.raises(MalformedFrame, match=f"more than {ARRAY_ITEMS_MAX} array items, in tagged"):
        reader.skip_tagged_fields()
    reader = Reader(bytes((2, 0, 1, 9, 1, 0, 5)))
    reader.skip_tagged_fields()
    assert (reader.pos, reader.items_left) == (6, ARRAY_ITEMS_MAX - 2)
