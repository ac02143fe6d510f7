"""Dead-letter topics that are made by themselves: `<subscription>.dlq`, when it is first needed.

It has the source's partitions and as many replicas, reads headers, keeps all, and whoever was
granted something of the subscription is granted the same of it. A topic that a subscription names
(tidewheel.dlq.topic) is somebody's own, and never made here.

Deliberately absent: when it is needed (sender.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from data_plane.broker.request.refusal import Refusal
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.broker.topics.create_topics import new_topic_id
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.acls import Acl, AclResourceType, AddAcls, PatternType, ResourcePattern
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.virtual_topics import DEAD_LETTERS_SUFFIX, HEADERS_PROPERTY, source_of
from data_plane.wire.errors import ErrorCode

_CONFIGS: Final = (
    (HEADERS_PROPERTY, "true"),
    ("retention.bytes", "-1"),
    ("retention.ms", "-1"),
)

# Called with why it could not be made; "" when it is there.
OnMade = Callable[[str], None]


def make_dead_letter_topic(services: Services, topic_id: UUID, name: str, on_made: OnMade) -> None:
    """Make the subscription's topic of this name, unless there is one by then."""
    subscription = services.image.topics_by_id.get(topic_id)
    if subscription is None or name != subscription.name + DEAD_LETTERS_SUFFIX:
        on_made("no_such_topic")
        return
    reasons: list[str] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        reasons.clear()
        found = image.topics_by_id.get(topic_id)
        source = None if found is None else source_of(image, found)
        if found is None or source is None or image.topic(found.tenant, name) is not None:
            return ()
        try:
            return _changes(services, image, found, source, name)
        except Refusal as refusal:
            reasons.append(refusal.message or "refused")
            return ()

    def done(error: BaseException | None) -> None:
        if error is not None:
            reasons.append(repr(error))
        if reasons:
            services.log.warning("dead_letter_topic_not_made", topic=name, reason=reasons[0])
        on_made("topic_not_made" if reasons else "")

    services.metadata.write(decide, done)


def _changes(
    services: Services, image: MetadataImage, found: TopicImage, source: TopicImage, name: str
) -> list[Change]:
    """Raises Refusal."""
    problem = invalid_name_reason(name)
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    new = NewPartitions(services, image)
    count = len(source.partitions)
    new.take_room(found.tenant, count)
    assignments = new.place(count, len(target_of(source.partitions[0])))
    topic_id = new_topic_id(services.random)
    changes: list[Change] = [CreateTopic(found.tenant, name, topic_id, assignments, _CONFIGS)]
    changes += new.initial_states(topic_id, 0, assignments)
    of_tenant = image.acls.get(found.tenant)
    if of_tenant is not None:
        literal = int(PatternType.LITERAL)
        kind = int(AclResourceType.TOPIC)
        entries = of_tenant.by_pattern.get(ResourcePattern(kind, literal, found.name), ())
        pattern = ResourcePattern(kind, literal, name)
        acls = tuple(Acl(pattern, entry) for entry in sorted(entries))
        if acls:
            changes.append(AddAcls(found.tenant, acls))
    return changes
