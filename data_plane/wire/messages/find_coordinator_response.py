"""FindCoordinatorResponse (API key 10), versions 0 to 6, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class Coordinator(Message):
    """Part of FindCoordinatorResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "host",
        "key",
        "node_id",
        "port",
    )

    def __init__(
        self,
        *,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key  # groupId or transactionalId
        self.node_id = node_id  # brokerId
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class FindCoordinatorResponse(Message):
    """The message."""

    __slots__ = (
        "coordinators",
        "error_code",
        "error_message",
        "host",
        "node_id",
        "port",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 6
        self.error_code = error_code  # versions 0 to 3
        self.error_message = error_message  # versions 1 to 3
        self.node_id = node_id  # versions 0 to 3, brokerId
        self.host = host  # versions 0 to 3
        self.port = port  # versions 0 to 3
        self.coordinators = [] if coordinators is EMPTY else coordinators  # versions 4 to 6


def _decode_coordinator(reader: Reader, version: int) -> Coordinator:
    message = object.__new__(Coordinator)
    message.key = reader.read_compact_string("key")
    message.node_id = reader.read_int32()
    message.host = reader.read_compact_string("host")
    (message.port, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def decode_find_coordinator_response(reader: Reader, version: int) -> FindCoordinatorResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 6:
        raise unsupported_version("FindCoordinatorResponse", version)
    message = object.__new__(FindCoordinatorResponse)
    if version >= 4:
        message.throttle_time_ms = reader.read_int32()
        message.error_code = 0
    elif version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.error_code = reader.read_int16()
        message.throttle_time_ms = 0
    if version >= 4:
        message.error_message = ""
    elif version >= 3:
        message.error_message = reader.read_nullable_compact_string("error_message")
    elif version >= 1:
        message.error_message = reader.read_nullable_string("error_message")
    else:
        message.error_message = ""
    if version >= 4:
        message.node_id = 0
    else:
        message.node_id = reader.read_int32()
    if version >= 4:
        message.host = ""
    elif version >= 3:
        message.host = reader.read_compact_string("host")
    else:
        message.host = reader.read_string("host")
    if version >= 4:
        message.port = 0
        message.coordinators = [
            _decode_coordinator(reader, version)
            for _ in range(reader.read_compact_array_length(14, "coordinators"))
        ]
    else:
        message.port = reader.read_int32()
        message.coordinators = []
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_coordinator(writer: Writer, message: Coordinator, version: int) -> None:
    writer.write_compact_string(message.key, "key")
    writer.write_int32(message.node_id)
    writer.write_compact_string(message.host, "host")
    writer.buf += _INT32_INT16.pack(message.port, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def encode_find_coordinator_response(
    writer: Writer, message: FindCoordinatorResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 6:
        raise unsupported_version("FindCoordinatorResponse", version)
    if version >= 4:
        writer.write_int32(message.throttle_time_ms)
    elif version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int16(message.error_code)
    if version <= 0:
        pass
    elif version <= 2:
        writer.write_nullable_string(message.error_message, "error_message")
    elif version <= 3:
        writer.write_nullable_compact_string(message.error_message, "error_message")
    if version <= 3:
        writer.write_int32(message.node_id)
    if version <= 2:
        writer.write_string(message.host, "host")
    elif version <= 3:
        writer.write_compact_string(message.host, "host")
    if version >= 4:
        writer.write_compact_array_length(message.coordinators, "coordinators")
        for coordinator in message.coordinators:
            _encode_coordinator(writer, coordinator, version)
    else:
        writer.write_int32(message.port)
    if version >= 3:
        writer.buf.append(0)
