"""Two tenants on one broker: a client of the second, with the names that the first has, never
notices the first, and changes nothing there.

`conversation` asks for everything that a broker can be asked for, in every version. It is had with
a broker whose first tenant has nothing and with one whose first tenant has the same names, and
others: the answers must be the same. An API that it leaves out fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import data_plane.broker
from data_plane.groups.partitioning import partition_for_group
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages import (
    alter_configs_request,
    alter_partition_reassignments_request,
    alter_replica_log_dirs_request,
    create_partitions_request,
    create_topics_request,
    delete_records_request,
    delete_topics_request,
    describe_configs_request,
    describe_log_dirs_request,
    describe_producers_request,
    describe_topic_partitions_request,
    elect_leaders_request,
    fetch_request,
    incremental_alter_configs_request,
    list_offsets_request,
    list_partition_reassignments_request,
    metadata_request,
    offset_for_leader_epoch_request,
    produce_request,
)
from data_plane.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from data_plane.wire.messages.describe_delayed_request import DescribeDelayedRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.push_telemetry_request import PushTelemetryRequest
from data_plane.wire.registry import ApiKey
from tests.broker.broker_player import NODE_ID, make_batch, values_of
from tests.broker.namespace_player import SECOND, Client, NamespacePlayer, Plain
from tests.groups.requests import (
    commit,
    delete_offsets,
    fetch,
    heartbeat,
    join,
    leave,
    old_fetch,
    sync,
)

TOPIC, GROUP = 2, 32
CONFIGS = {
    TOPIC: ("retention.ms", "86400000"),
    GROUP: ("consumer.session.timeout.ms", "50000"),
}
PHYSICAL = {
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UPDATE_FEATURES,
}
"""APIs about brokers and the cell, which name no topics, groups or transactional ids (the one topic
that DescribeQuorum knows is the cell's own)."""
OTHER_NODE_ID = NODE_ID + 1
UNKNOWN_ID = UUID(int=4711)
UNKNOWN_MEMBER = f"tester-{UUID(int=815)}"
# Of the first namespace alone.
HIDDEN, HIDDEN_GROUP = "hidden", "hidden-group"


class Story:
    """What was asked and answered."""

    def __init__(self, player: NamespacePlayer, hidden_id: UUID, hidden_member: str) -> None:
        self._player = player
        self._client = player.second
        self._plain = Plain(str(hidden_id), hidden_member)
        self.hidden_id = hidden_id
        self.answers: list[tuple[ApiKey, int, Any]] = []

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        answer = self._client.ask(api_key, version, request)
        self.answers.append((api_key, version, self._plain.of(answer)))
        return answer

    def ask_all(self, api_key: ApiKey, make: Callable[[int], Any], *, first: int = 0) -> Any:
        """In every version from `first` on; the answer to the newest."""
        entry = self._player.services.handlers.get(api_key)
        assert entry is not None
        answer = None
        for version in range(max(first, entry.min_version), entry.max_version + 1):
            answer = self.ask(api_key, version, make(version))
        return answer


# Requests


def always(request: Any) -> Callable[[int], Any]:
    """The same in all versions."""
    return lambda version: request


def created(*names: str, validate_only: bool = False) -> Any:
    topics = [
        create_topics_request.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in names
    ]
    return create_topics_request.CreateTopicsRequest(topics=topics, validate_only=validate_only)


def named(names: Iterable[str] | None, *, creates: bool = True) -> Any:
    topics = None
    if names is not None:
        topics = [metadata_request.MetadataRequestTopic(name=name) for name in names]
    return metadata_request.MetadataRequest(topics=topics, allow_auto_topic_creation=creates)


def by_ids(*ids: UUID) -> Any:
    topics = [metadata_request.MetadataRequestTopic(name=None, topic_id=one) for one in ids]
    return metadata_request.MetadataRequest(topics=topics)


def produced(version: int, topic: str, topic_id: UUID, value: bytes, index: int = 0) -> Any:
    data = produce_request.TopicProduceData(
        partition_data=[
            produce_request.PartitionProduceData(index=index, records=bytes(make_batch([value])))
        ]
    )
    if version >= 13:
        data.topic_id = topic_id
    else:
        data.name = topic
    return produce_request.ProduceRequest(
        transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data]
    )


def fetched(version: int, topic: str, topic_id: UUID) -> Any:
    wanted = fetch_request.FetchTopic(
        partitions=[fetch_request.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
    )
    if version >= 13:
        wanted.topic_id = topic_id
    else:
        wanted.topic = topic
    request = fetch_request.FetchRequest(max_bytes=1 << 20, min_bytes=1, topics=[wanted])
    if version >= 7:
        request.session_epoch = -1
    if version < 15:
        request.replica_id = -1
    return request


def listed_offsets(*names: str) -> Any:
    return list_offsets_request.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets_request.ListOffsetsTopic(
                name=name,
                partitions=[
                    list_offsets_request.ListOffsetsPartition(partition_index=0, timestamp=-1)
                ],
            )
            for name in names
        ],
    )


def epoch_ends(*names: str) -> Any:
    return offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            offset_for_leader_epoch_request.OffsetForLeaderTopic(
                topic=name,
                partitions=[offset_for_leader_epoch_request.OffsetForLeaderPartition()],
            )
            for name in names
        ],
    )


def resources(module: Any, request: type[Any], **fields: Any) -> Callable[[int, str], Any]:
    """A request about one resource, of AlterConfigs or IncrementalAlterConfigs."""

    def make(resource_type: int, name: str) -> Any:
        value = {
            TOPIC: ("retention.ms", "86400000"),
            GROUP: ("consumer.session.timeout.ms", "50000"),
        }
        key, text = value[resource_type]
        config = module.AlterableConfig(name=key, value=text)
        resource = module.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        return request(resources=[resource], **fields)

    return make


altered = resources(alter_configs_request, alter_configs_request.AlterConfigsRequest)
incremented = resources(
    incremental_alter_configs_request,
    incremental_alter_configs_request.IncrementalAlterConfigsRequest,
)


def described_configs(resource_type: int, *names: str) -> Any:
    return describe_configs_request.DescribeConfigsRequest(
        resources=[
            describe_configs_request.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
    )


def deleted_records(*names: str) -> Any:
    return delete_records_request.DeleteRecordsRequest(
        topics=[
            delete_records_request.DeleteRecordsTopic(
                name=name,
                partitions=[
                    delete_records_request.DeleteRecordsPartition(partition_index=0, offset=1)
                ],
            )
            for name in names
        ],
        timeout_ms=1000,
    )


def more_partitions(*names: str) -> Any:
    return create_partitions_request.CreatePartitionsRequest(
        topics=[
            create_partitions_request.CreatePartitionsTopic(name=name, count=3, assignments=None)
            for name in names
        ],
        timeout_ms=1000,
    )


def pages(*names: str, after: str | None = None) -> Any:
    cursor = None
    if after is not None:
        cursor = describe_topic_partitions_request.Cursor(topic_name=after, partition_index=0)
    return describe_topic_partitions_request.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions_request.TopicRequest(name=name) for name in names],
        cursor=cursor,
    )


def log_dirs(*names: str) -> Any:
    topics = [
        describe_log_dirs_request.DescribableLogDirTopic(topic=name, partitions=[0, 1])
        for name in names
    ]
    return describe_log_dirs_request.DescribeLogDirsRequest(topics=topics or None)


def moved_dirs(*names: str) -> Any:
    topics = [
        alter_replica_log_dirs_request.AlterReplicaLogDirTopic(name=name, partitions=[0])
        for name in names
    ]
    directory = alter_replica_log_dirs_request.AlterReplicaLogDir(path="/data", topics=topics)
    return alter_replica_log_dirs_request.AlterReplicaLogDirsRequest(dirs=[directory])


def elected(*names: str) -> Any:
    topics = [
        elect_leaders_request.TopicPartitions(topic=name, partitions=[0, 9]) for name in names
    ]
    return elect_leaders_request.ElectLeadersRequest(topic_partitions=topics or None)


def reassigned(*names: str) -> Any:
    topics = [
        alter_partition_reassignments_request.ReassignableTopic(
            name=name,
            partitions=[
                alter_partition_reassignments_request.ReassignablePartition(
                    partition_index=0, replicas=[NODE_ID]
                )
            ],
        )
        for name in names
    ]
    return alter_partition_reassignments_request.AlterPartitionReassignmentsRequest(topics=topics)


def reassignments(*names: str) -> Any:
    topics = [
        list_partition_reassignments_request.ListPartitionReassignmentsTopics(
            name=name, partition_indexes=[0]
        )
        for name in names
    ]
    return list_partition_reassignments_request.ListPartitionReassignmentsRequest(
        topics=topics or None
    )


def producers(*names: str) -> Any:
    topics = [
        describe_producers_request.TopicRequest(name=name, partition_indexes=[0]) for name in names
    ]
    return describe_producers_request.DescribeProducersRequest(topics=topics)


def deleted(version: int, *names: str) -> Any:
    if version < 6:
        return delete_topics_request.DeleteTopicsRequest(topic_names=list(names))
    topics = [delete_topics_request.DeleteTopicState(name=name) for name in names]
    return delete_topics_request.DeleteTopicsRequest(topics=topics)


def deleted_id(topic_id: UUID) -> Any:
    topics = [delete_topics_request.DeleteTopicState(name=None, topic_id=topic_id)]
    return delete_topics_request.DeleteTopicsRequest(topics=topics)


def coordinators(version: int, *groups: str, key_type: int = 0) -> Any:
    if version < 4:
        return FindCoordinatorRequest(key=groups[0], key_type=key_type if version else 0)
    return FindCoordinatorRequest(coordinator_keys=list(groups), key_type=key_type)


def granted(topic: str, principal: str) -> CreateAclsRequest:
    creation = AclCreation(
        resource_type=2,
        resource_name=topic,
        principal=principal,
        host="*",
        operation=2,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[creation])


def quota_of(user: str, bytes_per_s: float | None) -> AlterClientQuotasRequest:
    """What a user may produce; without a number no quota says so any more."""
    entity = [EntityData(entity_type="user", entity_name=user)]
    quota = OpData(key="producer_byte_rate", value=bytes_per_s or 0.0, remove=bytes_per_s is None)
    return AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[quota])])


EVERY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


# The conversation


def topics_and_records(story: Story) -> UUID:
    """The topic `x`, and its id."""
    ask, ask_all = story.ask, story.ask_all
    ask_all(ApiKey.METADATA, lambda version: named(None), first=1)
    ask_all(ApiKey.METADATA, lambda version: named(["x", HIDDEN]))
    ask(ApiKey.METADATA, 13, by_ids(story.hidden_id))
    ask_all(ApiKey.CREATE_TOPICS, lambda version: created("x", HIDDEN, validate_only=True))
    # It differs from one of the first namespace's in a character that metrics cannot tell apart.
    made = ask(ApiKey.CREATE_TOPICS, 7, created("x", "hidden.one"))
    assert [topic.error_code for topic in made.topics] == [0, 0]
    topic_id: UUID = made.topics[0].topic_id
    ask_all(ApiKey.CREATE_TOPICS, lambda version: created("x"))
    ask_all(ApiKey.METADATA, lambda version: named(["x", HIDDEN]))
    everything = ask_all(ApiKey.METADATA, lambda version: named(None), first=1)
    assert {topic.name for topic in everything.topics} == {"x", "hidden.one"}
    ask(ApiKey.METADATA, 13, by_ids(topic_id, story.hidden_id))
    ask_all(ApiKey.INIT_PRODUCER_ID, lambda version: InitProducerIdRequest(transactional_id="t"))
    ask_all(ApiKey.PRODUCE, lambda version: produced(version, "x", topic_id, b"%d" % version))
    ask_all(ApiKey.PRODUCE, lambda version: produced(version, HIDDEN, story.hidden_id, b"no"))
    answer = ask_all(ApiKey.FETCH, lambda version: fetched(version, "x", topic_id))
    records = values_of(answer.responses[0].partitions[0].records)
    assert [value for _, value in records] == [b"%d" % version for version in range(3, 14)]
    ask_all(ApiKey.FETCH, lambda version: fetched(version, HIDDEN, story.hidden_id))
    ask_all(ApiKey.LIST_OFFSETS, lambda version: listed_offsets("x", HIDDEN))
    ask_all(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda version: epoch_ends("x", HIDDEN))
    ask_all(ApiKey.DESCRIBE_PRODUCERS, lambda version: producers("x", HIDDEN))
    ask_all(ApiKey.DESCRIBE_DELAYED, lambda version: DescribeDelayedRequest(topic="x"))
    ask_all(ApiKey.DESCRIBE_DELAYED, lambda version: DescribeDelayedRequest(topic=HIDDEN))
    ask_all(ApiKey.DELETE_RECORDS, lambda version: deleted_records("x", HIDDEN))
    return topic_id


def administration(story: Story) -> None:
    ask, ask_all = story.ask, story.ask_all
    for kind, names in ((TOPIC, ("x", HIDDEN)), (GROUP, ("g", HIDDEN_GROUP))):
        for name in names:
            ask_all(ApiKey.ALTER_CONFIGS, always(altered(kind, name)))
            ask_all(ApiKey.INCREMENTAL_ALTER_CONFIGS, always(incremented(kind, name)))
    ask_all(ApiKey.DESCRIBE_CONFIGS, lambda version: described_configs(TOPIC, "x", HIDDEN))
    ask_all(ApiKey.DESCRIBE_CONFIGS, lambda version: described_configs(GROUP, "g", HIDDEN_GROUP))
    listed = ask_all(
        ApiKey.LIST_CONFIG_RESOURCES,
        lambda version: ListConfigResourcesRequest(resource_types=[TOPIC, GROUP] * bool(version)),
    )
    assert {one.resource_name for one in listed.config_resources} == {
        "x",
        "hidden.one",
        "g",
        HIDDEN_GROUP,
    }
    ask_all(ApiKey.CREATE_PARTITIONS, lambda version: more_partitions("x", HIDDEN))
    ask_all(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda version: pages())
    ask_all(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda version: pages("x", HIDDEN))
    ask_all(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda version: pages(after="hidden"))
    ask_all(ApiKey.DESCRIBE_LOG_DIRS, lambda version: log_dirs())
    ask_all(ApiKey.DESCRIBE_LOG_DIRS, lambda version: log_dirs("x", HIDDEN))
    ask_all(ApiKey.ALTER_REPLICA_LOG_DIRS, lambda version: moved_dirs("x", HIDDEN))
    ask_all(ApiKey.ELECT_LEADERS, lambda version: elected())
    ask_all(ApiKey.ELECT_LEADERS, lambda version: elected("x", HIDDEN))
    ask_all(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda version: reassigned("x", HIDDEN))
    ask_all(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda version: reassignments())
    ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassignments("x", HIDDEN))


def rights(story: Story) -> None:
    ask_all = story.ask_all
    for name in ("x", HIDDEN):
        ask_all(ApiKey.CREATE_ACLS, always(granted(name, "User:alice")))
    listed = ask_all(ApiKey.DESCRIBE_ACLS, always(DescribeAclsRequest(**EVERY_ACL)))
    assert [resource.resource_name for resource in listed.resources] == [HIDDEN, "x"]
    for name in ("x", HIDDEN, "hidden_one"):
        named = {**EVERY_ACL, "resource_name_filter": name}
        ask_all(ApiKey.DESCRIBE_ACLS, always(DescribeAclsRequest(**named)))
        ask_all(ApiKey.DELETE_ACLS, always(DeleteAclsRequest(filters=[DeleteAclsFilter(**named)])))
    ask_all(ApiKey.CREATE_ACLS, always(granted("x", "User:alice")))
    everything = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY_ACL)])
    ask_all(ApiKey.DELETE_ACLS, always(everything))


def users(story: Story) -> None:
    gone = ScramCredentialDeletion(name="alice", mechanism=1)
    altered = AlterUserScramCredentialsRequest(deletions=[gone])
    story.ask_all(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, always(altered))
    everybody = DescribeUserScramCredentialsRequest(users=None)
    story.ask_all(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, always(everybody))
    story.ask_all(ApiKey.DESCRIBE_CLIENT_QUOTAS, always(DescribeClientQuotasRequest()))
    story.ask_all(ApiKey.ALTER_CLIENT_QUOTAS, always(quota_of("alice", 2e9)))
    listed = story.ask_all(ApiKey.DESCRIBE_CLIENT_QUOTAS, always(DescribeClientQuotasRequest()))
    assert [[each.value for each in entry.values] for entry in listed.entries] == [[2e9]]
    story.ask_all(ApiKey.ALTER_CLIENT_QUOTAS, always(quota_of("alice", None)))
    story.ask_all(ApiKey.ALTER_CLIENT_QUOTAS, always(quota_of("bob", None)))


def telemetry(story: Story) -> None:
    known = UUID(int=7)
    subscribed = GetTelemetrySubscriptionsRequest(client_instance_id=known)
    story.ask_all(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, always(subscribed))
    pushed = PushTelemetryRequest(client_instance_id=known, subscription_id=0)
    story.ask_all(ApiKey.PUSH_TELEMETRY, always(pushed))


def groups_and_offsets(story: Story, topic_id: UUID, hidden_member: str) -> None:
    ask, ask_all = story.ask, story.ask_all
    for key_type in (0, 1):
        for version in range(7):
            request = coordinators(version, "g", HIDDEN_GROUP, key_type=key_type)
            ask(ApiKey.FIND_COORDINATOR, version, request)
    ask_all(ApiKey.LIST_GROUPS, lambda version: ListGroupsRequest())
    ask_all(ApiKey.DESCRIBE_GROUPS, lambda version: DescribeGroupsRequest(groups=["g"]))
    member_id = ask(ApiKey.JOIN_GROUP, 9, join("g")).member_id
    for version in range(10):
        answer = ask(ApiKey.JOIN_GROUP, version, join("g", member_id))
        assert answer.error_code == 0
    generation = answer.generation_id
    for version in range(6):
        answer = ask(
            ApiKey.SYNC_GROUP, version, sync("g", member_id, generation, {member_id: b"x"})
        )
        assert answer.assignment == b"x"
    ask_all(ApiKey.HEARTBEAT, lambda version: heartbeat("g", member_id, generation))
    # Who belongs to a group of the first namespace belongs to none here.
    for group in ("g", HIDDEN_GROUP):
        for version in range(10):
            answer = ask(ApiKey.JOIN_GROUP, version, join(group, hidden_member))
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        ask_all(ApiKey.SYNC_GROUP, always(sync(group, hidden_member, 1)))
        ask_all(ApiKey.HEARTBEAT, always(heartbeat(group, hidden_member, 1)))
    for version in range(2, 11):
        by_id = version >= 10
        for topic in (topic_id, story.hidden_id) if by_id else ("x", HIDDEN):
            offsets: Any = {(topic, 0): version, (topic, 8): 1}
            committed = commit("g", offsets, member_id=member_id, generation_id=generation)
            ask(ApiKey.OFFSET_COMMIT, version, committed)
    for group in ("g", HIDDEN_GROUP):
        for version in range(1, 8):
            ask(ApiKey.OFFSET_FETCH, version, old_fetch(group, {"x": [0], HIDDEN: [0]}))
            if version >= 2:
                ask(ApiKey.OFFSET_FETCH, version, old_fetch(group, None))
        for version in range(8, 11):
            wanted: Any = {"x": [0], HIDDEN: [0]}
            if version >= 10:
                wanted = {topic_id: [0], story.hidden_id: [0]}
            ask(ApiKey.OFFSET_FETCH, version, fetch(group, wanted))
            answer = ask(ApiKey.OFFSET_FETCH, version, fetch(group))
            found = [topic.partitions[0].committed_offset for topic in answer.groups[0].topics]
            assert found == ([10] if group == "g" else [])
    ask_all(
        ApiKey.DESCRIBE_GROUPS, lambda version: DescribeGroupsRequest(groups=["g", HIDDEN_GROUP])
    )
    listed = ask_all(ApiKey.LIST_GROUPS, lambda version: ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["g"]
    ask(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g", HIDDEN_GROUP]))
    for version in range(6):
        leaving = leave("g", ("nobody", None), (hidden_member, None))
        if version < 3:
            leaving = LeaveGroupRequest(group_id="g", member_id=hidden_member)
        ask(ApiKey.LEAVE_GROUP, version, leaving)
    ask(ApiKey.LEAVE_GROUP, 5, leave("g", (member_id, None)))
    ask(ApiKey.OFFSET_DELETE, 0, delete_offsets("g", {"x": [0, 7], HIDDEN: [0]}))
    ask_all(
        ApiKey.DELETE_GROUPS, lambda version: DeleteGroupsRequest(groups_names=["g", HIDDEN_GROUP])
    )


def end(story: Story) -> None:
    story.ask(ApiKey.DELETE_TOPICS, 6, deleted_id(story.hidden_id))
    for version in range(1, 7):
        story.ask(ApiKey.DELETE_TOPICS, version, deleted(version, HIDDEN, "hidden.one"))
    story.ask(ApiKey.DELETE_TOPICS, 6, deleted(6, "x"))
    answer = story.ask(ApiKey.METADATA, 13, named(None))
    assert answer.topics == []


def conversation(player: NamespacePlayer, hidden_id: UUID, hidden_member: str) -> Story:
    story = Story(player, hidden_id, hidden_member)
    topic_id = topics_and_records(story)
    administration(story)
    rights(story)
    users(story)
    telemetry(story)
    groups_and_offsets(story, topic_id, hidden_member)
    end(story)
    return story


class First:
    """What the first namespace has: the same names, others, and groups with members and offsets.
    Or another one, whose client is given."""

    def __init__(
        self, player: NamespacePlayer, client: Client | None = None, tenant: str = "default"
    ) -> None:
        self._client = client = client or player.first
        made = client.ask(ApiKey.CREATE_TOPICS, 7, created("x", HIDDEN, "hidden_one"))
        self.topic_id, self.hidden_id, _ = (topic.topic_id for topic in made.topics)
        for topic in ("x", HIDDEN):
            for number in range(20):
                value = b"first %d" % number
                client.ask(ApiKey.PRODUCE, 12, produced(12, topic, self.hidden_id, value))
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremented(TOPIC, topic))
        for topic in ("x", HIDDEN, "hidden_one"):
            for principal in ("User:alice", "User:bob"):
                client.ask(ApiKey.CREATE_ACLS, 3, granted(topic, principal))
        for user in ("alice", "bob"):
            client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota_of(user, 1e9))
        client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
        for group in ("g", HIDDEN_GROUP):
            self.member_id = client.ask(ApiKey.JOIN_GROUP, 9, join(group)).member_id
            client.ask(ApiKey.JOIN_GROUP, 9, join(group, self.member_id))
            client.ask(
                ApiKey.SYNC_GROUP, 5, sync(group, self.member_id, 1, {self.member_id: b"all"})
            )
            offsets: Any = {("x", 0): 17, (HIDDEN, 0): 18}
            request = commit(group, offsets, member_id=self.member_id, generation_id=1)
            client.ask(ApiKey.OFFSET_COMMIT, 9, request)
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremented(GROUP, group))
        # A leader that is not the preferred one, and a reassignment that goes on.
        player.change_partition(
            HIDDEN,
            1,
            replicas=(OTHER_NODE_ID, NODE_ID),
            tenant=tenant,
            adding_replicas=(OTHER_NODE_ID,),
        )

    def everything(self) -> list[Any]:
        """What its clients see."""
        ask = self._client.ask
        return [
            ask(ApiKey.METADATA, 13, named(["x", HIDDEN, "hidden_one"])),
            ask(ApiKey.FETCH, 12, fetched(12, "x", self.topic_id)),
            ask(ApiKey.FETCH, 13, fetched(13, HIDDEN, self.hidden_id)),
            ask(ApiKey.LIST_OFFSETS, 11, listed_offsets("x", HIDDEN)),
            ask(ApiKey.DESCRIBE_CONFIGS, 4, described_configs(TOPIC, "x", HIDDEN)),
            ask(ApiKey.DESCRIBE_CONFIGS, 4, described_configs(GROUP, "g", HIDDEN_GROUP)),
            ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g", HIDDEN_GROUP])),
            ask(ApiKey.OFFSET_FETCH, 9, fetch("g")),
            ask(ApiKey.OFFSET_FETCH, 9, fetch(HIDDEN_GROUP)),
            ask(ApiKey.HEARTBEAT, 4, heartbeat(HIDDEN_GROUP, self.member_id, 1)),
            ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassignments()),
            ask(ApiKey.DESCRIBE_ACLS, 3, DescribeAclsRequest(**EVERY_ACL)),
            ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest()),
        ]


@pytest.fixture(scope="module")
def with_an_empty_first() -> Story:
    return conversation(NamespacePlayer(), UNKNOWN_ID, UNKNOWN_MEMBER)


def test_what_the_first_namespace_has_makes_no_difference(with_an_empty_first: Story) -> None:
    player = NamespacePlayer(seed=2)
    first = First(player)
    before = first.everything()
    story = conversation(player, first.hidden_id, first.member_id)
    for told, expected in zip(story.answers, with_an_empty_first.answers, strict=True):
        assert told == expected
    assert first.everything() == before, "and nothing there has changed"


MAY_LOOK_UP_NAMES = {
    "alter_configs.py",
    "auto_creation.py",
    "describe_configs.py",
    "group_handlers.py",
    "offset_handlers.py",
    "unregister_broker.py",
    "update_features.py",
}
"""Handlers that look into the image by names that are inside, or at all topics of the cell."""


def test_handlers_find_topics_through_the_resolvers() -> None:
    """Names in requests are the client's: looked up as if they were names inside, they would be
    those of another namespace."""
    direct = re.compile(r"image\.(topics_by_|topic\()|partitions\.\w+_by_name\(")
    room = Path(data_plane.broker.__file__ or "").parent
    handlers = [path for path in room.rglob("*.py") if "table: HandlerTable" in path.read_text()]
    assert len(handlers) > 20
    looking = {
        path.name
        for path in handlers
        for line in path.read_text().splitlines()
        if direct.search(line)
    }
    assert looking <= MAY_LOOK_UP_NAMES


def test_every_api_is_asked_in_every_version(with_an_empty_first: Story) -> None:
    asked: dict[ApiKey, set[int]] = {}
    for api_key, version, _ in with_an_empty_first.answers:
        asked.setdefault(api_key, set()).add(version)
    for entry in NamespacePlayer().services.handlers.entries():
        if entry.api_key not in PHYSICAL:
            versions = set(range(entry.min_version, entry.max_version + 1))
            assert asked.get(entry.api_key) == versions, entry.api_key.name


def test_a_group_is_coordinated_where_its_tenant_and_name_belong() -> None:
    player = NamespacePlayer()
    player.second.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "x"))
    player.register(OTHER_NODE_ID)
    player.change_partition("__consumer_offsets", 1, replicas=(OTHER_NODE_ID,))
    groups = [f"group {number}" for number in range(20)]
    answer = player.second.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, *groups))
    leaders = (NODE_ID, OTHER_NODE_ID)
    tenant_id = player.services.image.tenants[SECOND].tenant_id
    assert [(found.key, found.node_id) for found in answer.coordinators] == [
        (group, leaders[partition_for_group(tenant_id, group, 2)]) for group in groups
    ]


def test_what_a_group_subscribes_to_is_meant_in_its_namespace() -> None:
    """Offsets of topics that members consume are not deleted, nor do they expire."""
    player = NamespacePlayer()
    client = player.second
    client.ask(ApiKey.CREATE_TOPICS, 7, created("orders", "other"))
    client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "g"))
    member_id = client.ask(ApiKey.JOIN_GROUP, 9, join("g")).member_id
    client.ask(ApiKey.JOIN_GROUP, 9, join("g", member_id))
    client.ask(ApiKey.SYNC_GROUP, 5, sync("g", member_id, 1, {member_id: b"all"}))
    offsets: Any = {("orders", 0): 1, ("other", 0): 2}
    committed = commit("g", offsets, member_id=member_id, generation_id=1)
    client.ask(ApiKey.OFFSET_COMMIT, 9, committed)
    answer = client.ask(ApiKey.OFFSET_DELETE, 0, delete_offsets("g", {"orders": [0], "other": [0]}))
    assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        ("other", ErrorCode.NONE),
    ]


def test_what_is_wrong_with_records_is_said_with_the_clients_names() -> None:
    player = NamespacePlayer()
    client = player.second
    topic_id = client.ask(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].topic_id
    player.configure_topic("x", tenant=SECOND, cleanup_policy="compact", segment_bytes="1048576")
    (topic,) = client.ask(ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"no key")).responses
    (answer,) = topic.partition_responses
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "x-0" in answer.record_errors[0].batch_index_error_message
    player.configure_topic("x", tenant=SECOND, cleanup_policy="delete", max_message_bytes="2000000")
    large = produced(12, "x", topic_id, bytes(1 << 20))
    (topic,) = client.ask(ApiKey.PRODUCE, 12, large).responses
    (answer,) = topic.partition_responses
    assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert "partition x-0" in answer.error_message


def test_topics_that_are_made_because_somebody_asks_are_his() -> None:
    player = NamespacePlayer({"auto.create.topics.enable": "true"})
    player.create_topic("x.y")
    player.create_topic("both")
    # To the first namespace these would collide with its own.
    wanted = named(["x_y", "both"])
    for _ in range(2):
        answer = player.second.ask(ApiKey.METADATA, 12, wanted)
        player.run_jobs()
    assert {topic.name: topic.error_code for topic in answer.topics} == {"x_y": 0, "both": 0}
    assert set(player.services.image.topics_of(SECOND)) == {"x_y", "both"}
    assert {"x.y", "both"} <= set(player.services.image.topics_of("default"))


@pytest.mark.parametrize(
    ("api_key", "version", "make", "items"),
    [
        (ApiKey.METADATA, 12, lambda names: named(names, creates=False), "topics"),
        (ApiKey.LIST_OFFSETS, 7, lambda names: listed_offsets(*names), "topics"),
        (ApiKey.DESCRIBE_CONFIGS, 2, lambda names: described_configs(TOPIC, *names), "results"),
        (ApiKey.DESCRIBE_GROUPS, 5, lambda names: DescribeGroupsRequest(groups=names), "groups"),
        (ApiKey.DELETE_GROUPS, 2, lambda names: DeleteGroupsRequest(groups_names=names), "results"),
        (ApiKey.FIND_COORDINATOR, 4, lambda names: coordinators(4, *names), "coordinators"),
    ],
)
def test_requests_that_are_handled_in_slices(
    api_key: ApiKey, version: int, make: Callable[[list[str]], Any], items: str
) -> None:
    player = NamespacePlayer()
    client = player.second
    client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    client.ask(ApiKey.FIND_COORDINATOR, 6, coordinators(6, "x"))
    others = [f"none-{number:030}" for number in range(1000)]
    small = client.ask(api_key, version, make(["x", others[0]]))
    large = client.ask(api_key, version, make(["x", *others]))
    assert len(getattr(large, items)) == 1001
    for one in getattr(small, items):
        assert one in getattr(large, items)


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_that_is_handled_in_slices(version: int) -> None:
    player = NamespacePlayer()
    player.create_topic("x")
    client = player.second
    made = client.ask(ApiKey.CREATE_TOPICS, 7, created("x"))
    topic_id = made.topics[0].topic_id
    client.ask(ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"second"))
    small = fetched(version, "x", topic_id)
    large = fetched(version, "x", topic_id)
    for index in range(2000):
        unknown = fetched(version, f"none-{index:040}", UUID(int=index + 1))
        large.topics.append(unknown.topics[0])
    pending = client.send(ApiKey.FETCH, version, large)
    answer = client.take(pending)
    expected = client.ask(ApiKey.FETCH, version, small)
    assert answer.responses[0] == expected.responses[0]
    assert values_of(answer.responses[0].partitions[0].records) == [(0, b"second")]
    assert len(answer.responses) == 2001


def test_a_fetch_session_goes_on_in_its_namespace() -> None:
    """Its topics are named once, and answered under the names that the client knows."""
    player = NamespacePlayer()
    player.create_topic("x")
    client = player.second
    topic_id = client.ask(ApiKey.CREATE_TOPICS, 7, created("x")).topics[0].topic_id
    opening = fetched(12, "x", topic_id)
    opening.session_epoch = 0
    session_id = client.ask(ApiKey.FETCH, 12, opening).session_id
    assert session_id
    player.produce("x", [b"first"])
    client.ask(ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"second"))
    following = fetched(12, "x", topic_id)
    following.session_id, following.session_epoch, following.topics = session_id, 1, []
    (topic,) = client.ask(ApiKey.FETCH, 12, following).responses
    assert topic.topic == "x"
    assert values_of(topic.partitions[0].records) == [(0, b"second")]
    leaving = fetched(12, "x", topic_id)
    leaving.session_id, leaving.session_epoch, leaving.topics = session_id, 2, []
    leaving.forgotten_topics_data = [fetch_request.ForgottenTopic(topic="x", partitions=[0])]
    client.ask(ApiKey.FETCH, 12, leaving)
    client.ask(ApiKey.PRODUCE, 12, produced(12, "x", topic_id, b"unseen"))
    following.session_epoch = 3
    assert client.ask(ApiKey.FETCH, 12, following).responses == []
