"""DescribeTransactionsRequest (API key 65), versions 0 to 0, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version


class DescribeTransactionsRequest(Message):
    """The message."""

    __slots__ = ("transactional_ids",)

    def __init__(
        self,
        *,
        transactional_ids: list[str] = EMPTY,
    ) -> None:
        self.transactional_ids = (
            [] if transactional_ids is EMPTY else transactional_ids
        )  # transactionalId


def decode_describe_transactions_request(
    reader: Reader, version: int
) -> DescribeTransactionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTransactionsRequest", version)
    message = object.__new__(DescribeTransactionsRequest)
    message.transactional_ids = [
        reader.read_compact_string("transactional_ids")
        for _ in range(reader.read_compact_array_length(1, "transactional_ids"))
    ]
    reader.skip_tagged_fields()
    return message


def encode_describe_transactions_request(
    writer: Writer, message: DescribeTransactionsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 0:
        raise unsupported_version("DescribeTransactionsRequest", version)
    writer.write_compact_array_length(message.transactional_ids, "transactional_ids")
    for string_item in message.transactional_ids:
        writer.write_compact_string(string_item, "transactional_ids")
    writer.buf.append(0)
