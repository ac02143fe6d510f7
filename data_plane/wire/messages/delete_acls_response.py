"""DeleteAclsResponse (API key 31), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT8 = Struct(">bb")


class DeleteAclsMatchingAcl(Message):
    """Part of DeleteAclsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "host",
        "operation",
        "pattern_type",
        "permission_type",
        "principal",
        "resource_name",
        "resource_type",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name  # pattern
        self.pattern_type = pattern_type
        self.principal = principal  # principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class DeleteAclsFilterResult(Message):
    """Part of DeleteAclsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "matching_acls",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        matching_acls: list[DeleteAclsMatchingAcl] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.matching_acls = [] if matching_acls is EMPTY else matching_acls


class DeleteAclsResponse(Message):
    """The message."""

    __slots__ = (
        "filter_results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        filter_results: list[DeleteAclsFilterResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.filter_results = [] if filter_results is EMPTY else filter_results


def _decode_delete_acls_matching_acl(reader: Reader, version: int) -> DeleteAclsMatchingAcl:
    message = object.__new__(DeleteAclsMatchingAcl)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    message.resource_type = reader.read_int8()
    if version >= 2:
        message.resource_name = reader.read_compact_string("resource_name")
    else:
        message.resource_name = reader.read_string("resource_name")
    message.pattern_type = reader.read_int8()
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


def _decode_delete_acls_filter_result(reader: Reader, version: int) -> DeleteAclsFilterResult:
    message = object.__new__(DeleteAclsFilterResult)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
        message.matching_acls = [
            _decode_delete_acls_matching_acl(reader, version)
            for _ in range(reader.read_compact_array_length(11, "matching_acls"))
        ]
    else:
        message.error_message = reader.read_nullable_string("error_message")
        message.matching_acls = [
            _decode_delete_acls_matching_acl(reader, version)
            for _ in range(reader.read_array_length(14, "matching_acls"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_delete_acls_response(reader: Reader, version: int) -> DeleteAclsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("DeleteAclsResponse", version)
    message = object.__new__(DeleteAclsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.filter_results = [
            _decode_delete_acls_filter_result(reader, version)
            for _ in range(reader.read_compact_array_length(5, "filter_results"))
        ]
    else:
        message.filter_results = [
            _decode_delete_acls_filter_result(reader, version)
            for _ in range(reader.read_array_length(8, "filter_results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_delete_acls_matching_acl(
    writer: Writer, message: DeleteAclsMatchingAcl, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    else:
        writer.write_nullable_string(message.error_message, "error_message")
    writer.write_int8(message.resource_type)
    if version >= 2:
        writer.write_compact_string(message.resource_name, "resource_name")
    else:
        writer.write_string(message.resource_name, "resource_name")
    writer.write_int8(message.pattern_type)
    if version >= 2:
        writer.write_compact_string(message.principal, "principal")
        writer.write_compact_string(message.host, "host")
    else:
        writer.write_string(message.principal, "principal")
        writer.write_string(message.host, "host")
    writer.buf += _2XINT8.pack(message.operation, message.permission_type)
    if version >= 2:
        writer.buf.append(0)


def _encode_delete_acls_filter_result(
    writer: Writer, message: DeleteAclsFilterResult, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.write_compact_array_length(message.matching_acls, "matching_acls")
        for delete_acls_matching_acl in message.matching_acls:
            _encode_delete_acls_matching_acl(writer, delete_acls_matching_acl, version)
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")
        writer.write_array_length(message.matching_acls, "matching_acls")
        for delete_acls_matching_acl in message.matching_acls:
            _encode_delete_acls_matching_acl(writer, delete_acls_matching_acl, version)


def encode_delete_acls_response(writer: Writer, message: DeleteAclsResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("DeleteAclsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.filter_results, "filter_results")
        for delete_acls_filter_result in message.filter_results:
            _encode_delete_acls_filter_result(writer, delete_acls_filter_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.filter_results, "filter_results")
        for delete_acls_filter_result in message.filter_results:
            _encode_delete_acls_filter_result(writer, delete_acls_filter_result, version)
