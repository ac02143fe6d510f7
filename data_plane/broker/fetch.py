"""Fetch, versions 4 to 18: which partitions a request means, within a session or without.

A full request (session epoch 0 or -1) names all its partitions; an incremental one changes those of
its session (KIP-227). What then is read and when it is answered is fetch_poll.py's.

Follower fetches (replica_id ≥ 0) are refused with CLUSTER_AUTHORIZATION_FAILED unless the
connection came through the inter-broker listener.
"""

from __future__ import annotations

from typing import cast

from data_plane.broker.api import Buffer, Deferred, HandlerTable, RequestContext
from data_plane.broker.fetch_poll import PART, FetchSessions, Poll
from data_plane.broker.fetch_response import (
    SESSIONS_VERSION,
    TOPIC_IDS_VERSION,
    PartitionResult,
    encode_fetch_response,
)
from data_plane.broker.fetch_sessions import EPOCH_FINAL, EPOCH_INITIAL, NO_SESSION_ID, FetchSet
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel import parse_fetch
from data_plane.wire.kernel_types import FetchRequestView
from data_plane.wire.registry import ApiKey

MIN_VERSION = 4
MAX_VERSION = 18


def handle_fetch(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> list[Buffer] | Deferred[list[Buffer]]:
    """The raw handler of Fetch."""
    view = parse_fetch(buf, position, end, context.api_version)
    if view.replica_id >= 0 and not context.connection.is_inter_broker:
        return _refuse(services, context, view, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, now_ms)
    fetch_sessions: FetchSessions = services.parts[PART]
    sessions = fetch_sessions.cache
    uses_topic_ids = context.api_version >= TOPIC_IDS_VERSION
    is_full = view.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL)
    if is_full:
        if view.session_id != NO_SESSION_ID:
            sessions.remove(view.session_id)
        fetch_set = FetchSet(uses_topic_ids, now_ms)
        _take_partitions(fetch_set, view)
        if (
            view.session_epoch == EPOCH_INITIAL
            and context.api_version >= SESSIONS_VERSION
            and fetch_set.partitions
        ):
            sessions.keep(fetch_set, now_ms)
    else:
        found = sessions.find(view.session_id, view.session_epoch, uses_topic_ids, now_ms)
        if isinstance(found, ErrorCode):
            return _refuse(services, context, view, found, now_ms)
        fetch_set = found
        if fetch_set.parked is not None:
            cast(Poll, fetch_set.parked).finish_early()
        _take_partitions(fetch_set, view)
        for topic in view.forgotten_topics:
            for index in topic.partitions:
                fetch_set.forget((topic.name, topic.topic_id, index))
        if not fetch_set.partitions:
            sessions.remove(fetch_set.session_id)
            fetch_set.session_id = NO_SESSION_ID
    poll = Poll(services, context, view, fetch_set, is_full)
    if poll.evaluate() or view.max_wait_ms <= 0 or not fetch_set.partitions:
        return poll.answer()
    return poll.park(now_ms + view.max_wait_ms)


def _take_partitions(fetch_set: FetchSet, view: FetchRequestView) -> None:
    for topic in view.topics:
        for wanted in topic.partitions:
            target = fetch_set.name((topic.name, topic.topic_id, wanted.partition))
            target.fetch_offset = wanted.fetch_offset
            target.max_bytes = wanted.partition_max_bytes
            target.current_leader_epoch = wanted.current_leader_epoch
            target.last_fetched_epoch = wanted.last_fetched_epoch


def _refuse(
    services: Services,
    context: RequestContext,
    view: FetchRequestView,
    error: ErrorCode,
    now_ms: int,
) -> list[Buffer]:
    """An error for the request as a whole; before version 7 each partition carries it."""
    results: list[PartitionResult] = []
    if context.api_version < SESSIONS_VERSION:
        fetch_set = FetchSet(False, now_ms)
        _take_partitions(fetch_set, view)
        results = [PartitionResult(target, int(error)) for target in fetch_set.partitions.values()]
    return encode_fetch_response(services, context, results, int(error), NO_SESSION_ID)


def register(table: HandlerTable) -> None:
    table.register_raw(ApiKey.FETCH, MIN_VERSION, MAX_VERSION, handle_fetch)
