"""Whose names a request speaks: the resolvers of its tenant.

A client names topics, groups and transactional ids as its tenant has them, and so does everything
below the handlers: what is the same everywhere is never translated. A name alone means nothing
inside; it goes with its tenant, and an id of a topic goes by itself.

    topic = context.topics.by_name(name)            None as well when it is another tenant's
    topic = context.topics.by_id(topic_id)
    context.topics.id_of(name)                      for `services.partitions`, bytes
    context.topics.within(image).by_name(name)      on the image that a change is decided on
    context.topics.taken()                          the names that no new topic can have
    context.tenant                                  for whatever else asks whose name it is
    context.tenant_id                               for what is kept of it beside the metadata

Invariants
- A topic that is deleted and can come back is not there, but that its name is taken.
- A resolver gives nothing of another tenant: not by name, not by id, not in a list. What is not
  there and what is another tenant's are the same to a handler.
- There is no look-up by a bare name: whoever forgets the tenant does not type-check.

Deliberately absent: which tenant a connection belongs to (`ConnectionInfo.namespace` says it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from data_plane.broker.request.budget import UNLIMITED
from data_plane.cell.metadata import is_internal_topic
from data_plane.cell.tenants import DEFAULT_TENANT, TenantImage

if TYPE_CHECKING:
    from data_plane.broker.request.authorizer import Authorizer, TenantRights
    from data_plane.cell.metadata import MetadataImage, TopicImage


# The namespace of whoever connects without saying who it is.
DEFAULT_NAMESPACE: Final = DEFAULT_TENANT
# What no topic has.
NO_ID: Final = bytes(16)


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
    """The topics of one tenant."""

    __slots__ = ("_found", "_found_in", "_holder", "tenant")

    def __init__(self, holder: ImageHolder, tenant: str) -> None:
        self._holder = holder
        self.tenant = tenant
        # Those of `_found_in` that are not deleted.
        self._found_in: Mapping[str, TopicImage] | None = None
        self._found: Mapping[str, TopicImage] = {}

    def within(self, image: MetadataImage) -> Topics:
        """The same, as this image has them."""
        return Topics(Held(image), self.tenant)

    def by_name(self, name: str) -> TopicImage | None:
        # On the path of every request: no call more than needed.
        try:
            topic = self._holder.image.topics_by_tenant[self.tenant][name]
        except KeyError:
            return None
        return topic if topic.deletion is None else None

    def id_of(self, name: str) -> bytes:
        """The topic's id as partitions are looked up by; NO_ID when there is none."""
        topic = self.by_name(name)
        return NO_ID if topic is None else topic.id_bytes

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        topic = self._holder.image.topics_by_id.get(topic_id)
        if topic is None or topic.tenant != self.tenant or topic.deletion is not None:
            return None
        return topic

    def by_names(self) -> Mapping[str, TopicImage]:
        """All of them, in the image's order."""
        topics = self.taken()
        if topics is not self._found_in:
            self._found_in, self._found = topics, topics
            if any(topic.deletion is not None for topic in topics.values()):
                self._found = {
                    name: topic for name, topic in topics.items() if topic.deletion is None
                }
        return self._found

    def taken(self) -> Mapping[str, TopicImage]:
        """As `by_names`, with those that are deleted and can come back."""
        return self._holder.image.topics_of(self.tenant)

    def all(self) -> Iterable[TopicImage]:
        return self.by_names().values()

    def name_of(self, topic: TopicImage) -> str:
        """What it is called by who asks."""
        return topic.name

    def is_internal(self, name: str) -> bool:
        """Whether a topic of this name is, or would be, one of the broker's own."""
        return is_internal_topic(self.tenant, name)


class CellTopics(Topics):
    """Those of all tenants, for operators: `orders` is the default tenant's, `acme/orders` that of
    `acme`. Neither topics nor tenants have a slash in their names. Deleted ones that can come back
    are there, too: they have replicas."""

    __slots__ = ()

    def __init__(self, holder: ImageHolder) -> None:
        super().__init__(holder, DEFAULT_TENANT)

    def within(self, image: MetadataImage) -> CellTopics:
        return CellTopics(Held(image))

    def by_name(self, name: str) -> TopicImage | None:
        tenant, separator, topic = name.partition("/")
        if not separator:
            return self._holder.image.topic(DEFAULT_TENANT, name)
        return None if tenant == DEFAULT_TENANT else self._holder.image.topic(tenant, topic)

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        return self._holder.image.topics_by_id.get(topic_id)

    def by_names(self) -> Mapping[str, TopicImage]:
        return {str(topic): topic for topic in self.all()}

    def all(self) -> Iterable[TopicImage]:
        return self._holder.image.topics_in_order()

    def name_of(self, topic: TopicImage) -> str:
        return str(topic)


class TenantUse:
    """What a tenant's clients use at this broker; see data_plane/replica/topic_use.py."""

    __slots__ = ("requests", "tenant", "throttle_ms", "throttled_requests")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.requests = 0
        self.throttle_ms = 0
        self.throttled_requests = 0


class RequestNames:
    """The resolvers that the requests of one tenant go by."""

    __slots__ = (
        "cell_topics",
        "cluster_id",
        "message_bytes_max",
        "refused_by_state",
        "rights",
        "storage_refusal",
        "tenant",
        "tenant_id",
        "topics",
        "use",
    )

    def __init__(
        self, holder: ImageHolder, tenant: TenantImage, rights: TenantRights, use: TenantUse
    ) -> None:
        self.tenant = tenant.name
        self.use = use
        # No tenant of the same name, before or after it, has this.
        self.tenant_id = tenant.tenant_id
        # What its clients are told.
        self.cluster_id = tenant.cluster_id
        # What its principals may do to what is named so.
        self.rights = rights
        self.topics = Topics(holder, tenant.name)
        # For operators, who speak for `default`.
        self.cell_topics = CellTopics(holder)
        # Why it may produce nothing, "" while it may: for its state, and for what it stores.
        self.refused_by_state = ""
        self.storage_refusal = ""
        self.message_bytes_max = UNLIMITED
        self.follow(tenant)

    def follow(self, tenant: TenantImage) -> None:
        """Its state and its limits may be others."""
        self.refused_by_state = tenant.why_inactive()
        self.message_bytes_max = tenant.quotas.message_bytes or UNLIMITED


class Namespaces:
    """Those of all tenants; they come and go with the image."""

    def __init__(self, holder: ImageHolder, cluster_id: str, authorizer: Authorizer) -> None:
        """`cluster_id` is the cell's, and the default tenant's."""
        self._holder = holder
        self._cluster_id = cluster_id
        self._authorizer = authorizer
        # What the dispatcher looks up for each request.
        self.names: dict[str, RequestNames] = {}
        # Those of tenants that are gone, too, while somebody samples.
        self.uses: dict[str, TenantUse] = {}
        self.is_sampled = False
        self._follow(holder.image)

    def image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        if old.tenants is not new.tenants:
            self._follow(new)

    def _follow(self, image: MetadataImage) -> None:
        tenants = dict(image.tenants)
        stored = tenants.get(DEFAULT_TENANT, TenantImage(DEFAULT_TENANT, ""))
        tenants[DEFAULT_TENANT] = replace(stored, cluster_id=self._cluster_id)
        for name in self.names.keys() - tenants.keys():
            del self.names[name]
            if not self.is_sampled:
                del self.uses[name]
        for name, tenant in tenants.items():
            known = self.names.get(name)
            # It may have been made anew under its name.
            if known is None or (known.tenant_id, known.cluster_id) != (
                tenant.tenant_id,
                tenant.cluster_id,
            ):
                rights = self._authorizer.of(name)
                use = self.uses.get(name)
                if use is None:
                    use = self.uses[name] = TenantUse(name)
                self.names[name] = RequestNames(self._holder, tenant, rights, use)
            else:
                known.follow(tenant)
