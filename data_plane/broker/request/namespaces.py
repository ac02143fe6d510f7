"""Names at the edge: what a request's names stand for.

A client names topics, groups and transactional ids as its namespace has them. Handlers speak the
client's names, in requests, answers and error messages; what is below them (the image, partitions,
the group coordinator, logs) knows the names inside. Handlers cross with their request's resolvers:

    topic = context.topics.by_name(name)            None as well when it is not of this namespace
    topic = context.topics.by_id(topic_id)
    context.topics.name_of(topic)                   what the client calls it
    context.topics.id_of(name)                      for `services.partitions`, bytes
    context.topics.within(image).by_name(name)      on the image that a change is decided on
    context.groups.inside(group_id), .outside(…), .has(…)

Messages for the group coordinator cross as a whole: `context.inward(request)` and
`context.outward(response)` have the generated translators (data_plane/wire/names.py) do it.
Partitions are looked up by the id of their topic.

Today there is one namespace, in which names are the same inside and outside. Whoever has more to
do than a look-up asks `is_identity` first, so that it costs nothing.

Invariants
- A resolver gives nothing of another namespace: not by name, not by id, not in a list. What is not
  there and what is not of this namespace are the same to a handler.
- `inward` and `outward` undo each other; `outward` is asked about names of the namespace only.

Deliberately absent: which namespace a connection belongs to (`ConnectionInfo.namespace` says it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from data_plane.broker.request.authorizer import Authorizer, TenantRights
    from data_plane.cell.metadata import MetadataImage, TopicImage
    from data_plane.wire.names import NameMap


# The namespace of whoever connects without saying who it is.
DEFAULT_NAMESPACE: Final = "default"
# What no topic has.
NO_ID: Final = bytes(16)


class Namespace(Protocol):
    """The names that some clients have."""

    @property
    def is_identity(self) -> bool:
        """Whether all that exists is here, under the names that it has inside."""

    @property
    def inward(self) -> NameMap:
        """From the names of clients to those inside."""

    @property
    def outward(self) -> NameMap:
        """Back."""

    def has_topic(self, inside: str) -> bool:
        """Whether what has this name inside is of this namespace."""

    def has_group(self, inside: str) -> bool: ...

    def has_transactional_id(self, inside: str) -> bool: ...


class SameNames:
    """Both directions of a namespace with the names that there are inside."""

    def topic(self, name: str) -> str:
        return name

    def group(self, group_id: str) -> str:
        return group_id

    def transactional_id(self, transactional_id: str) -> str:
        return transactional_id


class WholeBroker:
    """The namespace of all that exists."""

    is_identity = True
    inward = SameNames()
    outward = inward

    def has_topic(self, inside: str) -> bool:
        return True

    def has_group(self, inside: str) -> bool:
        return True

    def has_transactional_id(self, inside: str) -> bool:
        return True


WHOLE_BROKER = WholeBroker()


class ImageHolder(Protocol):
    """Who knows the image: a broker, its newest one."""

    @property
    def image(self) -> MetadataImage: ...


class Held:
    """One image."""

    __slots__ = ("image",)

    def __init__(self, image: MetadataImage) -> None:
        self.image = image


class Topics:
    """The topics of one namespace."""

    __slots__ = ("_holder", "_is_identity", "_namespace")

    def __init__(self, holder: ImageHolder, namespace: Namespace) -> None:
        self._holder = holder
        self._namespace = namespace
        self._is_identity = namespace.is_identity

    def within(self, image: MetadataImage) -> Topics:
        """The same, as this image has them."""
        return Topics(Held(image), self._namespace)

    def by_name(self, name: str) -> TopicImage | None:
        if not self._is_identity:
            name = self._namespace.inward.topic(name)
        return self._holder.image.topics_by_name.get(name)

    def id_of(self, name: str) -> bytes:
        """The topic's id as partitions are looked up by; NO_ID when there is none."""
        topic = self.by_name(name)
        return NO_ID if topic is None else topic.id_bytes

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        topic = self._holder.image.topics_by_id.get(topic_id)
        if topic is None or self._is_identity or self._namespace.has_topic(topic.name):
            return topic
        return None

    def all(self) -> Iterable[TopicImage]:
        """All of them, in the image's order."""
        topics = self._holder.image.topics_by_name.values()
        if self._is_identity:
            return topics
        return [topic for topic in topics if self._namespace.has_topic(topic.name)]

    def names(self) -> Iterable[str]:
        """What clients call them, in the image's order."""
        if self._is_identity:
            return self._holder.image.topics_by_name
        return [self.name_of(topic) for topic in self.all()]

    def name_of(self, topic: TopicImage) -> str:
        """What clients call a topic of this namespace."""
        return topic.name if self._is_identity else self._namespace.outward.topic(topic.name)

    def has(self, inside: str) -> bool:
        """Whether a topic of this name inside is, or would be, of this namespace."""
        return self._is_identity or self._namespace.has_topic(inside)

    def inside(self, name: str) -> str:
        """What a topic is called inside that clients call `name`, whether it exists or not."""
        return name if self._is_identity else self._namespace.inward.topic(name)

    def outside(self, inside: str) -> str:
        """What clients call a topic, also one that exists no more, with this name inside."""
        return inside if self._is_identity else self._namespace.outward.topic(inside)


class Ids:
    """The groups, or the transactional ids, of one namespace. What they are is not kept here."""

    __slots__ = ("has", "inside", "outside")

    def __init__(
        self,
        inside: Callable[[str], str],
        outside: Callable[[str], str],
        has: Callable[[str], bool],
    ) -> None:
        self.inside = inside
        self.outside = outside
        self.has = has


class RequestNames:
    """The resolvers that the requests of one namespace go by."""

    __slots__ = ("groups", "is_identity", "namespace", "rights", "topics", "transactional_ids")

    def __init__(self, holder: ImageHolder, namespace: Namespace, rights: TenantRights) -> None:
        # What its principals may do to what is named so.
        self.rights = rights
        inward, outward = namespace.inward, namespace.outward
        self.namespace = namespace
        self.is_identity = namespace.is_identity
        self.topics = Topics(holder, namespace)
        self.groups = Ids(inward.group, outward.group, namespace.has_group)
        self.transactional_ids = Ids(
            inward.transactional_id, outward.transactional_id, namespace.has_transactional_id
        )


class Namespaces:
    """Those that a broker has, by their own names. Today one."""

    def __init__(self, holder: ImageHolder, authorizer: Authorizer) -> None:
        self._holder = holder
        self._authorizer = authorizer
        # What the dispatcher looks up for each request.
        self.names: dict[str, RequestNames] = {}
        self.add(DEFAULT_NAMESPACE, WHOLE_BROKER)

    def add(self, name: str, namespace: Namespace) -> None:
        self.names[name] = RequestNames(self._holder, namespace, self._authorizer.of(name))

    def topics_inside(self, group_id: str, topics: frozenset[str]) -> frozenset[str]:
        """The names inside of topics that members of a group, by its id inside, name so."""
        for names in self.names.values():
            if not names.is_identity and names.groups.has(group_id):
                return frozenset(map(names.topics.inside, topics))
        return topics
