"""ApiVersionsRequest (API key 18), versions 0 to 4, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import Message, Reader, Writer, unsupported_version


class ApiVersionsRequest(Message):
    """The message."""

    __slots__ = (
        "client_software_name",
        "client_software_version",
    )

    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
    ) -> None:
        self.client_software_name = client_software_name  # versions 3 to 4
        self.client_software_version = client_software_version  # versions 3 to 4


def decode_api_versions_request(reader: Reader, version: int) -> ApiVersionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 4:
        raise unsupported_version("ApiVersionsRequest", version)
    message = object.__new__(ApiVersionsRequest)
    if version >= 3:
        message.client_software_name = reader.read_compact_string("client_software_name")
        message.client_software_version = reader.read_compact_string("client_software_version")
    else:
        message.client_software_name = ""
        message.client_software_version = ""
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def encode_api_versions_request(writer: Writer, message: ApiVersionsRequest, version: int) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 4:
        raise unsupported_version("ApiVersionsRequest", version)
    if version >= 3:
        writer.write_compact_string(message.client_software_name, "client_software_name")
        writer.write_compact_string(message.client_software_version, "client_software_version")
        writer.buf.append(0)
