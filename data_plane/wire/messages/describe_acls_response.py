"""DescribeAclsResponse (API key 29), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT8 = Struct(">bb")
_INT32_INT16 = Struct(">ih")


class AclDescription(Message):
    """Part of DescribeAclsResponse."""

    __slots__ = (
        "host",
        "operation",
        "permission_type",
        "principal",
    )

    def __init__(
        self,
        *,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.principal = principal  # principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class DescribeAclsResource(Message):
    """Part of DescribeAclsResponse."""

    __slots__ = (
        "acls",
        "pattern_type",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        acls: list[AclDescription] = EMPTY,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name  # pattern
        self.pattern_type = pattern_type
        self.acls = [] if acls is EMPTY else acls


class DescribeAclsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "error_message",
        "resources",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        resources: list[DescribeAclsResource] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.resources = [] if resources is EMPTY else resources


def _decode_acl_description(reader: Reader, version: int) -> AclDescription:
    message = object.__new__(AclDescription)
    if version >= 2:
        message.principal = reader.read_compact_string("principal")
        message.host = reader.read_compact_string("host")
    else:
        message.principal = reader.read_string("principal")
        message.host = reader.read_string("host")
    (message.operation, message.permission_type) = reader.unpack(_2XINT8)
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_describe_acls_resource(reader: Reader, version: int) -> DescribeAclsResource:
    message = object.__new__(DescribeAclsResource)
    message.resource_type = reader.read_int8()
    if version >= 2:
        message.resource_name = reader.read_compact_string("resource_name")
    else:
        message.resource_name = reader.read_string("resource_name")
    message.pattern_type = reader.read_int8()
    if version >= 2:
        message.acls = [
            _decode_acl_description(reader, version)
            for _ in range(reader.read_compact_array_length(5, "acls"))
        ]
    else:
        message.acls = [
            _decode_acl_description(reader, version)
            for _ in range(reader.read_array_length(6, "acls"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_describe_acls_response(reader: Reader, version: int) -> DescribeAclsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("DescribeAclsResponse", version)
    message = object.__new__(DescribeAclsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
        message.resources = [
            _decode_describe_acls_resource(reader, version)
            for _ in range(reader.read_compact_array_length(5, "resources"))
        ]
    else:
        message.error_message = reader.read_nullable_string("error_message")
        message.resources = [
            _decode_describe_acls_resource(reader, version)
            for _ in range(reader.read_array_length(8, "resources"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_acl_description(writer: Writer, message: AclDescription, version: int) -> None:
    if version >= 2:
        writer.write_compact_string(message.principal, "principal")
        writer.write_compact_string(message.host, "host")
    else:
        writer.write_string(message.principal, "principal")
        writer.write_string(message.host, "host")
    writer.buf += _2XINT8.pack(message.operation, message.permission_type)
    if version >= 2:
        writer.buf.append(0)


def _encode_describe_acls_resource(
    writer: Writer, message: DescribeAclsResource, version: int
) -> None:
    writer.write_int8(message.resource_type)
    if version >= 2:
        writer.write_compact_string(message.resource_name, "resource_name")
    else:
        writer.write_string(message.resource_name, "resource_name")
    writer.write_int8(message.pattern_type)
    if version >= 2:
        writer.write_compact_array_length(message.acls, "acls")
        for acl_description in message.acls:
            _encode_acl_description(writer, acl_description, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.acls, "acls")
        for acl_description in message.acls:
            _encode_acl_description(writer, acl_description, version)


def encode_describe_acls_response(
    writer: Writer, message: DescribeAclsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("DescribeAclsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.write_compact_array_length(message.resources, "resources")
        for describe_acls_resource in message.resources:
            _encode_describe_acls_resource(writer, describe_acls_resource, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")
        writer.write_array_length(message.resources, "resources")
        for describe_acls_resource in message.resources:
            _encode_describe_acls_resource(writer, describe_acls_resource, version)
