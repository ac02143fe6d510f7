"""Virtual topics: a topic whose consumers read a part of another one's records.

Its property `tidewheel.source` names the *source*, a topic of the same tenant, and its `source_id`
says which one that is: a later topic of that name is not read. Of a source with the partitions
0, 1, … clients see twice as many:

    the virtual topic's partition   2p                     2p + 1
    is                              the source's p         its own p

The even ones have no log: replicas, leader and epoch are the source's. The odd ones have logs of
their own, with what is only for these consumers (records to be retried); in the image the virtual
topic has just these, numbered from 0. Growth of the source appends to both, and renumbers nothing.

Invariants
- A source is no virtual topic, and is not deleted while it has any. One that is deleted and can
  come back grows with its source, and comes back only while that is there.
- The source of a virtual topic never changes.

Deliberately absent: which of the source's records are shown (a projection decides).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage

SOURCE_PROPERTY: Final = "tidewheel.source"
# That the source's records have tags which were looked at when they were appended.
HEADERS_PROPERTY: Final = "tidewheel.headers"
# Which of the source's records are shown, in words of the feature that shows them.
FILTER_PROPERTY: Final = "tidewheel.filter"
# Where what cannot be delivered is sent; the name with the suffix where nothing is said.
DEAD_LETTERS_PROPERTY: Final = "tidewheel.dlq.topic"
DEAD_LETTERS_SUFFIX: Final = ".dlq"


def source_name(topic: TopicImage) -> str:
    """The name of its source; "" for a topic that is not virtual."""
    return topic.configs.get(SOURCE_PROPERTY, "")


def source_of(image: MetadataImage, topic: TopicImage) -> TopicImage | None:
    """The source of a virtual topic; None while it is deleted."""
    source = None if topic.source_id is None else image.topics_by_id.get(topic.source_id)
    return source if source is not None and source.deletion is None else None


def virtual_topics_by_source(
    topics: Iterable[TopicImage],
) -> Mapping[UUID, list[TopicImage]]:
    """The virtual ones of these topics, by the ids of their sources."""
    found: dict[UUID, list[TopicImage]] = {}
    for topic in topics:
        if topic.source_id is not None:
            found.setdefault(topic.source_id, []).append(topic)
    return found


def shown_count(topic: TopicImage) -> int:
    """How many partitions clients see of a topic that has its source."""
    own_count = len(topic.partitions)
    return 2 * own_count if topic.is_virtual else own_count


def shown_count_over(topic: TopicImage, source: TopicImage | None) -> int:
    """How many clients see of a virtual topic with this source: two for each that both have."""
    return 0 if source is None else 2 * min(len(source.partitions), len(topic.partitions))


def shown_index(topic: TopicImage, own_index: int) -> int:
    """By what number clients know one of the topic's own partitions."""
    return 2 * own_index + 1 if topic.is_virtual else own_index


def own_index(topic: TopicImage, index: int) -> int | None:
    """Which of the topic's own partitions clients know by this number; None for the source's, and
    where there is none."""
    if topic.is_virtual:
        index, is_own = divmod(index, 2)
        if not is_own:
            return None
    return index if 0 <= index < len(topic.partitions) else None


def shown_partition(image: MetadataImage, topic: TopicImage, index: int) -> PartitionImage | None:
    """A topic's partition as clients number them; None where there is none."""
    if not topic.is_virtual:
        return topic.partitions[index] if 0 <= index < len(topic.partitions) else None
    source = source_of(image, topic)
    if source is None or not 0 <= index < shown_count_over(topic, source):
        return None
    half, is_own = divmod(index, 2)
    return (topic if is_own else source).partitions[half]


def interleaved(topic: TopicImage, source: TopicImage | None) -> TopicImage:
    """The virtual topic as clients see it; without its source it has no partitions."""
    partitions: list[PartitionImage] = []
    if source is not None:
        for of_source, own in zip(source.partitions, topic.partitions, strict=False):
            partitions += (of_source, own)
    return replace(topic, partitions=tuple(partitions))
