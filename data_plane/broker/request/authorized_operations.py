"""The bit fields of allowed operations in Metadata and Describe responses (KIP-430).

Each says what there is to be done to a resource of its type. Of that who asks is told what he may
do: `TOPIC_OPERATIONS & context.operations_allowed(…)`. A bit's position is the operation's code in
Kafka's AclOperation.
"""

from __future__ import annotations

from data_plane.broker.request.api import RequestContext
from data_plane.broker.request.authorizer import CLUSTER_NAME
from data_plane.cell.acls import AclResourceType

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

# What the field holds when the client did not ask for it.
NOT_ASKED = -(1 << 31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(
    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
# All that exist for a group.
GROUP_OPERATIONS = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
)


def cluster_operations_of(context: RequestContext) -> int:
    """What who asks may do to the cluster; nothing, as in Kafka, if he may not describe it."""
    allowed = context.operations_allowed(AclResourceType.CLUSTER, CLUSTER_NAME)
    return CLUSTER_OPERATIONS & allowed if allowed >> DESCRIBE & 1 else 0


def topic_operations_of(context: RequestContext, name: str) -> int:
    """What he may do to the topic that he calls so."""
    return TOPIC_OPERATIONS & context.operations_allowed(AclResourceType.TOPIC, name)
