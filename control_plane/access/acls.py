"""What the roles of grants mean in Kafka's ACLs: which operations on what.

A producer on a topic may write and describe; a consumer on a topic may read and describe, and on a
group read. A manager may also make, change and delete.
"""

from __future__ import annotations

from typing import Final

from control_plane.access.models import GrantRole, ResourceType

_PRODUCER: Final = ("DESCRIBE", "WRITE")
_CONSUMER: Final = ("DESCRIBE", "READ")
_MANAGER: Final = (
    *("ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS"),
    *("READ", "WRITE"),
)

# Kafka's numbers (AclOperation, ResourceType, ResourcePatternType), for who tells cells of grants.
OPERATION_NUMBERS: Final = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
}
RESOURCE_TYPE_NUMBERS: Final = {"topic": 2, "group": 3, "transactional_id": 5}
PATTERN_TYPE_NUMBERS: Final = {"literal": 3, "prefixed": 4}

OPERATIONS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    (GrantRole.PRODUCER, ResourceType.TOPIC): _PRODUCER,
    (GrantRole.CONSUMER, ResourceType.TOPIC): _CONSUMER,
    (GrantRole.MANAGER, ResourceType.TOPIC): _MANAGER,
    (GrantRole.CONSUMER, ResourceType.GROUP): ("DESCRIBE", "READ"),
    (GrantRole.MANAGER, ResourceType.GROUP): ("DELETE", "DESCRIBE", "READ"),
    (GrantRole.PRODUCER, ResourceType.TRANSACTIONAL_ID): ("DESCRIBE", "WRITE"),
    (GrantRole.MANAGER, ResourceType.TRANSACTIONAL_ID): ("DESCRIBE", "WRITE"),
}
"""What is not here means nothing, and is refused: nobody consumes from a transactional id."""
