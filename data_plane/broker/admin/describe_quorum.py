"""DescribeQuorum, versions 0 to 2: who decides about metadata.

There is no quorum here but a metadata store, and a controller that holds a lease in it. Tools that
look at a cluster's health ask for this before anything else, so it is told in their words: the
controller leads in the epoch of its lease, the live brokers are voters, since each may be the next
one, and the log is the sequence of metadata commits. How far other brokers have followed it is not
known here: -1.
"""

from __future__ import annotations

from data_plane.broker.cell.cell_view import controller_id, controller_of, live_brokers
from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.topic_names import METADATA_TOPIC
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
UNKNOWN = -1


def handle_describe_quorum(
    services: Services, context: RequestContext, request: DescribeQuorumRequest, now_ms: int
) -> DescribeQuorumResponse:
    wanted = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]
    if wanted == [(METADATA_TOPIC, [0])]:
        return _the_quorum(services, services.wall_clock.wall_ms(now_ms))
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


def _the_quorum(services: Services, wall_ms: int) -> DescribeQuorumResponse:
    # Commits are the records of this log: after commit n its end is n + 1, as an offset would be.
    log_end_offset = services.image.version + 1
    brokers = live_brokers(services)
    voters = [
        ReplicaState(
            replica_id=broker.node_id,
            log_end_offset=log_end_offset,
            last_fetch_timestamp=wall_ms,
            last_caught_up_timestamp=wall_ms,
        )
        if broker.node_id == services.node_id
        else ReplicaState(replica_id=broker.node_id, log_end_offset=UNKNOWN)
        for broker in brokers
    ]
    controller = controller_of(services)
    lease = None if controller is None else controller.lease
    partition = PartitionData(
        leader_id=controller_id(services),
        leader_epoch=0 if lease is None else lease.epoch,
        high_watermark=log_end_offset,
        current_voters=voters,
    )
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=broker.node_id,
                listeners=[Listener(name="PLAINTEXT", host=broker.host, port=broker.port)],
            )
            for broker in brokers
        ],
    )


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_QUORUM, MIN_VERSION, MAX_VERSION, handle_describe_quorum)
