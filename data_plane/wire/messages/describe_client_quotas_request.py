"""DescribeClientQuotasRequest (API key 48), versions 0 to 1, flexible from 1.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class ComponentData(Message):
    """Part of DescribeClientQuotasRequest."""

    __slots__ = (
        "entity_type",
        "match",
        "match_type",
    )

    def __init__(
        self,
        *,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match  # principal


class DescribeClientQuotasRequest(Message):
    """The message."""

    __slots__ = (
        "components",
        "strict",
    )

    def __init__(
        self,
        *,
        components: list[ComponentData] = EMPTY,
        strict: bool = False,
    ) -> None:
        self.components = [] if components is EMPTY else components
        self.strict = strict


def _decode_component_data(reader: Reader, version: int) -> ComponentData:
    message = object.__new__(ComponentData)
    if version >= 1:
        message.entity_type = reader.read_compact_string("entity_type")
    else:
        message.entity_type = reader.read_string("entity_type")
    message.match_type = reader.read_int8()
    if version >= 1:
        message.match = reader.read_nullable_compact_string("match")
    else:
        message.match = reader.read_nullable_string("match")
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def decode_describe_client_quotas_request(
    reader: Reader, version: int
) -> DescribeClientQuotasRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeClientQuotasRequest", version)
    message = object.__new__(DescribeClientQuotasRequest)
    if version >= 1:
        message.components = [
            _decode_component_data(reader, version)
            for _ in range(reader.read_compact_array_length(4, "components"))
        ]
    else:
        message.components = [
            _decode_component_data(reader, version)
            for _ in range(reader.read_array_length(5, "components"))
        ]
    message.strict = reader.read_bool()
    if version >= 1:
        reader.skip_tagged_fields()
    return message


def _encode_component_data(writer: Writer, message: ComponentData, version: int) -> None:
    if version >= 1:
        writer.write_compact_string(message.entity_type, "entity_type")
    else:
        writer.write_string(message.entity_type, "entity_type")
    writer.write_int8(message.match_type)
    if version >= 1:
        writer.write_nullable_compact_string(message.match, "match")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.match, "match")


def encode_describe_client_quotas_request(
    writer: Writer, message: DescribeClientQuotasRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 1:
        raise unsupported_version("DescribeClientQuotasRequest", version)
    if version >= 1:
        writer.write_compact_array_length(message.components, "components")
        for component_data in message.components:
            _encode_component_data(writer, component_data, version)
    else:
        writer.write_array_length(message.components, "components")
        for component_data in message.components:
            _encode_component_data(writer, component_data, version)
    writer.write_bool(message.strict)
    if version >= 1:
        writer.buf.append(0)
