"""AlterUserScramCredentialsRequest (API key 51), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT8_INT32 = Struct(">bi")


class ScramCredentialDeletion(Message):
    """Part of AlterUserScramCredentialsRequest."""

    __slots__ = (
        "mechanism",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.name = name  # principal
        self.mechanism = mechanism


class ScramCredentialUpsertion(Message):
    """Part of AlterUserScramCredentialsRequest."""

    __slots__ = (
        "iterations",
        "mechanism",
        "name",
        "salt",
        "salted_password",
    )

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
    ) -> None:
        self.name = name  # principal
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password


class AlterUserScramCredentialsRequest(Message):
    """The message."""

    __slots__ = (
        "deletions",
        "upsertions",
    )

    def __init__(
        self,
        *,
        deletions: list[ScramCredentialDeletion] = EMPTY,
        upsertions: list[ScramCredentialUpsertion] = EMPTY,
    ) -> None:
        self.deletions = [] if deletions is EMPTY else deletions
        self.upsertions = [] if upsertions is EMPTY else upsertions


def _decode_scram_credential_deletion(reader: Reader, version: int) -> ScramCredentialDeletion:
    message = object.__new__(ScramCredentialDeletion)
    message.name = reader.read_compact_string("name")
    message.mechanism = reader.read_int8()
    reader.skip_tagged_fields()
    return message


def _decode_scram_credential_upsertion(reader: Reader, version: int) -> ScramCredentialUpsertion:
    message = object.__new__(ScramCredentialUpsertion)
    message.name = reader.read_compact_string("name")
    (message.mechanism, message.iterations) = reader.unpack(_INT8_INT32)
    message.salt = reader.read_compact_bytes("salt")
    message.salted_password = reader.read_compact_bytes("salted_password")
    reader.skip_tagged_fields()
    return message


def decode_alter_user_scram_credentials_request(
    reader: Reader, version: int
) -> AlterUserScramCredentialsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterUserScramCredentialsRequest", version)
    message = object.__new__(AlterUserScramCredentialsRequest)
    message.deletions = [
        _decode_scram_credential_deletion(reader, version)
        for _ in range(reader.read_compact_array_length(3, "deletions"))
    ]
    message.upsertions = [
        _decode_scram_credential_upsertion(reader, version)
        for _ in range(reader.read_compact_array_length(9, "upsertions"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_scram_credential_deletion(
    writer: Writer, message: ScramCredentialDeletion, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.write_int8(message.mechanism)
    writer.buf.append(0)


def _encode_scram_credential_upsertion(
    writer: Writer, message: ScramCredentialUpsertion, version: int
) -> None:
    writer.write_compact_string(message.name, "name")
    writer.buf += _INT8_INT32.pack(message.mechanism, message.iterations)
    writer.write_compact_bytes(message.salt, "salt")
    writer.write_compact_bytes(message.salted_password, "salted_password")
    writer.buf.append(0)


def encode_alter_user_scram_credentials_request(
    writer: Writer, message: AlterUserScramCredentialsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("AlterUserScramCredentialsRequest", version)
    writer.write_compact_array_length(message.deletions, "deletions")
    for scram_credential_deletion in message.deletions:
        _encode_scram_credential_deletion(writer, scram_credential_deletion, version)
    writer.write_compact_array_length(message.upsertions, "upsertions")
    for scram_credential_upsertion in message.upsertions:
        _encode_scram_credential_upsertion(writer, scram_credential_upsertion, version)
    writer.buf.append(0)
