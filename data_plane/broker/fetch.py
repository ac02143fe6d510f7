"""Fetch, versions 4 to 18: which partitions a request means, within a session or without.

A full request (session epoch 0 or -1) names all its partitions; an incremental one changes those of
its session (KIP-227). What then is read and when it is answered is fetch_poll.py's.

Follower fetches (replica_id ≥ 0) are refused with CLUSTER_AUTHORIZATION_FAILED unless the
connection came through the inter-broker listener. The partitions that a follower names are those
whose log ends it reports; in a session, what it does not name has not changed.
"""

from __future__ import annotations

from data_plane.broker.api import Buffer, Deferred, HandlerTable, RequestContext
from data_plane.broker.fetch_poll import Poll
from data_plane.broker.fetch_response import (
    SESSIONS_VERSION,
    TOPIC_IDS_VERSION,
    PartitionResult,
    encode_fetch_response,
)
from data_plane.broker.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    KEPT_PARTITIONS_MAX,
    NO_SESSION_ID,
    FetchSet,
)
from data_plane.broker.open_fetches import PART, OpenFetches
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
        return _refuse(services, context, view, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    fetches: OpenFetches = services.parts[PART]
    is_full = view.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL)
    if is_full:
        if view.session_id != NO_SESSION_ID:
            fetches.cache.remove(view.session_id)
        if view.session_epoch == EPOCH_INITIAL and context.api_version >= SESSIONS_VERSION:
            fetch_set = _open_session(fetches, context, view, now_ms)
        else:
            fetch_set = _set_of_connection(fetches, context, view, now_ms)
    else:
        found = _continue_session(fetches, context, view, now_ms)
        if isinstance(found, ErrorCode):
            return _refuse(services, context, view, found)
        fetch_set = found
    if view.isolation_level != fetch_set.isolation_level:
        fetch_set.use_isolation_level(view.isolation_level)
    if fetch_set.is_follower:
        fetch_set.report(view.topics)
    poll = Poll(services, context, view, fetch_set, is_full, now_ms)
    if poll.evaluate() or view.max_wait_ms <= 0 or not fetch_set.partitions_count:
        return poll.answer()
    return poll.park(now_ms + view.max_wait_ms)


def _open_session(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet:
    """A new set, which becomes a session when there is a slot and memory for it."""
    fetch_set = FetchSet(
        context.api_version >= TOPIC_IDS_VERSION, now_ms, is_follower=view.replica_id >= 0
    )
    fetch_set.name_all(view.topics)
    kept_count = fetches.kept_partitions_count() + fetch_set.partitions_count
    if fetch_set.partitions_count and kept_count <= KEPT_PARTITIONS_MAX:
        fetches.cache.keep(fetch_set, now_ms)
    return fetch_set


def _continue_session(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet | ErrorCode:
    """The session with the request's changes, or the error that is the whole answer."""
    cache = fetches.cache
    uses_topic_ids = context.api_version >= TOPIC_IDS_VERSION
    fetch_set = cache.find(
        view.session_id,
        view.session_epoch,
        uses_topic_ids,
        now_ms,
        is_follower=view.replica_id >= 0,
    )
    if isinstance(fetch_set, ErrorCode):
        return fetch_set
    if fetch_set.parked is not None:
        fetch_set.parked.finish_early()
    before_count = fetch_set.partitions_count
    for topic in view.topics:
        fetch_set.name(topic)
    for gone in view.forgotten_topics:
        for index in gone.partitions:
            fetch_set.forget(gone.name, gone.topic_id, index)
    if (
        fetch_set.partitions_count > before_count
        and fetches.kept_partitions_count() > KEPT_PARTITIONS_MAX
    ):
        # The client opens a new session, and gets none as long as memory is short.
        cache.remove(fetch_set.session_id)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not fetch_set.partitions_count:
        cache.remove(fetch_set.session_id)
        fetch_set.session_id = NO_SESSION_ID
        fetch_set.is_kept = False
    return fetch_set


def _set_of_connection(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet:
    """The set of the connection's last poll with this one's changes, or a new set."""
    connection = context.connection
    uses_topic_ids = context.api_version >= TOPIC_IDS_VERSION
    is_follower = view.replica_id >= 0
    kept: FetchSet | None = connection.fetch_set
    if kept is not None and (
        kept.parked is not None
        or kept.is_being_read
        or kept.uses_topic_ids != uses_topic_ids
        or kept.is_follower != is_follower
    ):
        # A second poll while the first one is open: it has a set of its own.
        kept = None
    fetch_set = kept
    if fetch_set is None:
        fetch_set = FetchSet(uses_topic_ids, now_ms, is_follower=is_follower)
    before_count = fetch_set.partitions_count
    fetch_set.name_all(view.topics)
    if kept is not None:
        fetches.connection_partitions_count += fetch_set.partitions_count - before_count
    elif (
        connection.fetch_set is None
        and fetches.kept_partitions_count() + fetch_set.partitions_count <= KEPT_PARTITIONS_MAX
    ):
        _keep_with_connection(fetches, context, fetch_set)
    if (
        kept is not None
        and fetch_set.partitions_count > before_count
        and fetches.kept_partitions_count() > KEPT_PARTITIONS_MAX
    ):
        _drop_from_connection(fetches, context)
    return fetch_set


def _keep_with_connection(
    fetches: OpenFetches, context: RequestContext, fetch_set: FetchSet
) -> None:
    connection = context.connection
    connection.fetch_set = fetch_set
    fetch_set.is_kept = True
    fetches.connection_partitions_count += fetch_set.partitions_count

    def closed() -> None:
        if connection.fetch_set is fetch_set:
            _drop_from_connection(fetches, context)
            fetch_set.close()

    connection.on_close[closed] = None


def _drop_from_connection(fetches: OpenFetches, context: RequestContext) -> None:
    """Let the set go with its poll."""
    fetch_set: FetchSet = context.connection.fetch_set
    context.connection.fetch_set = None
    fetch_set.is_kept = False
    fetches.connection_partitions_count -= fetch_set.partitions_count


def _refuse(
    services: Services, context: RequestContext, view: FetchRequestView, error: ErrorCode
) -> list[Buffer]:
    """An error for the request as a whole; before version 7 each partition carries it."""
    results: list[PartitionResult] = []
    if context.api_version < SESSIONS_VERSION:
        fetch_set = FetchSet(False, 0)
        fetch_set.name_all(view.topics)
        results = [PartitionResult(target, int(error)) for target in fetch_set.partitions()]
    return encode_fetch_response(services, context, results, int(error), NO_SESSION_ID)


def register(table: HandlerTable) -> None:
    table.register_raw(ApiKey.FETCH, MIN_VERSION, MAX_VERSION, handle_fetch)
