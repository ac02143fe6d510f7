"""What readers see of a topic that may have delayed messages: all but what is hidden.

Every topic that reads headers is read through this projection. Where its log has no flagged batch,
which its fold knows, it is read as a plain one, in byte ranges.

Deliberately absent: subscriptions, which hide the same (features/filtering/subscriptions.py).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from data_plane.broker.fetch.projection import (
    ProjectedPartition,
    Selection,
    SourceBatch,
    UnindexedProjection,
)
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from data_plane.log.log import Log
from data_plane.wire.kernel_types import HIDDEN_FLAG
from features.delayed.fold import DelayedMessages
from features.delayed.hidden import shown


class AllButHidden(UnindexedProjection):
    """Shows what is not hidden."""

    def select(self, batch: SourceBatch) -> Selection:
        return not_hidden(batch)

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        return shown_whole_until(log, offset, end)


def shown_whole_until(log: Log, offset: int, end: int) -> int:
    """Up to where, in [offset, end], no record of the log is hidden from `offset` on, as far as its
    fold knows."""
    for fold in log.folds:
        if isinstance(fold, DelayedMessages):
            return fold.shown_whole_until(offset, end)
    return offset


def not_hidden(batch: SourceBatch) -> Selection:
    """What is not hidden of a batch."""
    if not batch.header.attributes & HIDDEN_FLAG:
        return True
    return shown(*batch.records(), batch.header.record_count)


def both(one: Selection, other: Selection) -> Selection:
    """What both select."""
    if isinstance(one, bool):
        return other if one else False
    if isinstance(other, bool):
        return one if other else False
    return bytes(1 if a and b else 0 for a, b in zip(one, other, strict=True))


ALL_BUT_HIDDEN: Final = AllButHidden()


class HidingTopics:
    """The ProjectionProvider of all topics that read headers and are no subscriptions. Remembers
    the partitions that were asked for while their topics are there."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._read: dict[UUID, dict[int, ProjectedPartition]] = {}

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        image = self._services.image
        if topic:
            found = image.topic(tenant, topic)
        else:
            found = image.topics_by_id.get(UUID(bytes=topic_id))
        if found is None or not _hides(found) or not 0 <= index < len(found.partitions):
            return None
        partitions = self._read.setdefault(found.topic_id, {})
        projected = partitions.get(index)
        if projected is None:
            projected = ProjectedPartition(found.id_bytes, index, ALL_BUT_HIDDEN)
            partitions[index] = projected
        return projected

    def image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.topics_by_id is new.topics_by_id:
            return
        topics = new.topics_by_id
        over = [
            topic_id
            for topic_id in self._read
            if topic_id not in topics or topics[topic_id].deletion is not None
        ]
        for topic_id in over:
            for projected in self._read.pop(topic_id).values():
                projected.end()


def _hides(topic: TopicImage) -> bool:
    configs = topic.configs
    return (
        topic.deletion is None
        and configs.get(HEADERS_PROPERTY, "").strip().lower() == "true"
        and not topic.is_virtual
    )
