"""The topics of images: by tenant, what differs between two, and on the way to the next one.

Mappings are copied when they are first written to, of the tenants that are written to only: a
commit about one tenant's topics leaves the others' as they are, the same objects.

Deliberately absent: whether a change fits (changes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from data_plane.cell.metadata import MetadataImage, TopicImage


class TopicsDraft:
    """`by_tenant` and `by_id` are as an image has them, and to be read only."""

    __slots__ = ("_copied", "_is_copied", "by_id", "by_tenant")

    def __init__(self, image: MetadataImage) -> None:
        self.by_tenant: Mapping[str, Mapping[str, TopicImage]] = image.topics_by_tenant
        self.by_id: Mapping[UUID, TopicImage] = image.topics_by_id
        self._copied: dict[str, dict[str, TopicImage]] = {}
        self._is_copied = False

    def get(self, tenant: str, name: str) -> TopicImage | None:
        topics = self.by_tenant.get(tenant)
        return None if topics is None else topics.get(name)

    def put(self, topic: TopicImage) -> None:
        """A new topic, or the next state of one."""
        _, by_id, of_tenant = self._writable(topic.tenant)
        of_tenant[topic.name] = by_id[topic.topic_id] = topic

    def remove(self, topic: TopicImage) -> None:
        by_tenant, by_id, of_tenant = self._writable(topic.tenant)
        del of_tenant[topic.name], by_id[topic.topic_id]
        if not of_tenant:
            del by_tenant[topic.tenant], self._copied[topic.tenant]

    def _writable(
        self, tenant: str
    ) -> tuple[dict[str, Mapping[str, TopicImage]], dict[UUID, TopicImage], dict[str, TopicImage]]:
        if not self._is_copied:
            self._is_copied = True
            self.by_tenant, self.by_id = dict(self.by_tenant), dict(self.by_id)
        by_tenant, by_id = self.by_tenant, self.by_id
        assert isinstance(by_tenant, dict)
        assert isinstance(by_id, dict)
        of_tenant = self._copied.get(tenant)
        if of_tenant is None:
            of_tenant = self._copied[tenant] = dict(by_tenant.get(tenant, {}))
            by_tenant[tenant] = of_tenant
        return by_tenant, by_id, of_tenant


def by_tenant(topics: Iterable[TopicImage]) -> dict[str, Mapping[str, TopicImage]]:
    """Topics as an image has them."""
    found: dict[str, dict[str, TopicImage]] = {}
    for topic in topics:
        found.setdefault(topic.tenant, {})[topic.name] = topic
    return dict(found)


def changed_topics(
    old: MetadataImage, new: MetadataImage
) -> Iterator[tuple[TopicImage, TopicImage | None]]:
    """The topics of `old` that are not the same object in `new`, with what has their name there.
    By name: with thousands of topics, hashing ids would take most of a commit's time."""
    for tenant, topics in old.topics_by_tenant.items():
        others = new.topics_of(tenant)
        if others is topics:
            continue
        for name, topic in topics.items():
            other = others.get(name)
            if other is not topic:
                yield topic, other
