"""CellOperations' calls about deleted topics: read, committed, answered.

An undeletion may be repeated: a topic that is there, and is the one that is named by its id, is
back already.

Deliberately absent: what deleted topics are (data_plane/broker/topics/kept_topics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import grpc

from data_plane.broker.request.refusal import Refusal
from data_plane.broker.topics.kept_topics import KeptTopics
from data_plane.cell.authors import Author
from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage, TopicImage
from data_plane.cell.topic_deletions import UNDATED
from data_plane.cell.virtual_topics import shown_count
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.server.cell_admin_messages import TOPIC_ID_BYTES
from data_plane.server.cell_calls import BadRequest, Calls, Done, Refused, within
from data_plane.wire.errors import ErrorCode

PAGE_TOPICS_MAX: Final = 1_000

# What is to be committed, of the topic that is named.
Decide = Callable[[KeptTopics, MetadataImage, str, str], Change]


def write_deleted_topics(
    image: MetadataImage, request: messages.ListDeletedTopicsRequest
) -> messages.ListDeletedTopicsResponse:
    """A page, by tenant and name. Raises BadRequest."""
    size = within("page_size", request.page_size, PAGE_TOPICS_MAX, PAGE_TOPICS_MAX)
    after = (request.after_tenant, request.after_name)
    found = (
        topic
        for topic in image.topics_in_order()
        if topic.deletion is not None
        and request.tenant in ("", topic.tenant)
        and (topic.tenant, topic.name) > after
    )
    page = list(islice(found, size + 1))
    return messages.ListDeletedTopicsResponse(
        topics=map(_write, page[:size]), has_more=len(page) > size, version=image.version
    )


def _write(topic: TopicImage) -> messages.DeletedTopic:
    deletion = topic.deletion
    assert deletion is not None, "they are looked up by that"
    written = messages.DeletedTopic(
        tenant=topic.tenant,
        name=topic.name,
        topic_id=topic.id_bytes,
        partitions=shown_count(topic),
    )
    if deletion.deleted_ms != UNDATED:
        written.deleted_at_ms, written.purged_at_ms = deletion.deleted_ms, deletion.purge_ms
    return written


async def undelete(
    calls: Calls, request: messages.DeletedTopicRequest, author: Author
) -> messages.DeletedTopicResponse:
    return await _commit(calls, request, author, KeptTopics.undeletion, may_be_there=True)


async def purge(
    calls: Calls, request: messages.DeletedTopicRequest, author: Author
) -> messages.DeletedTopicResponse:
    return await _commit(calls, request, author, KeptTopics.purge, may_be_there=False)


async def _commit(
    calls: Calls,
    request: messages.DeletedTopicRequest,
    author: Author,
    order: Decide,
    *,
    may_be_there: bool,
) -> messages.DeletedTopicResponse:
    services = calls.services
    tenant, name, topic_id = request.tenant, request.name, request.topic_id
    if not tenant or not name:
        raise BadRequest(f"{'name' if tenant else 'tenant'}: is missing")
    if len(topic_id) not in (0, TOPIC_ID_BYTES):
        raise BadRequest(f"topic_id: {len(topic_id)} bytes, give {TOPIC_ID_BYTES} or none")

    def decide(image: MetadataImage) -> Sequence[Change]:
        topic = image.topic(tenant, name)
        if topic is not None and topic_id not in (b"", topic.id_bytes):
            message = f"Topic '{name}' is another one than that of this id."
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, message)
        if topic is not None and topic_id and topic.deletion is None and may_be_there:
            return ()
        return (order(KeptTopics(services), image, tenant, name),)

    def start(done: Done[int]) -> None:
        services.metadata.write(
            decide, lambda error: done(services.image.version, error), author=author
        )

    try:
        return messages.DeletedTopicResponse(version=await calls.begin(start))
    except Refusal as refusal:
        raise Refused(grpc.StatusCode.NOT_FOUND, refusal.message or "") from refusal
