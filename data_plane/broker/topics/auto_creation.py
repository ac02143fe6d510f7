"""Topics that are made because a client has asked about them (auto.create.topics.enable).

Bounds: one commit for all that a request asks for, none for what is being made already, and so many
topics under way that they have NAMES_MAX names and PARTITIONS_PER_REQUEST_MAX partitions at most.
Of these no tenant has more than it leaves the others (request/budget.py). What is beyond is not
made this time; clients ask again.

Deliberately absent: whether a topic may be made, and what is answered (metadata.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_plane.broker.request.budget import Budget, TooManyNamespaces
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.request.topic_names import METADATA_TOPIC, CollisionIndex
from data_plane.broker.services import Services
from data_plane.broker.topics.create_topics import PARTITIONS_PER_REQUEST_MAX, new_topic_id
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.authors import Author
from data_plane.cell.changes import Change, CreateTopic
from data_plane.cell.metadata import MetadataImage

NAMES_MAX = 1_000


class AutoCreation:
    """The topics that are being made."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._names: set[tuple[str, str]] = set()
        # Of names, by tenant.
        self.budget = Budget(NAMES_MAX)
        services.share_out(self.budget)

    def create(self, names: Iterable[str], topics: Topics, author: Author) -> None:
        """Start making topics, which the clients of `topics` call by these names, as one of them
        asks; nothing happens to one that exists by then or cannot be. The outcome shows in the
        image."""
        services, tenant = self._services, topics.tenant
        partitions_count = services.config.get_int("num.partitions")
        budget = self.budget
        budget.max = min(NAMES_MAX, max(1, PARTITIONS_PER_REQUEST_MAX // partitions_count))
        try:
            share = budget.of(tenant)
        except TooManyNamespaces:
            return
        fresh = [name for name in dict.fromkeys(names) if (tenant, name) not in self._names]
        # One is made in any case, when no other is being made.
        room = max(share.left(), 0 if budget.used else 1)
        fresh = fresh[:room]
        if not fresh:
            return
        under_way = [(tenant, name) for name in fresh]
        self._names.update(under_way)
        share.add(len(fresh))

        def decide(image: MetadataImage) -> Sequence[Change]:
            return _decide(services, image, topics.within(image), fresh, partitions_count)

        def done(error: BaseException | None) -> None:
            self._names.difference_update(under_way)
            share.give_back(len(fresh))
            if error is not None:
                services.log.error("topics_not_created", topics=under_way[:10], error=repr(error))

        services.metadata.write(decide, done, author=author)


def _decide(
    services: Services,
    image: MetadataImage,
    topics: Topics,
    names: Sequence[str],
    partitions_count: int,
) -> list[Change]:
    taken = topics.taken()
    collisions = CollisionIndex(taken)
    new = NewPartitions(services, image)
    changes: list[Change] = []
    made: set[str] = set()
    for name in names:
        folded = name.replace(".", "_")
        if (
            name in taken
            or name == METADATA_TOPIC
            or collisions.find(name) is not None
            or folded in made
        ):
            continue
        made.add(folded)
        factor = new.default_factor("default.replication.factor")
        assignments = new.place(partitions_count, factor)
        try:
            new.take_room(topics.tenant, partitions_count)
        except Refusal:
            # Who asks goes on to be told that there is no such topic.
            continue
        topic_id = new_topic_id(services.random)
        changes.append(CreateTopic(topics.tenant, name, topic_id, assignments))
        changes += new.initial_states(topic_id, 0, assignments)
    return changes


def auto_creation_of(services: Services) -> AutoCreation:
    """The broker's one."""
    if services.auto_creation is None:
        services.auto_creation = AutoCreation(services)
    return services.auto_creation
