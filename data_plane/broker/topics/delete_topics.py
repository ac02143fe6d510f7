"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id.

All topics of a request that may go are deleted in one commit. Their logs go when the new image is
applied, which renames their folders; files are removed after file.delete.delay.ms. Of a topic with
tidewheel.undelete.ms nothing goes yet (kept_topics.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.kept_topics import KeptTopics
from data_plane.broker.topics.mutation_quota import Mutations
from data_plane.broker.topics.ownership import refuse_if_declared
from data_plane.broker.topics.virtual_creation import refuse_if_source
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.virtual_topics import virtual_topics_by_source
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 1, 6
BY_ID_VERSION = 6
DELETION_DISABLED_VERSION = 3
UNKNOWN_ID_MESSAGE = "This server does not host this topic ID."
ZERO_ID = UUID(int=0)


def handle_delete_topics(
    services: Services, context: RequestContext, request: DeleteTopicsRequest, now_ms: int
) -> Deferred[DeleteTopicsResponse] | DeleteTopicsResponse:
    if context.api_version >= BY_ID_VERSION:
        wanted = request.topics
    else:
        wanted = [DeleteTopicState(name=name) for name in request.topic_names]
    if not services.config.get_bool("delete.topic.enable"):
        return DeleteTopicsResponse(
            responses=[_deletion_disabled(context, topic) for topic in wanted]
        )
    deferred: Deferred[DeleteTopicsResponse] = Deferred()
    results: list[DeletableTopicResult] = []
    mutations = Mutations(services, context)

    def decide(image: MetadataImage) -> Sequence[Change]:
        results.clear()
        delete = KeptTopics(services).deletion
        return _decide_deletions(context, image, wanted, results, delete, mutations)

    def done(error: BaseException | None) -> None:
        if error is not None:
            refusal = commit_refusal(error)
            for result in results:
                if result.error_code == ErrorCode.NONE:
                    result.error_code = int(refusal.code)
                    result.error_message = refusal.message
        deferred.complete(DeleteTopicsResponse(responses=results))

    services.metadata.write(decide, done, author=context.author, cost=len(wanted))
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
    context: RequestContext,
    image: MetadataImage,
    wanted: Sequence[DeleteTopicState],
    results: list[DeletableTopicResult],
    delete: Callable[[MetadataImage, TopicImage], Change],
    mutations: Mutations,
) -> list[Change]:
    topics = context.topics.within(image)
    provided = _Provided(topics, wanted)
    virtual_topics = virtual_topics_by_source(topics.all())
    # The ids of those that go; a source goes when all virtual topics that it has are among them.
    gone: set[UUID] = set()
    changes: list[Change] = []
    found: dict[int, DeletableTopicResult] = {}
    reported: set[tuple[str | None, UUID]] = set()
    in_turn = sorted(enumerate(wanted), key=lambda each: not _is_virtual(topics, each[1]))
    for place, state in in_turn:
        key = (state.name, state.topic_id)
        if key in reported and key != (None, ZERO_ID):
            continue
        reported.add(key)
        if state.name is None and state.topic_id in provided.ids_of_names:
            # By name and by id: it is told once, under its name, that this will not do.
            continue
        try:
            topic = _topic_to_delete(topics, state, provided)
            refuse_if_declared(image, context.namespace, topic.name, "deleted")
            followers = virtual_topics.get(topic.topic_id, ())
            refuse_if_source(topic, (each for each in followers if each.topic_id not in gone))
            change = delete(image, topic)
            mutations.count(topic.topic_id, len(topic.partitions))
        except Refusal as refusal:
            topic_id = state.topic_id
            if topic_id == ZERO_ID and state.name in provided.names_of_ids:
                topic_id = provided.names_of_ids[state.name]
            found[place] = DeletableTopicResult(
                name=state.name,
                topic_id=topic_id,
                error_code=int(refusal.code),
                error_message=refusal.message,
            )
        else:
            gone.add(topic.topic_id)
            changes.append(change)
            found[place] = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    results.extend(found[place] for place in sorted(found))
    return changes


def _is_virtual(topics: Topics, state: DeleteTopicState) -> bool:
    by_name = state.name is not None
    topic = topics.by_name(state.name or "") if by_name else topics.by_id(state.topic_id)
    return topic is not None and topic.is_virtual


class _Provided:
    """What a request names, and how often: names without an id, ids without a name.

    `names_of_ids` are the names, given once, of topics that are given by id, too, with those ids;
    `ids_of_names` are the ids of topics that are also named, given once."""

    __slots__ = ("ids", "ids_of_names", "names", "names_of_ids")

    def __init__(self, topics: Topics, wanted: Sequence[DeleteTopicState]) -> None:
        self.names = Counter(
            topic.name for topic in wanted if topic.name is not None and topic.topic_id == ZERO_ID
        )
        self.ids = Counter(
            topic.topic_id for topic in wanted if topic.name is None and topic.topic_id != ZERO_ID
        )
        by_id = {
            topic.topic_id: name
            for name, count in self.names.items()
            if count == 1 and (topic := topics.by_name(name)) is not None
        }
        self.names_of_ids = {
            name: topic_id for topic_id, name in by_id.items() if topic_id in self.ids
        }
        self.ids_of_names = {topic_id for topic_id in by_id if self.ids[topic_id] == 1}


def _topic_to_delete(topics: Topics, state: DeleteTopicState, provided: _Provided) -> TopicImage:
    """Raises Refusal."""
    if state.name is not None and state.topic_id != ZERO_ID:
        raise _invalid("You may not specify both topic name and topic id.")
    if state.name is not None:
        if provided.names[state.name] > 1:
            raise _invalid("Duplicate topic name.")
        if state.name in provided.names_of_ids:
            raise _invalid("The provided topic name maps to an ID that was already supplied.")
        topic = topics.by_name(state.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif state.topic_id != ZERO_ID:
        if provided.ids[state.topic_id] > 1:
            raise _invalid("Duplicate topic id.")
        topic = topics.by_id(state.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        raise _invalid("Neither topic name nor id were specified.")
    if topic is None:
        message = code.message if state.name is not None else UNKNOWN_ID_MESSAGE
        raise Refusal(code, message)
    return topic


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DELETE_TOPICS, MIN_VERSION, MAX_VERSION, handle_delete_topics)
