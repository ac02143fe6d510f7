"""Throttling: what an answer says of the time that its client has to wait, and that it does wait.

The quota manager (quotas.py) is asked when an answer is ready. The answer leaves at once and says
for how long (`throttle_time_ms`), and for that time the connection is *muted*: nothing further of
it is read or handled. That is how Apache Kafka throttles since KIP-219, whatever the request's
version: a client that is too old to be told waits all the same.

    what is throttled     counted                     its answer
    any request           when it is answered         as it is
    Produce               the request's bytes, too,   as it is; with acks=0 there is none
                          when they are appended
    Fetch                 the answer's bytes, too     without records, and these are not counted
    who is let in         not at all                  as it is; he waits for what his tenant owes,
                                                      and without a login after his first answer

Invariants
- `throttle_time_ms` of every answer comes from here, and is the time for which the connection is
  muted from then on.
- Other brokers of the cell are never throttled: what a follower may take is limited elsewhere
  (leader_throttle.py).
- What is asked before it is known who asks counts for no tenant, and waits for none: what bounds
  strangers is elsewhere (docs/security.md). Produce and Fetch are never theirs.
- A connection counts once as a new one, when it comes: those that are there when the first quota is
  set are not held up by it.
- Where no quota manager is active each answer costs a look at a flag.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from data_plane.broker.request.api import Buffer, ConnectionInfo, RequestContext
from data_plane.wire.registry import API_BY_KEY, ApiKey

if TYPE_CHECKING:
    from data_plane.broker.services import Services

# Longer, and a client would take its broker for dead.
THROTTLE_MS_MAX = 30_000

_THROTTLE_TIME_MS = struct.Struct(">i")
# Size and correlation id; flexible versions have a byte for tags.
_RESPONSE_HEADER_BYTES = 8

# These know their bytes before they ask.
ASK_THEMSELVES = frozenset((int(ApiKey.PRODUCE), int(ApiKey.FETCH)))
# Answers that are not encoded from one message on the loop, and the version from which on their
# body begins with the throttle time.
FIRST_FIELD_FROM = {
    int(ApiKey.LIST_OFFSETS): 2,
    int(ApiKey.METADATA): 3,
    int(ApiKey.OFFSET_FETCH): 3,
    int(ApiKey.FIND_COORDINATOR): 1,
    int(ApiKey.DESCRIBE_GROUPS): 1,
    int(ApiKey.LIST_GROUPS): 1,
    int(ApiKey.CREATE_TOPICS): 2,
    int(ApiKey.DESCRIBE_CONFIGS): 0,
    int(ApiKey.DELETE_GROUPS): 0,
}


def throttle_request(services: Services, context: RequestContext) -> int:
    """For any request but Produce and Fetch, once, when its answer is ready: the throttle time that
    the answer carries."""
    quotas = services.quotas
    if not quotas.is_active or context.is_stranger or context.connection.is_inter_broker:
        return 0
    return _mute(services, context, quotas.record_request(context))


def throttle_produce(services: Services, context: RequestContext, request_bytes: int) -> int:
    """As `throttle_request`."""
    quotas = services.quotas
    if not quotas.is_active or context.connection.is_inter_broker:
        return 0
    request_ms = quotas.record_request(context)
    produce_ms = quotas.record_produce(context, request_bytes)
    return _mute(services, context, max(request_ms, produce_ms))


def count_appended(services: Services, context: RequestContext, request_bytes: int) -> int:
    """For a Produce that is appended, and whose answer waits for replicas: it counts now, and what
    its client sends meanwhile waits, or all that a client has queued would be taken before the
    first answer. What is left to be counted with the answer."""
    quotas = services.quotas
    if not quotas.is_active or context.connection.is_inter_broker:
        return request_bytes
    wait_ms = quotas.record_produce(context, request_bytes)
    if wait_ms > 0:
        context.connection.mute(min(wait_ms, THROTTLE_MS_MAX))
    return 0


def throttle_fetch(services: Services, context: RequestContext, answer_bytes: int) -> int:
    """As `throttle_request`; when it is more than 0 the answer must carry no records."""
    quotas = services.quotas
    if not quotas.is_active or context.connection.is_inter_broker:
        return 0
    request_ms = quotas.record_request(context)
    fetch_ms = quotas.record_fetch(context, answer_bytes, request_ms)
    return _mute(services, context, max(request_ms, fetch_ms))


def throttle_message(services: Services, context: RequestContext, response: Any) -> None:
    """As `throttle_request`, for a response message that is about to be encoded."""
    if services.quotas.is_active:
        throttle_ms = throttle_request(services, context)
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms


def throttle_frames(
    services: Services, context: RequestContext, frames: Sequence[Buffer]
) -> Sequence[Buffer]:
    """As `throttle_request`, for an answer that is encoded already."""
    throttle_ms = throttle_request(services, context)
    version = context.api_version
    if throttle_ms > 0 and version >= FIRST_FIELD_FROM[context.api_key]:
        is_flexible = version >= API_BY_KEY[context.api_key].first_flexible_version
        first = frames[0]
        assert isinstance(first, bytearray)
        _THROTTLE_TIME_MS.pack_into(first, _RESPONSE_HEADER_BYTES + is_flexible, throttle_ms)
    return frames


def throttle_newcomer(services: Services, connection: ConnectionInfo, waits_ms: int = 0) -> None:
    """It is known who speaks: it waits for what its tenant owes, so that nobody gets rid of a wait
    by connecting anew. `waits_ms`: what it waits for anyway. Who comes while there are no quotas is
    no newcomer when there are."""
    quotas = services.quotas
    connection.waits_with_tenant = True
    if not quotas.is_active or connection.is_inter_broker or connection.closed:
        return
    throttle_ms = min(quotas.owed_ms(connection.namespace), THROTTLE_MS_MAX)
    if throttle_ms > waits_ms:
        quotas.note_throttled(throttle_ms)
        connection.mute(throttle_ms)


def _mute(services: Services, context: RequestContext, throttle_ms: int) -> int:
    connection = context.connection
    throttle_ms = min(max(0, throttle_ms), THROTTLE_MS_MAX)
    if throttle_ms:
        services.quotas.note_throttled(throttle_ms)
        use = context.names.use
        use.throttle_ms += throttle_ms
        use.throttled_requests += 1
        connection.mute(throttle_ms)
    if not connection.waits_with_tenant:
        # Nobody had to log in on it, and it has its first answer: as it is.
        throttle_newcomer(services, connection, throttle_ms)
    return throttle_ms
