"""CreateAclsRequest (API key 30), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT8 = Struct(">bb")


class AclCreation(Message):
    """Part of CreateAclsRequest."""

    __slots__ = (
        "host",
        "operation",
        "permission_type",
        "principal",
        "resource_name",
        "resource_pattern_type",
        "resource_type",
    )

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        resource_pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name  # pattern
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal  # principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class CreateAclsRequest(Message):
    """The message."""

    __slots__ = ("creations",)

    def __init__(
        self,
        *,
        creations: list[AclCreation] = EMPTY,
    ) -> None:
        self.creations = [] if creations is EMPTY else creations


def _decode_acl_creation(reader: Reader, version: int) -> AclCreation:
    message = object.__new__(AclCreation)
    message.resource_type = reader.read_int8()
    if version >= 2:
        message.resource_name = reader.read_compact_string("resource_name")
    else:
        message.resource_name = reader.read_string("resource_name")
    message.resource_pattern_type = reader.read_int8()
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


def decode_create_acls_request(reader: Reader, version: int) -> CreateAclsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("CreateAclsRequest", version)
    message = object.__new__(CreateAclsRequest)
    if version >= 2:
        message.creations = [
            _decode_acl_creation(reader, version)
            for _ in range(reader.read_compact_array_length(8, "creations"))
        ]
    else:
        message.creations = [
            _decode_acl_creation(reader, version)
            for _ in range(reader.read_array_length(10, "creations"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_acl_creation(writer: Writer, message: AclCreation, version: int) -> None:
    writer.write_int8(message.resource_type)
    if version >= 2:
        writer.write_compact_string(message.resource_name, "resource_name")
    else:
        writer.write_string(message.resource_name, "resource_name")
    writer.write_int8(message.resource_pattern_type)
    if version >= 2:
        writer.write_compact_string(message.principal, "principal")
        writer.write_compact_string(message.host, "host")
    else:
        writer.write_string(message.principal, "principal")
        writer.write_string(message.host, "host")
    writer.buf += _2XINT8.pack(message.operation, message.permission_type)
    if version >= 2:
        writer.buf.append(0)


def encode_create_acls_request(writer: Writer, message: CreateAclsRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("CreateAclsRequest", version)
    if version >= 2:
        writer.write_compact_array_length(message.creations, "creations")
        for acl_creation in message.creations:
            _encode_acl_creation(writer, acl_creation, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.creations, "creations")
        for acl_creation in message.creations:
            _encode_acl_creation(writer, acl_creation, version)
