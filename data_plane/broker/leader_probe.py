"""Asking a leader for one place of its log, before a copy gives up what it has there.

A fetch like a follower's, without a session, from the offset where the copy is to be cut: what it
says of the copy is true before and after that. The answer shows that the leader lives, leads in the
epoch that is known here, and can serve what is to be dropped.

Deliberately absent: when to ask, and what follows (replica_repair.py).
"""

from __future__ import annotations

from data_plane.replica.fetch_session import (
    API_VERSION,
    FetchSession,
    FetchState,
    Limits,
    PartitionKey,
)
from data_plane.wire.errors import ErrorCode, MalformedFrame
from data_plane.wire.kernel import parse_fetch_response, scan_batches

# The first batch is sent whole, whatever its size.
_LIMITS = Limits(
    wait_ms_max=0, response_bytes_min=0, response_bytes_max=1 << 16, partition_bytes_max=1 << 16
)
_NO_SESSION = -1
_UNKNOWN = -1


def probe(replica: tuple[int, int], key: PartitionKey, state: FetchState) -> bytearray:
    """The body of the request; `replica` is this broker's id and epoch."""
    session = FetchSession()
    session.epoch = _NO_SESSION
    return session.encode(_LIMITS, replica, [(key, state, _UNKNOWN)], ())


def is_served(body: memoryview, offset: int) -> bool:
    """Whether the leader has what lies at `offset`, or rightly nothing."""
    try:
        view = parse_fetch_response(body, 0, len(body), API_VERSION)
    except MalformedFrame:
        return False
    if view.error_code or len(view.partitions) != 1:
        return False
    item = view.partitions[0]
    if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # It begins later, or ends before: what is damaged here it never committed, or has deleted.
        return True
    if item.error_code:
        return False
    if item.diverging_epoch is not None:
        return True
    if item.records_start == item.records_end:
        return item.high_watermark <= offset
    headers, _, _ = scan_batches(body, item.records_start, item.records_end)
    return bool(headers)
