"""The partitions in use that this broker leads: by id for everybody, by name for clients.

A topic that is deleted and can come back is led as ever, for its followers. By its name it is not
found, and its partitions are nobody's, so that clients find them by id no more.

Deliberately absent: which partitions these are (topic_partitions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage, TopicImage
    from data_plane.replica.partition import Partition

# Whose partitions of deleted topics are: no tenant's name is empty.
NOBODYS: Final = ""


def tenant_shown(topic: TopicImage) -> str:
    """Whose a topic's partitions are, for whoever asks on behalf of a client."""
    return topic.tenant if topic.deletion is None else NOBODYS


def shown_topic(image: MetadataImage, tenant: str, name: str) -> TopicImage | None:
    """The topic of that name, if there is one for clients."""
    topic = image.topic(tenant, name)
    return None if topic is None or topic.deletion is not None else topic


class Leading:
    """`by_id` and `by_name` are on the path of every request."""

    def __init__(self) -> None:
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        self.by_name: dict[tuple[str, str, int], Partition] = {}
        # Told of open partitions that clients may read no more.
        self.on_hidden: Callable[[Partition], None] | None = None

    def put(self, partition: Partition, topic: TopicImage) -> None:
        self.by_id[topic.id_bytes, partition.index] = partition
        if topic.deletion is None:
            self.by_name[topic.tenant, topic.name, partition.index] = partition

    def forget(self, partition: Partition, topic_id: bytes) -> None:
        self.by_id.pop((topic_id, partition.index), None)
        self._forget_name(partition)

    def _forget_name(self, partition: Partition) -> None:
        name_key = (partition.tenant, partition.topic, partition.index)
        if self.by_name.get(name_key) is partition:
            del self.by_name[name_key]

    def show_or_hide(
        self, topic: TopicImage, replicas: Mapping[tuple[bytes, int], Partition]
    ) -> None:
        """The topic has been deleted, or is back: clients find it no more, or again."""
        for index in range(len(topic.partitions)):
            key = (topic.id_bytes, index)
            partition = replicas.get(key)
            if partition is None:
                continue
            self._forget_name(partition)
            partition.tenant = tenant_shown(topic)
            if key in self.by_id:
                self.put(partition, topic)
            if topic.deletion is not None and self.on_hidden is not None:
                self.on_hidden(partition)
