"""CreatePartitionsRequest (API key 37), versions 0 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_BOOL = Struct(">i?")


class CreatePartitionsAssignment(Message):
    """Part of CreatePartitionsRequest."""

    __slots__ = ("broker_ids",)

    def __init__(
        self,
        *,
        broker_ids: list[int] = EMPTY,
    ) -> None:
        self.broker_ids = [] if broker_ids is EMPTY else broker_ids  # brokerId


class CreatePartitionsTopic(Message):
    """Part of CreatePartitionsRequest."""

    __slots__ = (
        "assignments",
        "count",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | None = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.count = count
        self.assignments = [] if assignments is EMPTY else assignments


class CreatePartitionsRequest(Message):
    """The message."""

    __slots__ = (
        "timeout_ms",
        "topics",
        "validate_only",
    )

    def __init__(
        self,
        *,
        topics: list[CreatePartitionsTopic] = EMPTY,
        timeout_ms: int = 0,
        validate_only: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


def _decode_create_partitions_assignment(
    reader: Reader, version: int
) -> CreatePartitionsAssignment:
    message = object.__new__(CreatePartitionsAssignment)
    if version >= 2:
        message.broker_ids = reader.read_int32_array(
            reader.read_compact_array_length(4, "broker_ids")
        )
    else:
        message.broker_ids = reader.read_int32_array(reader.read_array_length(4, "broker_ids"))
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_create_partitions_topic(reader: Reader, version: int) -> CreatePartitionsTopic:
    message = object.__new__(CreatePartitionsTopic)
    if version >= 2:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    message.count = reader.read_int32()
    if version >= 2:
        count = reader.read_nullable_compact_array_length(2, "assignments")
        message.assignments = (
            None
            if count < 0
            else [_decode_create_partitions_assignment(reader, version) for _ in range(count)]
        )
    else:
        count = reader.read_nullable_array_length(4, "assignments")
        message.assignments = (
            None
            if count < 0
            else [_decode_create_partitions_assignment(reader, version) for _ in range(count)]
        )
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_create_partitions_request(reader: Reader, version: int) -> CreatePartitionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 3:
        raise unsupported_version("CreatePartitionsRequest", version)
    message = object.__new__(CreatePartitionsRequest)
    if version >= 2:
        message.topics = [
            _decode_create_partitions_topic(reader, version)
            for _ in range(reader.read_compact_array_length(7, "topics"))
        ]
    else:
        message.topics = [
            _decode_create_partitions_topic(reader, version)
            for _ in range(reader.read_array_length(10, "topics"))
        ]
    (message.timeout_ms, message.validate_only) = reader.unpack(_INT32_BOOL)
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_create_partitions_assignment(
    writer: Writer, message: CreatePartitionsAssignment, version: int
) -> None:
    if version >= 2:
        writer.write_compact_array_length(message.broker_ids, "broker_ids")
        writer.write_int32_array(message.broker_ids)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.broker_ids, "broker_ids")
        writer.write_int32_array(message.broker_ids)


def _encode_create_partitions_topic(
    writer: Writer, message: CreatePartitionsTopic, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    writer.write_int32(message.count)
    if version >= 2:
        writer.write_nullable_compact_array_length(message.assignments, "assignments")
        if message.assignments:
            for create_partitions_assignment in message.assignments:
                _encode_create_partitions_assignment(writer, create_partitions_assignment, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_array_length(message.assignments, "assignments")
        if message.assignments:
            for create_partitions_assignment in message.assignments:
                _encode_create_partitions_assignment(writer, create_partitions_assignment, version)


def encode_create_partitions_request(
    writer: Writer, message: CreatePartitionsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 3:
        raise unsupported_version("CreatePartitionsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.topics, "topics")
        for create_partitions_topic in message.topics:
            _encode_create_partitions_topic(writer, create_partitions_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for create_partitions_topic in message.topics:
            _encode_create_partitions_topic(writer, create_partitions_topic, version)
    writer.buf += _INT32_BOOL.pack(message.timeout_ms, message.validate_only)
    if version >= 2:
        writer.buf.append(0)
