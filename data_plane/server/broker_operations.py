"""CellOperations' calls about brokers and leaders: read, committed, answered.

Deliberately absent: what draining does (data_plane/cell/evacuation.py) and how leaders are elected
(data_plane/broker/admin/elect_leaders.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc

from data_plane.broker.admin.elect_leaders import PREFERRED, UNCLEAN, begin_election
from data_plane.broker.cell.cell_view import controller_id, controller_of
from data_plane.broker.request.api import Deferred
from data_plane.broker.request.namespaces import CellTopics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.requested_replicas import registered_brokers
from data_plane.cell.authors import Author
from data_plane.cell.changes import AlterConfigs, Change
from data_plane.cell.controller import DRAIN_PROPERTY
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.cell.virtual_topics import shown_count
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_calls import BadRequest, Calls, Done, Refused
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from data_plane.wire.messages.elect_leaders_response import ElectLeadersResponse

ELECTED_MAX: Final = 1_000

_ELECTIONS: Final = {
    messages.ElectLeadersRequest.PREFERRED: PREFERRED,
    messages.ElectLeadersRequest.UNCLEAN: UNCLEAN,
}


async def set_draining(
    calls: Calls, request: messages.SetDrainingRequest, author: Author
) -> messages.SetDrainingResponse:
    """Raises Refused."""
    services, node_id = calls.services, request.node_id
    if services.membership is None:
        words = f"broker {services.node_id} is alone: there is nobody who could take its replicas"
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, words)
    wanted = "true" if request.is_draining else None

    def decide(image: MetadataImage) -> Sequence[Change]:
        known = registered_brokers(services, image)
        if node_id not in known:
            ids = ", ".join(map(str, sorted(known)))
            raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {node_id}, only {ids}")
        resource = (DEFAULT_TENANT, ResourceType.BROKER, str(node_id))
        if image.config_of(*resource).get(DRAIN_PROPERTY) == wanted:
            return ()
        return (AlterConfigs(*resource, ((DRAIN_PROPERTY, wanted),)),)

    def start(done: Done[int]) -> None:
        services.metadata.write(
            decide, lambda error: done(services.image.version, error), author=author
        )

    try:
        return messages.SetDrainingResponse(version=await calls.begin(start))
    except Refusal as refusal:
        raise Refused(grpc.StatusCode.NOT_FOUND, refusal.message or "") from refusal


async def elect_leaders(
    calls: Calls, request: messages.ElectLeadersRequest
) -> messages.ElectLeadersResponse:
    """Raises BadRequest and Refused."""
    election = _ELECTIONS.get(request.election)
    if election is None:
        raise BadRequest("election: is missing; give PREFERRED or UNCLEAN")
    for field in ("tenant", "topic"):
        if not getattr(request, field):
            raise BadRequest(f"{field}: is missing")
    tenant, topic = request.tenant, request.topic
    name = topic if tenant == DEFAULT_TENANT else f"{tenant}/{topic}"
    indexes = list(request.partitions) or await calls.ask(lambda: _all_of(calls, tenant, topic))
    if len(indexes) > ELECTED_MAX:
        raise BadRequest(f"partitions: {len(indexes)}; name at most {ELECTED_MAX} at a time")
    if len(set(indexes)) != len(indexes):
        raise BadRequest("partitions: one is named twice")
    wanted = ElectLeadersRequest(
        election_type=election, topic_partitions=[TopicPartitions(topic=name, partitions=indexes)]
    )

    def start(done: Done[tuple[ElectLeadersResponse, int]]) -> None:
        _begin(calls, wanted, done)

    answer, version = await calls.begin(start)
    _refuse_failed(calls, answer)
    elected = {
        one.partition_id: one
        for result in answer.replica_election_results
        for one in result.partition_result
    }
    return messages.ElectLeadersResponse(
        version=version,
        partitions=[
            messages.ElectedPartition(
                partition=index,
                error_code=elected[index].error_code,
                message=elected[index].error_message or "",
            )
            for index in indexes
        ],
    )


def _all_of(calls: Calls, tenant: str, topic: str) -> list[int]:
    """All partitions of a topic, as the controller knows it. Raises Refused."""
    controller = controller_of(calls.services)
    if controller is not None and controller.epoch is None:
        raise _not_controller(calls)
    found = calls.services.image.topic(tenant, topic)
    if found is None:
        words = f"the tenant {tenant} has no topic {topic}"
        raise Refused(grpc.StatusCode.NOT_FOUND, words)
    return list(range(shown_count(found)))


def _begin(
    calls: Calls, wanted: ElectLeadersRequest, done: Done[tuple[ElectLeadersResponse, int]]
) -> None:
    """On the loop."""
    services = calls.services
    answer = begin_election(services, CellTopics(services), wanted)
    if isinstance(answer, Deferred):
        answer.when_complete(lambda response: done((response, services.image.version), None))
    else:
        done((answer, services.image.version), None)


def _refuse_failed(calls: Calls, answer: ElectLeadersResponse) -> None:
    """Raises Refused for what went wrong with all of it."""
    match answer.error_code:
        case ErrorCode.NONE:
            return
        case ErrorCode.NOT_CONTROLLER:
            raise _not_controller(calls)
    results = answer.replica_election_results
    told = next((one.error_message for r in results for one in r.partition_result), None)
    raise Refused(grpc.StatusCode.UNAVAILABLE, told or f"error {answer.error_code}")


def _not_controller(calls: Calls) -> Refused:
    there = controller_id(calls.services)
    words = "there is no controller just now" if there < 0 else f"broker {there} is it"
    return Refused(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"broker {calls.services.node_id} is not the controller: {words}",
    )
