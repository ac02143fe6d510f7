"""Fetch, versions 4 to 18: which partitions a request means, within a session or without.

The way of a request, each station a module:

    fetch            parse; is it a follower, and may it be one here
    fetch_sets       which set of partitions it goes on with: a session's, a connection's, its own
    fetch_poll       when it looks at them, where it waits, and its answer
    fetch_reads        look up, check, read: one partition after the other
    fetch_rights         whose replica, through what, how far
    cold_reads           what is not in memory
    fetch_scans          what is read through a projection (projection, projected_reads)
    fetch_results        what is told of a partition beside its records
    fetch_response     the answer's bytes

A full request (session epoch 0 or -1) names all its partitions; an incremental one changes those of
its session (KIP-227). A request that is longer than LARGE_FETCH_BYTES goes the same way in slices
(large_fetches.py).

Follower fetches (replica_id ≥ 0) are refused with CLUSTER_AUTHORIZATION_FAILED unless the
connection came through the inter-broker listener. The partitions that a follower names are those
whose log ends it reports; in a session, what it does not name has not changed.
"""

from __future__ import annotations

from data_plane.broker.fetch import fetch_sets
from data_plane.broker.fetch.fetch_authorization import may_read_all
from data_plane.broker.fetch.fetch_poll import Poll
from data_plane.broker.fetch.fetch_reads import LARGE_FETCH_BYTES
from data_plane.broker.fetch.fetch_response import (
    SESSIONS_VERSION,
    PartitionResult,
    encode_refusal,
)
from data_plane.broker.fetch.fetch_sessions import EPOCH_FINAL, EPOCH_INITIAL, FetchSet
from data_plane.broker.fetch.large_fetches import LargeFetch
from data_plane.broker.request.api import Buffer, Deferred, HandlerTable, RequestContext
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
    if end - position > LARGE_FETCH_BYTES:
        kept = context.connection.keep(buf, position, end)
        return LargeFetch(services, context, kept, position, end).deferred
    view = parse_fetch(buf, position, end, context.api_version)
    if view.replica_id >= 0 and not context.connection.is_inter_broker:
        return _refuse_follower(services, context, view)
    fetches = services.fetches
    is_full = EPOCH_FINAL <= view.session_epoch <= EPOCH_INITIAL
    if is_full:
        fetch_set = fetch_sets.for_full(fetches, context, view, now_ms)
        fetch_set.name_all(view.topics)
        if not fetch_set.is_kept or fetch_set.has_changed:
            may_read = may_read_all(context, view.topics)
            fetch_sets.keep(fetches, context, view, fetch_set, now_ms, may_read=may_read)
    else:
        found = fetch_sets.of_session(fetches, context, view, now_ms)
        if isinstance(found, ErrorCode):
            return encode_refusal(services, context, found)
        fetch_set = found
        fetch_set.name_changes(view.topics)
        if view.forgotten_topics:
            fetch_set.forget_all(view.forgotten_topics)
        if fetch_set.has_changed:
            may_read = may_read_all(context, view.topics)
            error = fetch_sets.keep_session(fetches, fetch_set, may_read=may_read)
            if error is not ErrorCode.NONE:
                return encode_refusal(services, context, error)
    if view.isolation_level != fetch_set.isolation_level:
        fetch_set.use_isolation_level(view.isolation_level)
    if fetch_set.is_follower:
        fetch_set.report(view.topics)
    poll = Poll(services, context, view, fetch_set, is_full, now_ms)
    return poll.begin(view.max_wait_ms, now_ms)


def _refuse_follower(
    services: Services, context: RequestContext, view: FetchRequestView
) -> list[Buffer]:
    """An error for the request as a whole; before version 7 each partition carries it."""
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results: list[PartitionResult] = []
    if context.api_version < SESSIONS_VERSION:
        fetch_set = FetchSet(context.tenant, False, 0)
        fetch_set.name_all(view.topics)
        results = [PartitionResult(target, int(error)) for target in fetch_set.partitions()]
    return encode_refusal(services, context, error, results)


def register(table: HandlerTable) -> None:
    table.register_raw(ApiKey.FETCH, MIN_VERSION, MAX_VERSION, handle_fetch)
