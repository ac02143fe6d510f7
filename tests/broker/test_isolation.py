"""docs/tenants.md, asked for: what each API shows of other tenants and of the cell, and to whom.

The table there is read. For each of its rows, each version and each who asks, two brokers are asked
the same: one on which another tenant has topics, groups, members, users, ACLs, quotas and fetch
sessions, and one on which nobody has. Both answer in the same bytes, and nothing has changed.

`test_namespaces.py` has a tenant live through everything that it can have itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from data_plane.broker.request.principal import Principal
from data_plane.cell.credentials import Credential, PutCredential, ScramVerifier, login_of
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages import (
    alter_configs_request,
    describe_quorum_request,
    incremental_alter_configs_request,
)
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.describe_delayed_request import DescribeDelayedRequest
from data_plane.wire.messages.describe_groups_request import DescribeGroupsRequest
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
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
from data_plane.wire.registry import ApiKey
from tests.broker import test_namespaces as story
from tests.broker.broker_player import NODE_ID
from tests.broker.namespace_player import SECOND, Client, NamespacePlayer, Plain
from tests.broker.test_authorization import codes
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

DOCS = Path(__file__).parents[2] / "docs" / "tenants.md"
OPERATOR = "operator"
REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
HIDDEN, HIDDEN_GROUP = story.HIDDEN, story.HIDDEN_GROUP
# Requests that a broker which plays alone cannot be asked, for want of what else a server has.
ELSEWHERE = {"SASL_HANDSHAKE", "SASL_AUTHENTICATE"}
# What no tenant is told.
SECRETS = ("/data", "cell.operators", f"{SECOND}/", "offline")


class Row(NamedTuple):
    """Of the table."""

    label: str
    by_tenant: str
    by_default: str
    by_operator: str

    @property
    def api_key(self) -> ApiKey:
        return ApiKey[self.label.split()[0]]


def table() -> list[Row]:
    found = re.findall(
        r"^\| ([A-Z_]+(?: of [a-z ]+)?) \| ([a-z']+) \| ([a-z']+) \| ([a-z']+) \|$",
        DOCS.read_text(),
        re.MULTILINE,
    )
    return [Row(*columns) for columns in found if columns[0] != "API"]


ROWS = {row.label: row for row in table()}


@dataclass
class Theirs:
    """What another tenant calls its own; `topic` is how the one who asks would name it."""

    topic: str
    topic_id: UUID
    member_id: str
    session_id: int
    group: str = HIDDEN_GROUP
    user: str = "alice"
    # As a user, and as the login that he has in the cell.
    users: tuple[str, ...] = ("alice", login_of(SECOND, "alice"))


Maker = Callable[[int, Theirs], Any]


def altered_broker(module: Any, request: type[Any]) -> Any:
    config = module.AlterableConfig(name="log.cleaner.threads", value="2")
    resource = module.AlterConfigsResource(
        resource_type=4, resource_name=str(NODE_ID), configs=[config]
    )
    return request(resources=[resource], validate_only=True)


def of_session(version: int, their: Theirs) -> Any:
    request = story.fetched(version, their.topic, their.topic_id)
    if version >= 7:
        request.session_id, request.session_epoch, request.topics = their.session_id, 1, []
    return request


def committed(version: int, their: Theirs) -> Any:
    topic: Any = their.topic_id if version >= 10 else their.topic
    offsets: Any = {(topic, 0): 99}
    return commit(their.group, offsets, member_id=their.member_id, generation_id=1)


def fetched_offsets(version: int, their: Theirs) -> Any:
    if version < 8:
        return old_fetch(their.group, {their.topic: [0]})
    wanted: Any = {their.topic_id if version >= 10 else their.topic: [0]}
    return fetch(their.group, wanted)


def all_offsets(version: int, their: Theirs) -> Any:
    if version < 2:
        return old_fetch(their.group, {their.topic: [0]})
    return old_fetch(their.group, None) if version < 8 else fetch(their.group)


def left(version: int, their: Theirs) -> Any:
    if version < 3:
        return LeaveGroupRequest(group_id=their.group, member_id=their.member_id)
    return leave(their.group, (their.member_id, None))


def deleted_acls(version: int, their: Theirs) -> Any:
    wanted = {**story.EVERY_ACL, "resource_name_filter": their.topic}
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)])


def quorum(version: int, their: Theirs) -> Any:
    partition = describe_quorum_request.PartitionData(partition_index=0)
    topic = describe_quorum_request.TopicData(topic_name=their.topic, partitions=[partition])
    return describe_quorum_request.DescribeQuorumRequest(topics=[topic])


REQUESTS: dict[str, Maker] = {
    "API_VERSIONS": lambda v, _: ApiVersionsRequest(
        client_software_name="a", client_software_version="1"
    ),
    "GET_TELEMETRY_SUBSCRIPTIONS": lambda v, _: GetTelemetrySubscriptionsRequest(
        client_instance_id=UUID(int=5)
    ),
    "PUSH_TELEMETRY": lambda v, _: PushTelemetryRequest(client_instance_id=UUID(int=5)),
    "PRODUCE": lambda v, t: story.produced(v, t.topic, t.topic_id, b"no"),
    "FETCH": lambda v, t: story.fetched(v, t.topic, t.topic_id),
    "FETCH of a session": of_session,
    "LIST_OFFSETS": lambda v, t: story.listed_offsets(t.topic),
    "METADATA of names": lambda v, t: story.named([t.topic]),
    "METADATA of ids": lambda v, t: story.by_ids(t.topic_id) if v >= 12 else story.named(["no"]),
    "METADATA of all": lambda v, _: story.named(None) if v else story.named([]),
    "OFFSET_FOR_LEADER_EPOCH": lambda v, t: story.epoch_ends(t.topic),
    "INIT_PRODUCER_ID": lambda v, _: InitProducerIdRequest(transactional_id="t"),
    "DESCRIBE_PRODUCERS": lambda v, t: story.producers(t.topic),
    "DESCRIBE_DELAYED": lambda v, t: DescribeDelayedRequest(topic=t.topic, messages_max=1),
    "DESCRIBE_TOPIC_PARTITIONS of names": lambda v, t: story.pages(t.topic),
    "DESCRIBE_TOPIC_PARTITIONS of all": lambda v, _: story.pages(),
    "CREATE_TOPICS": lambda v, t: story.created(t.topic, "hidden.one", validate_only=True),
    "CREATE_PARTITIONS": lambda v, t: story.more_partitions(t.topic),
    "DELETE_RECORDS": lambda v, t: story.deleted_records(t.topic),
    "DELETE_TOPICS": lambda v, t: story.deleted(v, t.topic),
    "DELETE_TOPICS of ids": lambda v, t: (
        story.deleted_id(t.topic_id) if v >= 6 else story.deleted(v, "no")
    ),
    "DESCRIBE_CONFIGS of topics": lambda v, t: story.described_configs(2, t.topic),
    "DESCRIBE_CONFIGS of groups": lambda v, t: story.described_configs(32, t.group),
    "DESCRIBE_CONFIGS of brokers": lambda v, _: story.described_configs(4, str(NODE_ID)),
    "DESCRIBE_CONFIGS of loggers": lambda v, _: story.described_configs(8, str(NODE_ID)),
    "ALTER_CONFIGS of topics": lambda v, t: story.altered(2, t.topic),
    "ALTER_CONFIGS of groups": lambda v, t: story.altered(32, t.group),
    "ALTER_CONFIGS of brokers": lambda v, _: altered_broker(
        alter_configs_request, alter_configs_request.AlterConfigsRequest
    ),
    "INCREMENTAL_ALTER_CONFIGS of topics": lambda v, t: story.incremented(2, t.topic),
    "INCREMENTAL_ALTER_CONFIGS of groups": lambda v, t: story.incremented(32, t.group),
    "INCREMENTAL_ALTER_CONFIGS of brokers": lambda v, _: altered_broker(
        incremental_alter_configs_request,
        incremental_alter_configs_request.IncrementalAlterConfigsRequest,
    ),
    "LIST_CONFIG_RESOURCES": lambda v, _: ListConfigResourcesRequest(
        resource_types=[2, 32] if v else []
    ),
    "FIND_COORDINATOR": lambda v, t: story.coordinators(v, t.group),
    "JOIN_GROUP": lambda v, t: join(t.group, t.member_id),
    "SYNC_GROUP": lambda v, t: sync(t.group, t.member_id, 1),
    "HEARTBEAT": lambda v, t: heartbeat(t.group, t.member_id, 1),
    "LEAVE_GROUP": left,
    "OFFSET_COMMIT": committed,
    "OFFSET_FETCH": fetched_offsets,
    "OFFSET_FETCH of all": all_offsets,
    "OFFSET_DELETE": lambda v, t: delete_offsets(t.group, {t.topic: [0]}),
    "DESCRIBE_GROUPS": lambda v, t: DescribeGroupsRequest(groups=[t.group]),
    "LIST_GROUPS": lambda v, _: ListGroupsRequest(),
    "DELETE_GROUPS": lambda v, t: DeleteGroupsRequest(groups_names=[t.group]),
    "DESCRIBE_ACLS": lambda v, _: DescribeAclsRequest(**story.EVERY_ACL),
    "CREATE_ACLS": lambda v, t: story.granted(t.topic, "User:alice"),
    "DELETE_ACLS": deleted_acls,
    "DESCRIBE_USER_SCRAM_CREDENTIALS": lambda v, t: DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in t.users]
    ),
    "ALTER_USER_SCRAM_CREDENTIALS": lambda v, t: AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in t.users]
    ),
    "DESCRIBE_CLIENT_QUOTAS": lambda v, _: DescribeClientQuotasRequest(),
    "ALTER_CLIENT_QUOTAS": lambda v, t: story.quota_of(t.user, None),
    "DESCRIBE_CLUSTER": lambda v, _: DescribeClusterRequest(),
    "DESCRIBE_LOG_DIRS": lambda v, t: story.log_dirs(t.topic),
    "ALTER_REPLICA_LOG_DIRS": lambda v, t: story.moved_dirs(t.topic),
    "ALTER_PARTITION_REASSIGNMENTS": lambda v, t: story.reassigned(t.topic),
    "LIST_PARTITION_REASSIGNMENTS": lambda v, t: story.reassignments(),
    "ELECT_LEADERS": lambda v, t: story.elected(t.topic),
    "DESCRIBE_QUORUM": quorum,
    "UNREGISTER_BROKER": lambda v, _: UnregisterBrokerRequest(broker_id=77),
    "UPDATE_FEATURES": lambda v, _: UpdateFeaturesRequest(),
}


class World:
    """A broker, and one who asks; `other` has things there, or nothing."""

    def __init__(self, asker: str, *, is_empty: bool, has_operators: bool) -> None:
        operators = f"User:{OPERATOR}" if has_operators else ""
        self.player = player = NamespacePlayer({"cell.operators": operators})
        self.other = DEFAULT_TENANT if asker == SECOND else SECOND
        client = player.first if asker == SECOND else player.second
        self.asker = player.second if asker == SECOND else player.first
        if asker == OPERATOR:
            connection = player.connect()
            connection.principal = Principal("User", OPERATOR)
            self.asker = Client(player, connection)
        # What coordinates all groups is not made by the one or the other.
        player.first.ask(ApiKey.FIND_COORDINATOR, 6, story.coordinators(6, "g"))
        self.victim: story.First | None = None
        if not is_empty:
            self.victim = story.First(player, client, self.other)
            self._make_user()
            self.theirs = self._theirs(client)

    def _make_user(self) -> None:
        verifier = ScramVerifier(b"salt", bytes(32), bytes(32), 4096)
        login = login_of(self.other, "alice")
        credential = Credential(login, self.other, "alice", {"SCRAM-SHA-256": verifier})
        self.player.commit(PutCredential(credential))

    def _theirs(self, client: Client) -> Theirs:
        assert self.victim is not None
        opening = story.fetched(12, HIDDEN, self.victim.hidden_id)
        opening.session_epoch = 0
        session_id = client.ask(ApiKey.FETCH, 12, opening).session_id
        assert session_id
        return Theirs(HIDDEN, self.victim.hidden_id, self.victim.member_id, session_id)

    def versions(self, api_key: ApiKey) -> range:
        entry = self.player.services.handlers.get(api_key)
        assert entry is not None
        return range(entry.min_version, entry.max_version + 1)


def walk(world: World, labels: list[str], theirs: Theirs) -> Iterator[tuple[str, int, Any, bytes]]:
    for label in labels:
        api_key = ROWS[label].api_key
        for version in world.versions(api_key):
            request = REQUESTS[label](version, theirs)
            pending = world.asker.send(api_key, version, request)
            answer = world.asker.take(pending)
            assert pending.frames is not None
            yield label, version, answer, b"".join(map(bytes, pending.frames))


def words(asker: str, *, has_operators: bool) -> dict[str, str]:
    """What the table promises to who asks, by row."""
    if asker == OPERATOR:
        return {label: row.by_operator for label, row in ROWS.items()}
    if asker == SECOND:
        return {label: row.by_tenant for label, row in ROWS.items()}
    # With operators the others of `default` see no more of the cell than a tenant.
    return {
        label: row.by_tenant if has_operators else row.by_default for label, row in ROWS.items()
    }


ASKERS = pytest.mark.parametrize(
    ("asker", "has_operators"),
    [(SECOND, False), (SECOND, True), ("default", False), ("default", True), (OPERATOR, True)],
)


@ASKERS
def test_what_is_another_tenants_is_answered_as_what_is_not_there(
    asker: str, has_operators: bool
) -> None:
    promised = words(asker, has_operators=has_operators)
    labels = [
        label
        for label, word in promised.items()
        if word != "everybody's"
        and label in REQUESTS
        # Who sees the cell is told how often its metadata has changed.
        and (label, word) != ("API_VERSIONS", "cell")
    ]
    full = World(asker, is_empty=False, has_operators=has_operators)
    empty = World(asker, is_empty=True, has_operators=has_operators)
    assert full.victim is not None
    before = full.victim.everything()
    image = full.player.services.image
    told = walk(full, labels, full.theirs)
    expected = walk(empty, labels, full.theirs)
    for (label, version, answer, data), (_, _, other, other_data) in zip(
        told, expected, strict=True
    ):
        assert Plain().of(answer) == Plain().of(other), (label, version)
        if label != "CREATE_TOPICS":
            # In that one is the id that the new topic would have, which is drawn.
            assert data == other_data, (label, version)
    assert full.victim.everything() == before
    now = full.player.services.image
    assert now.topics_of(full.other) == image.topics_of(full.other)
    assert now.credentials == image.credentials
    assert now.client_quotas.get(full.other) == image.client_quotas.get(full.other)
    assert now.acls.get(full.other) == image.acls.get(full.other)
    session = full.player.services.fetches.cache._sessions[full.theirs.session_id]
    assert session.epoch == 1, "nobody has gone on with it"


@ASKERS
def test_what_is_promised_of_the_cell(asker: str, has_operators: bool) -> None:
    world = World(asker, is_empty=False, has_operators=has_operators)
    theirs = world.theirs
    # Something of his own.
    world.asker.ask(ApiKey.CREATE_TOPICS, 7, story.created("mine"))
    before = world.player.services.image
    for label, word in words(asker, has_operators=has_operators).items():
        if label not in REQUESTS or word in ("own", "alike"):
            continue
        mine = Theirs("mine", theirs.topic_id, "", 0)
        if word == "everybody's":
            mine = Theirs(f"{world.other}/{HIDDEN}", theirs.topic_id, "", 0)
        for _, version, answer, _ in walk(world, [label], mine):
            found = {code for code in codes(answer) if code}
            if word == "refused":
                assert found == {REFUSED}, (label, version)
                continue
            assert REFUSED not in found, (label, version)
            if word == "virtual":
                assert not found, (label, version)
                assert not [secret for secret in SECRETS if secret in repr(answer)], label
            if word == "everybody's":
                assert f"{SECOND}/{HIDDEN}" in repr(answer), (label, version)
                unknown = {int(ErrorCode.INVALID_TOPIC_EXCEPTION)}
                if label != "ELECT_LEADERS":
                    # It is asked for a partition that there is not, too.
                    unknown.add(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                assert not found & unknown, (label, version)
        if word in ("refused", "virtual"):
            assert world.player.services.image is before, label


def test_every_api_that_is_advertised_has_a_row_and_a_request() -> None:
    advertised = {entry.api_key.name for entry in NamespacePlayer().services.handlers.entries()}
    assert {row.api_key.name for row in ROWS.values()} == advertised | ELSEWHERE
    assert set(ROWS) == set(REQUESTS) | ELSEWHERE
    promises = {word for row in ROWS.values() for word in row[1:]}
    documented = set(re.findall(r"^\| ([a-z']+) \| [A-Za-z]", DOCS.read_text(), re.MULTILINE))
    assert promises <= documented
