"""ListPartitionReassignmentsRequest (API key 46), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class ListPartitionReassignmentsTopics(Message):
    """Part of ListPartitionReassignmentsRequest."""

    __slots__ = (
        "name",
        "partition_indexes",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes


class ListPartitionReassignmentsRequest(Message):
    """The message."""

    __slots__ = (
        "timeout_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics


def _decode_list_partition_reassignments_topics(
    reader: Reader, version: int
) -> ListPartitionReassignmentsTopics:
    message = object.__new__(ListPartitionReassignmentsTopics)
    message.name = reader.read_compact_string("name")
    message.partition_indexes = reader.read_int32_array(
        reader.read_compact_array_length(4, "partition_indexes")
    )
    reader.skip_tagged_fields()
    return message


def decode_list_partition_reassignments_request(
    reader: Reader, version: int
) -> ListPartitionReassignmentsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("ListPartitionReassignmentsRequest", version)
    message = object.__new__(ListPartitionReassignmentsRequest)
    message.timeout_ms = reader.read_int32()
    count = reader.read_nullable_compact_array_length(3, "topics")
    message.topics = (
        None
        if count < 0
        else [_decode_list_partition_reassignments_topics(reader, version) for _ in range(count)]
    )
    reader.skip_tagged_fields()
    return message


def _encode_list_partition_reassignments_topics(
    writer: Writer, message: ListPartitionReassignmentsTopics, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_array_length(message.partition_indexes, "partition_indexes")
    writer.write_int32_array(message.partition_indexes)
    writer.buf.append(0)


def encode_list_partition_reassignments_request(
    writer: Writer, message: ListPartitionReassignmentsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("ListPartitionReassignmentsRequest", version)
    writer.write_int32(message.timeout_ms)
    writer.write_nullable_compact_array_length(message.topics, "topics")
    if message.topics:
        for list_partition_reassignments_topics in message.topics:
            _encode_list_partition_reassignments_topics(
                writer, list_partition_reassignments_topics, version
            )
    writer.buf.append(0)
