"""What the generator must be told: which messages to write, and what kio's schemas leave out."""

from __future__ import annotations

from typing import Final

API_KEYS: Final[tuple[int, ...]] = (
    *range(4),
    *range(8, 38),
    *range(42, 52),
    55,
    57,
    60,
    61,
    64,
    65,
    66,
    68,
    69,
    *range(71, 73),
    *range(74, 80),
    *range(90, 93),
)
"""The APIs that clients use. What brokers and controllers of Kafka say to each other in KRaft,
delegation tokens and streams groups are left out."""

DATA_SCHEMAS: Final = ("consumer_protocol_subscription", "consumer_protocol_assignment")
"""Messages that belong to no API: what consumers put into JoinGroup and SyncGroup."""

DEFAULTS: Final[dict[tuple[str, str, str], object]] = {
    ("consumer_group_heartbeat_request", "ConsumerGroupHeartbeatRequest", "topic_partitions"): None,
    (
        "list_partition_reassignments_request",
        "ListPartitionReassignmentsRequest",
        "topics",
    ): None,
}
"""Defaults where kio 0.6.5 differs from Kafka 4.3: (module, struct, field) to default."""

IGNORABLE: Final[frozenset[tuple[str, str, str]]] = frozenset(
    {
        ("api_versions_request", "ApiVersionsRequest", "client_software_name"),
        ("api_versions_request", "ApiVersionsRequest", "client_software_version"),
        ("delete_topics_request", "DeleteTopicsRequest", "topic_names"),
        ("fetch_request", "FetchPartition", "current_leader_epoch"),
        ("fetch_request", "FetchPartition", "high_watermark"),
        ("fetch_request", "FetchPartition", "log_start_offset"),
        ("fetch_request", "FetchPartition", "replica_directory_id"),
        ("fetch_request", "FetchRequest", "cluster_id"),
        ("fetch_request", "FetchRequest", "rack_id"),
        ("fetch_request", "FetchRequest", "session_epoch"),
        ("fetch_request", "FetchRequest", "session_id"),
        ("fetch_request", "FetchTopic", "topic"),
        ("fetch_request", "FetchTopic", "topic_id"),
        ("fetch_request", "ForgottenTopic", "topic"),
        ("fetch_request", "ForgottenTopic", "topic_id"),
        ("join_group_request", "JoinGroupRequest", "reason"),
        ("join_group_request", "JoinGroupRequest", "rebalance_timeout_ms"),
        ("leave_group_request", "MemberIdentity", "reason"),
        ("list_offsets_request", "ListOffsetsPartition", "current_leader_epoch"),
        ("list_offsets_request", "ListOffsetsRequest", "timeout_ms"),
        ("metadata_request", "MetadataRequestTopic", "topic_id"),
        ("offset_commit_request", "OffsetCommitRequest", "retention_time_ms"),
        ("offset_commit_request", "OffsetCommitRequestPartition", "committed_leader_epoch"),
        ("offset_commit_request", "OffsetCommitRequestTopic", "name"),
        ("offset_commit_request", "OffsetCommitRequestTopic", "topic_id"),
        ("offset_fetch_request", "OffsetFetchRequestGroup", "member_epoch"),
        ("offset_fetch_request", "OffsetFetchRequestGroup", "member_id"),
        ("offset_fetch_request", "OffsetFetchRequestTopics", "name"),
        ("offset_fetch_request", "OffsetFetchRequestTopics", "topic_id"),
        ("offset_for_leader_epoch_request", "OffsetForLeaderEpochRequest", "replica_id"),
        ("produce_request", "TopicProduceData", "name"),
        ("produce_request", "TopicProduceData", "topic_id"),
        ("share_fetch_request", "ShareFetchRequest", "share_acquire_mode"),
        ("sync_group_request", "SyncGroupRequest", "protocol_name"),
        ("sync_group_request", "SyncGroupRequest", "protocol_type"),
        ("txn_offset_commit_request", "TxnOffsetCommitRequestPartition", "committed_leader_epoch"),
        ("write_txn_markers_request", "WritableTxnMarker", "transaction_version"),
    }
)
"""Request fields that are dropped silently in versions that lack them: (module, struct, field).
kio does not carry this flag. All response fields count as ignorable, so that a handler may fill
in everything it knows whatever the version; in a request, a value that the version cannot carry
is an error unless it is listed here."""
