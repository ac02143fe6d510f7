"""CreateTopics, versions 2 to 7.

A request is decided topic by topic against one image; all topics that pass are committed together,
and the answer leaves when the commit is durable. Their logs are made when they are first used: a
crash before that loses nothing, since the image is what says that they exist.

One topic's failure never touches another's. Errors and their words are Apache Kafka's (4.3, KRaft).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

from data_plane.broker.config.topic_bounds import (
    MANUAL_ASSIGNMENT,
    REPLICATION_FACTOR,
    refuse_beyond_bounds,
)
from data_plane.broker.config.validation import (
    check_levels,
    check_topic_configs,
    effective_config,
)
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.frames import begin_frame, finish_frame
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.request.splicing import ArrayPlace
from data_plane.broker.request.topic_names import (
    METADATA_TOPIC,
    CollisionIndex,
    invalid_name_reason,
)
from data_plane.broker.services import Services
from data_plane.broker.topics.kept_topics import refuse_if_reserved
from data_plane.broker.topics.mutation_quota import Mutations
from data_plane.broker.topics.requested_replicas import NewPartitions, check_same_replication
from data_plane.broker.topics.virtual_creation import (
    MayRead,
    ReadersOfSources,
    virtual_assignments,
)
from data_plane.broker.topics.virtual_rights import refuse_foreign_dead_letters
from data_plane.cell.acls import AclOperation
from data_plane.cell.changes import Assignment, Change, ChangePartition, CreateTopic
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.virtual_topics import DEAD_LETTERS_PROPERTY, SOURCE_PROPERTY
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
    decode_create_topics_request,
)
from data_plane.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
    encode_create_topics_response,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 2, 7
# From here on the answer has configurations, and is in flexible encoding.
CONFIGS_VERSION = 5

# Kafka's limit, which bounds what one request may cost.
PARTITIONS_PER_REQUEST_MAX = 10_000
DEFAULT = -1
ZERO_ID = UUID(int=0)


def new_topic_id(random: Random) -> UUID:
    """A random id. In Kafka's base64 none begins with '-', which tools take for an option."""
    while True:
        topic_id = UUID(int=random.getrandbits(128), version=4)
        if topic_id.bytes[0] >> 2 != 62:
            return topic_id


class _Creation(NamedTuple):
    """The answer for one topic, and its overrides if it is to be made."""

    result: CreatableTopicResult
    overrides: tuple[tuple[str, str], ...] | None


def handle_create_topics(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> Deferred[list[bytearray]]:
    """A raw handler: configurations that new topics have in common are encoded once."""
    version = context.api_version
    request = decode_create_topics_request(Reader(buf, position, end), version)
    refused: list[_Creation] = []
    if not context.names.rights.is_open:
        refused = _take_refused(context, request)
    deferred: Deferred[list[bytearray]] = Deferred()
    creations: dict[str, _Creation] = {}
    mutations = Mutations(services, context)

    def decide(image: MetadataImage) -> Sequence[Change]:
        creations.clear()
        changes = _decide_creations(services, context, image, request, creations, mutations)
        return () if request.validate_only else changes

    def done(error: BaseException | None) -> None:
        if error is not None:
            for name, creation in creations.items():
                if creation.overrides is not None:
                    creations[name] = _create_failure(name, commit_refusal(error))
        frame = begin_frame(context.correlation_id, version >= CONFIGS_VERSION)
        answers = [*refused, *creations.values()]
        if not context.names.rights.is_open:
            answers = [_without_secrets(context, each) for each in answers]
        frame += _encode_creations(services, answers, version)
        finish_frame([frame])
        deferred.complete([frame])

    services.metadata.write(decide, done, author=context.author, cost=_cost_of(request))
    return deferred


def _cost_of(request: CreateTopicsRequest) -> int:
    """How many partitions are asked for, or topics with the default's; as many as it may make."""
    counts = (max(1, topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    return min(sum(counts), PARTITIONS_PER_REQUEST_MAX)


def _take_refused(context: RequestContext, request: CreateTopicsRequest) -> list[_Creation]:
    """Take out of a request what its sender may not make."""
    if context.may_to_cluster(AclOperation.CREATE):
        return []
    failed = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    names = dict.fromkeys(topic.name for topic in request.topics)
    refused = {name for name in names if not context.may_to_topic(AclOperation.CREATE, name)}
    request.topics = [topic for topic in request.topics if topic.name not in refused]
    return [_create_failure(name, failed) for name in names if name in refused]


def _without_secrets(context: RequestContext, creation: _Creation) -> _Creation:
    """Who may not describe configurations is told that a topic was made, and nothing of it."""
    result, overrides = creation
    if overrides is None or context.may_to_topic(AclOperation.DESCRIBE_CONFIGS, result.name):
        return creation
    result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result.num_partitions = result.replication_factor = DEFAULT
    return _Creation(result, None)


def _decide_creations(
    services: Services,
    context: RequestContext,
    image: MetadataImage,
    request: CreateTopicsRequest,
    creations: dict[str, _Creation],
    mutations: Mutations,
) -> list[Change]:
    """Fill `creations` and return the changes of the topics that pass."""
    topics = context.topics.within(image)
    names = Counter(topic.name for topic in request.topics)
    decision = Creations(
        services,
        image,
        topics,
        may_read=lambda name: context.may_to_topic(AclOperation.READ, name),
        may_write=lambda name: context.may_to_topic(AclOperation.WRITE, name),
    )
    changes: list[Change] = []
    partitions_total = sum(wanted_partitions(topics, topic) for topic in request.topics)
    for topic in request.topics:
        name = topic.name
        if name in creations:
            continue
        try:
            if partitions_total > PARTITIONS_PER_REQUEST_MAX:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request.",
                )
            if names[name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            change, states = decision.decide(topic)
            mutations.count(name, len(change.assignments))
        except Refusal as refusal:
            creations[name] = _create_failure(name, refusal)
        else:
            changes += [change, *states]
            creations[name] = _Creation(_creation_result(name, change), change.configs)
    return changes


def wanted_partitions(topics: Topics, topic: CreatableTopic) -> int:
    """How many a request asks for; a virtual topic has one for each of its source's."""
    for each in topic.configs:
        if each.name == SOURCE_PROPERTY:
            source = topics.by_name(each.value or "")
            return 1 if source is None else len(source.partitions)
    return len(topic.assignments) or max(topic.num_partitions, 1)


class Creations:
    """Decides new topics of one namespace, one after the other, on one image."""

    def __init__(
        self,
        services: Services,
        image: MetadataImage,
        topics: Topics,
        *,
        new: NewPartitions | None = None,
        may_read: MayRead = lambda name: True,
        may_write: MayRead = lambda name: True,
    ) -> None:
        """`may_read`, `may_write`: whether who asks may do that to a topic, by its name."""
        self._services = services
        self._image = image
        self._topics = topics
        self._new = NewPartitions(services, image) if new is None else new
        self._may_read, self._may_write = may_read, may_write
        self._readers = ReadersOfSources(topics)
        self._collisions = CollisionIndex(topics.taken())

    def decide(self, topic: CreatableTopic) -> tuple[CreateTopic, list[ChangePartition]]:
        """The topic, and what its partitions begin with. Raises Refusal."""
        services, new, name = self._services, self._new, topic.name
        reason = invalid_name_reason(name)
        if reason is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if name == METADATA_TOPIC:
            message = f"Creation of internal topic {name} is prohibited."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if self._topics.by_name(name) is not None:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        refuse_if_reserved(self._topics, name)
        collision = self._collisions.find(name)
        if collision is not None:
            raise Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {collision}",
            )
        configs = check_topic_configs(
            effective_config(services).topics, ((each.name, each.value) for each in topic.configs)
        )
        check_levels(effective_config(services).topics, self._image, configs)
        source, source_id = configs.get(SOURCE_PROPERTY), None
        if source:
            source_id, assignments = virtual_assignments(
                self._image, self._topics, new, topic, source, self._may_read
            )
            self._readers.add_one(source_id, source)
            dead_letters = configs.get(DEAD_LETTERS_PROPERTY, "")
            refuse_foreign_dead_letters(self._topics, name, dead_letters, self._may_write)
        elif topic.assignments:
            assignments = _manual_assignments(new, topic)
        else:
            assignments = _automatic_assignments(services, new, topic)
        refuse_beyond_bounds(
            self._topics.tenant,
            new.topic_bounds,
            {
                **configs,
                REPLICATION_FACTOR: str(len(assignments[0])),
                MANUAL_ASSIGNMENT: "true" if topic.assignments else "false",
            },
        )
        new.take_room(self._topics.tenant, len(assignments))
        topic_id = new_topic_id(services.random)
        change = CreateTopic(
            self._topics.tenant,
            name,
            topic_id,
            assignments,
            tuple(configs.items()),
            source_id=source_id,
        )
        return change, list(new.initial_states(topic_id, 0, assignments))


def _manual_assignments(new: NewPartitions, topic: CreatableTopic) -> tuple[Assignment, ...]:
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
    by_index: dict[int, Assignment] = {}
    first: Assignment | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        replicas = by_index[index] = new.check_manual(index, assignment.broker_ids)
        first = first or replicas
        check_same_replication((first, replicas))
    if sorted(by_index) != list(range(len(by_index))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return tuple(by_index[index] for index in sorted(by_index))


def _automatic_assignments(
    services: Services, new: NewPartitions, topic: CreatableTopic
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
        factor = new.default_factor("default.replication.factor")
    return new.place(count, factor)


def _creation_result(name: str, change: CreateTopic) -> CreatableTopicResult:
    is_virtual = change.source_id is not None
    return CreatableTopicResult(
        name=name,
        topic_id=change.topic_id,
        error_message=None,
        num_partitions=len(change.assignments) * (2 if is_virtual else 1),
        replication_factor=len(change.assignments[0]),
    )


def _create_failure(name: str, refusal: Refusal) -> _Creation:
    result = CreatableTopicResult(
        name=name, error_code=int(refusal.code), error_message=refusal.message
    )
    return _Creation(result, None)


def _encode_creations(
    services: Services, creations: Sequence[_Creation], version: int
) -> bytearray:
    """The response, see splicing.py."""
    encoded: dict[frozenset[tuple[str, str]], tuple[int, bytes]] = {}
    place = _array_place(version)
    chunks: list[bytes | bytearray] = []
    for result, overrides in creations:
        chunk = _encode_result(result, version)
        if overrides is None or version < CONFIGS_VERSION:
            chunks.append(chunk)
            continue
        key = frozenset(overrides)
        configs = encoded.get(key)
        if configs is None:
            configs = encoded[key] = _encode_configs(services, dict(overrides), version)
        count, config_bytes = configs
        chunks.append(place.splice(chunk, count, (config_bytes,)))
    return place.splice(_encode_response([], version), len(chunks), chunks)


def _encode_configs(
    services: Services, overrides: Mapping[str, str], version: int
) -> tuple[int, bytes]:
    """(how many, their bytes) of a new topic's configurations."""
    configs = [
        CreatableTopicConfigs(name=name, value=value, config_source=int(source))
        for name, value, source in effective_config(services).topic_values(overrides)
    ]
    with_configs = _encode_result(CreatableTopicResult(configs=configs), version)
    without = _encode_result(CreatableTopicResult(), version)
    return len(configs), _array_place(version).elements(with_configs, without, len(configs))


def _encode_result(result: CreatableTopicResult, version: int) -> bytes:
    empty = _encode_response([], version)
    return _array_place(version).elements(_encode_response([result], version), empty, 1)


def _encode_response(results: list[CreatableTopicResult], version: int) -> bytearray:
    writer = Writer()
    encode_create_topics_response(writer, CreateTopicsResponse(topics=results), version)
    return writer.buf


def _array_place(version: int) -> ArrayPlace:
    """Behind the topics of the response, and behind the configs of a topic, stand tags."""
    is_flexible = version >= CONFIGS_VERSION
    return ArrayPlace(is_flexible, int(is_flexible))


def register(table: HandlerTable) -> None:
    table.register_raw(ApiKey.CREATE_TOPICS, MIN_VERSION, MAX_VERSION, handle_create_topics)
