"""What a client asks for when it creates a virtual topic (data_plane/cell/virtual_topics.py).

It is created like any topic, with the property `tidewheel.source`. Its partitions and replicas are
the source's matter, so the request either leaves them open or says what they are anyway.

Deliberately absent: which other properties a virtual topic has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.requested_replicas import NewPartitions
from data_plane.cell.changes import AddPartitions, Assignment, Change
from data_plane.cell.features import VIRTUAL_TOPICS, level_of
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.virtual_topics import HEADERS_PROPERTY, source_name
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import CreatableTopic

MayRead = Callable[[str], bool]

# Where a request leaves it to the broker.
_DEFAULT = -1
# In the words of a refusal.
NAMED_MAX = 10
# Each has logs of its own, and grows when the source does.
VIRTUAL_TOPICS_PER_SOURCE_MAX = 100


def virtual_assignments(
    image: MetadataImage,
    topics: Topics,
    new: NewPartitions,
    wanted: CreatableTopic,
    name: str,
    may_read: MayRead,
) -> tuple[UUID, tuple[Assignment, ...]]:
    """Of a virtual topic over the topic `name`: the source's id, and the replicas of the odd
    partitions, which are those of the source's. Raises Refusal."""
    if level_of(image.features, VIRTUAL_TOPICS) < 1:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Topic '{wanted.name}' reads from topic '{name}', which needs the feature "
            f"{VIRTUAL_TOPICS} at level 1: `tidewheel features upgrade`, once all brokers know it.",
        )
    if not may_read(name):
        raise Refusal(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"Who reads from topic '{name}' needs READ on it."
        )
    source = topics.by_name(name)
    if source is None:
        raise _invalid(f"tidewheel.source: topic '{name}' does not exist.")
    if source.internal:
        raise _invalid(f"tidewheel.source: topic '{name}' is one of the broker's own.")
    if source.is_virtual:
        raise _invalid(f"tidewheel.source: topic '{name}' has a source itself.")
    if source.configs.get(HEADERS_PROPERTY, "").strip().lower() != "true":
        raise _invalid(
            f"tidewheel.source: topic '{name}' has no tags: it was created without "
            f"{HEADERS_PROPERTY}=true."
        )
    if wanted.assignments:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic '{wanted.name}' has the replicas of its source '{name}'.",
        )
    count = 2 * len(source.partitions)
    if wanted.num_partitions not in (_DEFAULT, count):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{wanted.name}' has two partitions for each of its source '{name}': {count} "
            "(or -1).",
        )
    factor = _factor(source)
    if wanted.replication_factor not in (_DEFAULT, factor):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Topic '{wanted.name}' has the replicas of its source '{name}': {factor} (or -1).",
        )
    return source.topic_id, tuple(
        new.check_manual(index, target_of(partition))
        for index, partition in enumerate(source.partitions)
    )


class ReadersOfSources:
    """How many virtual topics each source has, with those that one request makes, and those that
    are deleted and can come back."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._counts: Counter[UUID | None] | None = None

    def add_one(self, source_id: UUID, name: str) -> None:
        """To the source of this name. Raises Refusal when it has as many as it may have."""
        if self._counts is None:
            self._counts = Counter(topic.source_id for topic in self._topics.taken().values())
        if self._counts[source_id] >= VIRTUAL_TOPICS_PER_SOURCE_MAX:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"Topic '{name}' is read by {self._counts[source_id]} topics already, and may be "
                f"by {VIRTUAL_TOPICS_PER_SOURCE_MAX}.",
            )
        self._counts[source_id] += 1


def partitions_with_growth(additional: int, virtual_topics: Sequence[TopicImage]) -> int:
    """How many partitions are made in all when a source with these gets so many more."""
    return additional * (1 + len(virtual_topics))


def growth_of_virtual_topics(
    new: NewPartitions, virtual_topics: Iterable[TopicImage], growth: AddPartitions
) -> Iterator[Change]:
    """What follows from the growth of a source for the virtual topics that it has: they grow by the
    same replicas. Those that are deleted and can come back, too."""
    for topic in virtual_topics:
        yield AddPartitions(topic.topic_id, growth.assignments)
        yield from new.initial_states(topic.topic_id, len(topic.partitions), growth.assignments)


def refuse_if_virtual(topic: TopicImage, what: str) -> None:
    """That this can be done to the topic itself, and not to its source only. Raises Refusal."""
    name = source_name(topic)
    if name:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Topic '{topic.name}' reads from topic '{name}': {what} there.",
        )


def refuse_if_source(topic: TopicImage, virtual_topics: Iterable[TopicImage]) -> None:
    """That no virtual topic stays that would lose its source. Raises Refusal."""
    names = sorted(f"'{each.name}'" for each in virtual_topics if each.deletion is None)
    if names:
        some = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{topic.name}' is read by {some}: delete these as well, before or in the same "
            "request.",
        )


def _factor(source: TopicImage) -> int:
    return len(target_of(source.partitions[0]))


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_CONFIG, message)
