"""AlterUserScramCredentialsResponse (API key 51), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class AlterUserScramCredentialsResult(Message):
    """Part of AlterUserScramCredentialsResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "user",
    )

    def __init__(
        self,
        *,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.user = user  # principal
        self.error_code = error_code
        self.error_message = error_message


class AlterUserScramCredentialsResponse(Message):
    """The message."""

    __slots__ = (
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterUserScramCredentialsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results


def _decode_alter_user_scram_credentials_result(
    reader: Reader, version: int
) -> AlterUserScramCredentialsResult:
    message = object.__new__(AlterUserScramCredentialsResult)
    message.user = reader.read_compact_string("user")
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    reader.skip_tagged_fields()
    return message


def decode_alter_user_scram_credentials_response(
    reader: Reader, version: int
) -> AlterUserScramCredentialsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterUserScramCredentialsResponse", version)
    message = object.__new__(AlterUserScramCredentialsResponse)
    message.throttle_time_ms = reader.read_int32()
    message.results = [
        _decode_alter_user_scram_credentials_result(reader, version)
        for _ in range(reader.read_compact_array_length(5, "results"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_alter_user_scram_credentials_result(
    writer: Writer, message: AlterUserScramCredentialsResult, version: int
) -> None:
    writer.write_compact_string(message.user, "user")
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.buf.append(0)


def encode_alter_user_scram_credentials_response(
    writer: Writer, message: AlterUserScramCredentialsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterUserScramCredentialsResponse", version)
    writer.write_int32(message.throttle_time_ms)
    writer.write_compact_array_length(message.results, "results")
    for alter_user_scram_credentials_result in message.results:
        _encode_alter_user_scram_credentials_result(
            writer, alter_user_scram_credentials_result, version
        )
    writer.buf.append(0)
