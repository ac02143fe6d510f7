"""ListTransactionsRequest (API key 66), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from data_plane.wire.primitives import (
    EMPTY,
    Message,
    Reader,
    Writer,
    unsupported_field,
    unsupported_version,
)


class ListTransactionsRequest(Message):
    """The message."""

    __slots__ = (
        "duration_filter",
        "producer_id_filters",
        "state_filters",
        "transactional_id_pattern",
    )

    def __init__(
        self,
        *,
        state_filters: list[str] = EMPTY,
        producer_id_filters: list[int] = EMPTY,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters = [] if state_filters is EMPTY else state_filters
        self.producer_id_filters = (
            [] if producer_id_filters is EMPTY else producer_id_filters
        )  # producerId
        self.duration_filter = duration_filter  # versions 1 to 2
        self.transactional_id_pattern = transactional_id_pattern  # versions 2 to 2, pattern


def decode_list_transactions_request(reader: Reader, version: int) -> ListTransactionsRequest:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("ListTransactionsRequest", version)
    message = object.__new__(ListTransactionsRequest)
    message.state_filters = [
        reader.read_compact_string("state_filters")
        for _ in range(reader.read_compact_array_length(1, "state_filters"))
    ]
    message.producer_id_filters = reader.read_int64_array(
        reader.read_compact_array_length(8, "producer_id_filters")
    )
    if version >= 1:
        message.duration_filter = reader.read_int64()
    else:
        message.duration_filter = -1
    if version >= 2:
        message.transactional_id_pattern = reader.read_nullable_compact_string(
            "transactional_id_pattern"
        )
    else:
        message.transactional_id_pattern = None
    reader.skip_tagged_fields()
    return message


def encode_list_transactions_request(
    writer: Writer, message: ListTransactionsRequest, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("ListTransactionsRequest", version)
    writer.write_compact_array_length(message.state_filters, "state_filters")
    for string_item in message.state_filters:
        writer.write_compact_string(string_item, "state_filters")
    writer.write_compact_array_length(message.producer_id_filters, "producer_id_filters")
    writer.write_int64_array(message.producer_id_filters)
    if version >= 1:
        writer.write_int64(message.duration_filter)
    else:
        if message.duration_filter != -1:
            raise unsupported_field("ListTransactionsRequest", "duration_filter", version)
    if version >= 2:
        writer.write_nullable_compact_string(
            message.transactional_id_pattern, "transactional_id_pattern"
        )
    else:
        if message.transactional_id_pattern is not None:
            raise unsupported_field("ListTransactionsRequest", "transactional_id_pattern", version)
    writer.buf.append(0)
