"""AlterReplicaLogDirsResponse (API key 34), versions 1 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class AlterReplicaLogDirPartitionResult(Message):
    """Part of AlterReplicaLogDirsResponse."""

    __slots__ = (
        "error_code",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class AlterReplicaLogDirTopicResult(Message):
    """Part of AlterReplicaLogDirsResponse."""

    __slots__ = (
        "partitions",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AlterReplicaLogDirsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_alter_replica_log_dir_partition_result(
    reader: Reader, version: int
) -> AlterReplicaLogDirPartitionResult:
    message = object.__new__(AlterReplicaLogDirPartitionResult)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_alter_replica_log_dir_topic_result(
    reader: Reader, version: int
) -> AlterReplicaLogDirTopicResult:
    message = object.__new__(AlterReplicaLogDirTopicResult)
    if version >= 2:
        message.topic_name = reader.read_compact_string("topic_name")
        message.partitions = [
            _decode_alter_replica_log_dir_partition_result(reader, version)
            for _ in range(reader.read_compact_array_length(7, "partitions"))
        ]
    else:
        message.topic_name = reader.read_string("topic_name")
        message.partitions = [
            _decode_alter_replica_log_dir_partition_result(reader, version)
            for _ in range(reader.read_array_length(6, "partitions"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_alter_replica_log_dirs_response(
    reader: Reader, version: int
) -> AlterReplicaLogDirsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("AlterReplicaLogDirsResponse", version)
    message = object.__new__(AlterReplicaLogDirsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.results = [
            _decode_alter_replica_log_dir_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "results"))
        ]
    else:
        message.results = [
            _decode_alter_replica_log_dir_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_alter_replica_log_dir_partition_result(
    writer: Writer, message: AlterReplicaLogDirPartitionResult, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    if version >= 2:
        writer.buf.append(0)


def _encode_alter_replica_log_dir_topic_result(
    writer: Writer, message: AlterReplicaLogDirTopicResult, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.topic_name, "topic_name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for alter_replica_log_dir_partition_result in message.partitions:
            _encode_alter_replica_log_dir_partition_result(
                writer, alter_replica_log_dir_partition_result, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.topic_name, "topic_name")
        writer.write_array_length(message.partitions, "partitions")
        for alter_replica_log_dir_partition_result in message.partitions:
            _encode_alter_replica_log_dir_partition_result(
                writer, alter_replica_log_dir_partition_result, version
            )


def encode_alter_replica_log_dirs_response(
    writer: Writer, message: AlterReplicaLogDirsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("AlterReplicaLogDirsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.results, "results")
        for alter_replica_log_dir_topic_result in message.results:
            _encode_alter_replica_log_dir_topic_result(
                writer, alter_replica_log_dir_topic_result, version
            )
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for alter_replica_log_dir_topic_result in message.results:
            _encode_alter_replica_log_dir_topic_result(
                writer, alter_replica_log_dir_topic_result, version
            )
