"""ShareGroupHeartbeatRequest (API key 76), versions 1 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class ShareGroupHeartbeatRequest(Message):
    """The message."""

    __slots__ = (
        "group_id",
        "member_epoch",
        "member_id",
        "rack_id",
        "subscribed_topic_names",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id  # groupId
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names  # topicName


def decode_share_group_heartbeat_request(
    reader: Reader, version: int
) -> ShareGroupHeartbeatRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 1:
        raise unsupported_version("ShareGroupHeartbeatRequest", version)
    message = object.__new__(ShareGroupHeartbeatRequest)
    message.group_id = reader.read_compact_string("group_id")
    message.member_id = reader.read_compact_string("member_id")
    message.member_epoch = reader.read_int32()
    message.rack_id = reader.read_nullable_compact_string("rack_id")
    count = reader.read_nullable_compact_array_length(1, "subscribed_topic_names")
    message.subscribed_topic_names = (
        None
        if count < 0
        else [reader.read_compact_string("subscribed_topic_names") for _ in range(count)]
    )
    reader.skip_tagged_fields()
    return message


def encode_share_group_heartbeat_request(
    writer: Writer, message: ShareGroupHeartbeatRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 1:
        raise unsupported_version("ShareGroupHeartbeatRequest", version)
    writer.write_compact_string(message.group_id, "group_id")
    writer.write_compact_string(message.member_id, "member_id")
    writer.write_int32(message.member_epoch)
    writer.write_nullable_compact_string(message.rack_id, "rack_id")
    writer.write_nullable_compact_array_length(
        message.subscribed_topic_names, "subscribed_topic_names"
    )
    if message.subscribed_topic_names:
        for string_item in message.subscribed_topic_names:
            writer.write_compact_string(string_item, "subscribed_topic_names")
    writer.buf.append(0)
