"""DescribeCluster, versions 0 to 2: who is in the cluster, for admin clients."""

from __future__ import annotations

from data_plane.broker.cell.cell_view import controller_id, live_brokers, reached_by
from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.authorized_operations import cluster_operations_of
from data_plane.broker.services import Services
from data_plane.cell.metadata import BrokerImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_cluster_request import DescribeClusterRequest
from data_plane.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2


def handle_describe_cluster(
    services: Services, context: RequestContext, request: DescribeClusterRequest, now_ms: int
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLER_ENDPOINT:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKER_ENDPOINT:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    response = DescribeClusterResponse(
        cluster_id=context.names.cluster_id,
        controller_id=controller_id(services),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker in _described(services, context.listener, request.include_fenced_brokers)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations_of(context)
    return response


def _described(services: Services, listener: str, include_fenced: bool) -> list[BrokerImage]:
    brokers = live_brokers(services, listener)
    if include_fenced:
        fenced = [broker for broker in services.image.brokers.values() if broker.is_fenced]
        brokers += filter(None, [reached_by(services, broker, listener) for broker in fenced])
        brokers.sort(key=lambda broker: broker.node_id)
    return brokers


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_CLUSTER, MIN_VERSION, MAX_VERSION, handle_describe_cluster)
