"""The answer to Fetch as a list of buffers: versions 4 to 18.

Headers and fields are written into bytearrays; the records between them are the slices of segment
files that the log handed out, passed on without a copy.

Flexible from version 12 on; topic ids replace names in 13; from 12 on a partition can carry a
diverging epoch and its current leader, from 16 on the response the leaders' addresses (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from data_plane.broker.api import Buffer, RequestContext
from data_plane.broker.fetch_sessions import FetchPartition
from data_plane.broker.frames import begin_frame, finish_frame
from data_plane.broker.produce_response import write_leader_tag, write_node_endpoints
from data_plane.broker.services import Services
from data_plane.log.indexes import AbortedTransaction
from data_plane.wire.errors import ErrorCode
from data_plane.wire.primitives import Writer

SESSIONS_VERSION = 7
LOG_START_VERSION = 5
PREFERRED_REPLICA_VERSION = 11
FLEXIBLE_VERSION = 12
TOPIC_IDS_VERSION = 13
NODE_ENDPOINTS_VERSION = 16

_HEAD_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_INT32 = struct.Struct(">i")
# No aborted list, no preferred read replica.
_NULL_ABORTED_V12 = b"\x00\xff\xff\xff\xff"
_NULL_ABORTED_V11 = b"\xff\xff\xff\xff\xff\xff\xff\xff"
_NO_PREFERRED_REPLICA = b"\xff\xff\xff\xff"

_LEADER_ERRORS = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


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
        self.buffers: Sequence[Buffer] = ()
        self.size = 0


def encode_fetch_response(
    services: Services,
    context: RequestContext,
    results: Sequence[PartitionResult],
    error_code: int,
    session_id: int,
) -> list[Buffer]:
    """The whole frame. Results of one topic must stand together."""
    version = context.api_version
    is_flexible = version >= FLEXIBLE_VERSION
    head = begin_frame(context.correlation_id, is_flexible)
    buffers: list[Buffer] = [head]
    writer = Writer()
    writer.buf = head
    if version >= SESSIONS_VERSION:
        head += _HEAD_V7.pack(0, error_code, session_id)
    else:
        head += b"\x00\x00\x00\x00"
    topics = _group_by_topic(results)
    _write_count(writer, len(topics), is_flexible)
    leader_hints: set[int] = set()
    for topic_results in topics:
        first = topic_results[0].target
        if version >= TOPIC_IDS_VERSION:
            writer.buf += first.topic_id
        elif is_flexible:
            writer.write_compact_string(first.topic)
        else:
            writer.write_string(first.topic)
        _write_count(writer, len(topic_results), is_flexible)
        for result in topic_results:
            _write_partition(writer, version, result)
            if result.size:
                buffers.extend(result.buffers)
                writer.buf = bytearray()
                buffers.append(writer.buf)
            if is_flexible:
                _write_partition_tags(services, writer, result, leader_hints)
        if is_flexible:
            writer.buf.append(0)
    if is_flexible:
        if version >= NODE_ENDPOINTS_VERSION and leader_hints:
            write_node_endpoints(services, writer, leader_hints)
        else:
            writer.buf.append(0)
    if len(buffers) > 1 and not buffers[-1]:
        buffers.pop()
    finish_frame(buffers)
    return buffers


def _group_by_topic(results: Sequence[PartitionResult]) -> list[list[PartitionResult]]:
    topics: list[list[PartitionResult]] = []
    last: tuple[str, bytes] | None = None
    for result in results:
        topic = (result.target.topic, result.target.topic_id)
        if topic != last:
            topics.append([])
            last = topic
        topics[-1].append(result)
    return topics


def _write_count(writer: Writer, count: int, is_flexible: bool) -> None:
    if is_flexible:
        writer.write_uvarint(count + 1)
    else:
        writer.write_int32(count)


def _write_partition(writer: Writer, version: int, result: PartitionResult) -> None:
    """Everything up to and including the length of the records."""
    buf = writer.buf
    if version >= LOG_START_VERSION:
        buf += _PARTITION_V5.pack(
            result.target.index,
            result.error_code,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
        )
    else:
        buf += _PARTITION_V4.pack(
            result.target.index,
            result.error_code,
            result.high_watermark,
            result.last_stable_offset,
        )
    is_flexible = version >= FLEXIBLE_VERSION
    aborted = result.aborted
    if aborted is None and version >= PREFERRED_REPLICA_VERSION:
        buf += _NULL_ABORTED_V12 if is_flexible else _NULL_ABORTED_V11
    else:
        _write_aborted(writer, aborted, is_flexible)
        if version >= PREFERRED_REPLICA_VERSION:
            buf += _NO_PREFERRED_REPLICA
    if is_flexible:
        writer.write_uvarint(result.size + 1)
    else:
        buf += _INT32.pack(result.size)


def _write_aborted(
    writer: Writer, aborted: Sequence[AbortedTransaction] | None, is_flexible: bool
) -> None:
    if aborted is None:
        writer.buf += b"\x00" if is_flexible else b"\xff\xff\xff\xff"
        return
    _write_count(writer, len(aborted), is_flexible)
    for transaction in aborted:
        writer.buf += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
        if is_flexible:
            writer.buf.append(0)


def _write_partition_tags(
    services: Services, writer: Writer, result: PartitionResult, leader_hints: set[int]
) -> None:
    """Tag 0: diverging epoch; tag 1: current leader. A result has at most one of them."""
    if result.diverging is not None:
        epoch, end_offset = result.diverging
        writer.buf += b"\x01\x00\x0d"
        writer.write_int32(epoch)
        writer.write_int64(end_offset)
        writer.buf.append(0)
        return
    if result.error_code in _LEADER_ERRORS:
        target = result.target
        leader = services.partitions.current_leader(target.topic, target.topic_id, target.index)
        if leader is not None:
            write_leader_tag(writer, 1, leader)
            leader_hints.add(leader[0])
            return
    writer.buf.append(0)
