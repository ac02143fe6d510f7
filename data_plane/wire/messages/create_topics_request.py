"""CreateTopicsRequest (API key 19), versions 2 to 7, flexible from 5.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_BOOL = Struct(">i?")
_INT32_INT16 = Struct(">ih")


class CreatableReplicaAssignment(Message):
    """Part of CreateTopicsRequest."""

    __slots__ = (
        "broker_ids",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        broker_ids: list[int] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.broker_ids = [] if broker_ids is EMPTY else broker_ids  # brokerId


class CreatableTopicConfig(Message):
    """Part of CreateTopicsRequest."""

    __slots__ = (
        "name",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class CreatableTopic(Message):
    """Part of CreateTopicsRequest."""

    __slots__ = (
        "assignments",
        "configs",
        "name",
        "num_partitions",
        "replication_factor",
    )

    def __init__(
        self,
        *,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: list[CreatableReplicaAssignment] = EMPTY,
        configs: list[CreatableTopicConfig] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments = [] if assignments is EMPTY else assignments
        self.configs = [] if configs is EMPTY else configs


class CreateTopicsRequest(Message):
    """The message."""

    __slots__ = (
        "timeout_ms",
        "topics",
        "validate_only",
    )

    def __init__(
        self,
        *,
        topics: list[CreatableTopic] = EMPTY,
        timeout_ms: int = 60000,
        validate_only: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


def _decode_creatable_replica_assignment(
    reader: Reader, version: int
) -> CreatableReplicaAssignment:
    message = object.__new__(CreatableReplicaAssignment)
    message.partition_index = reader.read_int32()
    if version >= 5:
        message.broker_ids = reader.read_int32_array(
            reader.read_compact_array_length(4, "broker_ids")
        )
    else:
        message.broker_ids = reader.read_int32_array(reader.read_array_length(4, "broker_ids"))
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _decode_creatable_topic_config(reader: Reader, version: int) -> CreatableTopicConfig:
    message = object.__new__(CreatableTopicConfig)
    if version >= 5:
        message.name = reader.read_compact_string("name")
        message.value = reader.read_nullable_compact_string("value")
    else:
        message.name = reader.read_string("name")
        message.value = reader.read_nullable_string("value")
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _decode_creatable_topic(reader: Reader, version: int) -> CreatableTopic:
    message = object.__new__(CreatableTopic)
    if version >= 5:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    (message.num_partitions, message.replication_factor) = reader.unpack(_INT32_INT16)
    if version >= 5:
        message.assignments = [
            _decode_creatable_replica_assignment(reader, version)
            for _ in range(reader.read_compact_array_length(6, "assignments"))
        ]
        message.configs = [
            _decode_creatable_topic_config(reader, version)
            for _ in range(reader.read_compact_array_length(3, "configs"))
        ]
    else:
        message.assignments = [
            _decode_creatable_replica_assignment(reader, version)
            for _ in range(reader.read_array_length(8, "assignments"))
        ]
        message.configs = [
            _decode_creatable_topic_config(reader, version)
            for _ in range(reader.read_array_length(4, "configs"))
        ]
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def decode_create_topics_request(reader: Reader, version: int) -> CreateTopicsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 7:
        raise unsupported_version("CreateTopicsRequest", version)
    message = object.__new__(CreateTopicsRequest)
    if version >= 5:
        message.topics = [
            _decode_creatable_topic(reader, version)
            for _ in range(reader.read_compact_array_length(10, "topics"))
        ]
    else:
        message.topics = [
            _decode_creatable_topic(reader, version)
            for _ in range(reader.read_array_length(16, "topics"))
        ]
    (message.timeout_ms, message.validate_only) = reader.unpack(_INT32_BOOL)
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _encode_creatable_replica_assignment(
    writer: Writer, message: CreatableReplicaAssignment, version: int
) -> None:
    writer.write_int32(message.partition_index)
    if version >= 5:
        writer.write_compact_array_length(message.broker_ids, "broker_ids")
        writer.write_int32_array(message.broker_ids)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.broker_ids, "broker_ids")
        writer.write_int32_array(message.broker_ids)


def _encode_creatable_topic_config(
    writer: Writer, message: CreatableTopicConfig, version: int
) -> None:
    if version >= 5:
        writer.write_compact_string(message.name, "name")
        writer.write_nullable_compact_string(message.value, "value")
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_nullable_string(message.value, "value")


def _encode_creatable_topic(writer: Writer, message: CreatableTopic, version: int) -> None:
    if version >= 5:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    writer.buf += _INT32_INT16.pack(message.num_partitions, message.replication_factor)
    if version >= 5:
        writer.write_compact_array_length(message.assignments, "assignments")
        for creatable_replica_assignment in message.assignments:
            _encode_creatable_replica_assignment(writer, creatable_replica_assignment, version)
        writer.write_compact_array_length(message.configs, "configs")
        for creatable_topic_config in message.configs:
            _encode_creatable_topic_config(writer, creatable_topic_config, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.assignments, "assignments")
        for creatable_replica_assignment in message.assignments:
            _encode_creatable_replica_assignment(writer, creatable_replica_assignment, version)
        writer.write_array_length(message.configs, "configs")
        for creatable_topic_config in message.configs:
            _encode_creatable_topic_config(writer, creatable_topic_config, version)


def encode_create_topics_request(
    writer: Writer, message: CreateTopicsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 7:
        raise unsupported_version("CreateTopicsRequest", version)
    if version >= 5:
        writer.write_compact_array_length(message.topics, "topics")
        for creatable_topic in message.topics:
            _encode_creatable_topic(writer, creatable_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        for creatable_topic in message.topics:
            _encode_creatable_topic(writer, creatable_topic, version)
    writer.buf += _INT32_BOOL.pack(message.timeout_ms, message.validate_only)
    if version >= 5:
        writer.buf.append(0)
