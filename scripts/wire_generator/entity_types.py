"""What strings and ids of the messages mean: the names of topics, groups and transactional ids
among them, which a namespace gives to its clients.

Kafka's schemas mark most fields that carry such a name (`entityType`). This module holds what they
fail to mark, and says of every other string why it is none: a string field that no table here knows
fails a test, so that a new message cannot bring a name that no test of isolation looks at.

The messages that members of a group send to each other (facts.DATA_SCHEMAS) are opaque: they stand
in bytes fields, in the words of the clients, and are not rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TOPIC: Final = "topicName"
GROUP: Final = "groupId"
TRANSACTIONAL_ID: Final = "transactionalId"
BROKER: Final = "brokerId"
PRODUCER: Final = "producerId"
PRINCIPAL: Final = "principal"
PATTERN: Final = "pattern"
TEXT: Final = "text"

Place = tuple[str, str, str]
"""Module, struct and field."""


@dataclass(frozen=True, slots=True)
class ByType:
    """A field whose meaning stands in another one: `selector` of the same struct, or of the
    request that a response answers."""

    selector: str
    entities: tuple[tuple[int, str], ...]
    is_of_request: bool = False


COORDINATOR_KEY: Final = ((0, GROUP), (1, TRANSACTIONAL_ID))
"""By `key_type`. Keys of share partitions (2) are not served."""
CONFIG_RESOURCE: Final = ((2, TOPIC), (32, GROUP))
"""By `resource_type`; the others are brokers, their loggers, and client metrics."""

BY_TYPE: Final[Mapping[Place, ByType]] = {
    ("find_coordinator_request", "FindCoordinatorRequest", "key"): ByType(
        "key_type", COORDINATOR_KEY
    ),
    ("find_coordinator_request", "FindCoordinatorRequest", "coordinator_keys"): ByType(
        "key_type", COORDINATOR_KEY
    ),
    ("find_coordinator_response", "Coordinator", "key"): ByType(
        "key_type", COORDINATOR_KEY, is_of_request=True
    ),
    **{
        (module, struct, "resource_name"): ByType("resource_type", CONFIG_RESOURCE)
        for module, struct in (
            ("describe_configs_request", "DescribeConfigsResource"),
            ("describe_configs_response", "DescribeConfigsResult"),
            ("alter_configs_request", "AlterConfigsResource"),
            ("alter_configs_response", "AlterConfigsResourceResponse"),
            ("incremental_alter_configs_request", "AlterConfigsResource"),
            ("incremental_alter_configs_response", "AlterConfigsResourceResponse"),
            ("list_config_resources_response", "ConfigResource"),
        )
    },
}
"""Names that the schemas do not mark, because the same field may carry something else."""

PATTERNS: Final[Mapping[Place, str]] = dict.fromkeys(
    (
        ("describe_acls_request", "DescribeAclsRequest", "resource_name_filter"),
        ("describe_acls_response", "DescribeAclsResource", "resource_name"),
        ("create_acls_request", "AclCreation", "resource_name"),
        ("delete_acls_request", "DeleteAclsFilter", "resource_name_filter"),
        ("delete_acls_response", "DeleteAclsMatchingAcl", "resource_name"),
        ("list_transactions_request", "ListTransactionsRequest", "transactional_id_pattern"),
        (
            "consumer_group_heartbeat_request",
            "ConsumerGroupHeartbeatRequest",
            "subscribed_topic_regex",
        ),
        ("consumer_group_describe_response", "Member", "subscribed_topic_regex"),
    ),
    PATTERN,
)
"""Prefixes, wildcards and regular expressions. They are kept as the client wrote them and compared
with the names that the client uses; there is no inside form of them."""

PRINCIPALS: Final[Mapping[Place, str]] = dict.fromkeys(
    (
        ("describe_acls_request", "DescribeAclsRequest", "principal_filter"),
        ("describe_acls_response", "AclDescription", "principal"),
        ("create_acls_request", "AclCreation", "principal"),
        ("delete_acls_request", "DeleteAclsFilter", "principal_filter"),
        ("delete_acls_response", "DeleteAclsMatchingAcl", "principal"),
        ("describe_client_quotas_request", "ComponentData", "match"),
        ("describe_client_quotas_response", "EntityData", "entity_name"),
        ("alter_client_quotas_request", "EntityData", "entity_name"),
        ("alter_client_quotas_response", "EntityData", "entity_name"),
        ("describe_user_scram_credentials_request", "UserName", "name"),
        ("describe_user_scram_credentials_response", "DescribeUserScramCredentialsResult", "user"),
        ("alter_user_scram_credentials_request", "ScramCredentialDeletion", "name"),
        ("alter_user_scram_credentials_request", "ScramCredentialUpsertion", "name"),
        ("alter_user_scram_credentials_response", "AlterUserScramCredentialsResult", "user"),
    ),
    PRINCIPAL,
)
"""Who somebody is. The schemas mark none of them. (Quotas also have client ids there.)"""

TEXT_FIELDS: Final = frozenset(
    {
        "acknowledge_error_message",
        "assignor_name",
        "batch_index_error_message",
        "client_host",
        "client_id",
        "client_software_name",
        "client_software_version",
        "cluster_id",
        "committed_metadata",
        "configuration_keys",
        "documentation",
        "entity_type",
        "error_message",
        "feature",
        "group_instance_id",
        "group_state",
        "group_type",
        "host",
        "host_filter",
        "instance_id",
        "log_dir",
        "mechanism",
        "mechanisms",
        "member_id",
        "path",
        "protocol_data",
        "protocol_name",
        "protocol_type",
        "rack",
        "rack_id",
        "reason",
        "server_assignor",
        "state_filters",
        "states_filter",
        "transaction_state",
        "types_filter",
        "unknown_state_filters",
    }
)
"""Fields that carry no name in any message. Handlers word error messages with the names that the
client uses."""

TEXTS: Final[Mapping[Place, str]] = dict.fromkeys(
    (
        ("offset_fetch_response", "OffsetFetchResponsePartition", "metadata"),
        ("offset_fetch_response", "OffsetFetchResponsePartitions", "metadata"),
        ("join_group_request", "JoinGroupRequestProtocol", "name"),
        ("join_group_response", "JoinGroupResponse", "leader"),
        (
            "get_telemetry_subscriptions_response",
            "GetTelemetrySubscriptionsResponse",
            "requested_metrics",
        ),
        ("api_versions_response", "SupportedFeatureKey", "name"),
        ("api_versions_response", "FinalizedFeatureKey", "name"),
        ("create_topics_request", "CreatableTopicConfig", "name"),
        ("create_topics_request", "CreatableTopicConfig", "value"),
        ("create_topics_response", "CreatableTopicConfigs", "name"),
        ("create_topics_response", "CreatableTopicConfigs", "value"),
        ("describe_configs_response", "DescribeConfigsSynonym", "name"),
        ("describe_configs_response", "DescribeConfigsSynonym", "value"),
        ("describe_configs_response", "DescribeConfigsResourceResult", "name"),
        ("describe_configs_response", "DescribeConfigsResourceResult", "value"),
        ("alter_configs_request", "AlterableConfig", "name"),
        ("alter_configs_request", "AlterableConfig", "value"),
        ("incremental_alter_configs_request", "AlterableConfig", "name"),
        ("incremental_alter_configs_request", "AlterableConfig", "value"),
        ("describe_client_quotas_response", "ValueData", "key"),
        ("alter_client_quotas_request", "OpData", "key"),
        ("create_acls_request", "AclCreation", "host"),
        ("describe_quorum_response", "Listener", "name"),
    ),
    TEXT,
)
"""Fields that carry no name here, though others of the same name do. A topic configuration that
names another topic would have to be told apart by its own name, in the handlers of
configurations."""


def unmarked(place: Place, kind: str) -> str | ByType | None:
    """What a field means that Kafka's schemas do not mark. None: nobody has said."""
    if place in BY_TYPE:
        return BY_TYPE[place]
    if place in PATTERNS:
        return PATTERN
    if place in PRINCIPALS:
        return PRINCIPAL
    if place in TEXTS or (kind == "string" and place[2] in TEXT_FIELDS):
        return TEXT
    return None
