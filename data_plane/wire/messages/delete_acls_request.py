"""DeleteAclsRequest (API key 31), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT8 = Struct(">bb")


class DeleteAclsFilter(Message):
    """Part of DeleteAclsRequest."""

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


class DeleteAclsRequest(Message):
    """The message."""

    __slots__ = ("filters",)

    def __init__(
        self,
        *,
        filters: list[DeleteAclsFilter] = EMPTY,
    ) -> None:
        self.filters = [] if filters is EMPTY else filters


def _decode_delete_acls_filter(reader: Reader, version: int) -> DeleteAclsFilter:
    message = object.__new__(DeleteAclsFilter)
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


def decode_delete_acls_request(reader: Reader, version: int) -> DeleteAclsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("DeleteAclsRequest", version)
    message = object.__new__(DeleteAclsRequest)
    if version >= 2:
        message.filters = [
            _decode_delete_acls_filter(reader, version)
            for _ in range(reader.read_compact_array_length(8, "filters"))
        ]
    else:
        message.filters = [
            _decode_delete_acls_filter(reader, version)
            for _ in range(reader.read_array_length(10, "filters"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_delete_acls_filter(writer: Writer, message: DeleteAclsFilter, version: int) -> None:
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


def encode_delete_acls_request(writer: Writer, message: DeleteAclsRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("DeleteAclsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.filters, "filters")
        for delete_acls_filter in message.filters:
            _encode_delete_acls_filter(writer, delete_acls_filter, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.filters, "filters")
        for delete_acls_filter in message.filters:
            _encode_delete_acls_filter(writer, delete_acls_filter, version)
