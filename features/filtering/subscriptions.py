"""Subscriptions as a broker serves them: which projection a virtual topic's partitions are read by.

    partition 2p        the source's partition p, through the filter
    partition 2p + 1    the subscription's own partition p, all of it

A subscription that nobody reads here costs nothing. Of one that is read, the partitions that were
asked for are kept until the image has another filter, more of them, no source or no such topic;
whoever reads them is told, and asks again. For all numbers of which there is no partition, which
are all of them while the source is gone, stands one that is nowhere.

Invariants
- The same object stands for a partition until it has ended; after an edit no fetch goes on with the
  old filter, or with what was scanned by it.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.broker.fetch.projection import (
    ProjectedPartition,
    Projection,
    Selection,
    SourceBatch,
    UnindexedProjection,
)
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.virtual_topics import (
    FILTER_PROPERTY,
    shown_count_over,
    source_of,
)
from data_plane.log.log import Log
from data_plane.wire.kernel_types import HIDDEN_FLAG
from features.delayed.visibility import shown_whole_until
from features.filtering.indexed_records import AllRecords, FilteredRecords
from features.filtering.language import Everything, parse_filter
from features.filtering.matching import Matcher
from features.filtering.tag_indexes import TagIndexes

# Each with what its filter remembers, and some hundred bytes for each of its partitions. Beyond it
# those go that nobody reads; those that are read stay, and fetch sets bound how many these are.
SUBSCRIPTIONS_KEPT_MAX: Final = 1_000

# The number that stands for all of which there is no partition; an odd one, so that it is the
# topic's own.
NOWHERE: Final = -1


class OwnRecords(UnindexedProjection):
    """Shows what was delivered anew in the subscription's own partition. All records of its hidden
    batches are hidden (docs/retries.md)."""

    def select(self, batch: SourceBatch) -> Selection:
        return not batch.header.attributes & HIDDEN_FLAG

    def shown_whole_until(self, log: Log, offset: int, end: int) -> int:
        return shown_whole_until(log, offset, end)


OWN_RECORDS: Final = OwnRecords()


class _Subscription(NamedTuple):
    """One that is read here."""

    source_id: UUID | None
    filter: str
    projection: Projection
    partitions_count: int
    partitions: dict[int, ProjectedPartition]


class Subscriptions:
    """The ProjectionProvider of all virtual topics."""

    def __init__(self, services: Services, indexes: TagIndexes) -> None:
        self._services = services
        self._indexes = indexes
        self._read: dict[UUID, _Subscription] = {}

    def find(
        self, tenant: str, topic: str, topic_id: bytes, index: int
    ) -> ProjectedPartition | None:
        image = self._services.image
        if topic:
            found = image.topic(tenant, topic)
        else:
            found = image.topics_by_id.get(UUID(bytes=topic_id))
        if found is None or found.deletion is not None or not found.is_virtual:
            return None
        source = source_of(image, found)
        subscription = self._subscription(found, source)
        if not 0 <= index < subscription.partitions_count:
            index = NOWHERE
        projected = subscription.partitions.get(index)
        if projected is None:
            half, is_own = divmod(index, 2)
            listener = self._services.on_sent
            told = None
            if listener is not None and index != NOWHERE:
                told = partial(listener, found.topic_id, index)
            if source is None or is_own:
                projected = ProjectedPartition(found.id_bytes, half, OWN_RECORDS, told)
            else:
                projection = subscription.projection
                projected = ProjectedPartition(source.id_bytes, half, projection, told)
            subscription.partitions[index] = projected
        return projected

    def _subscription(self, topic: TopicImage, source: TopicImage | None) -> _Subscription:
        known = self._read.get(topic.topic_id)
        if known is not None:
            return known
        if len(self._read) >= SUBSCRIPTIONS_KEPT_MAX:
            self._forget_unread()
        text = topic.configs.get(FILTER_PROPERTY, "")
        expression = parse_filter(text)
        kind = AllRecords if isinstance(expression, Everything) else FilteredRecords
        subscription = self._read[topic.topic_id] = _Subscription(
            None if source is None else source.topic_id,
            text,
            kind(Matcher(expression), self._indexes),
            shown_count_over(topic, source),
            {},
        )
        return subscription

    def _forget_unread(self) -> None:
        for topic_id, subscription in list(self._read.items()):
            if not any(one.watchers for one in subscription.partitions.values()):
                del self._read[topic_id]

    def image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.topics_by_id is new.topics_by_id or not self._read:
            return
        over = [
            topic_id
            for topic_id, subscription in self._read.items()
            if not _holds(subscription, topic_id, new)
        ]
        for topic_id in over:
            for projected in self._read.pop(topic_id).partitions.values():
                projected.end()


def _holds(subscription: _Subscription, topic_id: UUID, image: MetadataImage) -> bool:
    topic = image.topics_by_id.get(topic_id)
    if topic is None or topic.deletion is not None:
        return False
    if topic.configs.get(FILTER_PROPERTY, "") != subscription.filter:
        return False
    source = source_of(image, topic)
    if (None if source is None else source.topic_id) != subscription.source_id:
        return False
    return shown_count_over(topic, source) == subscription.partitions_count
