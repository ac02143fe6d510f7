"""CreatePartitions, versions 0 to 3: more partitions for existing topics.

As with topics: each topic is decided by itself, those that pass are committed together, and errors
and words are Apache Kafka's. Other than there the broker's own topics keep the partitions that they
were made with: where a group and its offsets are follows from their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from data_plane.broker.config.topic_bounds import MANUAL_ASSIGNMENT, refuse_beyond_bounds
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.create_topics import PARTITIONS_PER_REQUEST_MAX
from data_plane.broker.topics.mutation_quota import Mutations
from data_plane.broker.topics.ownership import refuse_if_declared
from data_plane.broker.topics.requested_replicas import NewPartitions, check_same_replication
from data_plane.broker.topics.virtual_creation import (
    growth_of_virtual_topics,
    partitions_with_growth,
    refuse_if_virtual,
)
from data_plane.cell.changes import AddPartitions, Assignment, Change
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.reassignment import target_of
from data_plane.cell.virtual_topics import virtual_topics_by_source
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from data_plane.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 3


def handle_create_partitions(
    services: Services, context: RequestContext, request: CreatePartitionsRequest, now_ms: int
) -> Deferred[CreatePartitionsResponse]:
    deferred: Deferred[CreatePartitionsResponse] = Deferred()
    results: dict[str, CreatePartitionsTopicResult] = {}
    mutations = Mutations(services, context)

    def decide(image: MetadataImage) -> Sequence[Change]:
        results.clear()
        changes = _decide_all(services, context, image, request, results, mutations)
        return () if request.validate_only else changes

    def done(error: BaseException | None) -> None:
        if error is not None:
            refusal = commit_refusal(error)
            for name, result in results.items():
                if result.error_code == ErrorCode.NONE:
                    results[name] = _failure(name, refusal)
        deferred.complete(CreatePartitionsResponse(results=list(results.values())))

    # More than are made, where there are some already.
    partitions = sum(max(1, topic.count) for topic in request.topics)
    cost = min(partitions, PARTITIONS_PER_REQUEST_MAX)
    services.metadata.write(decide, done, author=context.author, cost=cost)
    return deferred


def _decide_all(
    services: Services,
    context: RequestContext,
    image: MetadataImage,
    request: CreatePartitionsRequest,
    results: dict[str, CreatePartitionsTopicResult],
    mutations: Mutations,
) -> list[Change]:
    topics = context.topics.within(image)
    names = Counter(topic.name for topic in request.topics)
    budget = PARTITIONS_PER_REQUEST_MAX
    new = NewPartitions(services, image)
    changes: list[Change] = []
    virtual_topics = virtual_topics_by_source(topics.taken().values())
    for wanted in request.topics:
        name = wanted.name
        if name in results:
            continue
        try:
            if names[name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = topics.by_name(name)
            if topic is None:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            refuse_if_declared(image, context.namespace, name, "given partitions")
            followers = virtual_topics.get(topic.topic_id, ())
            change = _decide(new, topic, wanted, budget, followers)
            made_count = partitions_with_growth(len(change.assignments), followers)
            mutations.count(name, made_count)
        except Refusal as refusal:
            results[name] = _failure(name, refusal)
        else:
            budget -= made_count
            changes.append(change)
            changes.extend(
                new.initial_states(topic.topic_id, len(topic.partitions), change.assignments)
            )
            changes.extend(growth_of_virtual_topics(new, followers, change))
            results[name] = CreatePartitionsTopicResult(name=name)
    return changes


def _decide(
    new: NewPartitions,
    topic: TopicImage,
    wanted: CreatePartitionsTopic,
    partitions_max: int,
    followers: Sequence[TopicImage],
) -> AddPartitions:
    """Raises Refusal."""
    additional = check_growth(topic, wanted.name, wanted.count, partitions_max, followers)
    if wanted.assignments is None:
        return grow(new, topic, additional, followers)
    example = target_of(topic.partitions[0])
    refuse_beyond_bounds(topic.tenant, new.topic_bounds, {MANUAL_ASSIGNMENT: "true"})
    assignments = _manual(new, wanted, len(topic.partitions), additional, example)
    new.take_room(topic.tenant, partitions_with_growth(additional, followers))
    return AddPartitions(topic.topic_id, assignments)


def check_growth(
    topic: TopicImage,
    name: str,
    count: int,
    partitions_max: int,
    followers: Sequence[TopicImage],
) -> int:
    """How many partitions are missing of `count`, which has to be more than there are. `followers`
    are the virtual topics that grow with it. Raises Refusal."""
    refuse_if_virtual(topic, "add partitions")
    current = len(topic.partitions)
    if topic.internal:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {name} keeps its {current} partition(s): what is in them is found by their "
            "number.",
        )
    if count == current:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if count < current:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {count} would not be an "
            "increase.",
        )
    if partitions_with_growth(count - current, followers) > partitions_max:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    return count - current


def grow(
    new: NewPartitions, topic: TopicImage, additional: int, followers: Sequence[TopicImage]
) -> AddPartitions:
    """So many more partitions, with as many replicas as the first one has. Raises Refusal."""
    example = target_of(topic.partitions[0])
    assignments = new.place(additional, len(example))
    new.take_room(topic.tenant, partitions_with_growth(additional, followers))
    return AddPartitions(topic.topic_id, assignments)


def _manual(
    new: NewPartitions,
    wanted: CreatePartitionsTopic,
    first_index: int,
    additional: int,
    example: Assignment,
) -> tuple[Assignment, ...]:
    assert wanted.assignments is not None
    if len(wanted.assignments) != additional:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified.",
        )
    assignments = tuple(
        new.check_manual(index, assignment.broker_ids)
        for index, assignment in enumerate(wanted.assignments, first_index)
    )
    check_same_replication([example, *assignments])
    return assignments


def _failure(name: str, refusal: Refusal) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=int(refusal.code), error_message=refusal.message
    )


def register(table: HandlerTable) -> None:
    table.register(ApiKey.CREATE_PARTITIONS, MIN_VERSION, MAX_VERSION, handle_create_partitions)
