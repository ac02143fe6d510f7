"""DescribeAclsRequest (API key 29), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version

_2XINT8 = Struct(">bb")


class DescribeAclsRequest(Message):
    """The message."""

    __slots__ = (
        "host_filter",
        "operation",
        "pattern_type_filter",
        "permission_type",
        "principal_filter",
        "resource_name_filter",
        "resource_type_filter",
    )

    def __init__(
        self,
        *,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = "",
        pattern_type_filter: int = 3,
        principal_filter: str | None = "",
        host_filter: str | None = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type_filter = resource_type_filter
        self.resource_name_filter = resource_name_filter  # pattern
        self.pattern_type_filter = pattern_type_filter
        self.principal_filter = principal_filter  # principal
        self.host_filter = host_filter
        self.operation = operation
        self.permission_type = permission_type


def decode_describe_acls_request(reader: Reader, version: int) -> DescribeAclsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("DescribeAclsRequest", version)
    message = object.__new__(DescribeAclsRequest)
    message.resource_type_filter = reader.read_int8()
    if version >= 2:
        message.resource_name_filter = reader.read_nullable_compact_string("resource_name_filter")
    else:
        message.resource_name_filter = reader.read_nullable_string("resource_name_filter")
    message.pattern_type_filter = reader.read_int8()
    if version >= 2:
        message.principal_filter = reader.read_nullable_compact_string("principal_filter")
        message.host_filter = reader.read_nullable_compact_string("host_filter")
    else:
        message.principal_filter = reader.read_nullable_string("principal_filter")
        message.host_filter = reader.read_nullable_string("host_filter")
    (message.operation, message.permission_type) = reader.unpack(_2XINT8)
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def encode_describe_acls_request(
    writer: Writer, message: DescribeAclsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("DescribeAclsRequest", version)
    writer.write_int8(message.resource_type_filter)
    if version >= 2:
        writer.write_nullable_compact_string(message.resource_name_filter, "resource_name_filter")
    else:
        writer.write_nullable_string(message.resource_name_filter, "resource_name_filter")
    writer.write_int8(message.pattern_type_filter)
    if version >= 2:
        writer.write_nullable_compact_string(message.principal_filter, "principal_filter")
        writer.write_nullable_compact_string(message.host_filter, "host_filter")
    else:
        writer.write_nullable_string(message.principal_filter, "principal_filter")
        writer.write_nullable_string(message.host_filter, "host_filter")
    writer.buf += _2XINT8.pack(message.operation, message.permission_type)
    if version >= 2:
        writer.buf.append(0)
