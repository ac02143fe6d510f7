"""ElectLeaders, versions 0 to 2: leaders on request, preferred or, losing records, unclean.

Only the controller elects, because only it knows who is alive: clients send this request to it,
and another broker answers NOT_CONTROLLER. Outcomes and words are Apache Kafka's (4.3, KRaft).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from data_plane.broker.cell.cell_view import controller_of
from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.request.topic_names import quoted_name
from data_plane.broker.services import Services
from data_plane.cell.changes import Change
from data_plane.cell.election import elect, elect_preferred
from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from data_plane.cell.metadata_store import StaleControllerEpoch
from data_plane.cell.partitions_draft import PartitionsDraft, Place
from data_plane.cell.settings import ControllerSettings
from data_plane.cell.virtual_topics import shown_index, source_name
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest
from data_plane.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
PREFERRED, UNCLEAN = 0, 1

_NOT_CONTROLLER = "This is not the correct controller for this cluster."
_NOT_NEEDED = "Leader election not needed for topic partition."
_NO_PREFERRED = "The preferred leader was not available."
_NOBODY_ELIGIBLE = "Eligible topic partition leaders are not available."


class _Electorate(NamedTuple):
    """By what an election is decided."""

    election_type: int
    electable: frozenset[int]
    settings: ControllerSettings


def handle_elect_leaders(
    services: Services, context: RequestContext, request: ElectLeadersRequest, now_ms: int
) -> ElectLeadersResponse | Deferred[ElectLeadersResponse]:
    return begin_election(services, context.cell_topics, request)


def begin_election(
    services: Services, cell_topics: Topics, request: ElectLeadersRequest
) -> ElectLeadersResponse | Deferred[ElectLeadersResponse]:
    """Elect among these topics."""
    controller = controller_of(services)
    epoch = None if controller is None else controller.epoch
    if controller is not None and epoch is None:
        return _failed(request, Refusal(ErrorCode.NOT_CONTROLLER, _NOT_CONTROLLER))
    if request.election_type not in (PREFERRED, UNCLEAN):
        words = f"Unknown election type {request.election_type}"
        return _failed(request, Refusal(ErrorCode.INVALID_REQUEST, words))
    deferred: Deferred[ElectLeadersResponse] = Deferred()
    results: list[ReplicaElectionResult] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        results.clear()
        electorate = _Electorate(
            request.election_type,
            frozenset({services.node_id}) if controller is None else controller.electable(image),
            controller_settings(services.config),
        )
        topics = cell_topics.within(image)
        draft = PartitionsDraft(image)
        if request.topic_partitions is None:
            _elect_all(draft, topics, electorate, results)
        else:
            _elect_named(draft, topics, request, electorate, results)
        return draft.changes()

    def done(error: BaseException | None) -> None:
        if error is None:
            deferred.complete(ElectLeadersResponse(replica_election_results=results))
        elif isinstance(error, StaleControllerEpoch):
            refusal = Refusal(ErrorCode.NOT_CONTROLLER, _NOT_CONTROLLER)
            deferred.complete(_failed(request, refusal))
        else:
            deferred.complete(_failed(request, commit_refusal(error)))

    services.metadata.write(decide, done, controller_epoch=epoch)
    return deferred


def _elect_all(
    draft: PartitionsDraft,
    topics: Topics,
    electorate: _Electorate,
    results: list[ReplicaElectionResult],
) -> None:
    """Every partition; those that need no election are not named."""
    by_id = {
        topic.topic_id: ReplicaElectionResult(topic=topics.name_of(topic)) for topic in topics.all()
    }
    for place, partition in draft.items():
        if place.topic.topic_id not in by_id:
            continue
        result = _elect(draft, place, partition, electorate)
        if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            by_id[place.topic.topic_id].partition_result.append(result)
        if draft.is_full:
            break
    results.extend(by_id.values())


def _elect_named(
    draft: PartitionsDraft,
    topics: Topics,
    request: ElectLeadersRequest,
    electorate: _Electorate,
    results: list[ReplicaElectionResult],
) -> None:
    assert request.topic_partitions is not None
    for wanted in request.topic_partitions:
        topic = topics.by_name(wanted.topic)
        results.append(
            ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=[
                    _elect_one(draft, wanted.topic, topic, index, electorate)
                    for index in wanted.partitions
                ],
            )
        )


def _elect_one(
    draft: PartitionsDraft,
    name: str,
    topic: TopicImage | None,
    index: int,
    electorate: _Electorate,
) -> PartitionResult:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return _result(index, unknown, f"No such topic as {quoted_name(name)}")
    if topic.is_virtual:
        # Half of its leaders are the source's.
        message = f"Topic '{name}' reads from topic '{source_name(topic)}': elect leaders there."
        return _result(index, ErrorCode.INVALID_REQUEST, message)
    if not 0 <= index < len(topic.partitions):
        return _result(index, unknown, f"No such partition as {name}-{index}")
    place = Place(topic, index)
    return _elect(draft, place, draft.get(place), electorate)


def _elect(
    draft: PartitionsDraft, place: Place, partition: PartitionImage, electorate: _Electorate
) -> PartitionResult:
    election_type, electable, settings = electorate
    index = shown_index(place.topic, place.partition_index)
    has_leader = partition.leader != NO_LEADER
    if election_type == PREFERRED:
        is_needed = partition.leader != partition.replicas[0]
    else:
        is_needed = not has_leader
    if not is_needed:
        return _result(index, ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
    if has_leader:
        elected = elect_preferred(partition, electable)
    else:
        elected = elect(
            partition,
            electable,
            settings.min_insync_replicas_of(place.topic),
            is_unclean_allowed=election_type == UNCLEAN,
        )
    if elected is not None:
        draft.put(place, elected)
        return _result(index, ErrorCode.NONE, None)
    if election_type == PREFERRED:
        return _result(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _NO_PREFERRED)
    return _result(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _NOBODY_ELIGIBLE)


def _result(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=int(code), error_message=message)


def _failed(request: ElectLeadersRequest, refusal: Refusal) -> ElectLeadersResponse:
    """The same answer for all that was asked for."""
    return ElectLeadersResponse(
        error_code=int(refusal.code),
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _result(index, refusal.code, refusal.message) for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def register(table: HandlerTable) -> None:
    table.register(ApiKey.ELECT_LEADERS, MIN_VERSION, MAX_VERSION, handle_elect_leaders)
