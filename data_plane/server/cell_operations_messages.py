"""CellOperations' messages and the broker's values, there and back; bad input is refused here.

Pure: no sockets, no threads.
"""

from __future__ import annotations

from typing import Final

from data_plane.broker.cell.change_events import ChangeEvent, EventChange, EventKind
from data_plane.cell.authors import CELL_ADMIN_SOURCE, KAFKA_SOURCE, Author
from data_plane.cell.declarations import API_OWNER
from data_plane.cell.metadata import MetadataImage
from data_plane.contract import cell_admin_pb2 as admin_messages
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_admin_listing import write_topic
from data_plane.server.usage_spool import DROPPED, KILLED, Sample

_SOURCES: Final = {
    KAFKA_SOURCE: messages.Actor.KAFKA,
    CELL_ADMIN_SOURCE: messages.Actor.CELL_ADMIN,
}


def write_event(event: ChangeEvent, image: MetadataImage) -> messages.Event:
    """With what there is by `image`, which is not older than the event."""
    message = messages.Event(
        version=event.version,
        kind=messages.Event.Kind.ValueType(int(event.kind)),
        change=messages.Event.Change.ValueType(int(event.change)),
        tenant=event.tenant,
        name=event.name,
        actor=_write_actor(event.author),
    )
    if event.resource is not None:
        message.resource_id = event.resource.resource_id
        message.generation = event.resource.generation
        is_api = event.resource.owner == API_OWNER
        message.owner = admin_messages.API if is_api else admin_messages.CLIENT
    topic_id = event.topic_id
    topic = None
    if event.kind is EventKind.TOPIC and event.change is not EventChange.DELETED:
        if topic_id is None:
            topic = image.topic(event.tenant, event.name)
        else:
            topic = image.topics_by_id.get(topic_id)
    if topic is not None:
        topic_id = topic.topic_id
        message.item.CopyFrom(write_topic(image, topic))
    if topic_id is not None:
        message.topic_id = topic_id.bytes
    return message


def _write_actor(author: Author | None) -> messages.Actor:
    if author is None:
        return messages.Actor(source=messages.Actor.CELL)
    return messages.Actor(
        source=_SOURCES.get(author.source, messages.Actor.SOURCE_UNSPECIFIED),
        tenant=author.tenant,
        principal=author.principal,
    )


_REASONS: Final = {
    KILLED: messages.LostUsage.KILLED,
    DROPPED: messages.LostUsage.DROPPED,
}


def write_sample(sample: Sample, broker_id: int) -> messages.UsageSample:
    message = messages.UsageSample(
        broker_id=broker_id,
        incarnation=sample.incarnation,
        sequence=sample.sequence,
        start_ms=sample.start_ms,
        end_ms=sample.end_ms,
        duration_ms=sample.duration_ms,
        tenants=[messages.TenantUsage(**row._asdict()) for row in sample.tenants],
        is_final=sample.is_final,
    )
    for row in sample.topics:
        fields = row._asdict()
        fields["topic_id"] = bytes.fromhex(row.topic_id)
        message.topics.append(messages.TopicUsage(**fields))
    if sample.lost is not None:
        message.lost.reason = _REASONS[sample.lost.reason]
        message.lost.incarnation = sample.lost.incarnation
        message.lost.sequence = sample.lost.sequence
        message.lost.duration_ms = sample.lost.duration_ms
    return message
