"""Which topics a consumer subscribes to, by its JoinGroup, and which partitions it was assigned.

The broker treats member metadata as opaque, with one exception that Kafka makes too: for protocol
type "consumer" the fields of version 0 begin every version, and offset expiry (KIP-211) and
OffsetDelete (KIP-496) must not touch topics that members consume. Assignments are read for people
only, who look at a group.

Members name topics as their tenant does, and so does the coordinator.
"""

from __future__ import annotations

from typing import Final

from data_plane.wire.errors import WireError
from data_plane.wire.messages.consumer_protocol_assignment import (
    decode_consumer_protocol_assignment,
)
from data_plane.wire.messages.consumer_protocol_subscription import (
    decode_consumer_protocol_subscription,
)
from data_plane.wire.primitives import Reader

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def decode_subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's subscription, or None when it is not one."""
    reader = Reader(metadata)
    try:
        version = reader.read_int16()
        if version < 0:
            return None
        return frozenset(decode_consumer_protocol_subscription(reader, 0).topics)
    except WireError:
        return None


def decode_assignment(assignment: bytes) -> list[tuple[str, list[int]]] | None:
    """The partitions of each topic in a consumer's assignment, or None when it is not one."""
    reader = Reader(assignment)
    try:
        version = reader.read_int16()
        if version < 0:
            return None
        assigned = decode_consumer_protocol_assignment(reader, 0).assigned_partitions
    except WireError:
        return None
    return [(topic.topic, topic.partitions) for topic in assigned]
