"""OffsetFetch: committed offsets, of topics that are named or of all that a group has offsets in.

    request ─► confirmed to lead ─► looked up, in pieces if they are many ─► answer

The group coordinator knows neither topic ids nor protocol versions: here ids become names and back,
and answers get the form that their version has: several groups from version 8 on, topic ids from 10
on. An answer of very many offsets is put into its form and encoded in a thread, and a request that
names very many partitions is handled in slices (`cut`, `merge`).

Invariants
- Offsets are returned only when it is certain that no other broker coordinated the group when the
  request came: a consumer that starts from an old offset, or from none, would repeat or skip
  records. Those that are looked up later are no older.
- While an answer of many offsets is being made its connection handles nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any, Final
from uuid import UUID

from data_plane.broker.coordinators.groups import Reply, service_of
from data_plane.broker.request.api import Deferred, LongAnswer, RequestContext, Slices
from data_plane.broker.request.large_requests import SLICE_ITEMS_MAX, sliced
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from data_plane.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

VERSION_WITH_GROUPS: Final = 8
VERSION_WITH_ERROR: Final = 2
VERSION_WITH_TOPIC_IDS: Final = 10

# A group, and the member and its epoch on whose behalf its offsets are asked for.
Asking = tuple[str, str | None, int]


def handle_offset_fetch(
    services: Services, context: RequestContext, request: OffsetFetchRequest, now_ms: int
) -> Any:
    """See the module."""
    service = service_of(services)
    version = context.api_version
    groups = request.groups
    if version < VERSION_WITH_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    groups = without_repetitions(groups)
    reply = Reply()

    def confirmed(refused: frozenset[str]) -> None:
        # As of now: an answer may be put into its form in a thread.
        topics = context.topics.within(services.image)
        asked = [group for group in groups if group.group_id not in refused]
        unknown = [_name_topics(topics, context.api_version, group) for group in asked]

        def response(found: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
            for group, answer, without_name in zip(asked, found, unknown, strict=True):
                is_whole = group.topics is None
                if version >= VERSION_WITH_TOPIC_IDS:
                    _add_topic_ids(topics, answer, without_name, is_whole=is_whole)
                else:
                    _hide_deleted(topics, answer, is_whole=is_whole)
            looked_up = iter(found)
            answers = [
                OffsetFetchResponseGroup(
                    group_id=group.group_id, error_code=ErrorCode.NOT_COORDINATOR
                )
                if group.group_id in refused
                else next(looked_up)
                for group in groups
            ]
            whole = OffsetFetchResponse(groups=answers)
            if version < VERSION_WITH_GROUPS:
                whole = _fetch_of_one(groups[0], answers[0], version)
            return whole

        lookup = Reply()
        coordinator = service.coordinator
        effects = coordinator.fetch_offsets(
            context.tenant_id, asked, lookup, service.now_ms, require_stable=request.require_stable
        )
        service.carry_out(effects, service.now_ms)
        found = lookup.result()
        if not isinstance(found, Deferred):
            reply.answer(response(found))
            return
        held = context.connection.hold()
        found.when_complete(
            lambda answers: reply.answer(LongAnswer(partial(response, answers), held))
        )

    service.confirm(context.tenant_id, [group.group_id for group in groups], now_ms, confirmed)
    return reply.result()


def without_repetitions(
    groups: Iterable[OffsetFetchRequestGroup],
) -> list[OffsetFetchRequestGroup]:
    """`groups` without what a group has been asked for before: an answer may be a thousand times as
    long as the question."""
    answered_whole: set[Asking] = set()
    answered: dict[tuple[Asking, str, UUID], set[int]] = {}
    kept: list[OffsetFetchRequestGroup] = []
    for group in groups:
        asking = (group.group_id, group.member_id, group.member_epoch)
        if group.topics is None:
            if asking in answered_whole:
                continue
            answered_whole.add(asking)
        elif group.topics:
            topics = []
            for topic in group.topics:
                key = (asking, topic.name, topic.topic_id)
                known = answered.setdefault(key, set())
                wanted = dict.fromkeys(topic.partition_indexes)
                topic.partition_indexes = [index for index in wanted if index not in known]
                known.update(topic.partition_indexes)
                if topic.partition_indexes or not wanted:
                    topics.append(topic)
            if not topics:
                continue
            group.topics = topics
        kept.append(group)
    return kept


# ---- topic ids and names


def _name_topics(
    topics: Topics, version: int, group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Give each topic that is asked for its name and its id; returns the answers for ids that no
    topic has."""
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is None:
        return unknown
    if version < VERSION_WITH_TOPIC_IDS:
        for named in group.topics:
            known_topic = topics.by_name(named.name)
            if known_topic is not None:
                named.topic_id = known_topic.topic_id
        return unknown
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        topic_image = topics.by_id(topic.topic_id)
        if topic_image is None:
            unknown.append(_unknown_topic_id(topic))
        else:
            topic.name = topic_image.name
            known.append(topic)
    group.topics = known
    return unknown


def _add_topic_ids(
    topics: Topics,
    answer: OffsetFetchResponseGroup,
    unknown: list[OffsetFetchResponseTopics],
    *,
    is_whole: bool,
) -> None:
    if answer.error_code != 0:
        return
    if is_whole:
        # Offsets of topics that are gone have no id to be shown under.
        shown = []
        for each in answer.topics:
            topic = topics.by_name(each.name)
            if topic is not None:
                each.topic_id = topic.topic_id
                shown.append(each)
        answer.topics = shown
    answer.topics.extend(unknown)


def _hide_deleted(topics: Topics, answer: OffsetFetchResponseGroup, *, is_whole: bool) -> None:
    """The offsets of a topic that can come back are kept, and nobody's meanwhile."""
    taken = topics.taken()
    shown = []
    for each in answer.topics:
        topic = taken.get(each.name)
        if topic is not None and topic.deletion is not None:
            if is_whole:
                continue
            each.partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=piece.partition_index,
                    committed_offset=-1,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=piece.error_code,
                )
                for piece in each.partitions
            ]
        shown.append(each)
    answer.topics = shown


def _unknown_topic_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ],
    )


# ---- the form before version 8


def _fetch_of_one(
    request: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    """The form before version 8; in version 1 a group's error stands at each partition."""
    if answer.error_code != 0 and version < VERSION_WITH_ERROR:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=-1,
                            error_code=answer.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or []
            ]
        )
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


# ---- requests that name very many partitions


def cut(request: OffsetFetchRequest) -> list[OffsetFetchRequest]:
    """`request` as requests of at most SLICE_ITEMS_MAX partitions each."""
    parts: list[OffsetFetchRequest] = []
    if request.groups:
        for group in without_repetitions(request.groups):
            for topics in _slices(group.topics):
                piece = copy(group)
                piece.topics = topics
                part = copy(request)
                part.groups = [piece]
                parts.append(part)
        return parts
    for topics in _slices(request.topics):
        part = copy(request)
        part.topics = topics
        parts.append(part)
    return parts


def merge(response: OffsetFetchResponse, more: OffsetFetchResponse) -> None:
    """Add to a response the one to the next part of its request."""
    response.error_code = response.error_code or more.error_code
    _add_topics(response.topics, more.topics)
    for group in more.groups:
        last = response.groups[-1] if response.groups else None
        if last is None or last.group_id != group.group_id:
            response.groups.append(group)
        elif last.error_code == 0 and group.error_code == 0:
            _add_topics(last.topics, group.topics)
        else:
            last.error_code = last.error_code or group.error_code
            last.topics = []


def _add_topics(topics: list[Any], more: list[Any]) -> None:
    """Topics that go on in the next part are one."""
    for topic in more:
        last = topics[-1] if topics else None
        is_same = (
            last is not None
            and last.name == topic.name
            and getattr(last, "topic_id", None) == getattr(topic, "topic_id", None)
        )
        if is_same and last is not None:
            last.partitions.extend(topic.partitions)
        else:
            topics.append(topic)


AnyTopic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


def _slices(topics: Sequence[AnyTopic] | None) -> list[Any]:
    """Lists of topics with at most SLICE_ITEMS_MAX partitions each, a topic counting as one more;
    one list at least. None, for all topics, is one slice."""
    if not topics:
        return [topics]
    slices: list[list[AnyTopic]] = [[]]
    room = SLICE_ITEMS_MAX
    for topic in topics:
        for indexes in sliced(topic.partition_indexes):
            if room < len(indexes) + 1 and slices[-1]:
                slices.append([])
                room = SLICE_ITEMS_MAX
            piece = copy(topic)
            piece.partition_indexes = list(indexes)
            slices[-1].append(piece)
            room -= len(indexes) + 1
    return slices


OFFSET_FETCH_SLICES: Final = Slices(cut, merge)
