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
from data_plane.broker.fetch_sessions import FetchPartition, FetchSet
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


class _Frame:
    """A frame in the making: the buffers, and a writer on the last of them."""

    __slots__ = ("buffers", "is_flexible", "leader_hints", "services", "version", "writer")

    def __init__(
        self, services: Services, context: RequestContext, error_code: int, session_id: int
    ) -> None:
        self.services = services
        self.version = context.api_version
        self.is_flexible = context.api_version >= FLEXIBLE_VERSION
        self.leader_hints: set[int] = set()
        self.writer = Writer()
        self.writer.buf = begin_frame(context.correlation_id, self.is_flexible)
        self.buffers: list[Buffer] = [self.writer.buf]
        if self.version >= SESSIONS_VERSION:
            self.writer.buf += _HEAD_V7.pack(0, error_code, session_id)
        else:
            self.writer.buf += b"\x00\x00\x00\x00"

    def add_count(self, count: int) -> None:
        if self.is_flexible:
            self.writer.write_uvarint(count + 1)
        else:
            self.writer.write_int32(count)

    def add_topic(self, topic: str, topic_id: bytes, partitions_count: int) -> None:
        if self.version >= TOPIC_IDS_VERSION:
            self.writer.buf += topic_id
        elif self.is_flexible:
            self.writer.write_compact_string(topic)
        else:
            self.writer.write_string(topic)
        self.add_count(partitions_count)

    def end_topic(self) -> None:
        if self.is_flexible:
            self.writer.buf.append(0)

    def add(self, result: PartitionResult) -> None:
        _write_partition(self.writer, self.version, result)
        if result.size:
            self.buffers.extend(result.buffers)
            self.writer.buf = bytearray()
            self.buffers.append(self.writer.buf)
        if self.is_flexible:
            _write_partition_tags(self.services, self.writer, result, self.leader_hints)

    def finish(self) -> list[Buffer]:
        if self.is_flexible:
            if self.version >= NODE_ENDPOINTS_VERSION and self.leader_hints:
                write_node_endpoints(self.services, self.writer, self.leader_hints)
            else:
                self.writer.buf.append(0)
        buffers = self.buffers
        if len(buffers) > 1 and not buffers[-1]:
            buffers.pop()
        finish_frame(buffers)
        return buffers


def encode_fetch_response(
    services: Services,
    context: RequestContext,
    results: Sequence[PartitionResult],
    error_code: int,
    session_id: int,
) -> list[Buffer]:
    """The whole frame, of `results` alone. Results of one topic must stand together."""
    frame = _Frame(services, context, error_code, session_id)
    topics = _group_by_topic(results)
    frame.add_count(len(topics))
    for topic_results in topics:
        first = topic_results[0].target
        frame.add_topic(first.topic, first.topic_id, len(topic_results))
        for result in topic_results:
            frame.add(result)
        frame.end_topic()
    return frame.finish()


def encode_full_response(
    services: Services,
    context: RequestContext,
    fetch_set: FetchSet,
    results: dict[FetchPartition, PartitionResult],
    is_read_committed: bool,
) -> list[Buffer]:
    """The whole frame with all partitions of the set; those without a result have nothing to say.

    What has nothing to say is mostly what it was in the answer before, so its bytes are kept."""
    encoding = (context.api_version, int(is_read_committed))
    keeps_bytes = fetch_set.encoding == encoding
    fetch_set.encoding = encoding
    frame = _Frame(services, context, 0, fetch_set.session_id)
    writer = frame.writer
    frame.add_count(len(fetch_set.topics))
    for (topic, topic_id), group in fetch_set.topics.items():
        frame.add_topic(topic, topic_id, len(group))
        for target in group.values():
            result = results.get(target)
            if result is not None:
                frame.add(result)
                continue
            partition = target.partition
            assert partition is not None, "a partition without a leader has a result, its error"
            state = (
                partition.high_watermark,
                partition.log.last_stable_offset,
                partition.log.log_start_offset,
            )
            if keeps_bytes and state == target.quiet_state:
                writer.buf += target.quiet_bytes
                continue
            result = PartitionResult(target)
            result.high_watermark, result.last_stable_offset, result.log_start_offset = state
            if is_read_committed:
                result.aborted = ()
            start = len(writer.buf)
            frame.add(result)
            target.quiet_state = state
            target.quiet_bytes = bytes(writer.buf[start:])
        frame.end_topic()
    return frame.finish()


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
    if is_flexible:
        writer.write_uvarint(len(aborted) + 1)
    else:
        writer.write_int32(len(aborted))
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
