"""Who may ask about the configurations of what a request names."""

from __future__ import annotations

from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.refusal import Refusal
from data_plane.cell.acls import AclOperation
from data_plane.cell.metadata import ResourceType
from data_plane.wire.errors import ErrorCode


def why_not_authorized(
    context: RequestContext, operation: int, resource_type: int, name: str
) -> Refusal | None:
    """Brokers, their loggers and client metrics are the cluster's."""
    if context.names.rights.is_open:
        return None
    code = ErrorCode.NONE
    match resource_type:
        case ResourceType.TOPIC:
            if not context.may_to_topic(operation, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ResourceType.GROUP:
            if not context.may_to_group(operation, name):
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            # Others may see some of the brokers' properties, and change none.
            is_shown = (
                operation == AclOperation.DESCRIBE_CONFIGS
                and resource_type != ResourceType.BROKER_LOGGER
            )
            is_elsewhere = not is_shown and not context.may_see_cell
            if is_elsewhere or not context.may_to_cluster(operation):
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if code is ErrorCode.NONE else Refusal(code, code.message)
