"""Guards of requests that need something of the cluster as a whole: all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from data_plane.broker.request.api import Guard, RequestContext
from data_plane.broker.request.frames import new_response
from data_plane.broker.request.guards import Answered
from data_plane.cell.acls import AclOperation, AclResourceType
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from data_plane.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from data_plane.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from data_plane.wire.messages.init_producer_id_response import InitProducerIdResponse
from data_plane.wire.registry import API_BY_KEY

FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def nothing_needed(context: RequestContext, request: Any) -> None:
    """For what everybody may ask, and for handlers that ask by themselves."""


def needs(
    operation: int,
    refused: Callable[[RequestContext, Any], Any] | None = None,
    *,
    is_physical: bool = False,
) -> Guard:
    """Without this the answer is what `refused` makes; else one with an error code at its top, and
    with the words for it where there is room. What is physical is the cell's: no tenant's ACLs or
    super users give it to anybody (`RequestContext.may_see_cell`)."""

    def guard(context: RequestContext, request: Any) -> Any:
        is_elsewhere = is_physical and not context.may_see_cell
        if not is_elsewhere and context.may_to_cluster(operation):
            return None
        return Answered((refused or _failed)(context, request))

    return guard


def _failed(context: RequestContext, request: Any) -> Any:
    response = new_response(API_BY_KEY[context.api_key])
    response.error_code = int(FAILED)
    if hasattr(response, "error_message"):
        response.error_message = FAILED.message
    return response


def _no_log_dirs(context: RequestContext, request: Any) -> AlterReplicaLogDirsResponse:
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            by_topic.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(FAILED))
                for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def _no_election(context: RequestContext, request: Any) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=int(FAILED),
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=int(FAILED), error_message=FAILED.message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _no_reassignment(context: RequestContext, request: Any) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=int(FAILED),
        error_message=FAILED.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=int(FAILED),
                        error_message=FAILED.message,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


describe: Final = needs(AclOperation.DESCRIBE)
alter_cell: Final = needs(AclOperation.ALTER, is_physical=True)
describe_configs: Final = needs(AclOperation.DESCRIBE_CONFIGS)
alter_replica_log_dirs: Final = needs(AclOperation.ALTER, _no_log_dirs, is_physical=True)
describe_cell: Final = needs(AclOperation.DESCRIBE, is_physical=True)
elect_leaders: Final = needs(AclOperation.ALTER, _no_election, is_physical=True)
alter_partition_reassignments: Final = needs(AclOperation.ALTER, _no_reassignment, is_physical=True)


def init_producer_id(context: RequestContext, request: Any) -> Any:
    """Who may write to any topic may do so idempotently. So may who reads one: the commands of
    those who read a subscription are produced, too."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if context.may(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
            return None
    else:
        error = FAILED
        rights = context.names.rights
        if context.may_to_cluster(AclOperation.IDEMPOTENT_WRITE) or any(
            rights.may_somewhere(
                context.principal, context.client_host, operation, AclResourceType.TOPIC
            )
            for operation in (AclOperation.WRITE, AclOperation.READ)
        ):
            return None
    return Answered(
        InitProducerIdResponse(error_code=int(error), producer_id=-1, producer_epoch=-1)
    )
