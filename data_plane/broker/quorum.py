"""DescribeQuorum, versions 0 to 2: who decides about metadata.

With one broker that is the broker itself: a quorum of one voter, whose log is the sequence of
metadata commits. Tools that look at a cluster's health ask for this before anything else.
"""

from __future__ import annotations

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_quorum_request import DescribeQuorumRequest
from data_plane.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
METADATA_TOPIC = "__cluster_metadata"


def handle_describe_quorum(
    services: Services, context: RequestContext, request: DescribeQuorumRequest, now_ms: int
) -> DescribeQuorumResponse:
    wanted = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    if wanted == [(METADATA_TOPIC, [0])]:
        return _the_quorum(services, now_ms)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=name,
                partitions=[
                    PartitionData(
                        partition_index=index, error_code=int(code), error_message=code.message
                    )
                    for index in indexes
                ],
            )
            for name, indexes in wanted
        ]
    )


def _the_quorum(services: Services, now_ms: int) -> DescribeQuorumResponse:
    # Commits are the records of this log: after commit n its end is n + 1, as an offset would be.
    log_end_offset = services.image.version + 1
    voter = ReplicaState(
        replica_id=services.node_id,
        log_end_offset=log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = PartitionData(
        leader_id=services.node_id,
        leader_epoch=0,
        high_watermark=log_end_offset,
        current_voters=[voter],
    )
    listener = Listener(
        name="PLAINTEXT", host=services.advertised_host, port=services.advertised_port
    )
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[Node(node_id=services.node_id, listeners=[listener])],
    )


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_QUORUM, MIN_VERSION, MAX_VERSION, handle_describe_quorum)
