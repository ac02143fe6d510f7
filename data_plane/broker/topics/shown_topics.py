"""Topics as clients see them: of a virtual topic its partitions and its source's, taken in turn.

What was made of the same images is kept, so that what is kept for a topic elsewhere (its bytes in a
Metadata response) holds for as long as nothing changes.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.virtual_topics import interleaved, source_of

# Some 200 bytes each, and 16 for each partition.
KEPT_MAX: Final = 10_000


class ShownTopics:
    """See the module."""

    def __init__(self) -> None:
        self._kept: dict[UUID, tuple[TopicImage, TopicImage | None, TopicImage]] = {}

    def of(self, image: MetadataImage, topic: TopicImage) -> TopicImage:
        """`topic`, of `image`, as clients see it; the same object when it is not virtual."""
        if not topic.is_virtual:
            return topic
        source = source_of(image, topic)
        kept = self._kept.get(topic.topic_id)
        if kept is not None and kept[0] is topic and kept[1] is source:
            return kept[2]
        shown = interleaved(topic, source)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[topic.topic_id] = topic, source, shown
        return shown
