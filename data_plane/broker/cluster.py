"""DescribeCluster, versions 0 to 2: who is in the cluster, for admin clients."""

from __future__ import annotations

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.authorized_operations import CLUSTER_OPERATIONS
from data_plane.broker.metadata import brokers
from data_plane.broker.services import Services
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
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers(services)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_CLUSTER, MIN_VERSION, MAX_VERSION, handle_describe_cluster)
