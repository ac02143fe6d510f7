"""ElectLeaders (0 to 2), AlterPartitionReassignments (0 and 1), ListPartitionReassignments (0).

With one broker there is never another replica to elect or to move to: these answer what Apache
Kafka answers with one node, so that admin clients and tools get on. Reassignments that would
change anything name a broker that is not there, and are refused.
"""

from __future__ import annotations

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.placement import check_manual_assignment, registered_brokers
from data_plane.broker.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from data_plane.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest
from data_plane.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from data_plane.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)
from data_plane.wire.registry import ApiKey

ELECT_MIN_VERSION, ELECT_MAX_VERSION = 0, 2
ALTER_MIN_VERSION, ALTER_MAX_VERSION = 0, 1
LIST_MIN_VERSION, LIST_MAX_VERSION = 0, 0
PREFERRED, UNCLEAN = 0, 1


def handle_elect_leaders(
    services: Services, context: RequestContext, request: ElectLeadersRequest, now_ms: int
) -> ElectLeadersResponse:
    if request.topic_partitions is None:
        # All partitions: those that need no election are not named.
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=name) for name in services.image.topics_by_name
            ]
        )
    unknown_type = request.election_type not in (PREFERRED, UNCLEAN)
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                _election(services, topic.topic, index, request.election_type)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions
    ]
    return ElectLeadersResponse(
        error_code=int(ErrorCode.INVALID_REQUEST if unknown_type else ErrorCode.NONE),
        replica_election_results=results,
    )


def _election(services: Services, name: str, index: int, election_type: int) -> PartitionResult:
    topic = services.image.topic(name)
    if election_type not in (PREFERRED, UNCLEAN):
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    elif topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"No such partition as {name}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=int(code), error_message=message)


def handle_alter_partition_reassignments(
    services: Services,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    now_ms: int,
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassignment(services, topic.name, partition) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassignment(
    services: Services, name: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_message=None
    )
    try:
        _check_reassignment(services, name, wanted)
    except Refusal as refusal:
        response.error_code = int(refusal.code)
        response.error_message = refusal.message
    return response


def _check_reassignment(services: Services, name: str, wanted: ReassignablePartition) -> None:
    """Raises Refusal, except for the one assignment that there can be, which is in force."""
    topic = services.image.topic(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= wanted.partition_index < len(topic.partitions):
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{wanted.partition_index}.",
        )
    if wanted.replicas is None:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    check_manual_assignment(wanted.replicas, registered_brokers(services, services.image))


def handle_list_partition_reassignments(
    services: Services,
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
    now_ms: int,
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.ELECT_LEADERS, ELECT_MIN_VERSION, ELECT_MAX_VERSION, handle_elect_leaders)
    table.register(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ALTER_MIN_VERSION,
        ALTER_MAX_VERSION,
        handle_alter_partition_reassignments,
    )
    table.register(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        LIST_MIN_VERSION,
        LIST_MAX_VERSION,
        handle_list_partition_reassignments,
    )
