"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended, so that a client or follower can
find the place at which its log and the leader's part (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.partition_errors import check_leader_epoch
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from data_plane.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION = 2
MAX_VERSION = 4


def handle_offset_for_leader_epoch(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest, now_ms: int
) -> OffsetForLeaderEpochResponse:
    is_refused = request.replica_id >= 0 and not context.connection.is_inter_broker
    topics = []
    for topic in request.topics:
        topic_id = context.topics.id_of(topic.topic)
        partitions = []
        for wanted in topic.partitions:
            if is_refused:
                answer = EpochEndOffset(
                    partition=wanted.partition,
                    error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
                )
            else:
                try:
                    answer = _answer(services, context.tenant, topic.topic, topic_id, wanted)
                except LogError as error:
                    answer = EpochEndOffset(
                        partition=wanted.partition, error_code=int(error.error_code)
                    )
            partitions.append(answer)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(
    services: Services,
    tenant: str,
    topic: str,
    topic_id: bytes,
    wanted: OffsetForLeaderPartition,
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    projections = services.projections
    partition = projections.leading(tenant, topic, topic_id, wanted.partition)
    if partition is None or partition.leader_error is not ErrorCode.NONE:
        error = projections.error(
            tenant, topic, topic_id, wanted.partition, wanted.current_leader_epoch
        )
        answer.error_code = int(error)
        return answer
    error = check_leader_epoch(partition.leader_epoch, wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        answer.error_code = int(error)
        return answer
    answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    return answer


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, MIN_VERSION, MAX_VERSION, handle_offset_for_leader_epoch
    )
