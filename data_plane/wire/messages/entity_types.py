"""What the strings and ids in the messages mean.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from typing import Final

ENTITY_TYPES: Final[dict[str, dict[str, str]]] = {
    "produce_request": {
        "TopicProduceData.name": "topicName",
        "ProduceRequest.transactional_id": "transactionalId",
    },
    "produce_response": {
        "LeaderIdAndEpoch.leader_id": "brokerId",
        "TopicProduceResponse.name": "topicName",
        "NodeEndpoint.node_id": "brokerId",
    },
    "fetch_request": {
        "ReplicaState.replica_id": "brokerId",
        "FetchTopic.topic": "topicName",
        "ForgottenTopic.topic": "topicName",
        "FetchRequest.replica_id": "brokerId",
    },
    "fetch_response": {
        "LeaderIdAndEpoch.leader_id": "brokerId",
        "AbortedTransaction.producer_id": "producerId",
        "PartitionData.preferred_read_replica": "brokerId",
        "FetchableTopicResponse.topic": "topicName",
        "NodeEndpoint.node_id": "brokerId",
    },
    "list_offsets_request": {
        "ListOffsetsTopic.name": "topicName",
        "ListOffsetsRequest.replica_id": "brokerId",
    },
    "list_offsets_response": {
        "ListOffsetsTopicResponse.name": "topicName",
    },
    "metadata_request": {
        "MetadataRequestTopic.name": "topicName",
    },
    "metadata_response": {
        "MetadataResponseBroker.node_id": "brokerId",
        "MetadataResponsePartition.leader_id": "brokerId",
        "MetadataResponsePartition.replica_nodes": "brokerId",
        "MetadataResponsePartition.isr_nodes": "brokerId",
        "MetadataResponsePartition.offline_replicas": "brokerId",
        "MetadataResponseTopic.name": "topicName",
        "MetadataResponse.controller_id": "brokerId",
    },
    "offset_commit_request": {
        "OffsetCommitRequestTopic.name": "topicName",
        "OffsetCommitRequest.group_id": "groupId",
    },
    "offset_commit_response": {
        "OffsetCommitResponseTopic.name": "topicName",
    },
    "offset_fetch_request": {
        "OffsetFetchRequestTopic.name": "topicName",
        "OffsetFetchRequestTopics.name": "topicName",
        "OffsetFetchRequestGroup.group_id": "groupId",
        "OffsetFetchRequest.group_id": "groupId",
    },
    "offset_fetch_response": {
        "OffsetFetchResponseTopic.name": "topicName",
        "OffsetFetchResponseTopics.name": "topicName",
        "OffsetFetchResponseGroup.group_id": "groupId",
    },
    "find_coordinator_request": {
        "FindCoordinatorRequest.key": "by key_type: 0 groupId, 1 transactionalId",
        "FindCoordinatorRequest.coordinator_keys": "by key_type: 0 groupId, 1 transactionalId",
    },
    "find_coordinator_response": {
        "Coordinator.key": "by key_type: 0 groupId, 1 transactionalId",
        "Coordinator.node_id": "brokerId",
        "FindCoordinatorResponse.node_id": "brokerId",
    },
    "join_group_request": {
        "JoinGroupRequest.group_id": "groupId",
    },
    "heartbeat_request": {
        "HeartbeatRequest.group_id": "groupId",
    },
    "leave_group_request": {
        "LeaveGroupRequest.group_id": "groupId",
    },
    "sync_group_request": {
        "SyncGroupRequest.group_id": "groupId",
    },
    "describe_groups_request": {
        "DescribeGroupsRequest.groups": "groupId",
    },
    "describe_groups_response": {
        "DescribedGroup.group_id": "groupId",
    },
    "list_groups_response": {
        "ListedGroup.group_id": "groupId",
    },
    "create_topics_request": {
        "CreatableReplicaAssignment.broker_ids": "brokerId",
        "CreatableTopic.name": "topicName",
    },
    "create_topics_response": {
        "CreatableTopicResult.name": "topicName",
    },
    "delete_topics_request": {
        "DeleteTopicState.name": "topicName",
        "DeleteTopicsRequest.topic_names": "topicName",
    },
    "delete_topics_response": {
        "DeletableTopicResult.name": "topicName",
    },
    "delete_records_request": {
        "DeleteRecordsTopic.name": "topicName",
    },
    "delete_records_response": {
        "DeleteRecordsTopicResult.name": "topicName",
    },
    "init_producer_id_request": {
        "InitProducerIdRequest.transactional_id": "transactionalId",
        "InitProducerIdRequest.producer_id": "producerId",
    },
    "init_producer_id_response": {
        "InitProducerIdResponse.producer_id": "producerId",
        "InitProducerIdResponse.ongoing_txn_producer_id": "producerId",
    },
    "offset_for_leader_epoch_request": {
        "OffsetForLeaderTopic.topic": "topicName",
        "OffsetForLeaderEpochRequest.replica_id": "brokerId",
    },
    "offset_for_leader_epoch_response": {
        "OffsetForLeaderTopicResult.topic": "topicName",
    },
    "add_partitions_to_txn_request": {
        "AddPartitionsToTxnTopic.name": "topicName",
        "AddPartitionsToTxnTransaction.transactional_id": "transactionalId",
        "AddPartitionsToTxnTransaction.producer_id": "producerId",
        "AddPartitionsToTxnRequest.v3_and_below_transactional_id": "transactionalId",
        "AddPartitionsToTxnRequest.v3_and_below_producer_id": "producerId",
    },
    "add_partitions_to_txn_response": {
        "AddPartitionsToTxnTopicResult.name": "topicName",
        "AddPartitionsToTxnResult.transactional_id": "transactionalId",
    },
    "add_offsets_to_txn_request": {
        "AddOffsetsToTxnRequest.transactional_id": "transactionalId",
        "AddOffsetsToTxnRequest.producer_id": "producerId",
        "AddOffsetsToTxnRequest.group_id": "groupId",
    },
    "end_txn_request": {
        "EndTxnRequest.transactional_id": "transactionalId",
        "EndTxnRequest.producer_id": "producerId",
    },
    "end_txn_response": {
        "EndTxnResponse.producer_id": "producerId",
    },
    "write_txn_markers_request": {
        "WritableTxnMarkerTopic.name": "topicName",
        "WritableTxnMarker.producer_id": "producerId",
    },
    "write_txn_markers_response": {
        "WritableTxnMarkerTopicResult.name": "topicName",
        "WritableTxnMarkerResult.producer_id": "producerId",
    },
    "txn_offset_commit_request": {
        "TxnOffsetCommitRequestTopic.name": "topicName",
        "TxnOffsetCommitRequest.transactional_id": "transactionalId",
        "TxnOffsetCommitRequest.group_id": "groupId",
        "TxnOffsetCommitRequest.producer_id": "producerId",
    },
    "txn_offset_commit_response": {
        "TxnOffsetCommitResponseTopic.name": "topicName",
    },
    "describe_acls_request": {
        "DescribeAclsRequest.resource_name_filter": "pattern",
        "DescribeAclsRequest.principal_filter": "principal",
    },
    "describe_acls_response": {
        "AclDescription.principal": "principal",
        "DescribeAclsResource.resource_name": "pattern",
    },
    "create_acls_request": {
        "AclCreation.resource_name": "pattern",
        "AclCreation.principal": "principal",
    },
    "delete_acls_request": {
        "DeleteAclsFilter.resource_name_filter": "pattern",
        "DeleteAclsFilter.principal_filter": "principal",
    },
    "delete_acls_response": {
        "DeleteAclsMatchingAcl.resource_name": "pattern",
        "DeleteAclsMatchingAcl.principal": "principal",
    },
    "describe_configs_request": {
        "DescribeConfigsResource.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "describe_configs_response": {
        "DescribeConfigsResult.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "alter_configs_request": {
        "AlterConfigsResource.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "alter_configs_response": {
        "AlterConfigsResourceResponse.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "alter_replica_log_dirs_request": {
        "AlterReplicaLogDirTopic.name": "topicName",
    },
    "alter_replica_log_dirs_response": {
        "AlterReplicaLogDirTopicResult.topic_name": "topicName",
    },
    "describe_log_dirs_request": {
        "DescribableLogDirTopic.topic": "topicName",
    },
    "describe_log_dirs_response": {
        "DescribeLogDirsTopic.name": "topicName",
    },
    "create_partitions_request": {
        "CreatePartitionsAssignment.broker_ids": "brokerId",
        "CreatePartitionsTopic.name": "topicName",
    },
    "create_partitions_response": {
        "CreatePartitionsTopicResult.name": "topicName",
    },
    "delete_groups_request": {
        "DeleteGroupsRequest.groups_names": "groupId",
    },
    "delete_groups_response": {
        "DeletableGroupResult.group_id": "groupId",
    },
    "elect_leaders_request": {
        "TopicPartitions.topic": "topicName",
    },
    "elect_leaders_response": {
        "ReplicaElectionResult.topic": "topicName",
    },
    "incremental_alter_configs_request": {
        "AlterConfigsResource.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "incremental_alter_configs_response": {
        "AlterConfigsResourceResponse.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "alter_partition_reassignments_request": {
        "ReassignablePartition.replicas": "brokerId",
        "ReassignableTopic.name": "topicName",
    },
    "alter_partition_reassignments_response": {
        "ReassignableTopicResponse.name": "topicName",
    },
    "list_partition_reassignments_request": {
        "ListPartitionReassignmentsTopics.name": "topicName",
    },
    "list_partition_reassignments_response": {
        "OngoingPartitionReassignment.replicas": "brokerId",
        "OngoingPartitionReassignment.adding_replicas": "brokerId",
        "OngoingPartitionReassignment.removing_replicas": "brokerId",
        "OngoingTopicReassignment.name": "topicName",
    },
    "offset_delete_request": {
        "OffsetDeleteRequestTopic.name": "topicName",
        "OffsetDeleteRequest.group_id": "groupId",
    },
    "offset_delete_response": {
        "OffsetDeleteResponseTopic.name": "topicName",
    },
    "describe_client_quotas_request": {
        "ComponentData.match": "principal",
    },
    "describe_client_quotas_response": {
        "EntityData.entity_name": "principal",
    },
    "alter_client_quotas_request": {
        "EntityData.entity_name": "principal",
    },
    "alter_client_quotas_response": {
        "EntityData.entity_name": "principal",
    },
    "describe_user_scram_credentials_request": {
        "UserName.name": "principal",
    },
    "describe_user_scram_credentials_response": {
        "DescribeUserScramCredentialsResult.user": "principal",
    },
    "alter_user_scram_credentials_request": {
        "ScramCredentialDeletion.name": "principal",
        "ScramCredentialUpsertion.name": "principal",
    },
    "alter_user_scram_credentials_response": {
        "AlterUserScramCredentialsResult.user": "principal",
    },
    "describe_quorum_request": {
        "TopicData.topic_name": "topicName",
    },
    "describe_quorum_response": {
        "ReplicaState.replica_id": "brokerId",
        "PartitionData.leader_id": "brokerId",
        "TopicData.topic_name": "topicName",
        "Node.node_id": "brokerId",
    },
    "describe_cluster_response": {
        "DescribeClusterBroker.broker_id": "brokerId",
        "DescribeClusterResponse.controller_id": "brokerId",
    },
    "describe_producers_request": {
        "TopicRequest.name": "topicName",
    },
    "describe_producers_response": {
        "ProducerState.producer_id": "producerId",
        "TopicResponse.name": "topicName",
    },
    "unregister_broker_request": {
        "UnregisterBrokerRequest.broker_id": "brokerId",
    },
    "describe_transactions_request": {
        "DescribeTransactionsRequest.transactional_ids": "transactionalId",
    },
    "describe_transactions_response": {
        "TopicData.topic": "topicName",
        "TransactionState.transactional_id": "transactionalId",
        "TransactionState.producer_id": "producerId",
    },
    "list_transactions_request": {
        "ListTransactionsRequest.producer_id_filters": "producerId",
        "ListTransactionsRequest.transactional_id_pattern": "pattern",
    },
    "list_transactions_response": {
        "TransactionState.transactional_id": "transactionalId",
        "TransactionState.producer_id": "producerId",
    },
    "consumer_group_heartbeat_request": {
        "ConsumerGroupHeartbeatRequest.group_id": "groupId",
        "ConsumerGroupHeartbeatRequest.subscribed_topic_names": "topicName",
        "ConsumerGroupHeartbeatRequest.subscribed_topic_regex": "pattern",
    },
    "consumer_group_describe_request": {
        "ConsumerGroupDescribeRequest.group_ids": "groupId",
    },
    "consumer_group_describe_response": {
        "TopicPartitions.topic_name": "topicName",
        "Member.subscribed_topic_names": "topicName",
        "Member.subscribed_topic_regex": "pattern",
        "DescribedGroup.group_id": "groupId",
    },
    "list_config_resources_response": {
        "ConfigResource.resource_name": "by resource_type: 2 topicName, 32 groupId",
    },
    "describe_topic_partitions_request": {
        "TopicRequest.name": "topicName",
        "Cursor.topic_name": "topicName",
    },
    "describe_topic_partitions_response": {
        "DescribeTopicPartitionsResponsePartition.leader_id": "brokerId",
        "DescribeTopicPartitionsResponsePartition.replica_nodes": "brokerId",
        "DescribeTopicPartitionsResponsePartition.isr_nodes": "brokerId",
        "DescribeTopicPartitionsResponsePartition.eligible_leader_replicas": "brokerId",
        "DescribeTopicPartitionsResponsePartition.last_known_elr": "brokerId",
        "DescribeTopicPartitionsResponsePartition.offline_replicas": "brokerId",
        "DescribeTopicPartitionsResponseTopic.name": "topicName",
        "Cursor.topic_name": "topicName",
    },
    "share_group_heartbeat_request": {
        "ShareGroupHeartbeatRequest.group_id": "groupId",
        "ShareGroupHeartbeatRequest.subscribed_topic_names": "topicName",
    },
    "share_group_describe_request": {
        "ShareGroupDescribeRequest.group_ids": "groupId",
    },
    "share_group_describe_response": {
        "TopicPartitions.topic_name": "topicName",
        "Member.subscribed_topic_names": "topicName",
        "DescribedGroup.group_id": "groupId",
    },
    "share_fetch_request": {
        "ShareFetchRequest.group_id": "groupId",
    },
    "share_fetch_response": {
        "NodeEndpoint.node_id": "brokerId",
    },
    "share_acknowledge_request": {
        "ShareAcknowledgeRequest.group_id": "groupId",
    },
    "share_acknowledge_response": {
        "NodeEndpoint.node_id": "brokerId",
    },
    "describe_share_group_offsets_request": {
        "DescribeShareGroupOffsetsRequestTopic.topic_name": "topicName",
        "DescribeShareGroupOffsetsRequestGroup.group_id": "groupId",
    },
    "describe_share_group_offsets_response": {
        "DescribeShareGroupOffsetsResponseTopic.topic_name": "topicName",
        "DescribeShareGroupOffsetsResponseGroup.group_id": "groupId",
    },
    "alter_share_group_offsets_request": {
        "AlterShareGroupOffsetsRequestTopic.topic_name": "topicName",
        "AlterShareGroupOffsetsRequest.group_id": "groupId",
    },
    "alter_share_group_offsets_response": {
        "AlterShareGroupOffsetsResponseTopic.topic_name": "topicName",
    },
    "delete_share_group_offsets_request": {
        "DeleteShareGroupOffsetsRequestTopic.topic_name": "topicName",
        "DeleteShareGroupOffsetsRequest.group_id": "groupId",
    },
    "delete_share_group_offsets_response": {
        "DeleteShareGroupOffsetsResponseTopic.topic_name": "topicName",
    },
    "consumer_protocol_subscription": {
        "TopicPartition.topic": "topicName",
    },
    "consumer_protocol_assignment": {
        "TopicPartition.topic": "topicName",
    },
    "describe_delayed_request": {
        "DescribeDelayedRequest.topic": "topicName",
    },
}
"""Message to field to meaning: Kafka's entity types, and what its schemas do not
mark (scripts/wire_generator/entity_types.py). Strings that do not stand here are
plain text."""
