"""AlterReplicaLogDirsRequest (API key 34), versions 1 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AlterReplicaLogDirTopic(Message):
    """Part of AlterReplicaLogDirsRequest."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class AlterReplicaLogDir(Message):
    """Part of AlterReplicaLogDirsRequest."""

    __slots__ = (
        "path",
        "topics",
    )

    def __init__(
        self,
        *,
        path: str = "",
        topics: list[AlterReplicaLogDirTopic] = EMPTY,
    ) -> None:
        self.path = path
        self.topics = [] if topics is EMPTY else topics


class AlterReplicaLogDirsRequest(Message):
    """The message."""

    __slots__ = ("dirs",)

    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDir] = EMPTY,
    ) -> None:
        self.dirs = [] if dirs is EMPTY else dirs


def _decode_alter_replica_log_dir_topic(reader: Reader, version: int) -> AlterReplicaLogDirTopic:
    message = object.__new__(AlterReplicaLogDirTopic)
    if version >= 2:
        message.name = reader.read_compact_string("name")
        message.partitions = reader.read_int32_array(
            reader.read_compact_array_length(4, "partitions")
        )
    else:
        message.name = reader.read_string("name")
        message.partitions = reader.read_int32_array(reader.read_array_length(4, "partitions"))
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_alter_replica_log_dir(reader: Reader, version: int) -> AlterReplicaLogDir:
    message = object.__new__(AlterReplicaLogDir)
    if version >= 2:
        message.path = reader.read_compact_string("path")
        message.topics = [
            _decode_alter_replica_log_dir_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.path = reader.read_string("path")
        message.topics = [
            _decode_alter_replica_log_dir_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_alter_replica_log_dirs_request(
    reader: Reader, version: int
) -> AlterReplicaLogDirsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("AlterReplicaLogDirsRequest", version)
    message = object.__new__(AlterReplicaLogDirsRequest)
    if version >= 2:
        message.dirs = [
            _decode_alter_replica_log_dir(reader, version)
            for _ in range(reader.read_compact_array_length(3, "dirs"))
        ]
    else:
        message.dirs = [
            _decode_alter_replica_log_dir(reader, version)
            for _ in range(reader.read_array_length(6, "dirs"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_alter_replica_log_dir_topic(
    writer: Writer, message: AlterReplicaLogDirTopic, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        writer.write_int32_array(message.partitions)


def _encode_alter_replica_log_dir(
    writer: Writer, message: AlterReplicaLogDir, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.path, "path")
        writer.write_compact_array_length(message.topics, "topics")
        for alter_replica_log_dir_topic in message.topics:
            _encode_alter_replica_log_dir_topic(writer, alter_replica_log_dir_topic, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.path, "path")
        writer.write_array_length(message.topics, "topics")
        for alter_replica_log_dir_topic in message.topics:
            _encode_alter_replica_log_dir_topic(writer, alter_replica_log_dir_topic, version)


def encode_alter_replica_log_dirs_request(
    writer: Writer, message: AlterReplicaLogDirsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("AlterReplicaLogDirsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.dirs, "dirs")
        for alter_replica_log_dir in message.dirs:
            _encode_alter_replica_log_dir(writer, alter_replica_log_dir, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.dirs, "dirs")
        for alter_replica_log_dir in message.dirs:
            _encode_alter_replica_log_dir(writer, alter_replica_log_dir, version)
