"""DescribeClusterResponse (API key 60), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class DescribeClusterBroker(Message):
    """Part of DescribeClusterResponse."""

    __slots__ = (
        "broker_id",
        "host",
        "is_fenced",
        "port",
        "rack",
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
        is_fenced: bool = False,
    ) -> None:
        self.broker_id = broker_id  # brokerId
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced  # versions 2 to 2


class DescribeClusterResponse(Message):
    """The message."""

    __slots__ = (
        "brokers",
        "cluster_authorized_operations",
        "cluster_id",
        "controller_id",
        "endpoint_type",
        "error_code",
        "error_message",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterBroker] = EMPTY,
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type  # versions 1 to 2
        self.cluster_id = cluster_id
        self.controller_id = controller_id  # brokerId
        self.brokers = [] if brokers is EMPTY else brokers
        self.cluster_authorized_operations = cluster_authorized_operations


def _decode_describe_cluster_broker(reader: Reader, version: int) -> DescribeClusterBroker:
    message = object.__new__(DescribeClusterBroker)
    message.broker_id = reader.read_int32()
    message.host = reader.read_compact_string("host")
    message.port = reader.read_int32()
    message.rack = reader.read_nullable_compact_string("rack")
    if version >= 2:
        message.is_fenced = reader.read_bool()
    else:
        message.is_fenced = False
    reader.skip_tagged_fields()
    return message


def decode_describe_cluster_response(reader: Reader, version: int) -> DescribeClusterResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeClusterResponse", version)
    message = object.__new__(DescribeClusterResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    if version >= 1:
        message.endpoint_type = reader.read_int8()
    else:
        message.endpoint_type = 1
    message.cluster_id = reader.read_compact_string("cluster_id")
    message.controller_id = reader.read_int32()
    message.brokers = [
        _decode_describe_cluster_broker(reader, version)
        for _ in range(reader.read_compact_array_length(11, "brokers"))
    ]
    message.cluster_authorized_operations = reader.read_int32()
    reader.skip_tagged_fields()
    return message


def _encode_describe_cluster_broker(
    writer: Writer, message: DescribeClusterBroker, version: int
) -> None:
    writer.write_int32(message.broker_id)
    writer.write_compact_string(message.host, "host")
    writer.write_int32(message.port)
    writer.write_nullable_compact_string(message.rack, "rack")
    if version >= 2:
        writer.write_bool(message.is_fenced)
    writer.buf.append(0)


def encode_describe_cluster_response(
    writer: Writer, message: DescribeClusterResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeClusterResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    if version >= 1:
        writer.write_int8(message.endpoint_type)
    writer.write_compact_string(message.cluster_id, "cluster_id")
    writer.write_int32(message.controller_id)
    writer.write_compact_array_length(message.brokers, "brokers")
    for describe_cluster_broker in message.brokers:
        _encode_describe_cluster_broker(writer, describe_cluster_broker, version)
    writer.write_int32(message.cluster_authorized_operations)
    writer.buf.append(0)
