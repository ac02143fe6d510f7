"""ApiVersionsResponse (API key 18), versions 0 to 4, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT16 = Struct(">hh")
_3XINT16 = Struct(">hhh")


class ApiVersion(Message):
    """Part of ApiVersionsResponse."""

    __slots__ = (
        "api_key",
        "max_version",
        "min_version",
    )

    def __init__(
        self,
        *,
        api_key: int = 0,
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version


class SupportedFeatureKey(Message):
    """Part of ApiVersionsResponse."""

    __slots__ = (
        "max_version",
        "min_version",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version


class FinalizedFeatureKey(Message):
    """Part of ApiVersionsResponse."""

    __slots__ = (
        "max_version_level",
        "min_version_level",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        max_version_level: int = 0,
        min_version_level: int = 0,
    ) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level


class ApiVersionsResponse(Message):
    """The message."""

    __slots__ = (
        "api_keys",
        "error_code",
        "finalized_features",
        "finalized_features_epoch",
        "supported_features",
        "throttle_time_ms",
        "zk_migration_ready",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersion] = EMPTY,
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] = EMPTY,
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] = EMPTY,
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys = [] if api_keys is EMPTY else api_keys
        self.throttle_time_ms = throttle_time_ms  # versions 1 to 4
        self.supported_features = (
            [] if supported_features is EMPTY else supported_features
        )  # versions 3 to 4, tag 0
        self.finalized_features_epoch = finalized_features_epoch  # versions 3 to 4, tag 1
        self.finalized_features = (
            [] if finalized_features is EMPTY else finalized_features
        )  # versions 3 to 4, tag 2
        self.zk_migration_ready = zk_migration_ready  # versions 3 to 4, tag 3


def _decode_api_version(reader: Reader, version: int) -> ApiVersion:
    message = object.__new__(ApiVersion)
    (message.api_key, message.min_version, message.max_version) = reader.unpack(_3XINT16)
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_supported_feature_key(reader: Reader, version: int) -> SupportedFeatureKey:
    message = object.__new__(SupportedFeatureKey)
    message.name = reader.read_compact_string("name")
    (message.min_version, message.max_version) = reader.unpack(_2XINT16)
    reader.skip_tagged_fields()
    return message


def _decode_finalized_feature_key(reader: Reader, version: int) -> FinalizedFeatureKey:
    message = object.__new__(FinalizedFeatureKey)
    message.name = reader.read_compact_string("name")
    (message.max_version_level, message.min_version_level) = reader.unpack(_2XINT16)
    reader.skip_tagged_fields()
    return message


def decode_api_versions_response(reader: Reader, version: int) -> ApiVersionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("ApiVersionsResponse", version)
    message = object.__new__(ApiVersionsResponse)
    message.error_code = reader.read_int16()
    if version >= 3:
        message.api_keys = [
            _decode_api_version(reader, version)
            for _ in range(reader.read_compact_array_length(7, "api_keys"))
        ]
    else:
        message.api_keys = [
            _decode_api_version(reader, version)
            for _ in range(reader.read_array_length(6, "api_keys"))
        ]
    if version >= 1:
        message.throttle_time_ms = reader.read_int32()
    else:
        message.throttle_time_ms = 0
    message.supported_features = []
    message.finalized_features_epoch = -1
    message.finalized_features = []
    message.zk_migration_ready = False
    if version >= 3:
        for _ in range(reader.read_tagged_fields_count()):
            tag = reader.read_uvarint()
            end = reader.read_tagged_field_end()
            if tag == 0:
                message.supported_features = [
                    _decode_supported_feature_key(reader, version)
                    for _ in range(reader.read_compact_array_length(6, "supported_features"))
                ]
            elif tag == 1:
                message.finalized_features_epoch = reader.read_int64()
            elif tag == 2:
                message.finalized_features = [
                    _decode_finalized_feature_key(reader, version)
                    for _ in range(reader.read_compact_array_length(6, "finalized_features"))
                ]
            elif tag == 3:
                message.zk_migration_ready = reader.read_bool()
            else:
                reader.pos = end
            reader.check_tagged_field_end(end)
    return message


def _encode_api_version(writer: Writer, message: ApiVersion, version: int) -> None:
    writer.buf += _3XINT16.pack(message.api_key, message.min_version, message.max_version)
    if version >= 3:
        writer.buf.append(0)


def _encode_supported_feature_key(
    writer: Writer, message: SupportedFeatureKey, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.buf += _2XINT16.pack(message.min_version, message.max_version)
    writer.buf.append(0)


def _encode_finalized_feature_key(
    writer: Writer, message: FinalizedFeatureKey, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.buf += _2XINT16.pack(message.max_version_level, message.min_version_level)
    writer.buf.append(0)


def encode_api_versions_response(
    writer: Writer, message: ApiVersionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("ApiVersionsResponse", version)
    writer.write_int16(message.error_code)
    if version >= 3:
        writer.write_compact_array_length(message.api_keys, "api_keys")
        for api_version in message.api_keys:
            _encode_api_version(writer, api_version, version)
    else:
        writer.write_array_length(message.api_keys, "api_keys")
        for api_version in message.api_keys:
            _encode_api_version(writer, api_version, version)
    if version >= 1:
        writer.write_int32(message.throttle_time_ms)
    if version >= 3:
        tagged: list[tuple[int, Writer]] = []
        if message.supported_features:
            content = Writer()
            content.write_compact_array_length(message.supported_features, "supported_features")
            for supported_feature_key in message.supported_features:
                _encode_supported_feature_key(content, supported_feature_key, version)
            tagged.append((0, content))
        if message.finalized_features_epoch != -1:
            content = Writer()
            content.write_int64(message.finalized_features_epoch)
            tagged.append((1, content))
        if message.finalized_features:
            content = Writer()
            content.write_compact_array_length(message.finalized_features, "finalized_features")
            for finalized_feature_key in message.finalized_features:
                _encode_finalized_feature_key(content, finalized_feature_key, version)
            tagged.append((2, content))
        if message.zk_migration_ready:
            content = Writer()
            content.write_bool(message.zk_migration_ready)
            tagged.append((3, content))
        writer.write_tagged_fields(tagged)
