"""Which set of partitions a Fetch request goes on with, and whether it outlives the request.

    session epoch 0         a new set; a session when there is a slot and memory for it
    session epoch -1        the set of the connection's last poll, or a new one
    any other               the session's

The caller names the request's partitions between `for_full` and `keep`, or `of_session` and
`keep_session`, in one go (fetch_handler.py) or in
slices (large_fetches.py).
"""

from __future__ import annotations

from data_plane.broker.fetch.fetch_response import SESSIONS_VERSION, TOPIC_IDS_VERSION
from data_plane.broker.fetch.fetch_sessions import (
    EPOCH_INITIAL,
    KEPT_PARTITIONS_MAX,
    NO_SESSION_ID,
    FetchSet,
)
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.request.api import RequestContext
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView


def for_full(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet:
    """The set as it was before a request that names everything."""
    uses_topic_ids = context.api_version >= TOPIC_IDS_VERSION
    is_follower = view.replica_id >= 0
    if view.session_id != NO_SESSION_ID:
        fetches.cache.end(view.session_id, context.namespace)
    if view.session_epoch != EPOCH_INITIAL or context.api_version < SESSIONS_VERSION:
        kept: FetchSet | None = context.connection.fetch_set
        # A second poll while the first one is open has a set of its own.
        if (
            kept is not None
            and kept.parked is None
            and not kept.is_being_read
            and kept.uses_topic_ids == uses_topic_ids
            and kept.is_follower == is_follower
        ):
            return kept
    return FetchSet(context.tenant, uses_topic_ids, now_ms, is_follower=is_follower)


def keep(
    fetches: OpenFetches,
    context: RequestContext,
    view: FetchRequestView,
    fetch_set: FetchSet,
    before_count: int,
    now_ms: int,
) -> None:
    """All partitions are named; there were `before_count`."""
    if view.session_epoch == EPOCH_INITIAL and context.api_version >= SESSIONS_VERSION:
        kept_count = fetches.kept_partitions_count() + fetch_set.partitions_count
        if fetch_set.partitions_count and kept_count <= KEPT_PARTITIONS_MAX:
            fetches.cache.keep(fetch_set, now_ms, context.namespace)
    elif context.connection.fetch_set is fetch_set:
        fetches.connection_partitions_count += fetch_set.partitions_count - fetch_set.counted
        fetch_set.counted = fetch_set.partitions_count
        if (
            fetch_set.partitions_count > before_count
            and fetches.kept_partitions_count() > KEPT_PARTITIONS_MAX
        ):
            _drop_from_connection(fetches, context)
    elif (
        context.connection.fetch_set is None
        and fetches.kept_partitions_count() + fetch_set.partitions_count <= KEPT_PARTITIONS_MAX
    ):
        _keep_with_connection(fetches, context, fetch_set)


def of_session(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet | ErrorCode:
    """The session as it was before the request, or the error that is the whole answer."""
    fetch_set = fetches.cache.find(
        view.session_id,
        view.session_epoch,
        context.api_version >= TOPIC_IDS_VERSION,
        now_ms,
        namespace=context.namespace,
        is_follower=view.replica_id >= 0,
    )
    if not isinstance(fetch_set, ErrorCode) and fetch_set.parked is not None:
        fetch_set.parked.finish_early()
        if not fetch_set.is_kept:
            # It was in the middle of a long request, which is not gone on with.
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return fetch_set


def keep_session(fetches: OpenFetches, fetch_set: FetchSet, before_count: int) -> ErrorCode:
    """Its changes are named; there were `before_count` partitions. An error is the whole answer."""
    cache = fetches.cache
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
    return ErrorCode.NONE


def _keep_with_connection(
    fetches: OpenFetches, context: RequestContext, fetch_set: FetchSet
) -> None:
    connection = context.connection
    connection.fetch_set = fetch_set
    fetch_set.is_kept = True
    fetch_set.counted = fetch_set.partitions_count
    fetches.connection_partitions_count += fetch_set.counted

    def closed() -> None:
        if connection.fetch_set is fetch_set:
            _drop_from_connection(fetches, context)
            fetches.closing.close(fetch_set)

    connection.on_close[closed] = None


def _drop_from_connection(fetches: OpenFetches, context: RequestContext) -> None:
    """Let the set go with its poll."""
    fetch_set: FetchSet = context.connection.fetch_set
    context.connection.fetch_set = None
    fetch_set.is_kept = False
    fetches.connection_partitions_count -= fetch_set.counted
