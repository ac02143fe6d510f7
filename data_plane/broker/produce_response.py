"""The answer to Produce, written straight into its frame: versions 3 to 13.

Flexible from version 9 on; the topic's id replaces its name in 13; from 10 on a partition that is
led elsewhere carries the current leader, and the response that leader's address (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from data_plane.broker.api import Buffer, RequestContext
from data_plane.broker.frames import begin_frame, finish_frame
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import ProduceTopic
from data_plane.wire.primitives import Writer

FLEXIBLE_VERSION = 9
TOPIC_IDS_VERSION = 13
LOG_START_VERSION = 5
RECORD_ERRORS_VERSION = 8
CURRENT_LEADER_VERSION = 10

_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
# Success in the flexible versions: no record errors, null message, no tags.
_PARTITION_V9_SUFFIX = b"\x01\x00\x00"
_RECORD_ERRORS_V8_NONE = b"\x00\x00\x00\x00\xff\xff"

_LEADER_ERRORS = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))


class PartitionAnswer:
    """What became of one partition's records."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.error_code = 0
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: Sequence[tuple[int, str | None]] = ()
        self.error_message: str | None = None

    def fail(
        self,
        error: ErrorCode,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
    ) -> None:
        self.error_code = int(error)
        self.error_message = message
        self.record_errors = record_errors
        self.base_offset = -1
        self.log_append_time_ms = -1


def encode_produce_response(
    services: Services,
    context: RequestContext,
    answers: Sequence[tuple[ProduceTopic, Sequence[PartitionAnswer]]],
) -> list[Buffer]:
    """The whole frame, as its one buffer."""
    version = context.api_version
    is_flexible = version >= FLEXIBLE_VERSION
    frame = begin_frame(context.correlation_id, is_flexible)
    writer = Writer()
    writer.buf = frame
    _write_count(writer, len(answers), is_flexible)
    leader_hints: set[int] = set()
    for topic, partition_answers in answers:
        if version >= TOPIC_IDS_VERSION:
            frame += topic.topic_id
        elif is_flexible:
            writer.write_compact_string(topic.name)
        else:
            writer.write_string(topic.name)
        _write_count(writer, len(partition_answers), is_flexible)
        for answer in partition_answers:
            if is_flexible and answer.error_code == 0:
                frame += _PARTITION_V5.pack(
                    answer.index,
                    0,
                    answer.base_offset,
                    answer.log_append_time_ms,
                    answer.log_start_offset,
                )
                frame += _PARTITION_V9_SUFFIX
            else:
                _write_partition(services, writer, version, topic, answer, leader_hints)
        if is_flexible:
            frame.append(0)
    frame += b"\x00\x00\x00\x00"  # throttle_time_ms
    if is_flexible:
        write_node_endpoints(services, writer, leader_hints)
    finish_frame((frame,))
    return [frame]


def _write_count(writer: Writer, count: int, is_flexible: bool) -> None:
    if is_flexible:
        writer.write_uvarint(count + 1)
    else:
        writer.write_int32(count)


def _write_partition(
    services: Services,
    writer: Writer,
    version: int,
    topic: ProduceTopic,
    answer: PartitionAnswer,
    leader_hints: set[int],
) -> None:
    fields = (answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms)
    if version >= LOG_START_VERSION:
        writer.buf += _PARTITION_V5.pack(*fields, answer.log_start_offset)
    else:
        writer.buf += _PARTITION_V3.pack(*fields)
    if version < RECORD_ERRORS_VERSION:
        return
    is_flexible = version >= FLEXIBLE_VERSION
    if not is_flexible and not answer.record_errors and answer.error_message is None:
        writer.buf += _RECORD_ERRORS_V8_NONE
        return
    _write_count(writer, len(answer.record_errors), is_flexible)
    for batch_index, message in answer.record_errors:
        writer.write_int32(batch_index)
        _write_nullable_string(writer, message, is_flexible)
        if is_flexible:
            writer.buf.append(0)
    _write_nullable_string(writer, answer.error_message, is_flexible)
    if not is_flexible:
        return
    leader = None
    if version >= CURRENT_LEADER_VERSION and answer.error_code in _LEADER_ERRORS:
        leader = services.partitions.current_leader(topic.name, topic.topic_id, answer.index)
    if leader is None:
        writer.buf.append(0)
    else:
        write_leader_tag(writer, 0, leader)
        leader_hints.add(leader[0])


def _write_nullable_string(writer: Writer, value: str | None, is_flexible: bool) -> None:
    if is_flexible:
        writer.write_nullable_compact_string(value)
    else:
        writer.write_nullable_string(value)


def write_leader_tag(writer: Writer, tag: int, leader: tuple[int, int]) -> None:
    """Tagged fields holding only the current leader: (leader id, leader epoch), no inner tags."""
    writer.buf += bytes((1, tag, 9))
    writer.write_int32(leader[0])
    writer.write_int32(leader[1])
    writer.buf.append(0)


def write_node_endpoints(services: Services, writer: Writer, node_ids: set[int]) -> None:
    """The response's own tagged fields: tag 0 with the addresses of `node_ids`, or none."""
    endpoints = [
        (services.node_id, services.advertised_host, services.advertised_port, services.rack)
        for node_id in node_ids
        if node_id == services.node_id
    ]
    if not endpoints:
        writer.buf.append(0)
        return
    inner = Writer()
    inner.write_uvarint(len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        inner.write_int32(node_id)
        inner.write_compact_string(host)
        inner.write_int32(port)
        inner.write_nullable_compact_string(rack)
        inner.buf.append(0)
    writer.buf += b"\x01\x00"
    writer.write_uvarint(len(inner.buf))
    writer.buf += inner.buf
