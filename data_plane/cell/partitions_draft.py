"""The partitions of an image while one commit is decided.

Several rules may each change the same partition (its leader died, and its reassignment is
complete); the commit holds one change of it, with epochs that follow from what it was before.

A commit is bounded: `is_full` says when no further partitions should be touched. Rules look at the
state, not at events, so what found no room is decided on the next image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from data_plane.cell.changes import ChangePartition
from data_plane.cell.metadata import MetadataImage, PartitionImage, TopicImage
from data_plane.cell.partition_state import next_epochs

# About 2 MB of journal; 10,000 partitions that all lose a broker are decided in two commits.
PARTITIONS_PER_COMMIT_MAX = 5_000


PartitionKey = tuple[UUID, int]


class Place(NamedTuple):
    """Where a partition stands in the image."""

    topic: TopicImage
    partition_index: int

    @property
    def key(self) -> PartitionKey:
        return self.topic.topic_id, self.partition_index


class PartitionsDraft:
    """See the module. `changed_max` bounds the partitions that one commit changes."""

    def __init__(self, image: MetadataImage, changed_max: int = PARTITIONS_PER_COMMIT_MAX) -> None:
        # By name, so that equal images give equal decisions.
        self._topics = image.topics_in_order()
        self._by_id = image.topics_by_id
        # Virtual topics by their sources, those that have one.
        self._virtual: dict[UUID, list[TopicImage]] = {}
        for topic in self._topics:
            if topic.source_id is not None and topic.source_id in self._by_id:
                self._virtual.setdefault(topic.source_id, []).append(topic)
        self._changed: dict[PartitionKey, PartitionImage] = {}
        self._changed_max = changed_max

    @property
    def is_full(self) -> bool:
        return len(self._changed) >= self._changed_max

    def items(self) -> Iterator[tuple[Place, PartitionImage]]:
        """All partitions as they are in the draft. They may be put while iterating."""
        changed = self._changed
        for topic in self._topics:
            topic_id = topic.topic_id
            for index, partition in enumerate(topic.partitions):
                if changed:
                    partition = changed.get((topic_id, index), partition)
                yield Place(topic, index), partition

    def followers(self) -> Iterator[tuple[Place, Place]]:
        """The partitions that go where another one goes (source_followers.py), with that one."""
        for source_id, topics in self._virtual.items():
            source = self._by_id[source_id]
            for topic in topics:
                for index in range(min(len(topic.partitions), len(source.partitions))):
                    yield Place(topic, index), Place(source, index)

    def is_follower(self, place: Place) -> bool:
        """Whether the partition goes where another one goes."""
        source = self._by_id.get(place.topic.source_id) if place.topic.source_id else None
        return source is not None and place.partition_index < len(source.partitions)

    def followers_of(self, place: Place) -> list[Place]:
        """The partitions that go where this one goes."""
        index, virtual = place.partition_index, self._virtual.get(place.topic.topic_id, ())
        return [Place(topic, index) for topic in virtual if index < len(topic.partitions)]

    def get(self, place: Place) -> PartitionImage:
        """One partition as it is in the draft."""
        changed = self._changed.get(place.key)
        return place.topic.partitions[place.partition_index] if changed is None else changed

    def put(self, place: Place, partition: PartitionImage) -> None:
        """`partition` without new epochs: they are set at the end."""
        self._changed[place.key] = partition

    def changes(self) -> list[ChangePartition]:
        """What the commit does to partitions, in their order."""
        by_id = {topic.topic_id: topic for topic in self._topics}
        changes = []
        for (topic_id, index), new in self._changed.items():
            old = by_id[topic_id].partitions[index]
            if new != old:
                changes.append(ChangePartition(topic_id, index, next_epochs(old, new)))
        return changes
