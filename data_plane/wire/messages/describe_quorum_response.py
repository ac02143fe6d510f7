"""DescribeQuorumResponse (API key 55), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_version,
)

_2XINT32_INT64 = Struct(">iiq")
_3XINT64 = Struct(">qqq")
_INT32_INT16 = Struct(">ih")


class ReplicaState(Message):
    """Part of DescribeQuorumResponse."""

    __slots__ = (
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "log_end_offset",
        "replica_directory_id",
        "replica_id",
    )

    def __init__(
        self,
        *,
        replica_id: int = 0,
        replica_directory_id: UUID = ZERO_UUID,
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id  # brokerId
        self.replica_directory_id = replica_directory_id  # versions 2 to 2
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp  # versions 1 to 2
        self.last_caught_up_timestamp = last_caught_up_timestamp  # versions 1 to 2


class PartitionData(Message):
    """Part of DescribeQuorumResponse."""

    __slots__ = (
        "current_voters",
        "error_code",
        "error_message",
        "high_watermark",
        "leader_epoch",
        "leader_id",
        "observers",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] = EMPTY,
        observers: list[ReplicaState] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message  # versions 2 to 2
        self.leader_id = leader_id  # brokerId
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters = [] if current_voters is EMPTY else current_voters
        self.observers = [] if observers is EMPTY else observers


class TopicData(Message):
    """Part of DescribeQuorumResponse."""

    __slots__ = (
        "partitions",
        "topic_name",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class Listener(Message):
    """Part of DescribeQuorumResponse."""

    __slots__ = (
        "host",
        "name",
        "port",
    )

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port


class Node(Message):
    """Part of DescribeQuorumResponse."""

    __slots__ = (
        "listeners",
        "node_id",
    )

    def __init__(
        self,
        *,
        node_id: int = 0,
        listeners: list[Listener] = EMPTY,
    ) -> None:
        self.node_id = node_id  # brokerId
        self.listeners = [] if listeners is EMPTY else listeners


class DescribeQuorumResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "error_message",
        "nodes",
        "topics",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[TopicData] = EMPTY,
        nodes: list[Node] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message  # versions 2 to 2
        self.topics = [] if topics is EMPTY else topics
        self.nodes = [] if nodes is EMPTY else nodes  # versions 2 to 2


def _decode_replica_state(reader: Reader, version: int) -> ReplicaState:
    message = object.__new__(ReplicaState)
    message.replica_id = reader.read_int32()
    if version >= 2:
        message.replica_directory_id = reader.read_uuid()
    else:
        message.replica_directory_id = ZERO_UUID
    if version >= 1:
        (message.log_end_offset, message.last_fetch_timestamp, message.last_caught_up_timestamp) = (
            reader.unpack(_3XINT64)
        )
    else:
        message.log_end_offset = reader.read_int64()
        message.last_fetch_timestamp = -1
        message.last_caught_up_timestamp = -1
    reader.skip_tagged_fields()
    return message


def _decode_partition_data(reader: Reader, version: int) -> PartitionData:
    message = object.__new__(PartitionData)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = ""
    (message.leader_id, message.leader_epoch, message.high_watermark) = reader.unpack(
        _2XINT32_INT64
    )
    message.current_voters = [
        _decode_replica_state(reader, version)
        for _ in range(reader.read_compact_array_length(13, "current_voters"))
    ]
    message.observers = [
        _decode_replica_state(reader, version)
        for _ in range(reader.read_compact_array_length(13, "observers"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_topic_data(reader: Reader, version: int) -> TopicData:
    message = object.__new__(TopicData)
    message.topic_name = reader.read_compact_string("topic_name")
    message.partitions = [
        _decode_partition_data(reader, version)
        for _ in range(reader.read_compact_array_length(25, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_listener(reader: Reader, version: int) -> Listener:
    message = object.__new__(Listener)
    message.name = reader.read_compact_string("name")
    message.host = reader.read_compact_string("host")
    message.port = reader.read_uint16()
    reader.skip_tagged_fields()
    return message


def _decode_node(reader: Reader, version: int) -> Node:
    message = object.__new__(Node)
    message.node_id = reader.read_int32()
    message.listeners = [
        _decode_listener(reader, version)
        for _ in range(reader.read_compact_array_length(5, "listeners"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_quorum_response(reader: Reader, version: int) -> DescribeQuorumResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeQuorumResponse", version)
    message = object.__new__(DescribeQuorumResponse)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = ""
    message.topics = [
        _decode_topic_data(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topics"))
    ]
    if version >= 2:
        message.nodes = [
            _decode_node(reader, version)
            for _ in range(reader.read_compact_array_length(6, "nodes"))
        ]
    else:
        message.nodes = []
    reader.skip_tagged_fields()
    return message


def _encode_replica_state(writer: Writer, message: ReplicaState, version: int) -> None:
    writer.write_int32(message.replica_id)
    if version >= 2:
        writer.write_uuid(message.replica_directory_id)
    if version >= 1:
        writer.buf += _3XINT64.pack(
            message.log_end_offset, message.last_fetch_timestamp, message.last_caught_up_timestamp
        )
    else:
        writer.write_int64(message.log_end_offset)
    writer.buf.append(0)


def _encode_partition_data(writer: Writer, message: PartitionData, version: int) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf += _2XINT32_INT64.pack(
        message.leader_id, message.leader_epoch, message.high_watermark
    )
    writer.write_compact_array_length(message.current_voters, "current_voters")
    for replica_state in message.current_voters:
        _encode_replica_state(writer, replica_state, version)
    writer.write_compact_array_length(message.observers, "observers")
    for replica_state in message.observers:
        _encode_replica_state(writer, replica_state, version)
    writer.buf.append(0)


def _encode_topic_data(writer: Writer, message: TopicData, version: int) -> None:
    writer.write_compact_string(message.topic_name, "topic_name")
    writer.write_compact_array_length(message.partitions, "partitions")
    for partition_data in message.partitions:
        _encode_partition_data(writer, partition_data, version)
    writer.buf.append(0)


def _encode_listener(writer: Writer, message: Listener, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_compact_string(message.host, "host")
    writer.write_uint16(message.port)
    writer.buf.append(0)


def _encode_node(writer: Writer, message: Node, version: int) -> None:
    writer.write_int32(message.node_id)
    writer.write_compact_array_length(message.listeners, "listeners")
    for listener in message.listeners:
        _encode_listener(writer, listener, version)
    writer.buf.append(0)


def encode_describe_quorum_response(
    writer: Writer, message: DescribeQuorumResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeQuorumResponse", version)
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.topics, "topics")
    for topic_data in message.topics:
        _encode_topic_data(writer, topic_data, version)
    if version >= 2:
        writer.write_compact_array_length(message.nodes, "nodes")
        for node in message.nodes:
            _encode_node(writer, node, version)
    writer.buf.append(0)
