"""DeleteTopics, versions 1 to 6: by name, and from version 6 on by id.

All topics of a request that may go are deleted in one commit. Their logs go when the new image is
applied, which renames their folders; files are removed after file.delete.delay.ms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from data_plane.broker.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change, DeleteTopic
from data_plane.cell.metadata import MetadataImage, TopicImage
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


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DELETE_TOPICS, MIN_VERSION, MAX_VERSION, handle_delete_topics)
