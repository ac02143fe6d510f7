"""MetadataRequest (API key 3), versions 0 to 13, flexible from 9.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct
from uuid import UUID

from data_plane.wire.primitives import (
    EMPTY,
    ZERO_UUID,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)

_2XBOOL = Struct(">??")
_3XBOOL = Struct(">???")


class MetadataRequestTopic(Message):
    """Part of MetadataRequest."""

    __slots__ = (
        "name",
        "topic_id",
    )

    def __init__(
        self,
        *,
        topic_id: UUID = ZERO_UUID,
        name: str | None = "",
    ) -> None:
        self.topic_id = topic_id  # versions 10 to 13
        self.name = name  # nullable in 10 to 13, topicName


class MetadataRequest(Message):
    """The message."""

    __slots__ = (
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
        "topics",
    )

    def __init__(
        self,
        *,
        topics: list[MetadataRequestTopic] | None = EMPTY,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics = [] if topics is EMPTY else topics  # nullable in 1 to 13
        self.allow_auto_topic_creation = allow_auto_topic_creation  # versions 4 to 13
        self.include_cluster_authorized_operations = (
            include_cluster_authorized_operations  # versions 8 to 10
        )
        self.include_topic_authorized_operations = (
            include_topic_authorized_operations  # versions 8 to 13
        )


def _decode_metadata_request_topic(reader: Reader, version: int) -> MetadataRequestTopic:
    message = object.__new__(MetadataRequestTopic)
    if version >= 10:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    if version >= 10:
        message.name = reader.read_nullable_compact_string("name")
    elif version >= 9:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def decode_metadata_request(reader: Reader, version: int) -> MetadataRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 13:
        raise unsupported_version("MetadataRequest", version)
    message = object.__new__(MetadataRequest)
    if version >= 9:
        count = reader.read_nullable_compact_array_length(2, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_metadata_request_topic(reader, version) for _ in range(count)]
        )
    elif version >= 1:
        count = reader.read_nullable_array_length(2, "topics")
        message.topics = (
            None
            if count < 0
            else [_decode_metadata_request_topic(reader, version) for _ in range(count)]
        )
    else:
        message.topics = [
            _decode_metadata_request_topic(reader, version)
            for _ in range(reader.read_array_length(2, "topics"))
        ]
    if version >= 11:
        (message.allow_auto_topic_creation, message.include_topic_authorized_operations) = (
            reader.unpack(_2XBOOL)
        )
        message.include_cluster_authorized_operations = False
    elif version >= 8:
        (
            message.allow_auto_topic_creation,
            message.include_cluster_authorized_operations,
            message.include_topic_authorized_operations,
        ) = reader.unpack(_3XBOOL)
    elif version >= 4:
        message.allow_auto_topic_creation = reader.read_bool()
        message.include_cluster_authorized_operations = False
        message.include_topic_authorized_operations = False
    else:
        message.allow_auto_topic_creation = True
        message.include_cluster_authorized_operations = False
        message.include_topic_authorized_operations = False
    if version >= 9:
        reader.skip_tagged_fields()
    return message


def _encode_metadata_request_topic(
    writer: Writer, message: MetadataRequestTopic, version: int
) -> None:
    if version >= 10:
        writer.write_uuid(message.topic_id)
    if version >= 10:
        writer.write_nullable_compact_string(message.name, "name")
    elif version >= 9:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    if version >= 9:
        writer.buf.append(0)


def encode_metadata_request(writer: Writer, message: MetadataRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 13:
        raise unsupported_version("MetadataRequest", version)
    if version >= 9:
        writer.write_nullable_compact_array_length(message.topics, "topics")
        if message.topics:
            for metadata_request_topic in message.topics:
                _encode_metadata_request_topic(writer, metadata_request_topic, version)
    elif version >= 1:
        writer.write_nullable_array_length(message.topics, "topics")
        if message.topics:
            for metadata_request_topic in message.topics:
                _encode_metadata_request_topic(writer, metadata_request_topic, version)
    else:
        writer.write_array_length(message.topics, "topics")
        if message.topics:
            for metadata_request_topic in message.topics:
                _encode_metadata_request_topic(writer, metadata_request_topic, version)
    if version >= 11:
        if message.include_cluster_authorized_operations:
            raise unsupported_field(
                "MetadataRequest", "include_cluster_authorized_operations", version
            )
        writer.buf += _2XBOOL.pack(
            message.allow_auto_topic_creation, message.include_topic_authorized_operations
        )
    elif version >= 8:
        writer.buf += _3XBOOL.pack(
            message.allow_auto_topic_creation,
            message.include_cluster_authorized_operations,
            message.include_topic_authorized_operations,
        )
    elif version >= 4:
        if message.include_cluster_authorized_operations:
            raise unsupported_field(
                "MetadataRequest", "include_cluster_authorized_operations", version
            )
        if message.include_topic_authorized_operations:
            raise unsupported_field(
                "MetadataRequest", "include_topic_authorized_operations", version
            )
        writer.write_bool(message.allow_auto_topic_creation)
    else:
        if not message.allow_auto_topic_creation:
            raise unsupported_field("MetadataRequest", "allow_auto_topic_creation", version)
        if message.include_cluster_authorized_operations:
            raise unsupported_field(
                "MetadataRequest", "include_cluster_authorized_operations", version
            )
        if message.include_topic_authorized_operations:
            raise unsupported_field(
                "MetadataRequest", "include_topic_authorized_operations", version
            )
    if version >= 9:
        writer.buf.append(0)
