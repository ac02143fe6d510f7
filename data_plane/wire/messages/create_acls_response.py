"""CreateAclsResponse (API key 30), versions 1 to 3, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AclCreationResult(Message):
    """Part of CreateAclsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message


class CreateAclsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AclCreationResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_acl_creation_result(reader: Reader, version: int) -> AclCreationResult:
    message = object.__new__(AclCreationResult)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_create_acls_response(reader: Reader, version: int) -> CreateAclsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 3:
        raise unsupported_version("CreateAclsResponse", version)
    message = object.__new__(CreateAclsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.results = [
            _decode_acl_creation_result(reader, version)
            for _ in range(reader.read_compact_array_length(4, "results"))
        ]
    else:
        message.results = [
            _decode_acl_creation_result(reader, version)
            for _ in range(reader.read_array_length(4, "results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_acl_creation_result(writer: Writer, message: AclCreationResult, version: int) -> None:
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")


def encode_create_acls_response(writer: Writer, message: CreateAclsResponse, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 3:
        raise unsupported_version("CreateAclsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.results, "results")
        for acl_creation_result in message.results:
            _encode_acl_creation_result(writer, acl_creation_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for acl_creation_result in message.results:
            _encode_acl_creation_result(writer, acl_creation_result, version)
