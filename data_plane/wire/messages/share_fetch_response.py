"""ShareFetchResponse (API key 78), versions 1 to 2, flexible from 1.

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

_2XINT32 = Struct(">ii")
_2XINT64_INT16 = Struct(">qqh")
_INT32_INT16 = Struct(">ih")


class LeaderIdAndEpoch(Message):
    """Part of ShareFetchResponse."""

    __slots__ = (
        "leader_epoch",
        "leader_id",
    )

    def __init__(
        self,
        *,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class AcquiredRecords(Message):
    """Part of ShareFetchResponse."""

    __slots__ = (
        "delivery_count",
        "first_offset",
        "last_offset",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_count = delivery_count


class PartitionData(Message):
    """Part of ShareFetchResponse."""

    __slots__ = (
        "acknowledge_error_code",
        "acknowledge_error_message",
        "acquired_records",
        "current_leader",
        "error_code",
        "error_message",
        "partition_index",
        "records",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acknowledge_error_code: int = 0,
        acknowledge_error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        records: bytes | memoryview = b"",
        acquired_records: list[AcquiredRecords] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.acknowledge_error_code = acknowledge_error_code
        self.acknowledge_error_message = acknowledge_error_message
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.records = records
        self.acquired_records = [] if acquired_records is EMPTY else acquired_records


class ShareFetchableTopicResponse(Message):
    """Part of ShareFetchResponse."""

    __slots__ = (
        "partitions",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions


class NodeEndpoint(Message):
    """Part of ShareFetchResponse."""

    __slots__ = (
        "host",
        "node_id",
        "port",
        "rack",
    )

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id  # brokerId
        self.host = host
        self.port = port
        self.rack = rack


class ShareFetchResponse(Message):
    """The message."""

    __slots__ = (
        "acquisition_lock_timeout_ms",
        "error_code",
        "error_message",
        "node_endpoints",
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareFetchableTopicResponse] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses = [] if responses is EMPTY else responses
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints


def _decode_leader_id_and_epoch(reader: Reader, version: int) -> LeaderIdAndEpoch:
    message = object.__new__(LeaderIdAndEpoch)
    (message.leader_id, message.leader_epoch) = reader.unpack(_2XINT32)
    reader.skip_tagged_fields()
    return message


def _decode_acquired_records(reader: Reader, version: int) -> AcquiredRecords:
    message = object.__new__(AcquiredRecords)
    (message.first_offset, message.last_offset, message.delivery_count) = reader.unpack(
        _2XINT64_INT16
    )
    reader.skip_tagged_fields()
    return message


def _decode_partition_data(reader: Reader, version: int) -> PartitionData:
    message = object.__new__(PartitionData)
    (message.partition_index, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.acknowledge_error_code = reader.read_int16()
    message.acknowledge_error_message = reader.read_nullable_compact_string(
        "acknowledge_error_message"
    )
    message.current_leader = _decode_leader_id_and_epoch(reader, version)
    message.records = reader.read_compact_records("records")
    message.acquired_records = [
        _decode_acquired_records(reader, version)
        for _ in range(reader.read_compact_array_length(19, "acquired_records"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_share_fetchable_topic_response(
    reader: Reader, version: int
) -> ShareFetchableTopicResponse:
    message = object.__new__(ShareFetchableTopicResponse)
    message.topic_id = reader.read_uuid()
    message.partitions = [
        _decode_partition_data(reader, version)
        for _ in range(reader.read_compact_array_length(22, "partitions"))
    ]
    reader.skip_tagged_fields()
    return message


def _decode_node_endpoint(reader: Reader, version: int) -> NodeEndpoint:
    message = object.__new__(NodeEndpoint)
    message.node_id = reader.read_int32()
    message.host = reader.read_compact_string("host")
    message.port = reader.read_int32()
    message.rack = reader.read_nullable_compact_string("rack")
    reader.skip_tagged_fields()
    return message


def decode_share_fetch_response(reader: Reader, version: int) -> ShareFetchResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareFetchResponse", version)
    message = object.__new__(ShareFetchResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.acquisition_lock_timeout_ms = reader.read_int32()
    message.responses = [
        _decode_share_fetchable_topic_response(reader, version)
        for _ in range(reader.read_compact_array_length(18, "responses"))
    ]
    message.node_endpoints = [
        _decode_node_endpoint(reader, version)
        for _ in range(reader.read_compact_array_length(11, "node_endpoints"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_leader_id_and_epoch(writer: Writer, message: LeaderIdAndEpoch, version: int) -> None:
    writer.buf += _2XINT32.pack(message.leader_id, message.leader_epoch)
    writer.buf.append(0)


def _encode_acquired_records(writer: Writer, message: AcquiredRecords, version: int) -> None:
    writer.buf += _2XINT64_INT16.pack(
        message.first_offset, message.last_offset, message.delivery_count
    )
    writer.buf.append(0)


def _encode_partition_data(writer: Writer, message: PartitionData, version: int) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_int16(message.acknowledge_error_code)
    writer.write_nullable_compact_string(
        message.acknowledge_error_message, "acknowledge_error_message"
    )
    _encode_leader_id_and_epoch(writer, message.current_leader, version)
    writer.write_compact_bytes(message.records, "records")
    writer.write_compact_array_length(message.acquired_records, "acquired_records")
    for acquired_records in message.acquired_records:
        _encode_acquired_records(writer, acquired_records, version)
    writer.buf.append(0)


def _encode_share_fetchable_topic_response(
    writer: Writer, message: ShareFetchableTopicResponse, version: int
) -> None:
    writer.write_uuid(message.topic_id)
    writer.write_compact_array_length(message.partitions, "partitions")
    for partition_data in message.partitions:
        _encode_partition_data(writer, partition_data, version)
    writer.buf.append(0)


def _encode_node_endpoint(writer: Writer, message: NodeEndpoint, version: int) -> None:
    writer.write_int32(message.node_id)
    writer.write_compact_string(message.host, "host")
    writer.write_int32(message.port)
    writer.write_nullable_compact_string(message.rack, "rack")
    writer.buf.append(0)


def encode_share_fetch_response(writer: Writer, message: ShareFetchResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 2:
        raise unsupported_version("ShareFetchResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_int32(message.acquisition_lock_timeout_ms)
    writer.write_compact_array_length(message.responses, "responses")
    for share_fetchable_topic_response in message.responses:
        _encode_share_fetchable_topic_response(writer, share_fetchable_topic_response, version)
    writer.write_compact_array_length(message.node_endpoints, "node_endpoints")
    for node_endpoint in message.node_endpoints:
        _encode_node_endpoint(writer, node_endpoint, version)
    writer.buf.append(0)
