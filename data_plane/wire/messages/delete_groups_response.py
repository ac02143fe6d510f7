"""DeleteGroupsResponse (API key 42), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DeletableGroupResult(Message):
    """Part of DeleteGroupsResponse."""

    __slots__ = (
        "error_code",
        "group_id",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id  # groupId
        self.error_code = error_code


class DeleteGroupsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DeletableGroupResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_deletable_group_result(reader: Reader, version: int) -> DeletableGroupResult:
    message = object.__new__(DeletableGroupResult)
    if version >= 2:
        message.group_id = reader.read_compact_string("group_id")
    else:
        message.group_id = reader.read_string("group_id")
    message.error_code = reader.read_int16()
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_delete_groups_response(reader: Reader, version: int) -> DeleteGroupsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteGroupsResponse", version)
    message = object.__new__(DeleteGroupsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 2:
        message.results = [
            _decode_deletable_group_result(reader, version)
            for _ in range(reader.read_compact_array_length(4, "results"))
        ]
    else:
        message.results = [
            _decode_deletable_group_result(reader, version)
            for _ in range(reader.read_array_length(4, "results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_deletable_group_result(
    writer: Writer, message: DeletableGroupResult, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.group_id, "group_id")
    else:
        writer.write_string(message.group_id, "group_id")
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.buf.append(0)


def encode_delete_groups_response(
    writer: Writer, message: DeleteGroupsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("DeleteGroupsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.results, "results")
        for deletable_group_result in message.results:
            _encode_deletable_group_result(writer, deletable_group_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for deletable_group_result in message.results:
            _encode_deletable_group_result(writer, deletable_group_result, version)
