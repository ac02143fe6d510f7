"""Which set of partitions a Fetch request goes on with, and whether it outlives the request.

    session epoch 0         a new set; a session when there is a slot and memory for it
    session epoch -1        the set of the connection's last poll, or a new one
    any other               the session's

The caller names the request's partitions between `for_full` and `keep`, or `of_session` and
`keep_session`, in one go (fetch_handler.py) or in
slices (large_fetches.py).
"""

from __future__ import annotations

from functools import partial

from data_plane.broker.fetch.fetch_response import SESSIONS_VERSION, TOPIC_IDS_VERSION
from data_plane.broker.fetch.fetch_sessions import (
    EPOCH_INITIAL,
    NO_SESSION_ID,
    FetchSet,
)
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.request.api import ConnectionInfo, RequestContext
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView


def for_full(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet:
    """The set as it was before a request that names everything."""
    uses_topic_ids = context.api_version >= TOPIC_IDS_VERSION
    is_follower = view.replica_id >= 0
    if view.session_id != NO_SESSION_ID:
        fetches.cache.end(view.session_id, context.tenant, context.principal)
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
    now_ms: int,
    *,
    may_read: bool,
) -> None:
    """All partitions are named; `may_read`: and none that its sender may not read."""
    fetch_set.has_changed = False
    if view.session_epoch == EPOCH_INITIAL and context.api_version >= SESSIONS_VERSION:
        if may_read and fetch_set.partitions_count and fetches.kept.take(fetch_set):
            _keep_as_session(fetches, context, fetch_set, now_ms)
    elif context.connection.fetch_set is fetch_set:
        if not may_read or not fetches.kept.take(fetch_set):
            _drop_from_connection(fetches, context.connection)
    elif may_read and context.connection.fetch_set is None and fetches.kept.take(fetch_set):
        _keep_with_connection(fetches, context.connection, fetch_set)


def of_session(
    fetches: OpenFetches, context: RequestContext, view: FetchRequestView, now_ms: int
) -> FetchSet | ErrorCode:
    """The session as it was before the request, or the error that is the whole answer."""
    fetch_set = fetches.cache.find(
        view.session_id,
        view.session_epoch,
        context.api_version >= TOPIC_IDS_VERSION,
        now_ms,
        namespace=context.names.tenant,
        principal=context.connection.principal,
        is_follower=view.replica_id >= 0,
    )
    if not isinstance(fetch_set, ErrorCode) and fetch_set.parked is not None:
        fetch_set.parked.finish_early()
        if not fetch_set.is_kept:
            # It was in the middle of a long request, which is not gone on with.
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return fetch_set


def keep_session(fetches: OpenFetches, fetch_set: FetchSet, *, may_read: bool) -> ErrorCode:
    """Its changes are named; `may_read`: and none that its sender may not read. An error is the
    whole answer."""
    cache = fetches.cache
    fetch_set.has_changed = False
    if not may_read or not fetches.kept.take(fetch_set):
        # The client opens a new session, and gets none while that is so.
        cache.remove(fetch_set.session_id)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not fetch_set.partitions_count:
        cache.remove(fetch_set.session_id)
        fetch_set.session_id = NO_SESSION_ID
        fetch_set.is_kept = False
    return ErrorCode.NONE


def _keep_as_session(
    fetches: OpenFetches, context: RequestContext, fetch_set: FetchSet, now_ms: int
) -> None:
    cache = fetches.cache
    if cache.keep(fetch_set, now_ms, context.tenant, context.principal):
        fetches.kept.may_give_up(fetch_set, partial(cache.remove, fetch_set.session_id))


def _keep_with_connection(
    fetches: OpenFetches, connection: ConnectionInfo, fetch_set: FetchSet
) -> None:
    connection.fetch_set = fetch_set
    fetch_set.is_kept = True

    def closed() -> None:
        if connection.fetch_set is fetch_set:
            _drop_from_connection(fetches, connection)
            fetches.closing.close(fetch_set)

    def give_up() -> None:
        _drop_from_connection(fetches, connection)
        if fetch_set.parked is None and not fetch_set.is_being_read:
            fetches.closing.close(fetch_set)

    fetch_set.on_connection_closed = closed
    connection.on_close[closed] = None
    fetches.kept.may_give_up(fetch_set, give_up)


def _drop_from_connection(fetches: OpenFetches, connection: ConnectionInfo) -> None:
    """Let the set go with its poll."""
    fetch_set: FetchSet = connection.fetch_set
    connection.fetch_set = None
    fetch_set.is_kept = False
    if fetch_set.on_connection_closed is not None:
        connection.on_close.pop(fetch_set.on_connection_closed, None)
        # It holds the set and the connection.
        fetch_set.on_connection_closed = None
    fetches.kept.forget(fetch_set)
