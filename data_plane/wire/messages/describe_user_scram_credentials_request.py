"""DescribeUserScramCredentialsRequest (API key 50), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class UserName(Message):
    """Part of DescribeUserScramCredentialsRequest."""

    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name  # principal


class DescribeUserScramCredentialsRequest(Message):
    """The message."""

    __slots__ = ("users",)

    def __init__(
        self,
        *,
        users: list[UserName] | None = EMPTY,
    ) -> None:
        self.users = [] if users is EMPTY else users


def _decode_user_name(reader: Reader, version: int) -> UserName:
    message = object.__new__(UserName)
    message.name = reader.read_compact_string("name")
    reader.skip_tagged_fields()
    return message


def decode_describe_user_scram_credentials_request(
    reader: Reader, version: int
) -> DescribeUserScramCredentialsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeUserScramCredentialsRequest", version)
    message = object.__new__(DescribeUserScramCredentialsRequest)
    count = reader.read_nullable_compact_array_length(2, "users")
    message.users = (
        None if count < 0 else [_decode_user_name(reader, version) for _ in range(count)]
    )
    reader.skip_tagged_fields()
    return message


def _encode_user_name(writer: Writer, message: UserName, version: int) -> None:
    writer.write_compact_string(message.name, "name")
    writer.buf.append(0)


def encode_describe_user_scram_credentials_request(
    writer: Writer, message: DescribeUserScramCredentialsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeUserScramCredentialsRequest", version)
    writer.write_nullable_compact_array_length(message.users, "users")
    if message.users:
        for user_name in message.users:
            _encode_user_name(writer, user_name, version)
    writer.buf.append(0)
