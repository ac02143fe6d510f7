"""CreateTopicsResponse (API key 19), versions 2 to 7, flexible from 5.

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
    unsupported_version,
)

_BOOL_INT8_BOOL = Struct(">?b?")
_INT32_INT16 = Struct(">ih")


class CreatableTopicConfigs(Message):
    """Part of CreateTopicsResponse."""

    __slots__ = (
        "config_source",
        "is_sensitive",
        "name",
        "read_only",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive


class CreatableTopicResult(Message):
    """Part of CreateTopicsResponse."""

    __slots__ = (
        "configs",
        "error_code",
        "error_message",
        "name",
        "num_partitions",
        "replication_factor",
        "topic_config_error_code",
        "topic_id",
    )

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: UUID = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: list[CreatableTopicConfigs] | None = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.topic_id = topic_id  # versions 7 to 7
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code  # versions 5 to 7, tag 0
        self.num_partitions = num_partitions  # versions 5 to 7
        self.replication_factor = replication_factor  # versions 5 to 7
        self.configs = [] if configs is EMPTY else configs  # versions 5 to 7


class CreateTopicsResponse(Message):
    """The message."""

    __slots__ = (
        "throttle_time_ms",
        "topics",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[CreatableTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics


def _decode_creatable_topic_configs(reader: Reader, version: int) -> CreatableTopicConfigs:
    message = object.__new__(CreatableTopicConfigs)
    message.name = reader.read_compact_string("name")
    message.value = reader.read_nullable_compact_string("value")
    (message.read_only, message.config_source, message.is_sensitive) = reader.unpack(
        _BOOL_INT8_BOOL
    )
    reader.skip_tagged_fields()
    return message


def _decode_creatable_topic_result(reader: Reader, version: int) -> CreatableTopicResult:
    message = object.__new__(CreatableTopicResult)
    if version >= 5:
        message.name = reader.read_compact_string("name")
    else:
        message.name = reader.read_string("name")
    if version >= 7:
        message.topic_id = reader.read_uuid()
    else:
        message.topic_id = ZERO_UUID
    message.error_code = reader.read_int16()
    if version >= 5:
        message.error_message = reader.read_nullable_compact_string("error_message")
        (message.num_partitions, message.replication_factor) = reader.unpack(_INT32_INT16)
        count = reader.read_nullable_compact_array_length(6, "configs")
        message.configs = (
            None
            if count < 0
            else [_decode_creatable_topic_configs(reader, version) for _ in range(count)]
        )
    else:
        message.error_message = reader.read_nullable_string("error_message")
        message.num_partitions = -1
        message.replication_factor = -1
        message.configs = []
    message.topic_config_error_code = 0
    if version >= 5:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0:
                message.topic_config_error_code = reader.read_int16()
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def decode_create_topics_response(reader: Reader, version: int) -> CreateTopicsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 2 <= version <= 7:
        raise unsupported_version("CreateTopicsResponse", version)
    message = object.__new__(CreateTopicsResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 5:
        message.topics = [
            _decode_creatable_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(12, "topics"))
        ]
    else:
        message.topics = [
            _decode_creatable_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 5:
        reader.skip_tagged_fields()
    return message


def _encode_creatable_topic_configs(
    writer: Writer, message: CreatableTopicConfigs, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_nullable_compact_string(message.value, "value")
    writer.buf += _BOOL_INT8_BOOL.pack(
        message.read_only, message.config_source, message.is_sensitive
    )
    writer.buf.append(0)


def _encode_creatable_topic_result(
    writer: Writer, message: CreatableTopicResult, version: int
) -> None:
    if version >= 5:
        writer.write_compact_string(message.name, "name")
    else:
        writer.write_string(message.name, "name")
    if version >= 7:
        writer.write_uuid(message.topic_id)
    writer.write_int16(message.error_code)
    if version >= 5:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.buf += _INT32_INT16.pack(message.num_partitions, message.replication_factor)
        writer.write_nullable_compact_array_length(message.configs, "configs")
        if message.configs:
            for creatable_topic_configs in message.configs:
                _encode_creatable_topic_configs(writer, creatable_topic_configs, version)
    else:
        writer.write_nullable_string(message.error_message, "error_message")
    if version >= 5:
        tagged: list[tuple[int, Writer]] = []
        if message.topic_config_error_code != 0:
            content = Writer()
            content.write_int16(message.topic_config_error_code)
            tagged.append((0, content))
        writer.write_tagged_fields(tagged)


def encode_create_topics_response(
    writer: Writer, message: CreateTopicsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 2 <= version <= 7:
        raise unsupported_version("CreateTopicsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version >= 5:
        writer.write_compact_array_length(message.topics, "topics")
        for creatable_topic_result in message.topics:
            _encode_creatable_topic_result(writer, creatable_topic_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.topics, "topics")
        for creatable_topic_result in message.topics:
            _encode_creatable_topic_result(writer, creatable_topic_result, version)
