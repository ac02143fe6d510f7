"""ProduceResponse (API key 0), versions 3 to 13, flexible from 9.

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
_INT32_INT16_2XINT64 = Struct(">ihqq")
_INT32_INT16_3XINT64 = Struct(">ihqqq")


class BatchIndexAndErrorMessage(Message):
    """Part of ProduceResponse."""

    __slots__ = (
        "batch_index",
        "batch_index_error_message",
    )

    def __init__(
        self,
        *,
        batch_index: int = 0,
        batch_index_error_message: str | None = None,
    ) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


class LeaderIdAndEpoch(Message):
    """Part of ProduceResponse."""

    __slots__ = (
        "leader_epoch",
        "leader_id",
    )

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.leader_id = leader_id  # brokerId
        self.leader_epoch = leader_epoch


class PartitionProduceResponse(Message):
    """Part of ProduceResponse."""

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "index",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] = EMPTY,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset  # versions 5 to 13
        self.record_errors = [] if record_errors is EMPTY else record_errors  # versions 8 to 13
        self.error_message = error_message  # versions 8 to 13
        self.current_leader = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )  # versions 10 to 13, tag 0


class TopicProduceResponse(Message):
    """Part of ProduceResponse."""

    __slots__ = (
        "name",
        "partition_responses",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        partition_responses: list[PartitionProduceResponse] = EMPTY,
    ) -> None:
        self.name = name  # versions 3 to 12, topicName
        self.topic_id = topic_id  # versions 13 to 13
        self.partition_responses = [] if partition_responses is EMPTY else partition_responses


class NodeEndpoint(Message):
    """Part of ProduceResponse."""

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


class ProduceResponse(Message):
    """The message."""

    __slots__ = (
        "node_endpoints",
        "responses",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] = EMPTY,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.responses = [] if responses is EMPTY else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = (
            [] if node_endpoints is EMPTY else node_endpoints
        )  # versions 10 to 13, tag 0


def _decode_batch_index_and_error_message(
    reader: Reader, version: int
) -> BatchIndexAndErrorMessage:
    message = object.__new__(BatchIndexAndErrorMessage)
    message.batch_index = reader.read_int32()
    if version >= 9:
        message.batch_index_error_message = reader.read_nullable_compact_string(
            "batch_index_error_message"
        )
    else:
        message.batch_index_error_message = reader.read_nullable_string("batch_index_error_message")
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _decode_leader_id_and_epoch(reader: Reader, version: int) -> LeaderIdAndEpoch:
    message = object.__new__(LeaderIdAndEpoch)
    (message.leader_id, message.leader_epoch) = reader.unpack(_2XINT32)
    reader.skip_tagged_fields()
    return message


def _decode_partition_produce_response(reader: Reader, version: int) -> PartitionProduceResponse:
    message = object.__new__(PartitionProduceResponse)
    if version >= 5:
        (
            message.index,
            message.error_code,
            message.base_offset,
            message.log_append_time_ms,
            message.log_start_offset,
        ) = reader.unpack(_INT32_INT16_3XINT64)
    else:
        (message.index, message.error_code, message.base_offset, message.log_append_time_ms) = (
            reader.unpack(_INT32_INT16_2XINT64)
        )
        message.log_start_offset = -1
    if version >= 9:
        message.record_errors = [
            _decode_batch_index_and_error_message(reader, version)
            for _ in range(reader.read_compact_array_length(6, "record_errors"))
        ]
        message.error_message = reader.read_nullable_compact_string("error_message")
    elif version >= 8:
        message.record_errors = [
            _decode_batch_index_and_error_message(reader, version)
            for _ in range(reader.read_array_length(6, "record_errors"))
        ]
        message.error_message = reader.read_nullable_string("error_message")
    else:
        message.record_errors = []
        message.error_message = None
    message.current_leader = LeaderIdAndEpoch()
    if version >= 9:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0 and version >= 10:
                message.current_leader = _decode_leader_id_and_epoch(reader, version)
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _decode_topic_produce_response(reader: Reader, version: int) -> TopicProduceResponse:
    message = object.__new__(TopicProduceResponse)
    if version >= 13:
        message.name = ""
    elif version >= 9:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 13:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 9:
        message.partition_responses = [
            _decode_partition_produce_response(reader, version)
            for _ in range(reader.read_compact_array_length(33, "partition_responses"))
        ]
    else:
        message.partition_responses = [
            _decode_partition_produce_response(reader, version)
            for _ in range(reader.read_array_length(22, "partition_responses"))
        ]
    if version >= 9:
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


def decode_produce_response(reader: Reader, version: int) -> ProduceResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 3 <= version <= 13:
        raise unsupported_version("ProduceResponse", version)
    message = object.__new__(ProduceResponse)
    if version >= 9:
        message.responses = [
            _decode_topic_produce_response(reader, version)
            for _ in range(reader.read_compact_array_length(3, "responses"))
        ]
    else:
        message.responses = [
            _decode_topic_produce_response(reader, version)
            for _ in range(reader.read_array_length(6, "responses"))
        ]
    message.throttle_time_ms = reader.read_int32()
    message.node_endpoints = []
    if version >= 9:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0 and version >= 10:
                message.node_endpoints = [
                    _decode_node_endpoint(reader, version)
                    for _ in range(reader.read_compact_array_length(11, "node_endpoints"))
                ]
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _encode_batch_index_and_error_message(
    writer: Writer, message: BatchIndexAndErrorMessage, version: int
) -> None:
    writer.write_int32(message.batch_index)
    if version >= 9:
        writer.write_nullable_compact_string(
            message.batch_index_error_message, "batch_index_error_message"
        )
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.batch_index_error_message, "batch_index_error_message")


def _encode_leader_id_and_epoch(writer: Writer, message: LeaderIdAndEpoch, version: int) -> None:
    writer.buf += _2XINT32.pack(message.leader_id, message.leader_epoch)
    writer.buf.append(0)


def _encode_partition_produce_response(
    writer: Writer, message: PartitionProduceResponse, version: int
) -> None:
    if version >= 5:
        writer.buf += _INT32_INT16_3XINT64.pack(
            message.index,
            message.error_code,
            message.base_offset,
            message.log_append_time_ms,
            message.log_start_offset,
        )
    else:
        writer.buf += _INT32_INT16_2XINT64.pack(
            message.index, message.error_code, message.base_offset, message.log_append_time_ms
        )
    if version >= 9:
        writer.write_compact_array_length(message.record_errors, "record_errors")
        for batch_index_and_error_message in message.record_errors:
            _encode_batch_index_and_error_message(writer, batch_index_and_error_message, version)
        writer.write_nullable_compact_string(message.error_message, "error_message")
    elif version >= 8:
        writer.write_array_length(message.record_errors, "record_errors")
        for batch_index_and_error_message in message.record_errors:
            _encode_batch_index_and_error_message(writer, batch_index_and_error_message, version)
        writer.write_nullable_string(message.error_message, "error_message")
    if version >= 9:
        tagged: list[tuple[int, Writer]] = []
        if version >= 10 and not _is_default_leader_id_and_epoch(message.current_leader):
            content = Writer()
            _encode_leader_id_and_epoch(content, message.current_leader, version)
            tagged.append((0, content))
        writer.write_tagged_fields(tagged)


def _encode_topic_produce_response(
    writer: Writer, message: TopicProduceResponse, version: int
) -> None:
    if version <= 8:
        writer.write_string(message.name, "name")
    elif version <= 12:
        writer.write_compact_string(message.name, "name")
    if version >= 13:
        writer.write_uuid(message.topic_id)
    if version >= 9:
        writer.write_compact_array_length(message.partition_responses, "partition_responses")
        for partition_produce_response in message.partition_responses:
            _encode_partition_produce_response(writer, partition_produce_response, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.partition_responses, "partition_responses")
        for partition_produce_response in message.partition_responses:
            _encode_partition_produce_response(writer, partition_produce_response, version)


def _encode_node_endpoint(writer: Writer, message: NodeEndpoint, version: int) -> None:
    writer.write_int32(message.node_id)
    writer.write_compact_string(message.host, "host")
    writer.write_int32(message.port)
    writer.write_nullable_compact_string(message.rack, "rack")
    writer.buf.append(0)


def encode_produce_response(writer: Writer, message: ProduceResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 3 <= version <= 13:
        raise unsupported_version("ProduceResponse", version)
    if version >= 9:
        writer.write_compact_array_length(message.responses, "responses")
        for topic_produce_response in message.responses:
            _encode_topic_produce_response(writer, topic_produce_response, version)
    else:
        writer.write_array_length(message.responses, "responses")
        for topic_produce_response in message.responses:
            _encode_topic_produce_response(writer, topic_produce_response, version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 9:
        tagged: list[tuple[int, Writer]] = []
        if version >= 10 and message.node_endpoints:
            content = Writer()
            content.write_compact_array_length(message.node_endpoints, "node_endpoints")
            for node_endpoint in message.node_endpoints:
                _encode_node_endpoint(content, node_endpoint, version)
            tagged.append((0, content))
        writer.write_tagged_fields(tagged)


def _is_default_leader_id_and_epoch(message: LeaderIdAndEpoch) -> bool:
    return message.leader_id == -1 and message.leader_epoch == -1
