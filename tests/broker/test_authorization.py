"""What each API needs: the table of requirements, held to the docs, and to what is answered.

`requests` has each API that is advertised. They are asked by somebody who may do everything, by
somebody who may do what the table says and no more, and by somebody who may do nothing. The first
two hear the same; the third hears the error code of the table, whether there is such a thing or
not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from data_plane.broker.authorization.requirements import REQUIREMENTS
from data_plane.broker.request.api import HandlerTable
from data_plane.broker.request.authorizer import ALLOW_EVERYONE, SUPER_USERS
from data_plane.cell.acls import (
    NO_ACLS,
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
)
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages import describe_cluster_request, describe_quorum_request
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from data_plane.wire.messages.describe_delayed_request import DescribeDelayedRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from data_plane.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.leave_group_request import LeaveGroupRequest
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.messages.list_groups_request import ListGroupsRequest
from data_plane.wire.messages.push_telemetry_request import PushTelemetryRequest
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.messages.update_features_request import UpdateFeaturesRequest
from data_plane.wire.primitives import Message
from data_plane.wire.registry import ApiKey
from tests.broker import test_namespaces as story
from tests.broker.namespace_player import NamespacePlayer, Plain
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

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
HIDDEN, HIDDEN_GROUP = story.HIDDEN, story.HIDDEN_GROUP
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
NAMES = {
    "topic": (TOPIC, "*"),
    "group": (GROUP, "*"),
    "cluster": (CLUSTER, "kafka-cluster"),
    "transactional id": (AclResourceType.TRANSACTIONAL_ID, "*"),
}
# Requests that a broker which plays alone cannot be asked, for want of what else a server has.
ELSEWHERE = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


class World:
    """A broker with topics and groups, or without, and one who asks."""

    def __init__(self, *, is_empty: bool = False) -> None:
        self.player = NamespacePlayer()
        self.topic_id, self.member_id = UUID(int=1), "nobody"
        self.hidden_id = UUID(int=2)
        if not is_empty:
            first = story.First(self.player)
            self.topic_id, self.member_id = first.topic_id, first.member_id
            self.hidden_id = first.hidden_id
        self.plain = Plain(str(self.topic_id), self.member_id)

    def settings(self, **settings: str) -> None:
        cluster_id = self.player.services.image.cluster_id
        self.player.commit(PutTenant(TenantImage("default", cluster_id, settings=settings)))

    def grant(self, *acls: Acl) -> None:
        """He may do this and nothing else."""
        self.settings(**{ALLOW_EVERYONE: "false"})
        there = self.player.services.image.acls.get("default", NO_ACLS)
        if there.count:
            self.player.commit(RemoveAcls("default", tuple(there)))
        if acls:
            self.player.commit(AddAcls("default", acls))

    def make_super(self) -> None:
        self.settings(**{SUPER_USERS: "User:ANONYMOUS"})

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return self.player.first.ask(api_key, version, request)

    def versions(self, api_key: ApiKey) -> range:
        entry = self.player.services.handlers.get(api_key)
        assert entry is not None
        return range(entry.min_version, entry.max_version + 1)


def granted(needed: str) -> list[Acl]:
    """The ACLs that the words of the table ask for."""
    acls = []
    for operation, resources in re.findall(
        r"([A-Z_]{4,})((?:(?:, |, or | or | )(?:topic|group|cluster|transactional id))+)", needed
    ):
        for resource in re.findall("topic|group|cluster|transactional id", resources):
            kind, name = NAMES[resource]
            entry = AclEntry("User:ANONYMOUS", "*", AclOperation[operation], int(Permission.ALLOW))
            pattern = ResourcePattern(int(kind), int(PatternType.LITERAL), name)
            acls.append(Acl(pattern, entry))
    return acls


Maker = tuple[ApiKey, Callable[[int], Any]]


def requests(world: World) -> Iterator[tuple[ApiKey, int, Any]]:
    """Of each API, in each version, what names topics and groups; reads first, deletions last."""
    for api_key, make in [*of_records(world), *of_groups(world), *OF_ADMINISTRATORS]:
        for version in world.versions(api_key):
            yield api_key, version, make(version)


BOTH = ("x", HIDDEN)


def of_records(world: World) -> list[Maker]:
    return [
        (
            ApiKey.API_VERSIONS,
            lambda v: ApiVersionsRequest(client_software_name="a", client_software_version="1"),
        ),
        (ApiKey.PRODUCE, lambda v: story.produced(v, "x", world.topic_id, b"v")),
        (ApiKey.FETCH, lambda v: story.fetched(v, "x", world.topic_id)),
        (ApiKey.LIST_OFFSETS, lambda v: story.listed_offsets(*BOTH)),
        (ApiKey.METADATA, lambda v: story.named(BOTH)),
        (ApiKey.METADATA, lambda v: story.named(None) if v else story.named([])),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda v: story.epoch_ends(*BOTH)),
        (ApiKey.DESCRIBE_PRODUCERS, lambda v: story.producers(*BOTH)),
        (ApiKey.DESCRIBE_DELAYED, lambda v: DescribeDelayedRequest(topic="x", messages_max=1)),
        (ApiKey.DESCRIBE_DELAYED, lambda v: DescribeDelayedRequest(topic=HIDDEN)),
        (ApiKey.DESCRIBE_DELAYED, lambda v: DescribeDelayedRequest(topic="x", is_to_cancel=True)),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda v: story.pages(*BOTH)),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda v: story.pages()),
        (ApiKey.INIT_PRODUCER_ID, lambda v: InitProducerIdRequest(transactional_id="t")),
    ]


def of_groups(world: World) -> list[Maker]:
    member = world.member_id
    offsets: Any = {("x", 0): 3, (HIDDEN, 0): 4}
    named: Any = {"x": [0], HIDDEN: [0]}
    by_id: Any = {world.topic_id: [0], world.hidden_id: [0]}
    ids: Any = {(world.topic_id, 0): 3, (world.hidden_id, 0): 4}

    def fetched_offsets(version: int) -> Any:
        if version < 8:
            return old_fetch("g", named)
        return fetch("g", by_id if version >= 10 else named)

    def all_offsets(version: int) -> Any:
        if version < 2:
            return old_fetch("g", named)
        return old_fetch("g", None) if version < 8 else fetch("g")

    def left(version: int) -> Any:
        if version < 3:
            return LeaveGroupRequest(group_id="g", member_id=member)
        return leave("g", (member, None))

    return [
        (ApiKey.FIND_COORDINATOR, lambda v: story.coordinators(v, "g", HIDDEN_GROUP)),
        (ApiKey.OFFSET_FETCH, fetched_offsets),
        (ApiKey.OFFSET_FETCH, all_offsets),
        (ApiKey.JOIN_GROUP, lambda v: join("g", member)),
        (ApiKey.SYNC_GROUP, lambda v: sync("g", member, 1)),
        (ApiKey.HEARTBEAT, lambda v: heartbeat("g", member, 1)),
        (
            ApiKey.OFFSET_COMMIT,
            lambda v: commit("g", ids if v >= 10 else offsets, member_id=member, generation_id=1),
        ),
        (
            ApiKey.DESCRIBE_GROUPS,
            lambda v: DescribeGroupsRequest(
                groups=["g", HIDDEN_GROUP], include_authorized_operations=False
            ),
        ),
        (ApiKey.LIST_GROUPS, lambda v: ListGroupsRequest()),
        (ApiKey.OFFSET_DELETE, lambda v: delete_offsets("g", named)),
        (ApiKey.LEAVE_GROUP, left),
        (ApiKey.DELETE_GROUPS, lambda v: DeleteGroupsRequest(groups_names=["g", HIDDEN_GROUP])),
    ]


OF_ADMINISTRATORS: list[Maker] = [
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda v: DescribeUserScramCredentialsRequest(users=None),
    ),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda v: AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="nobody", mechanism=1)]
        ),
    ),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda v: DescribeClientQuotasRequest()),
    (ApiKey.ALTER_CLIENT_QUOTAS, lambda v: story.quota_of("nobody", None)),
    (
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        lambda v: GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=7)),
    ),
    (
        ApiKey.PUSH_TELEMETRY,
        lambda v: PushTelemetryRequest(client_instance_id=UUID(int=7), subscription_id=0),
    ),
    (ApiKey.DESCRIBE_CLUSTER, lambda v: describe_cluster_request.DescribeClusterRequest()),
    (
        ApiKey.DESCRIBE_QUORUM,
        lambda v: describe_quorum_request.DescribeQuorumRequest(
            topics=[
                describe_quorum_request.TopicData(
                    topic_name="x",
                    partitions=[describe_quorum_request.PartitionData(partition_index=0)],
                )
            ]
        ),
    ),
    (ApiKey.DESCRIBE_CONFIGS, lambda v: story.described_configs(2, *BOTH)),
    (ApiKey.DESCRIBE_CONFIGS, lambda v: story.described_configs(32, "g", HIDDEN_GROUP)),
    (ApiKey.DESCRIBE_CONFIGS, lambda v: story.described_configs(4, "")),
    (
        ApiKey.LIST_CONFIG_RESOURCES,
        lambda v: ListConfigResourcesRequest(resource_types=[2] if v else []),
    ),
    (ApiKey.DESCRIBE_LOG_DIRS, lambda v: story.log_dirs()),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, lambda v: story.moved_dirs(*BOTH)),
    (ApiKey.ELECT_LEADERS, lambda v: story.elected(*BOTH)),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda v: story.reassigned(*BOTH)),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda v: story.reassignments()),
    (ApiKey.UNREGISTER_BROKER, lambda v: UnregisterBrokerRequest(broker_id=77)),
    (ApiKey.UPDATE_FEATURES, lambda v: UpdateFeaturesRequest()),
    (ApiKey.ALTER_CONFIGS, lambda v: story.altered(2, "x")),
    (ApiKey.ALTER_CONFIGS, lambda v: story.altered(32, "g")),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda v: story.incremented(2, "x")),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda v: story.incremented(32, "g")),
    (ApiKey.CREATE_TOPICS, lambda v: story.created("x", HIDDEN, validate_only=v > 0)),
    (ApiKey.CREATE_PARTITIONS, lambda v: story.more_partitions(*BOTH)),
    (ApiKey.DELETE_RECORDS, lambda v: story.deleted_records(*BOTH)),
    (ApiKey.DELETE_TOPICS, lambda v: story.deleted(v, *BOTH)),
    (ApiKey.DESCRIBE_ACLS, lambda v: DescribeAclsRequest(**story.EVERY_ACL)),
    (ApiKey.CREATE_ACLS, lambda v: story.granted("x", "User:alice")),
    (
        ApiKey.DELETE_ACLS,
        lambda v: DeleteAclsRequest(
            filters=[DeleteAclsFilter(**{**story.EVERY_ACL, "resource_name_filter": "none"})]
        ),
    ),
]


# The same for all, so that a request can be made for a world and asked in another one.
def walk(world: World, *, rights: str) -> list[tuple[ApiKey, int, Any]]:
    answers = []
    for api_key, version, request in requests(world):
        if rights == "all":
            world.make_super()
        else:
            needed = REQUIREMENTS[api_key].needed
            world.grant(*(granted(needed) if rights == "needed" else ()))
        answers.append((api_key, version, world.ask(api_key, version, request)))
    return answers


def codes(value: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(value, Message):
        for name in value.__slots__:
            if name in ("error_code", "topic_config_error_code"):
                yield getattr(value, name)
            else:
                yield from codes(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from codes(item)


AUTHORIZATION = {int(code) for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED")}


def test_who_may_what_the_table_says_hears_what_everybody_hears() -> None:
    everybody, he = World(), World()
    told = walk(he, rights="needed")
    expected = walk(everybody, rights="all")
    for (api_key, version, answer), (_, _, whole) in zip(told, expected, strict=True):
        if api_key in (ApiKey.DESCRIBE_ACLS, ApiKey.API_VERSIONS):
            # He sees his own grants, and these made the metadata newer.
            assert answer.error_code == 0
            continue
        for topic in (*answer.topics, *whole.topics) if hasattr(answer, "topics") else ():
            if hasattr(topic, "topic_authorized_operations"):
                # DescribeTopicPartitions always tells what each may do.
                topic.topic_authorized_operations = 0
        assert he.plain.of(answer) == everybody.plain.of(whole), (api_key.name, version)
        if api_key not in (ApiKey.INIT_PRODUCER_ID,):
            assert not AUTHORIZATION.intersection(codes(answer)), (api_key.name, version)


def test_who_may_nothing_is_refused_and_learns_nothing() -> None:
    full, empty = World(), World(is_empty=True)
    told, told_of_nothing = walk(full, rights="none"), walk(empty, rights="none")
    before = full.player.services.image
    for (api_key, version, answer), (_, _, other) in zip(told, told_of_nothing, strict=True):
        refusal = REQUIREMENTS[api_key].refusal
        allowed = {
            int(ErrorCode[name]) for name in re.findall(r"\w+_AUTHORIZATION_FAILED", refusal)
        }
        found = set(codes(answer)) - {0}
        assert found <= allowed, (api_key.name, version, found)
        knows_ids = (
            (api_key is ApiKey.PRODUCE and version >= 13)
            or (api_key is ApiKey.FETCH and version >= 13)
            or (api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH) and version >= 10)
        )
        if allowed and not knows_ids:
            is_empty_list = api_key is ApiKey.METADATA or api_key in (
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                ApiKey.DESCRIBE_LOG_DIRS,
            )
            assert found or is_empty_list, (api_key.name, version)
            assert Plain().of(answer) == Plain().of(other), (api_key.name, version)
    assert full.player.services.image.topics_by_id == before.topics_by_id


def test_every_api_that_is_advertised_has_a_requirement_and_a_request() -> None:
    world = World(is_empty=True)
    table: HandlerTable = world.player.services.handlers
    asked = {api_key for api_key, _, _ in requests(world)}
    for entry in table.entries():
        assert entry.api_key in REQUIREMENTS, entry.api_key.name
        assert entry.api_key in asked | ELSEWHERE, entry.api_key.name


def test_the_docs_have_the_table() -> None:
    rows = re.findall(r"^\| (\w+) \| ([^|]*) \| ([^|]*) \|$", DOCS.read_text(), re.MULTILINE)
    documented = {
        name: (needed, refusal)
        for name, needed, refusal in rows
        if name.isupper() and name in ApiKey.__members__
    }
    assert documented == {
        api_key.name: (requirement.needed, requirement.refusal or "none")
        for api_key, requirement in REQUIREMENTS.items()
    }


def test_an_api_without_a_rule_is_closed() -> None:
    world = World(is_empty=True)
    world.grant()
    del world.player.services.handlers.guards[int(ApiKey.LIST_GROUPS)]
    with pytest.raises(Exception, match="no rule that says who may use it"):
        world.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
