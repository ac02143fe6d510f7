"""JoinGroupRequest (API key 11), versions 0 to 9, flexible from 6.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_2XINT32 = Struct(">ii")


class JoinGroupRequestProtocol(Message):
    """Part of JoinGroupRequest."""

    __slots__ = (
        "metadata",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        metadata: bytes = b"",
    ) -> None:
        self.name = name
        self.metadata = metadata


class JoinGroupRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "group_instance_id",
        "member_id",
        "protocol_type",
        "protocols",
        "reason",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequestProtocol] = EMPTY,
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id  # groupId
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms  # versions 1 to 9
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # versions 5 to 9
        self.protocol_type = protocol_type
        self.protocols = [] if protocols is EMPTY else protocols
        self.reason = reason  # versions 8 to 9


def _decode_join_group_request_protocol(reader: Reader, version: int) -> JoinGroupRequestProtocol:
    message = object.__new__(JoinGroupRequestProtocol)
    if version >= 6:
        message.name = reader.read_compact_string("name")
        message.metadata = reader.read_compact_bytes("metadata")
    else:
        message.name = reader.read_string("name")
        message.metadata = reader.read_bytes("metadata")
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def decode_join_group_request(reader: Reader, version: int) -> JoinGroupRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 9:
        raise unsupported_version("JoinGroupRequest", version)
    message = object.__new__(JoinGroupRequest)
    if version >= 6:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    if version >= 1:
        (message.session_timeout_ms, message.rebalance_timeout_ms) = reader.unpack(_2XINT32)
    else:
        message.session_timeout_ms = reader.read_int32()
        message.rebalance_timeout_ms = -1
    if version >= 6:
        message.member_id = reader.read_compact_string("member_id")
    else:
        message.member_id = reader.read_string("member_id")
    if version >= 6:
        message.group_instance_id = reader.read_nullable_compact_string("group_instance_id")
    elif version >= 5:
        message.group_instance_id = reader.read_nullable_string("group_instance_id")
    else:
        message.group_instance_id = None
    if version >= 6:
        message.protocol_type = reader.read_compact_string("protocol_type")
        message.protocols = [
            _decode_join_group_request_protocol(reader, version)
            for _ in range(reader.read_compact_array_length(3, "protocols"))
        ]
    else:
        message.protocol_type = reader.read_string("protocol_type")
        message.protocols = [
            _decode_join_group_request_protocol(reader, version)
            for _ in range(reader.read_array_length(6, "protocols"))
        ]
    if version >= 8:
        message.reason = reader.read_nullable_compact_string("reason")
    else:
        message.reason = None
    if version >= 6:
        reader.skip_tagged_fields()
    return message


def _encode_join_group_request_protocol(
    writer: Writer, message: JoinGroupRequestProtocol, version: int
) -> None:
    if version >= 6:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_bytes(message.metadata, "metadata")
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_bytes(message.metadata, "metadata")


def encode_join_group_request(writer: Writer, message: JoinGroupRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 9:
        raise unsupported_version("JoinGroupRequest", version)
    if version >= 6:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    if version >= 1:
        writer.buf += _2XINT32.pack(message.session_timeout_ms, message.rebalance_timeout_ms)
    else:
        writer.write_int32(message.session_timeout_ms)
    if version >= 6:
        writer.write_compact_string(message.member_id, "member_id")
    else:
        writer.write_string(message.member_id, "member_id")
    if version >= 6:
        writer.write_nullable_compact_string(message.group_instance_id, "group_instance_id")
    elif version >= 5:
        writer.write_nullable_string(message.group_instance_id, "group_instance_id")
    else:
        if message.group_instance_id is not None:
            raise unsupported_field("JoinGroupRequest", "group_instance_id", version)
    if version >= 6:
        writer.write_compact_string(message.protocol_type, "protocol_type")
        writer.write_compact_array_length(message.protocols, "protocols")
        for join_group_request_protocol in message.protocols:
            _encode_join_group_request_protocol(writer, join_group_request_protocol, version)
    else:
        writer.write_string(message.protocol_type, "protocol_type")
        writer.write_array_length(message.protocols, "protocols")
        for join_group_request_protocol in message.protocols:
            _encode_join_group_request_protocol(writer, join_group_request_protocol, version)
    if version >= 8:
        writer.write_nullable_compact_string(message.reason, "reason")
    if version >= 6:
        writer.buf.append(0)
