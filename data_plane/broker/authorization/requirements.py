"""What each API needs, as Apache Kafka 4 has it: docs/security.md shows it as a table, and a test
holds the two to each other.

An API that is not here is closed to everybody who may not do everything; a test fails when one is
advertised.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from data_plane.broker.authorization import cluster_guards, group_guards, topic_guards
from data_plane.broker.request.api import Guard
from data_plane.wire.registry import ApiKey


class Requirement(NamedTuple):
    """`needed`: operation and resource, as people read it; `refusal`: the error code without it."""

    needed: str
    refusal: str
    guard: Guard


TOPIC: Final = "TOPIC_AUTHORIZATION_FAILED"
GROUP: Final = "GROUP_AUTHORIZATION_FAILED"
CLUSTER: Final = "CLUSTER_AUTHORIZATION_FAILED"
TRANSACTIONAL_ID: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

# Their handlers ask by themselves, for the sake of their bytes.
_itself: Final = cluster_guards.nothing_needed
_nothing: Final = Requirement("nothing", "", cluster_guards.nothing_needed)

REQUIREMENTS: Final[dict[ApiKey, Requirement]] = {
    ApiKey.PRODUCE: Requirement(
        "WRITE topic; READ subscription; transactional records WRITE transactional id",
        TOPIC,
        _itself,
    ),
    ApiKey.FETCH: Requirement(
        "READ topic, asked again when it has waited; a follower has to come from a broker",
        TOPIC,
        _itself,
    ),
    ApiKey.LIST_OFFSETS: Requirement("DESCRIBE topic", TOPIC, topic_guards.list_offsets),
    ApiKey.METADATA: Requirement(
        "DESCRIBE topic, all topics are those; a new topic CREATE topic or cluster", TOPIC, _itself
    ),
    ApiKey.OFFSET_COMMIT: Requirement(
        "READ group, READ topic", f"{GROUP}, {TOPIC}", group_guards.offset_commit
    ),
    ApiKey.OFFSET_FETCH: Requirement(
        "DESCRIBE group, DESCRIBE topic", f"{GROUP}, {TOPIC}", group_guards.offset_fetch
    ),
    ApiKey.FIND_COORDINATOR: Requirement("DESCRIBE group", GROUP, group_guards.find_coordinator),
    ApiKey.JOIN_GROUP: Requirement("READ group", GROUP, group_guards.join_group),
    ApiKey.HEARTBEAT: Requirement("READ group", GROUP, group_guards.heartbeat),
    ApiKey.LEAVE_GROUP: Requirement("READ group", GROUP, group_guards.leave_group),
    ApiKey.SYNC_GROUP: Requirement("READ group", GROUP, group_guards.sync_group),
    ApiKey.DESCRIBE_GROUPS: Requirement("DESCRIBE group", GROUP, group_guards.describe_groups),
    ApiKey.LIST_GROUPS: Requirement(
        "DESCRIBE group, or DESCRIBE cluster for all",
        "others are left out",
        group_guards.list_groups,
    ),
    ApiKey.API_VERSIONS: _nothing,
    ApiKey.SASL_HANDSHAKE: _nothing,
    ApiKey.SASL_AUTHENTICATE: _nothing,
    ApiKey.CREATE_TOPICS: Requirement(
        "CREATE topic or cluster; to be told its configurations DESCRIBE_CONFIGS topic",
        TOPIC,
        _itself,
    ),
    ApiKey.DELETE_TOPICS: Requirement("DELETE topic", TOPIC, topic_guards.delete_topics),
    ApiKey.DELETE_RECORDS: Requirement("DELETE topic", TOPIC, topic_guards.delete_records),
    ApiKey.INIT_PRODUCER_ID: Requirement(
        "IDEMPOTENT_WRITE cluster, or WRITE or READ any topic; with a transactional id WRITE that",
        f"{CLUSTER}, {TRANSACTIONAL_ID}",
        cluster_guards.init_producer_id,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Requirement(
        "DESCRIBE topic, or CLUSTER_ACTION cluster", TOPIC, topic_guards.offset_for_leader_epoch
    ),
    ApiKey.DESCRIBE_ACLS: Requirement("DESCRIBE cluster", CLUSTER, _itself),
    ApiKey.CREATE_ACLS: Requirement("ALTER cluster", CLUSTER, _itself),
    ApiKey.DELETE_ACLS: Requirement("ALTER cluster", CLUSTER, _itself),
    ApiKey.DESCRIBE_CONFIGS: Requirement(
        "DESCRIBE_CONFIGS topic, group, or cluster for brokers and client metrics",
        f"{TOPIC}, {GROUP}, {CLUSTER}",
        _itself,
    ),
    ApiKey.ALTER_CONFIGS: Requirement(
        "ALTER_CONFIGS topic, group, or cluster for brokers and client metrics",
        f"{TOPIC}, {GROUP}, {CLUSTER}",
        _itself,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Requirement(
        "ALTER_CONFIGS topic, group, or cluster for brokers and client metrics",
        f"{TOPIC}, {GROUP}, {CLUSTER}",
        _itself,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Requirement(
        "ALTER cluster", CLUSTER, cluster_guards.alter_replica_log_dirs
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Requirement("DESCRIBE cluster", CLUSTER, cluster_guards.describe),
    ApiKey.CREATE_PARTITIONS: Requirement("ALTER topic", TOPIC, topic_guards.create_partitions),
    ApiKey.DELETE_GROUPS: Requirement("DELETE group", GROUP, group_guards.delete_groups),
    ApiKey.ELECT_LEADERS: Requirement("ALTER cluster", CLUSTER, cluster_guards.elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Requirement(
        "ALTER cluster", CLUSTER, cluster_guards.alter_partition_reassignments
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Requirement(
        "DESCRIBE cluster", CLUSTER, cluster_guards.describe
    ),
    ApiKey.OFFSET_DELETE: Requirement(
        "DELETE group, READ topic", f"{GROUP}, {TOPIC}", group_guards.offset_delete
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Requirement("DESCRIBE_CONFIGS cluster", CLUSTER, _itself),
    ApiKey.ALTER_CLIENT_QUOTAS: Requirement("ALTER_CONFIGS cluster", CLUSTER, _itself),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Requirement("DESCRIBE cluster", CLUSTER, _itself),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Requirement("ALTER cluster", CLUSTER, _itself),
    ApiKey.DESCRIBE_QUORUM: Requirement("DESCRIBE cluster", CLUSTER, cluster_guards.describe_cell),
    ApiKey.UPDATE_FEATURES: Requirement("ALTER cluster", CLUSTER, cluster_guards.alter_cell),
    ApiKey.DESCRIBE_CLUSTER: Requirement(
        "nothing; to be told the allowed operations DESCRIBE cluster", "", _itself
    ),
    ApiKey.DESCRIBE_PRODUCERS: Requirement("READ topic", TOPIC, topic_guards.describe_producers),
    ApiKey.UNREGISTER_BROKER: Requirement("ALTER cluster", CLUSTER, cluster_guards.alter_cell),
    ApiKey.LIST_CONFIG_RESOURCES: Requirement(
        "DESCRIBE_CONFIGS cluster", CLUSTER, cluster_guards.describe_configs
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _nothing,
    ApiKey.PUSH_TELEMETRY: _nothing,
    ApiKey.DESCRIBE_DELAYED: Requirement(
        "READ topic; what is to be cancelled WRITE topic", TOPIC, topic_guards.describe_delayed
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Requirement(
        "DESCRIBE topic, all topics are those", TOPIC, _itself
    ),
}

GUARDS: Final[dict[int, Guard]] = {
    int(api_key): requirement.guard for api_key, requirement in REQUIREMENTS.items()
}
