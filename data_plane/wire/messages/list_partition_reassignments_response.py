"""ListPartitionReassignmentsResponse (API key 46), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class OngoingPartitionReassignment(Message):
    """Part of ListPartitionReassignmentsResponse."""

    __slots__ = (
        "adding_replicas",
        "partition_index",
        "removing_replicas",
        "replicas",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replicas: list[int] = EMPTY,
        adding_replicas: list[int] = EMPTY,
        removing_replicas: list[int] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.replicas = [] if replicas is EMPTY else replicas  # brokerId
        self.adding_replicas = [] if adding_replicas is EMPTY else adding_replicas  # brokerId
        self.removing_replicas = [] if removing_replicas is EMPTY else removing_replicas  # brokerId


class OngoingTopicReassignment(Message):
    """Part of ListPartitionReassignmentsResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[OngoingPartitionReassignment] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class ListPartitionReassignmentsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "error_message",
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[OngoingTopicReassignment] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics = [] if topics is EMPTY else topics


def _decode_ongoing_partition_reassignment(
    reader: Reader, version: int
) -> OngoingPartitionReassignment:
    message = object.__new__(OngoingPartitionReassignment)
    message.partition_index = reader.read_int32()
    message.replicas = reader.read_int32_array(reader.read_compact_array_length(4, "replicas"))
    message.adding_replicas = reader.read_int32_array(
        reader.read_compact_array_length(4, "adding_replicas")
    )
    message.removing_replicas = reader.read_int32_array(
        reader.read_compact_array_length(4, "removing_replicas")
    )
    reader.skip_tagged_fields()
    return message


def _decode_ongoing_topic_reassignment(reader: Reader, version: int) -> OngoingTopicReassignment:
    message = object.__new__(OngoingTopicReassignment)
    message.name = reader.read_compact_string("name")
    message.partitions = [
        _decode_ongoing_partition_reassignment(reader, version)
        for _ in range(reader.read_compact_array_length(8, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_list_partition_reassignments_response(
    reader: Reader, version: int
) -> ListPartitionReassignmentsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("ListPartitionReassignmentsResponse", version)
    message = object.__new__(ListPartitionReassignmentsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.topics = [
        _decode_ongoing_topic_reassignment(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_ongoing_partition_reassignment(
    writer: Writer, message: OngoingPartitionReassignment, version: int
) -> None:
    writer.write_int32(message.partition_index)
    writer.write_compact_array_length(message.replicas, "replicas")
    writer.write_int32_array(message.replicas)
    writer.write_compact_array_length(message.adding_replicas, "adding_replicas")
    writer.write_int32_array(message.adding_replicas)
    writer.write_compact_array_length(message.removing_replicas, "removing_replicas")
    writer.write_int32_array(message.removing_replicas)
    writer.buf.append(0)


def _encode_ongoing_topic_reassignment(
    writer: Writer, message: OngoingTopicReassignment, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for ongoing_partition_reassignment in message.partitions:
        _encode_ongoing_partition_reassignment(writer, ongoing_partition_reassignment, version)
    writer.buf.append(0)


def encode_list_partition_reassignments_response(
    writer: Writer, message: ListPartitionReassignmentsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("ListPartitionReassignmentsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.topics, "topics")
    for ongoing_topic_reassignment in message.topics:
        _encode_ongoing_topic_reassignment(writer, ongoing_topic_reassignment, version)
    writer.buf.append(0)
