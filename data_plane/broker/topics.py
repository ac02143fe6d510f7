"""CreateTopics (versions 2 to 7) and DeleteTopics (versions 1 to 6).

A request is decided topic by topic against one image; all topics that pass are committed together,
and the answer leaves when the commit is durable. Their logs are made when they are first used: a
crash before that loses nothing, since the image is what says that they exist.

One topic's failure never touches another's. Errors and their words are Apache Kafka's (4.3, KRaft).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from uuid import UUID

from data_plane.broker.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.config_validation import check_topic_configs, effective_config
from data_plane.broker.placement import (
    check_manual_assignment,
    check_same_replication,
    decide_placement,
    registered_brokers,
)
from data_plane.broker.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topic_names import CollisionIndex, invalid_name_reason
from data_plane.cell.changes import Assignment, Change, CreateTopic, DeleteTopic
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from data_plane.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from data_plane.wire.registry import ApiKey

CREATE_MIN_VERSION, CREATE_MAX_VERSION = 2, 7
DELETE_MIN_VERSION, DELETE_MAX_VERSION = 1, 6
CONFIGS_VERSION = 5
DELETE_BY_ID_VERSION = 6
DELETION_DISABLED_VERSION = 3

# Kafka's limit, which bounds what one request may cost.
PARTITIONS_PER_REQUEST_MAX = 10_000
UNKNOWN_ID_MESSAGE = "This server does not host this topic ID."
DEFAULT = -1
ZERO_ID = UUID(int=0)


def new_topic_id(random: Random) -> UUID:
    """A random id. In Kafka's base64 none begins with '-', which tools take for an option."""
    while True:
        topic_id = UUID(int=random.getrandbits(128), version=4)
        if topic_id.bytes[0] >> 2 != 62:
            return topic_id


def handle_create_topics(
    services: Services, context: RequestContext, request: CreateTopicsRequest, now_ms: int
) -> Deferred[CreateTopicsResponse]:
    deferred: Deferred[CreateTopicsResponse] = Deferred()
    results: dict[str, CreatableTopicResult] = {}

    def decide(image: MetadataImage) -> Sequence[Change]:
        results.clear()
        changes = _decide_creations(services, image, request, results)
        if context.api_version < CONFIGS_VERSION:
            for result in results.values():
                result.configs = None
        return () if request.validate_only else changes

    def done(error: BaseException | None) -> None:
        if error is not None:
            for name, result in results.items():
                if result.error_code == ErrorCode.NONE:
                    results[name] = _create_failure(name, commit_refusal(error))
        deferred.complete(CreateTopicsResponse(topics=list(results.values())))

    services.metadata.write(decide, done)
    return deferred


def _decide_creations(
    services: Services,
    image: MetadataImage,
    request: CreateTopicsRequest,
    results: dict[str, CreatableTopicResult],
) -> list[Change]:
    """Fill `results` and return the changes of the topics that pass."""
    names = Counter(topic.name for topic in request.topics)
    collisions = CollisionIndex(image.topics_by_name)
    changes: list[Change] = []
    partitions_total = sum(
        len(topic.assignments) or max(topic.num_partitions, 1) for topic in request.topics
    )
    for topic in request.topics:
        name = topic.name
        if name in results:
            continue
        try:
            if partitions_total > PARTITIONS_PER_REQUEST_MAX:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                )
            if names[name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            change = _decide_creation(services, image, collisions, topic)
        except Refusal as refusal:
            results[name] = _create_failure(name, refusal)
        else:
            changes.append(change)
            results[name] = _creation_result(services, change)
    return changes


def _decide_creation(
    services: Services, image: MetadataImage, collisions: CollisionIndex, topic: CreatableTopic
) -> CreateTopic:
    name = topic.name
    reason = invalid_name_reason(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics_by_name:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = collisions.find(name)
    if collision is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {collision}",
        )
    configs = check_topic_configs((config.name, config.value) for config in topic.configs)
    assignments = (
        _manual_assignments(services, image, topic)
        if topic.assignments
        else _automatic_assignments(services, image, topic)
    )
    return CreateTopic(name, new_topic_id(services.random), assignments, tuple(configs.items()))


def _manual_assignments(
    services: Services, image: MetadataImage, topic: CreatableTopic
) -> tuple[Assignment, ...]:
    if topic.replication_factor != DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if topic.num_partitions != DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    brokers = registered_brokers(services, image)
    by_index: dict[int, Assignment] = {}
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        by_index[index] = check_manual_assignment(assignment.broker_ids, brokers)
        check_same_replication([*by_index.values()])
    if sorted(by_index) != list(range(len(by_index))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return tuple(by_index[index] for index in sorted(by_index))


def _automatic_assignments(
    services: Services, image: MetadataImage, topic: CreatableTopic
) -> tuple[Assignment, ...]:
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count = topic.num_partitions
    if count == DEFAULT:
        count = services.config.get_int("num.partitions")
    factor = topic.replication_factor
    if factor == DEFAULT:
        factor = services.config.get_int("default.replication.factor")
    return decide_placement(count, factor, registered_brokers(services, image))


def _creation_result(services: Services, change: CreateTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=change.name,
        topic_id=change.topic_id,
        error_message=None,
        num_partitions=len(change.assignments),
        replication_factor=len(change.assignments[0]),
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=int(source))
            for name, value, source in effective_config(services).topic_values(dict(change.configs))
        ],
    )


def _create_failure(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=int(refusal.code), error_message=refusal.message
    )


def handle_delete_topics(
    services: Services, context: RequestContext, request: DeleteTopicsRequest, now_ms: int
) -> Deferred[DeleteTopicsResponse] | DeleteTopicsResponse:
    if context.api_version >= DELETE_BY_ID_VERSION:
        wanted = request.topics
    else:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    if not services.config.get_bool("delete.topic.enable"):
        return DeleteTopicsResponse(
            responses=[_deletion_disabled(context, topic) for topic in wanted]
        )
    deferred: Deferred[DeleteTopicsResponse] = Deferred()
    results: list[DeletableTopicResult] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        results.clear()
        return _decide_deletions(image, wanted, results)

    def done(error: BaseException | None) -> None:
        if error is not None:
            refusal = commit_refusal(error)
            for result in results:
                if result.error_code == ErrorCode.NONE:
                    result.error_code = int(refusal.code)
                    result.error_message = refusal.message
        deferred.complete(DeleteTopicsResponse(responses=results))

    services.metadata.write(decide, done)
    return deferred


def _deletion_disabled(context: RequestContext, topic: DeleteTopicState) -> DeletableTopicResult:
    if context.api_version < DELETION_DISABLED_VERSION:
        code = ErrorCode.INVALID_REQUEST
    else:
        code = ErrorCode.TOPIC_DELETION_DISABLED
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(code),
        error_message=ErrorCode.TOPIC_DELETION_DISABLED.message,
    )


def _decide_deletions(
    image: MetadataImage,
    wanted: Sequence[DeleteTopicState],
    results: list[DeletableTopicResult],
) -> list[Change]:
    names = Counter(topic.name for topic in wanted if topic.name is not None)
    ids = Counter(topic.topic_id for topic in wanted if topic.topic_id != ZERO_ID)
    changes: list[Change] = []
    deleted: set[UUID] = set()
    reported: set[tuple[str | None, UUID]] = set()
    for state in wanted:
        key = (state.name, state.topic_id)
        if key in reported and key != (None, ZERO_ID):
            continue
        reported.add(key)
        try:
            topic = _topic_to_delete(image, state, names, ids)
            if topic.topic_id in deleted:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
        except Refusal as refusal:
            results.append(
                DeletableTopicResult(
                    name=state.name,
                    topic_id=state.topic_id,
                    error_code=int(refusal.code),
                    error_message=refusal.message,
                )
            )
        else:
            deleted.add(topic.topic_id)
            changes.append(DeleteTopic(topic.topic_id))
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return changes


def _topic_to_delete(
    image: MetadataImage,
    state: DeleteTopicState,
    names: Counter[str],
    ids: Counter[UUID],
) -> TopicImage:
    """Raises Refusal."""
    if state.name is not None and state.topic_id != ZERO_ID:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if state.name is not None:
        if names[state.name] > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = image.topics_by_name.get(state.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif state.topic_id != ZERO_ID:
        if ids[state.topic_id] > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        topic = image.topics_by_id.get(state.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if topic is None:
        message = code.message if state.name is not None else UNKNOWN_ID_MESSAGE
        raise Refusal(code, message)
    return topic


def ensure_topic(
    services: Services, name: str, partitions_count: int, configs: Sequence[tuple[str, str]] = ()
) -> None:
    """Start making a topic on a client's behalf or the broker's own; nothing happens when it
    exists by then or cannot be. The outcome shows in the image."""

    def decide(image: MetadataImage) -> Sequence[Change]:
        collisions = CollisionIndex(image.topics_by_name)
        if name in image.topics_by_name or collisions.find(name) is not None:
            return ()
        brokers = registered_brokers(services, image)
        factor = min(services.config.get_int("default.replication.factor"), len(brokers))
        assignments = decide_placement(partitions_count, factor, brokers)
        return (CreateTopic(name, new_topic_id(services.random), assignments, tuple(configs)),)

    def done(error: BaseException | None) -> None:
        if error is not None:
            services.log.error("topic_not_created", topic=name, error=repr(error))

    services.metadata.write(decide, done)


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.CREATE_TOPICS, CREATE_MIN_VERSION, CREATE_MAX_VERSION, handle_create_topics
    )
    table.register(
        ApiKey.DELETE_TOPICS, DELETE_MIN_VERSION, DELETE_MAX_VERSION, handle_delete_topics
    )
