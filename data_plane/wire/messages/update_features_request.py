"""UpdateFeaturesRequest (API key 57), versions 0 to 2, flexible from 0.

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

_INT16_BOOL = Struct(">h?")
_INT16_INT8 = Struct(">hb")


class FeatureUpdateKey(Message):
    """Part of UpdateFeaturesRequest."""

    __slots__ = (
        "allow_downgrade",
        "feature",
        "max_version_level",
        "upgrade_type",
    )

    def __init__(
        self,
        *,
        feature: str = "",
        max_version_level: int = 0,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade  # versions 0 to 0
        self.upgrade_type = upgrade_type  # versions 1 to 2


class UpdateFeaturesRequest(Message):
    """The message."""

    __slots__ = (
        "feature_updates",
        "timeout_ms",
        "validate_only",
    )

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] = EMPTY,
        validate_only: bool = False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates = [] if feature_updates is EMPTY else feature_updates
        self.validate_only = validate_only  # versions 1 to 2


def _decode_feature_update_key(reader: Reader, version: int) -> FeatureUpdateKey:
    message = object.__new__(FeatureUpdateKey)
    message.feature = reader.read_compact_string("feature")
    if version >= 1:
        (message.max_version_level, message.upgrade_type) = reader.unpack(_INT16_INT8)
        message.allow_downgrade = False
    else:
        (message.max_version_level, message.allow_downgrade) = reader.unpack(_INT16_BOOL)
        message.upgrade_type = 1
    reader.skip_tagged_fields()
    return message


def decode_update_features_request(reader: Reader, version: int) -> UpdateFeaturesRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("UpdateFeaturesRequest", version)
    message = object.__new__(UpdateFeaturesRequest)
    message.timeout_ms = reader.read_int32()
    message.feature_updates = [
        _decode_feature_update_key(reader, version)
        for _ in range(reader.read_compact_array_length(5, "feature_updates"))
    ]
    if version >= 1:
        message.validate_only = reader.read_bool()
    else:
        message.validate_only = False
    reader.skip_tagged_fields()
    return message


def _encode_feature_update_key(writer: Writer, message: FeatureUpdateKey, version: int) -> None:
    writer.write_compact_string(message.feature, "feature")
    if version >= 1:
        if message.allow_downgrade:
            raise unsupported_field("FeatureUpdateKey", "allow_downgrade", version)
        writer.buf += _INT16_INT8.pack(message.max_version_level, message.upgrade_type)
    else:
        if message.upgrade_type != 1:
            raise unsupported_field("FeatureUpdateKey", "upgrade_type", version)
        writer.buf += _INT16_BOOL.pack(message.max_version_level, message.allow_downgrade)
    writer.buf.append(0)


def encode_update_features_request(
    writer: Writer, message: UpdateFeaturesRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("UpdateFeaturesRequest", version)
    writer.write_int32(message.timeout_ms)
    writer.write_compact_array_length(message.feature_updates, "feature_updates")
    for feature_update_key in message.feature_updates:
        _encode_feature_update_key(writer, feature_update_key, version)
    if version >= 1:
        writer.write_bool(message.validate_only)
    else:
        if message.validate_only:
            raise unsupported_field("UpdateFeaturesRequest", "validate_only", version)
    writer.buf.append(0)
