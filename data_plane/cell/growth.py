"""The broker's own topics get more replicas when there are brokers for them.

`__consumer_offsets` is made when the first group asks for it, which may be a moment at which the
first of three brokers is all there is. Nobody would think of giving it more replicas later; so the
controller does, up to the factor that the properties say.

Deliberately absent: topics of users, whose factor is what they asked for, and fewer replicas.
"""

from __future__ import annotations

from data_plane.cell.metadata import NO_LEADER, MetadataImage
from data_plane.cell.moves import Mover
from data_plane.cell.partitions_draft import Place
from data_plane.cell.reassignment import is_reassigning


def grow_internal_topics(mover: Mover, image: MetadataImage, factor: int) -> None:
    """Start adding replicas to partitions of internal topics that have fewer than `factor`, as
    many as the mover's bounds allow."""
    for topic in image.topics_in_order():
        if not topic.internal:
            continue
        for index in range(len(topic.partitions)):
            place = Place(topic, index)
            partition = mover.draft.get(place)
            if is_reassigning(partition) or partition.leader == NO_LEADER:
                continue
            target = list(partition.replicas)
            busy = mover.busy()
            while len(target) < factor:
                other = mover.placer.replacement(target, None, is_leader=False, excluded=busy)
                if other is None:
                    break
                target.append(other)
            if len(target) > len(partition.replicas) and not mover.draft.is_full:
                mover.move(place, target)


def needs_growth(image: MetadataImage, factor: int) -> bool:
    """Whether any internal topic has fewer replicas; cheap."""
    return any(
        len(partition.replicas) < factor
        for topic in image.topics_by_id.values()
        if topic.internal
        for partition in topic.partitions
    )
