"""DescribeUserScramCredentialsResponse (API key 50), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")
_INT8_INT32 = Struct(">bi")


class CredentialInfo(Message):
    """Part of DescribeUserScramCredentialsResponse."""

    __slots__ = (
        "iterations",
        "mechanism",
    )

    def __init__(
        self,
        *,
        mechanism: int = 0,
        iterations: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class DescribeUserScramCredentialsResult(Message):
    """Part of DescribeUserScramCredentialsResponse."""

    __slots__ = (
        "credential_infos",
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
        credential_infos: list[CredentialInfo] = EMPTY,
    ) -> None:
        self.user = user  # principal
        self.error_code = error_code
        self.error_message = error_message
        self.credential_infos = [] if credential_infos is EMPTY else credential_infos


class DescribeUserScramCredentialsResponse(Message):
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
        results: list[DescribeUserScramCredentialsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results = [] if results is EMPTY else results


def _decode_credential_info(reader: Reader, version: int) -> CredentialInfo:
    message = object.__new__(CredentialInfo)
    (message.mechanism, message.iterations) = reader.unpack(_INT8_INT32)
    reader.skip_tagged_fields()
    return message


def _decode_describe_user_scram_credentials_result(
    reader: Reader, version: int
) -> DescribeUserScramCredentialsResult:
    message = object.__new__(DescribeUserScramCredentialsResult)
    message.user = reader.read_compact_string("user")
    message.error_code = reader.read_int16()
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.credential_infos = [
        _decode_credential_info(reader, version)
        for _ in range(reader.read_compact_array_length(6, "credential_infos"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_describe_user_scram_credentials_response(
    reader: Reader, version: int
) -> DescribeUserScramCredentialsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeUserScramCredentialsResponse", version)
    message = object.__new__(DescribeUserScramCredentialsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.error_message = reader.read_nullable_compact_string("error_message")
    message.results = [
        _decode_describe_user_scram_credentials_result(reader, version)
        for _ in range(reader.read_compact_array_length(6, "results"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_credential_info(writer: Writer, message: CredentialInfo, version: int) -> None:
    writer.buf += _INT8_INT32.pack(message.mechanism, message.iterations)
    writer.buf.append(0)


def _encode_describe_user_scram_credentials_result(
    writer: Writer, message: DescribeUserScramCredentialsResult, version: int
) -> None:
    writer.write_compact_string(message.user, "user")
    writer.write_int16(message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.credential_infos, "credential_infos")
    for credential_info in message.credential_infos:
        _encode_credential_info(writer, credential_info, version)
    writer.buf.append(0)


def encode_describe_user_scram_credentials_response(
    writer: Writer, message: DescribeUserScramCredentialsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeUserScramCredentialsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_nullable_compact_string(message.error_message, "error_message")
    writer.write_compact_array_length(message.results, "results")
    for describe_user_scram_credentials_result in message.results:
        _encode_describe_user_scram_credentials_result(
            writer, describe_user_scram_credentials_result, version
        )
    writer.buf.append(0)
