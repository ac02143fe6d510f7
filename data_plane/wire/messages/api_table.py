"""Keys and versions of the APIs.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """Kafka's keys of APIs that have codecs here; from 20000 on our own."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    DESCRIBE_DELAYED = 20000


API_TABLE: tuple[tuple[ApiKey, str, int, int, int], ...] = (
    (ApiKey.PRODUCE, "Produce", 3, 13, 9),
    (ApiKey.FETCH, "Fetch", 4, 18, 12),
    (ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 6),
    (ApiKey.METADATA, "Metadata", 0, 13, 9),
    (ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 8),
    (ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 6),
    (ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
    (ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6),
    (ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4),
    (ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
    (ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4),
    (ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
    (ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3),
    (ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, 32767),
    (ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3),
    (ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 5),
    (ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
    (ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
    (ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 2),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3),
    (ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
    (ApiKey.END_TXN, "EndTxn", 0, 5, 3),
    (ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
    (ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2),
    (ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 2),
    (ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 2),
    (ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4),
    (ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2),
    (ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    (ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
    (ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
    (ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    (ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, 32767),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
    (ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    (ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
    (ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0),
    (ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
    (ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    (ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0),
    (ApiKey.PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0),
    (ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
    (ApiKey.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1, 1),
    (ApiKey.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1, 1),
    (ApiKey.SHARE_FETCH, "ShareFetch", 1, 2, 1),
    (ApiKey.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 1, 2, 1),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 0),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0),
    (ApiKey.DESCRIBE_DELAYED, "DescribeDelayed", 0, 0, 0),
)
"""Key, name, first version, last version, first flexible version (32767: never)."""
