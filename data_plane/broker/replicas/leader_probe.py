"""Fetches that are questions about a leader: without a session, and not for the records.

`probe` asks the leader for one place of its log, before a copy gives up what it has there: a fetch
like a follower's, from the offset where the copy is to be cut, so that what it says of the copy is
true before and after that. The answer shows that the leader lives, leads in the epoch that is known
here, and can serve what is to be dropped.

`probe_epoch` asks another replica whom it takes for the leader: a fetch like that of a consumer
which reads at followers. A replica looks at the leader epoch before it looks for records.

Deliberately absent: when to ask, and what follows (replica_repair.py, read_index.py).
"""

from __future__ import annotations

from enum import Enum, auto

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
_CONSUMER = (-1, -1)
# What is said of a place in a log is said by a replica that agrees about the leader.
_SAME_EPOCH = (int(ErrorCode.NONE), int(ErrorCode.OFFSET_OUT_OF_RANGE))


class EpochAnswer(Enum):
    """What a replica says to `probe_epoch`."""

    SAME = auto()
    NEWER = auto()
    UNKNOWN = auto()


def probe_epoch(key: PartitionKey, leader_epoch: int, log_end_offset: int) -> bytearray:
    """The body of the request to a replica, by the leader whose log ends there."""
    session = FetchSession()
    session.epoch = _NO_SESSION
    state = FetchState(log_end_offset, _UNKNOWN, leader_epoch, _UNKNOWN)
    return session.encode(_LIMITS, _CONSUMER, [(key, state, _UNKNOWN)], ())


def read_epoch_answer(body: memoryview | None) -> EpochAnswer:
    """Whether the replica knows the leader epoch it was asked with, or a newer one."""
    if body is None:
        return EpochAnswer.UNKNOWN
    try:
        view = parse_fetch_response(body, 0, len(body), API_VERSION)
    except MalformedFrame:
        return EpochAnswer.UNKNOWN
    if view.error_code or len(view.partitions) != 1:
        return EpochAnswer.UNKNOWN
    error_code = view.partitions[0].error_code
    if error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return EpochAnswer.NEWER
    return EpochAnswer.SAME if error_code in _SAME_EPOCH else EpochAnswer.UNKNOWN


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
