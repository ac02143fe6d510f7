"""DescribeClusterRequest (API key 60), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_BOOL_INT8 = Struct(">?b")
_BOOL_INT8_BOOL = Struct(">?b?")


class DescribeClusterRequest(Message):
    """The message."""

    __slots__ = (
        "endpoint_type",
        "include_cluster_authorized_operations",
        "include_fenced_brokers",
    )

    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type  # versions 1 to 2
        self.include_fenced_brokers = include_fenced_brokers  # versions 2 to 2


def decode_describe_cluster_request(reader: Reader, version: int) -> DescribeClusterRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeClusterRequest", version)
    message = object.__new__(DescribeClusterRequest)
    if version >= 2:
        (
            message.include_cluster_authorized_operations,
            message.endpoint_type,
            message.include_fenced_brokers,
        ) = reader.unpack(_BOOL_INT8_BOOL)
    elif version >= 1:
        (message.include_cluster_authorized_operations, message.endpoint_type) = reader.unpack(
            _BOOL_INT8
        )
        message.include_fenced_brokers = False
    else:
        message.include_cluster_authorized_operations = reader.read_bool()
        message.endpoint_type = 1
        message.include_fenced_brokers = False
    reader.skip_tagged_fields()
    return message


def encode_describe_cluster_request(
    writer: Writer, message: DescribeClusterRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DescribeClusterRequest", version)
    if version >= 2:
        writer.buf += _BOOL_INT8_BOOL.pack(
            message.include_cluster_authorized_operations,
            message.endpoint_type,
            message.include_fenced_brokers,
        )
    elif version >= 1:
        if message.include_fenced_brokers:
            raise unsupported_field("DescribeClusterRequest", "include_fenced_brokers", version)
        writer.buf += _BOOL_INT8.pack(
            message.include_cluster_authorized_operations, message.endpoint_type
        )
    else:
        if message.endpoint_type != 1:
            raise unsupported_field("DescribeClusterRequest", "endpoint_type", version)
        if message.include_fenced_brokers:
            raise unsupported_field("DescribeClusterRequest", "include_fenced_brokers", version)
        writer.write_bool(message.include_cluster_authorized_operations)
    writer.buf.append(0)
