"""The answer to Fetch: versions 4 to 18. The kernel writes the bytes; here is what they say.

Records are the slices of segment files that the log handed out, passed on without a copy. From
version 12 on a partition can carry a diverging epoch (and, by its schema, the current leader), from
16 on it names the leader where it moved, and the response the leaders' addresses (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from data_plane.broker.fetch.fetch_sessions import NO_SESSION_ID, FetchPartition, FetchSet
from data_plane.broker.fetch.replica_selector import NO_PREFERRED_REPLICA
from data_plane.broker.produce.produce_response import node_endpoints
from data_plane.broker.request.api import Buffer, RequestContext
from data_plane.broker.request.frames import begin_frame
from data_plane.broker.request.throttling import throttle_fetch
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.log.indexes import AbortedTransaction
from data_plane.wire import kernel
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchPartitionResult, NodeEndpoint

SESSIONS_VERSION = 7
FLEXIBLE_VERSION = 12
TOPIC_IDS_VERSION = 13
LEADER_HINTS_VERSION = 16

_LEADER_ERRORS = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))

Topics = list[tuple[str, bytes, list[tuple[Any, ...]]]]
# Whose addresses the answer tells; None where it names no leaders.
LeaderHints = set[int] | None


class PartitionResult:
    """What one partition contributes to an answer."""

    __slots__ = (
        "aborted",
        "buffers",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "size",
        "target",
    )

    def __init__(self, target: FetchPartition, error_code: int = 0) -> None:
        self.target = target
        self.error_code = error_code
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        # None for read_uncommitted.
        self.aborted: Sequence[AbortedTransaction] | None = None
        # (leader_epoch, end_offset) where the fetcher's log left the leader's (KIP-595).
        self.diverging: tuple[int, int] | None = None
        self.preferred_read_replica = NO_PREFERRED_REPLICA
        self.buffers: Sequence[Buffer] = ()
        self.size = 0

    def fail(self, error_code: int) -> None:
        """What is known of the partition is not told with an error."""
        self.error_code = error_code
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1

    def withhold(self, error_code: int) -> None:
        """Nor is what was read of it."""
        self.fail(error_code)
        self.aborted = ()
        self.diverging = None
        self.preferred_read_replica = NO_PREFERRED_REPLICA
        self.buffers = ()
        self.size = 0


def encode_fetch_response(
    services: Services,
    context: RequestContext,
    results: Sequence[PartitionResult],
    error_code: int,
    session_id: int,
    throttle_ms: int = 0,
) -> list[Buffer]:
    """The whole frame, of `results` alone. Results of one topic must stand together."""
    leader_hints = leader_hints_of(context)
    topics: Topics = []
    last: tuple[str, bytes] | None = None
    for result in results:
        target = result.target
        topic = (target.topic, target.topic_id)
        if topic != last:
            topics.append((*topic, []))
            last = topic
        topics[-1][2].append(_fields(services, result, leader_hints))
    return encode_topics(
        context,
        topics,
        error_code,
        session_id,
        node_endpoints(services, context, leader_hints) if leader_hints else (),
        throttle_ms,
    )


def encode_refusal(
    services: Services,
    context: RequestContext,
    error: ErrorCode,
    results: Sequence[PartitionResult] = (),
) -> list[Buffer]:
    """The whole frame of an error that concerns the request as a whole."""
    throttle_ms = throttle_fetch(services, context, 0)
    return encode_fetch_response(services, context, results, int(error), NO_SESSION_ID, throttle_ms)


def encode_full_response(
    services: Services,
    context: RequestContext,
    fetch_set: FetchSet,
    results: dict[FetchPartition, PartitionResult],
    is_read_committed: bool,
    *,
    is_opening: bool,
) -> list[Buffer]:
    """The whole frame with all partitions of the set; those without a result have nothing to say.
    `is_opening`: it is the first answer of a session."""
    leader_hints = leader_hints_of(context)
    topics: Topics = [
        (
            topic,
            topic_id,
            full_fields(
                services,
                fetch_set,
                group.values(),
                results,
                leader_hints,
                is_read_committed,
                is_opening,
            ),
        )
        for (topic, topic_id), group in fetch_set.topics.items()
    ]
    return encode_topics(
        context,
        topics,
        0,
        fetch_set.session_id,
        node_endpoints(services, context, leader_hints) if leader_hints else (),
    )


def full_fields(
    services: Services,
    fetch_set: FetchSet,
    targets: Iterable[FetchPartition],
    results: dict[FetchPartition, PartitionResult],
    leader_hints: LeaderHints,
    is_read_committed: bool,
    is_opening: bool,
) -> list[tuple[Any, ...]]:
    """The parts of partitions of one topic in an answer that names all.

    What has nothing to say is mostly what it was in the answer before, so it is kept."""
    fields: list[tuple[Any, ...]] = []
    aborted: tuple[()] | None = () if is_read_committed else None
    for target in targets:
        result = results.get(target)
        if result is not None:
            fields.append(_fields(services, result, leader_hints))
            continue
        partition = target.partition
        assert partition is not None, "a partition without a leader has a result, its error"
        log = partition.log
        try:
            last_stable_offset = -1 if fetch_set.is_follower else log.last_stable_offset
        except LogError as error:
            # It had to be loaded.
            failed = PartitionResult(target, int(error.error_code))
            fields.append(_fields(services, failed, leader_hints))
            continue
        state = (
            partition.high_watermark,
            last_stable_offset,
            log.log_start_offset,
            is_read_committed,
        )
        if target.quiet_state != state:
            target.quiet_state = state
            target.quiet_fields = FetchPartitionResult(
                target.index, 0, *state[:3], aborted_transactions=aborted
            )
        fields.append(target.quiet_fields)
        if is_opening:
            # What a session has been told is noted once, at its first answer.
            target.sent_high_watermark = state[0]
            target.sent_log_start_offset = state[2]
    return fields


def leader_hints_of(context: RequestContext) -> LeaderHints:
    return set() if context.api_version >= LEADER_HINTS_VERSION else None


def _fields(
    services: Services, result: PartitionResult, leader_hints: LeaderHints
) -> tuple[Any, ...]:
    target = result.target
    leader = None
    if leader_hints is not None and result.error_code in _LEADER_ERRORS:
        leader = services.projections.current_leader(
            target.owner.tenant, target.topic, target.topic_id, target.index
        )
        if leader is not None:
            leader_hints.add(leader[0])
    aborted: Sequence[tuple[int, int]] | None = None if result.aborted is None else ()
    if result.aborted:
        aborted = [(one.producer_id, one.first_offset) for one in result.aborted]
    # A plain tuple of FetchPartitionResult's fields: naming them costs as much as the rest.
    return (
        target.index,
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        aborted,
        result.preferred_read_replica,
        result.buffers,
        result.diverging,
        leader,
        None,
    )


def encode_topics(
    context: RequestContext,
    topics: Topics,
    error_code: int,
    session_id: int,
    endpoints: Sequence[NodeEndpoint],
    throttle_ms: int = 0,
) -> list[Buffer]:
    """The whole frame; may be called in a thread."""
    version = context.api_version
    return kernel.encode_fetch_response(
        bytes(begin_frame(context.correlation_id, version >= FLEXIBLE_VERSION)),
        version,
        topics,
        error_code,
        session_id,
        throttle_ms,
        endpoints,
    )
