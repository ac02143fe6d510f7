"""Metadata, versions 0 to 13: brokers, topics and who leads their partitions.

A topic that is asked for, does not exist and may be made (auto.create.topics.enable, and the
request allows it) is being made while UNKNOWN_TOPIC_OR_PARTITION is answered, as by Apache Kafka:
the client asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any
from uuid import UUID

from data_plane.broker.cell.cell_view import (
    NOBODY_IS_LIVE,
    controller_id,
    live_brokers,
    view_of,
)
from data_plane.broker.request.api import (
    Buffer,
    Deferred,
    HandlerTable,
    KeptRequest,
    RequestContext,
)
from data_plane.broker.request.authorized_operations import (
    CREATE,
    DESCRIBE,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    cluster_operations_of,
    topic_operations_of,
)
from data_plane.broker.request.frames import begin_frame, finish_frame
from data_plane.broker.request.large_requests import (
    SLICE_ITEMS_MAX,
    LargeRequest,
    sliced,
)
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.broker.topics.auto_creation import NAMES_MAX, auto_creation_of
from data_plane.broker.topics.metadata_encoding import (
    FLEXIBLE_VERSION,
    EncodedTopics,
    Item,
    ItemWithOperations,
    encode_response,
)
from data_plane.cell.metadata import OFFSETS_TOPIC, TopicImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.metadata_request import (
    MetadataRequest,
    MetadataRequestTopic,
    decode_metadata_request,
)
from data_plane.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 13
NULL_IS_ALL_VERSION = 1
TOPIC_ID_REQUEST_VERSION = 12
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
ZERO_ID = UUID(int=0)


def handle_metadata(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> list[bytearray] | Deferred[Any]:
    """A raw handler: the response is put together from kept bytes, see metadata_encoding."""
    version = context.api_version
    if end - position > services.loop_bounds.request_bytes_max:
        kept = context.connection.keep(buf, position, end)
        return _LargeMetadata(services, context, position, end).begin(kept)
    # Bytes behind the request are passed over, as in the dispatcher: librdkafka sends some.
    request = decode_metadata_request(Reader(buf, position, end), version)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    response, items = _answer(services, context, request, operations)
    encoded = _encoded_topics(services, context)
    if operations != NOT_ASKED and not context.names.rights.is_open:
        items = _with_operations(context, items)
    writer = Writer()
    writer.buf += begin_frame(context.correlation_id, version >= FLEXIBLE_VERSION)
    encode_response(writer, response, items, version, operations, encoded)
    finish_frame([writer.buf])
    return [writer.buf]


def _with_operations(context: RequestContext, items: Sequence[Item]) -> list[Item]:
    """`items`, which have the client's names, each with what he may do to it."""
    return [
        ItemWithOperations(item, topic_operations_of(context, item.name))
        if isinstance(item, TopicImage)
        else item
        for item in items
    ]


def _encoded_topics(services: Services, context: RequestContext) -> EncodedTopics:
    encoded = services.encoded_topics
    if encoded is None:
        encoded = services.encoded_topics = EncodedTopics()
    failed_count = len(services.logs.offline_directories())
    if (
        encoded.brokers is not services.image.brokers
        or encoded.view.failed_directories_count != failed_count
    ):
        encoded.show(services.image.brokers, view_of(services))
    return encoded


# As many topics as may be in the making at a time.
CREATING_SLICES_MAX = NAMES_MAX // SLICE_ITEMS_MAX


class _LargeMetadata:
    """A request that names very many topics, of which few can exist."""

    __slots__ = (
        "_context",
        "_end",
        "_found",
        "_missing",
        "_operations",
        "_position",
        "_response",
        "_services",
        "_view",
    )

    def __init__(
        self, services: Services, context: RequestContext, position: int, end: int
    ) -> None:
        self._services = services
        self._context = context
        self._position, self._end = position, end
        self._response = MetadataResponse()
        self._operations = NOT_ASKED
        self._found: list[Item] = []
        self._missing: list[Item] = []
        self._view = NOBODY_IS_LIVE

    def begin(self, kept: KeptRequest) -> Deferred[Any]:
        return LargeRequest(
            self._services, self._context, kept, self._decode, self._handle, self._encode
        ).deferred

    def _decode(self, kept: KeptRequest) -> list[MetadataRequest]:
        version = self._context.api_version
        reader = Reader(kept.buf, self._position - kept.shift, self._end - kept.shift)
        request = decode_metadata_request(reader, version)
        wanted = request.topics
        if not wanted:
            return [request]
        if not _is_well_formed(wanted, version):
            self._missing = _malformed(wanted)
            return []
        # Whether topics have names or ids is the whole request's matter.
        has_ids = any(topic.topic_id != ZERO_ID for topic in wanted)
        different = {topic.topic_id if has_ids else topic.name: topic for topic in wanted}
        if has_ids:
            different.pop(ZERO_ID, None)
        parts = []
        for number, topics in enumerate(sliced(list(different.values()))):
            part = copy(request)
            part.topics = list(topics)
            if number >= CREATING_SLICES_MAX:
                # Those of the slices before may be made by now, and would make room for more.
                part.allow_auto_topic_creation = False
            parts.append(part)
        return parts

    def _handle(self, part: MetadataRequest, now_ms: int) -> None:
        services = self._services
        asked = part.include_topic_authorized_operations
        self._operations = TOPIC_OPERATIONS if asked else NOT_ASKED
        response, items = _answer(services, self._context, part, self._operations)
        if not self._response.brokers:
            self._response = response
        if asked and not self._context.names.rights.is_open:
            items = _with_operations(self._context, items)
        for item in items:
            is_missing = isinstance(item, MetadataResponseTopic)
            (self._missing if is_missing else self._found).append(item)
        self._view = view_of(services)

    def _encode(self) -> list[Buffer]:
        """Of what nobody changes: images and this request's own messages. Which logs are on failed
        disks may be read by any thread."""
        version = self._context.api_version
        writer = Writer()
        writer.buf += begin_frame(self._context.correlation_id, version >= FLEXIBLE_VERSION)
        items = self._found + self._missing
        encoded = EncodedTopics(self._view)
        encode_response(writer, self._response, items, version, self._operations, encoded)
        finish_frame([writer.buf])
        return [writer.buf]


def _answer(
    services: Services, context: RequestContext, request: MetadataRequest, operations: int
) -> tuple[MetadataResponse, Sequence[Item]]:
    """The response without topics, and its topics under the names that the client knows."""
    version = context.api_version
    wanted = request.topics
    if wanted and not _is_well_formed(wanted, version):
        return MetadataResponse(), _malformed(wanted)
    response = MetadataResponse(
        brokers=brokers(services, context.listener),
        cluster_id=context.names.cluster_id,
        controller_id=controller_id(services),
    )
    if version in CLUSTER_OPERATIONS_VERSIONS and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations_of(context)
    if wanted is None or (not wanted and version < NULL_IS_ALL_VERSION):
        # Virtual topics are asked for by name: whoever subscribes to all topics, or to a pattern,
        # would get their sources' records twice.
        is_open, may = context.names.rights.is_open, context.may_to_topic
        items: list[Item] = [
            each
            for each in context.topics.all()
            if not each.is_virtual and (is_open or may(DESCRIBE, each.name))
        ]
    elif any(topic.topic_id != ZERO_ID for topic in wanted):
        items = _by_id(services, context, wanted)
    else:
        may_create = request.allow_auto_topic_creation
        items = _by_name(services, context, wanted, operations, may_create)
    return response, items


def brokers(services: Services, listener: str) -> list[MetadataResponseBroker]:
    """All live brokers, for clients of this listener."""
    return [
        MetadataResponseBroker(
            node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
        )
        for broker in live_brokers(services, listener)
    ]


def _is_well_formed(wanted: Sequence[MetadataRequestTopic], version: int) -> bool:
    """Before version 12 topics are named; from then on each has a name or an id."""
    if version < TOPIC_ID_REQUEST_VERSION:
        return all(topic.name is not None and topic.topic_id == ZERO_ID for topic in wanted)
    return all(topic.name is not None or topic.topic_id != ZERO_ID for topic in wanted)


def _malformed(wanted: Sequence[MetadataRequestTopic]) -> list[Item]:
    return [
        MetadataResponseTopic(
            error_code=int(ErrorCode.INVALID_REQUEST),
            name=topic.name or "",
            topic_id=topic.topic_id,
        )
        for topic in wanted
    ]


def _by_id(
    services: Services, context: RequestContext, wanted: Sequence[MetadataRequestTopic]
) -> list[Item]:
    shown = services.shown_topics
    items: list[Item] = []
    for topic_id in dict.fromkeys(topic.topic_id for topic in wanted):
        if topic_id == ZERO_ID:
            # Named among topics with ids: Kafka says nothing of it.
            continue
        topic = context.topics.by_id(topic_id)
        items.append(
            MetadataResponseTopic(
                error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=topic_id
            )
            if topic is None
            else shown.of(services.image, topic)
            if context.may_to_topic(DESCRIBE, topic.name)
            # Ids are no secrets, names are.
            else MetadataResponseTopic(
                error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), name=None, topic_id=topic_id
            )
        )
    return items


def _by_name(
    services: Services,
    context: RequestContext,
    wanted: Sequence[MetadataRequestTopic],
    operations: int,
    allow_auto_topic_creation: bool,
) -> list[Item]:
    may_create = allow_auto_topic_creation and services.config.get_bool("auto.create.topics.enable")
    topics = context.cell_topics
    found: list[Item] = []
    missing: list[Item] = []
    to_create: list[str] = []
    refused: list[Item] = []
    is_open = context.names.rights.is_open
    creates_any = is_open or context.may_to_cluster(CREATE)
    for name in dict.fromkeys(topic.name for topic in wanted):
        assert name is not None
        if not is_open and not context.may_to_topic(DESCRIBE, name):
            refused.append(_refused(name))
            continue
        topic = topics.by_name(name)
        if topic is not None:
            shown = services.shown_topics.of(services.image, topic)
            found.append(shown if shown.name == name else replace(shown, name=name))
            continue
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_name_reason(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif may_create and (creates_any or context.may_to_topic(CREATE, name)):
            to_create.append(name)
        elif may_create:
            refused.append(_refused(name))
            continue
        missing.append(
            MetadataResponseTopic(
                error_code=int(error),
                name=name,
                is_internal=topics.is_internal(name),
                topic_authorized_operations=operations,
            )
        )
    internal = {name for name in to_create if topics.is_internal(name)}
    if OFFSETS_TOPIC in internal:
        # The group service knows how its topic has to be.
        services.groups.topic.create()
    ordinary = (name for name in to_create if name not in internal)
    if to_create:
        auto_creation_of(services).create(ordinary, topics, context.author)
    return found + missing + refused


def _refused(name: str) -> Item:
    """The same whether there is such a topic or not."""
    return MetadataResponseTopic(
        error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        name=name,
        topic_authorized_operations=NOT_ASKED,
    )


def register(table: HandlerTable) -> None:
    table.register_raw(ApiKey.METADATA, MIN_VERSION, MAX_VERSION, handle_metadata)
