"""Who may do a part of what is asked: the rest is refused or left out, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from data_plane.broker.fetch.fetch_reads import LARGE_FETCH_BYTES
from data_plane.broker.produce.produce_checks import HERE_UNPACKED_BYTES_MAX
from data_plane.broker.request.authorized_operations import NOT_ASKED
from data_plane.cell.acls import (
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
)
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.tenants import READ_ONLY_TENANT, PutTenant
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.fetch_request import FetchPartition, encode_fetch_request
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.primitives import Writer
from data_plane.wire.registry import ApiKey
from tests.broker import test_namespaces as story
from tests.broker.broker_player import make_batch
from tests.broker.test_authorization import World, requests
from tests.groups.requests import fetch, old_fetch

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
HIDDEN = story.HIDDEN
REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def may(
    operation: AclOperation, name: str, kind: int = TOPIC, pattern: int = PatternType.LITERAL
) -> Acl:
    entry = AclEntry("User:ANONYMOUS", "*", int(operation), int(Permission.ALLOW))
    return Acl(ResourcePattern(int(kind), int(pattern), name), entry)


def bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.fixture
def world() -> World:
    return World()


def outcomes(topics: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in topics}


@pytest.mark.parametrize("version", [1, 9, 13])
def test_metadata_of_all_topics_has_those_that_may_be_described(world: World, version: int) -> None:
    world.grant(may(AclOperation.WRITE, "hid", pattern=PatternType.PREFIXED))
    answer = world.ask(ApiKey.METADATA, version, story.named(None))
    assert outcomes(answer.topics) == {HIDDEN: 0, "hidden_one": 0}
    answer = world.ask(ApiKey.METADATA, version, story.named(["x", HIDDEN, "nothing"]))
    assert outcomes(answer.topics) == {HIDDEN: 0, "x": REFUSED, "nothing": REFUSED}


def test_metadata_by_ids_gives_no_name_away(world: World) -> None:
    world.grant(may(AclOperation.DESCRIBE, "x"))
    answer = world.ask(ApiKey.METADATA, 13, story.by_ids(world.topic_id, world.hidden_id))
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("x", 0),
        (None, REFUSED),
    ]


def test_what_may_be_done_is_told(world: World) -> None:
    world.grant(
        may(AclOperation.READ, "x"),
        may(AclOperation.ALTER_CONFIGS, "x"),
        may(AclOperation.ALL, HIDDEN),
        may(AclOperation.READ, "g", GROUP),
    )
    request = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = world.ask(ApiKey.METADATA, 10, request)
    of_x = bits(
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    )
    of_all = bits(
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
    operations = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
    assert operations == {"x": of_x, HIDDEN: of_all}
    assert answer.cluster_authorized_operations == 0
    page = world.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, story.pages("x", "hidden_one"))
    operations = {topic.name: topic.topic_authorized_operations for topic in page.topics}
    assert operations == {"x": of_x, "hidden_one": NOT_ASKED}
    groups = world.ask(
        ApiKey.DESCRIBE_GROUPS,
        6,
        DescribeGroupsRequest(groups=["g"], include_authorized_operations=True),
    ).groups
    assert groups[0].authorized_operations == bits(AclOperation.READ, AclOperation.DESCRIBE)
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert world.ask(ApiKey.DESCRIBE_CLUSTER, 2, cluster).cluster_authorized_operations == 0
    world.grant(may(AclOperation.ALTER, "kafka-cluster", CLUSTER))
    answer = world.ask(ApiKey.DESCRIBE_CLUSTER, 2, cluster)
    assert answer.cluster_authorized_operations == bits(AclOperation.ALTER, AclOperation.DESCRIBE)


def test_a_topic_is_made_for_who_may_make_it(world: World) -> None:
    player = world.player
    player.commit(AlterConfigs("default", 4, "", (("auto.create.topics.enable", "true"),)))
    names = ["new-1", "new-2"]
    world.grant(may(AclOperation.DESCRIBE, "*"))
    answer = world.ask(ApiKey.METADATA, 12, story.named(names))
    assert outcomes(answer.topics) == dict.fromkeys(names, REFUSED)
    world.grant(may(AclOperation.DESCRIBE, "*"), may(AclOperation.CREATE, "new-1"))
    answer = world.ask(ApiKey.METADATA, 12, story.named(names))
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert outcomes(answer.topics) == {"new-1": unknown, "new-2": REFUSED}
    answer = world.ask(ApiKey.METADATA, 12, story.named(names))
    assert outcomes(answer.topics) == {"new-1": 0, "new-2": REFUSED}
    world.grant(may(AclOperation.DESCRIBE, "*"), may(AclOperation.CREATE, "kafka-cluster", CLUSTER))
    world.ask(ApiKey.METADATA, 12, story.named(names))
    assert outcomes(world.ask(ApiKey.METADATA, 12, story.named(names)).topics)["new-2"] == 0


def test_a_new_topics_configurations_are_for_who_may_describe_them(world: World) -> None:
    world.grant(may(AclOperation.CREATE, "new-1"), may(AclOperation.CREATE, "new-2"))
    made = world.ask(ApiKey.CREATE_TOPICS, 7, story.created("new-1", "x")).topics
    assert outcomes(made) == {"new-1": 0, "x": REFUSED}
    (new,) = (topic for topic in made if topic.name == "new-1")
    assert new.topic_config_error_code == REFUSED
    assert (new.num_partitions, new.replication_factor, new.configs) == (-1, -1, [])
    world.grant(may(AclOperation.CREATE, "new-2"), may(AclOperation.DESCRIBE_CONFIGS, "new-2"))
    (new,) = world.ask(ApiKey.CREATE_TOPICS, 7, story.created("new-2")).topics
    assert (new.topic_config_error_code, new.num_partitions) == (0, 2)
    assert new.configs


def test_who_deletes_by_id_hears_the_name_if_he_may(world: World) -> None:
    def delete() -> Any:
        ids = [world.topic_id, world.hidden_id]
        topics = [DeleteTopicState(name=None, topic_id=one) for one in ids]
        answer = world.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics))
        return [(result.name, result.error_code) for result in answer.responses]

    world.grant(may(AclOperation.DESCRIBE, "x"))
    assert delete() == [("x", REFUSED), (None, REFUSED)]
    world.grant(may(AclOperation.DELETE, "x"))
    assert delete() == [("x", 0), (None, REFUSED)]


def test_groups_are_listed_that_may_be_described(world: World) -> None:
    def listed() -> set[str]:
        answer = world.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        return {group.group_id for group in answer.groups}

    world.grant(may(AclOperation.DELETE, "g", GROUP))
    assert listed() == {"g"}
    world.grant(may(AclOperation.DESCRIBE, "kafka-cluster", CLUSTER))
    assert listed() == {"g", story.HIDDEN_GROUP}


@pytest.mark.parametrize("version", [7, 9, 10])
def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(
    world: World, version: int
) -> None:
    world.grant(may(AclOperation.DESCRIBE, "g", GROUP), may(AclOperation.DESCRIBE, HIDDEN))
    if version < 8:
        answer = world.ask(ApiKey.OFFSET_FETCH, version, old_fetch("g", None))
        assert [topic.name for topic in answer.topics] == [HIDDEN]
        return
    (group,) = world.ask(ApiKey.OFFSET_FETCH, version, fetch("g")).groups
    if version < 10:
        assert [topic.name for topic in group.topics] == [HIDDEN]
    else:
        assert [topic.topic_id for topic in group.topics] == [world.hidden_id]


def test_idempotence_is_for_who_may_write_or_read_anywhere(world: World) -> None:
    def error() -> int:
        answer = world.ask(ApiKey.INIT_PRODUCER_ID, 5, InitProducerIdRequest(transactional_id=None))
        return int(answer.error_code)

    world.grant(may(AclOperation.DESCRIBE, "x"))
    assert error() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    world.grant(may(AclOperation.WRITE, "pay-", pattern=PatternType.PREFIXED))
    assert error() == 0
    # What is nacked is produced, by those who read.
    world.grant(may(AclOperation.READ, "x"))
    assert error() == 0
    world.grant(may(AclOperation.IDEMPOTENT_WRITE, "kafka-cluster", CLUSTER))
    assert error() == 0


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_that_waits_is_held_against_the_acls_of_its_answer(
    world: World, version: int
) -> None:
    for first_rights in (True, False):
        if first_rights:
            world.grant(may(AclOperation.READ, "x"))
        else:
            # It began while everybody might do everything.
            world.grant()
            world.settings()
        request = story.fetched(version, "x", world.topic_id)
        partition = request.topics[0].partitions[0]
        partition.fetch_offset = end_of(world)
        request.max_wait_ms = 10_000
        waiting = world.player.first.send(ApiKey.FETCH, version, request)
        assert not waiting.is_answered
        writer = world.player.connect()
        writer.is_inter_broker = True
        world.grant(may(AclOperation.READ, HIDDEN))
        world.player.send(
            ApiKey.PRODUCE,
            12,
            story.produced(12, "x", world.topic_id, b"secret"),
            connection=writer,
        )
        answer = world.player.first.take(waiting)
        (told,) = answer.responses[0].partitions
        assert (told.error_code, told.records or b"") == (REFUSED, b"")


def end_of(world: World) -> int:
    topic = world.player.services.partitions.get(world.topic_id, 0)
    assert topic is not None
    return int(topic.log.log_end_offset)


def test_a_session_hears_of_each_refusal_and_of_what_it_may_read_again(world: World) -> None:
    world.grant(may(AclOperation.READ, "x"))
    request = story.fetched(12, "x", world.topic_id)
    request.session_epoch = 0
    first = world.ask(ApiKey.FETCH, 12, request)
    assert first.session_id
    assert first.responses[0].partitions[0].records
    again = story.fetched(12, "x", world.topic_id)
    again.topics[0].partitions[0].fetch_offset = end_of(world)
    again.session_id, again.session_epoch, again.max_wait_ms = first.session_id, 1, 0
    assert world.ask(ApiKey.FETCH, 12, again).responses == []
    # There is no news of the partition, but of who may read it.
    again.topics = []
    world.grant()
    for epoch in (2, 3):
        again.session_epoch = epoch
        answer = world.ask(ApiKey.FETCH, 12, again)
        (told,) = answer.responses[0].partitions
        assert (told.error_code, told.records or b"") == (REFUSED, b"")
    world.grant(may(AclOperation.READ, "x"))
    again.session_epoch = 4
    again.topics = request.topics
    (told,) = world.ask(ApiKey.FETCH, 12, again).responses[0].partitions
    assert told.error_code == 0
    assert told.records


@pytest.mark.parametrize("is_large", [False, True])
def test_no_partition_is_remembered_for_who_may_not_read_it(world: World, is_large: bool) -> None:
    world.grant(may(AclOperation.READ, "x"))
    kept = world.player.services.fetches.kept
    partitions_count = LARGE_FETCH_BYTES // 20 if is_large else 1

    def ask(name: str, epoch: int, session_id: int = 0) -> Any:
        request = story.fetched(12, name, world.topic_id)
        request.topics[0].partitions = [
            FetchPartition(partition=index, partition_max_bytes=1)
            for index in range(partitions_count)
        ]
        request.session_id, request.session_epoch, request.max_wait_ms = session_id, epoch, 0
        pending = world.player.first.send(ApiKey.FETCH, 12, request)
        while not pending.is_answered:
            world.player.run_jobs()
            world.player.pass_time(1)
        world.player.services.fetches.closing.run_all()
        return pending.response

    # Neither as a session nor with the connection.
    for epoch in (0, -1):
        answer = ask(HIDDEN, epoch)
        assert answer.session_id == 0
        assert {part.error_code for part in answer.responses[0].partitions} == {REFUSED}
        assert kept.count == 0
    session_id = ask("x", 0).session_id
    assert session_id
    assert kept.count == partitions_count
    answer = ask(HIDDEN, 1, session_id)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert kept.count == 0
    ask("x", -1)
    assert kept.count == partitions_count
    ask(HIDDEN, -1)
    assert kept.count == 0


def test_other_brokers_may_do_everything(world: World) -> None:
    world.grant()
    broker = world.player.connect()
    broker.is_inter_broker = True
    pending = world.player.send(ApiKey.METADATA, 12, story.named(None), connection=broker)
    world.player.run_jobs()
    assert len(pending.response.topics) >= 3


def test_produce_without_acknowledgement_that_is_refused_closes_the_connection(
    world: World,
) -> None:
    world.grant()
    request = story.produced(12, "x", world.topic_id, b"v")
    request.acks = 0
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        world.player.first.send(ApiKey.PRODUCE, 12, request)


def test_a_fetch_of_very_many_partitions_is_held_against_the_acls(world: World) -> None:
    def asked() -> Any:
        request = story.fetched(12, "x", world.topic_id)
        request.topics[0].partitions = [
            FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(2000)
        ]
        writer = Writer()
        encode_fetch_request(writer, request, 12)
        assert len(writer.buf) > LARGE_FETCH_BYTES
        answer = world.ask(ApiKey.FETCH, 12, request)
        return [partition for topic in answer.responses for partition in topic.partitions]

    world.grant(may(AclOperation.READ, HIDDEN))
    told = asked()
    assert {partition.error_code for partition in told} == {REFUSED}
    assert len(told) == 2000
    assert not any(partition.records for partition in told)
    world.grant(may(AclOperation.READ, "x"))
    told = asked()
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [partition.error_code for partition in told[:3]] == [0, 0, unknown]
    assert told[0].records


@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_read_while_a_right_goes_is_not_told(world: World, is_large: bool) -> None:
    """Whenever that is: between any two steps of a read that leaves the loop."""
    request = story.fetched(12, "x", world.topic_id)
    if is_large:
        request.topics[0].partitions = [
            FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(2000)
        ]
    player = world.player
    player.fs.is_cache_cold = True
    outcomes_seen = set()
    for steps in range(60):
        world.grant(may(AclOperation.READ, "x"))
        player.run_jobs()
        pending = player.first.send(ApiKey.FETCH, 12, request)
        for _ in range(steps):
            if pending.is_answered:
                break
            player.executor.run_one()
            player.services.wakes.run(player.now_ms)
        was_answered = pending.is_answered
        player.apply(RemoveAcls("default", (may(AclOperation.READ, "x"),)))
        answer = player.first.take(pending)
        told = answer.responses[0].partitions[0]
        outcomes_seen.add(was_answered)
        if not was_answered:
            assert (told.error_code, told.records or b"") == (REFUSED, b""), steps
        else:
            assert told.records
            break
    assert outcomes_seen == {False, True}


def _large_batch() -> bytes:
    """That a thread has to look at."""
    return bytes(make_batch([bytes(HERE_UNPACKED_BYTES_MAX)], compression=Compression.LZ4))


def _lose_the_right(world: World) -> None:
    world.player.apply(RemoveAcls("default", (may(AclOperation.WRITE, "x"),)))


def _make_read_only(world: World) -> None:
    tenant = world.player.services.image.tenants["default"]
    world.player.apply(PutTenant(replace(tenant, state=READ_ONLY_TENANT)))


def _fill_the_storage(world: World) -> None:
    world.player.services.namespaces.names["default"].storage_refusal = "too much is stored"


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_lose_the_right, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (_make_read_only, ErrorCode.POLICY_VIOLATION),
        (_fill_the_storage, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_waits_while_a_right_goes_is_not_appended(
    world: World, version: int, change: Callable[[World], None], error: ErrorCode
) -> None:
    """Whenever that is: before or after a thread has looked at the batch."""
    world.grant(may(AclOperation.WRITE, "x"))
    player = world.player
    request = story.produced(version, "x", world.topic_id, b"v")
    request.topic_data[0].partition_data[0].records = _large_batch()
    partition = player.partition("x")
    end = partition.log.log_end_offset
    pending = player.first.send(ApiKey.PRODUCE, version, request)
    assert player.first.take(pending).responses[0].partition_responses[0].error_code == 0
    assert partition.log.log_end_offset == end + 1
    for has_looked in (False, True):
        # In which the tenant is active, too.
        world.grant(may(AclOperation.WRITE, "x"))
        player.services.namespaces.names["default"].storage_refusal = ""
        pending = player.first.send(ApiKey.PRODUCE, version, request)
        assert not pending.is_answered
        if has_looked:
            player.executor.run_one()
        change(world)
        answer = player.first.take(pending)
        assert answer.responses[0].partition_responses[0].error_code == error
        assert partition.log.log_end_offset == end + 1


def test_while_everybody_may_do_everything_nothing_is_asked(world: World) -> None:
    world.grant()
    world.settings()
    authorizer = world.player.services.authorizer
    assert authorizer.of("default").is_open
    for api_key, version, request in requests(world):
        if api_key is not ApiKey.CREATE_ACLS:
            world.ask(api_key, version, request)
    assert authorizer.decisions_count == 0
    world.grant()
    world.ask(ApiKey.METADATA, 12, story.named(["x"]))
    assert authorizer.decisions_count > 0
