"""AlterPartitionReassignments (0 and 1) and ListPartitionReassignments (0).

What is committed here is the wish: the replicas to be added and to be removed. Any broker may do
that, as with other administrative requests. Followers copy, leaders take them into the ISR, and
the controller ends it (data_plane/cell/reassignment.py). Each partition is decided by itself, those
that pass are committed together. Errors and words are Apache Kafka's (4.3, KRaft).
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.request.topic_names import quoted_name
from data_plane.broker.services import Services
from data_plane.broker.topics.requested_replicas import check_manual_assignment, registered_brokers
from data_plane.cell.changes import Change
from data_plane.cell.metadata import BrokerImage, MetadataImage, PartitionImage, TopicImage
from data_plane.cell.partitions_draft import PartitionsDraft, Place
from data_plane.cell.reassignment import cancel, is_reassigning, start, target_of
from data_plane.cell.virtual_topics import own_index, shown_count, source_name
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
from data_plane.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from data_plane.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from data_plane.wire.registry import ApiKey

ALTER_MIN_VERSION, ALTER_MAX_VERSION = 0, 1
LIST_MIN_VERSION, LIST_MAX_VERSION = 0, 0


def handle_alter_partition_reassignments(
    services: Services,
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    now_ms: int,
) -> Deferred[AlterPartitionReassignmentsResponse]:
    deferred: Deferred[AlterPartitionReassignmentsResponse] = Deferred()
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
    )

    def decide(image: MetadataImage) -> Sequence[Change]:
        brokers = registered_brokers(services, image)
        topics = context.cell_topics.within(image)
        draft = PartitionsDraft(image)
        may_change_factor = request.allow_replication_factor_change
        response.responses = [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _alter(draft, topics, brokers, topic.name, wanted, may_change_factor)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return draft.changes()

    def done(error: BaseException | None) -> None:
        if error is not None:
            refusal = commit_refusal(error)
            response.error_code = int(refusal.code)
            response.error_message = refusal.message
            response.responses = []
        deferred.complete(response)

    services.metadata.write(decide, done, author=context.author)
    return deferred


def _alter(
    draft: PartitionsDraft,
    topics: Topics,
    brokers: dict[int, BrokerImage],
    name: str,
    wanted: ReassignablePartition,
    may_change_factor: bool,
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_message=None
    )
    try:
        place = _find(topics, name, wanted.partition_index)
        old = draft.get(place)
        new = _reassigned(old, wanted.replicas, brokers, may_change_factor)
    except Refusal as refusal:
        response.error_code = int(refusal.code)
        response.error_message = refusal.message
    else:
        if new != old:
            draft.put(place, new)
    return response


def _find(topics: Topics, name: str, index: int) -> Place:
    """Raises Refusal."""
    topic = topics.by_name(name)
    if topic is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a topic named {quoted_name(name)}.",
        )
    source = source_name(topic)
    if source and 0 <= index < shown_count(topic):
        verb = "goes with" if index % 2 else "is"
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{name}-{index} {verb} {source}-{index // 2}: reassign that.",
        )
    if 0 <= index < len(topic.partitions):
        return Place(topic, index)
    raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")


def _reassigned(
    partition: PartitionImage,
    replicas: Sequence[int] | None,
    brokers: dict[int, BrokerImage],
    may_change_factor: bool,
) -> PartitionImage:
    """Raises Refusal."""
    if replicas is None:
        cancelled = cancel(partition)
        if cancelled is None:
            raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
        return cancelled
    target = check_manual_assignment(replicas, brokers)
    factor = len(target_of(partition))
    if not may_change_factor and len(target) != factor:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )
    return start(partition, target)


def handle_list_partition_reassignments(
    services: Services,
    context: RequestContext,
    request: ListPartitionReassignmentsRequest,
    now_ms: int,
) -> ListPartitionReassignmentsResponse:
    topics = context.cell_topics
    response = ListPartitionReassignmentsResponse(error_message=None)
    if not context.may_see_cell:
        # To a tenant nothing is ever moved.
        return response
    if request.topics is None:
        asked: list[tuple[TopicImage, Sequence[int]]] = [
            (topic, range(shown_count(topic))) for topic in topics.all()
        ]
    else:
        asked = [
            (topic, wanted.partition_indexes)
            for wanted in request.topics
            if (topic := topics.by_name(wanted.name)) is not None
        ]
    for topic, indexes in asked:
        ongoing = _ongoing(topic, indexes)
        if ongoing:
            name = topics.name_of(topic)
            response.topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return response


def _ongoing(topic: TopicImage, indexes: Sequence[int]) -> list[OngoingPartitionReassignment]:
    ongoing = []
    for index in indexes:
        own = own_index(topic, index)
        if own is None:
            continue
        partition = topic.partitions[own]
        if is_reassigning(partition):
            ongoing.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    return ongoing


def register(table: HandlerTable) -> None:
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
