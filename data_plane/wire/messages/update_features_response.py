"""UpdateFeaturesResponse (API key 57), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class UpdatableFeatureResult(Message):
    """Part of UpdateFeaturesResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "feature",
    )

    def __init__(
        self,
        *,
        feature: str = "",
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.feature = feature
        self.error_code = error_code
        self.error_message = error_message


class UpdateFeaturesResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "error_message",
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[UpdatableFeatureResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results = [] if results is EMPTY else results  # versions 0 to 1


def _decode_updatable_feature_result(reader: Reader, version: int) -> UpdatableFeatureResult:
    message = object.__new__(UpdatableFeatureResult)
    message.feature = reader.read_compact_string("feature")
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def decode_update_features_response(reader: Reader, version: int) -> UpdateFeaturesResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("UpdateFeaturesResponse", version)
    message = object.__new__(UpdateFeaturesResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    if version >= 2:
        message.results = []
    else:
        message.results = [
            _decode_updatable_feature_result(reader, version)
            for _ in range(reader.read_compact_array_length(5, "results"))
        ]
    reader.skip_tagged_fields()
    return message


def _encode_updatable_feature_result(
    writer: Writer, message: UpdatableFeatureResult, version: int
) -> None:
    writer.write_compact_string(message.feature, "feature")
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def encode_update_features_response(
    writer: Writer, message: UpdateFeaturesResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("UpdateFeaturesResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    if version <= 1:
        writer.write_compact_array_length(message.results, "results")
        for updatable_feature_result in message.results:
            _encode_updatable_feature_result(writer, updatable_feature_result, version)
    writer.buf.append(0)
