"""ListTransactionsResponse (API key 66), versions 0 to 2, flexible from 0.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class TransactionState(Message):
    """Part of ListTransactionsResponse."""

    __slots__ = (
        "producer_id",
        "transaction_state",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        transaction_state: str = "",
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.producer_id = producer_id  # producerId
        self.transaction_state = transaction_state


class ListTransactionsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "throttle_time_ms",
        "transaction_states",
        "unknown_state_filters",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] = EMPTY,
        transaction_states: list[TransactionState] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters = [] if unknown_state_filters is EMPTY else unknown_state_filters
        self.transaction_states = [] if transaction_states is EMPTY else transaction_states


def _decode_transaction_state(reader: Reader, version: int) -> TransactionState:
    message = object.__new__(TransactionState)
    message.transactional_id = reader.read_compact_string("transactional_id")
    message.producer_id = reader.read_int64()
    message.transaction_state = reader.read_compact_string("transaction_state")
    reader.skip_tagged_fields()
    return message


def decode_list_transactions_response(reader: Reader, version: int) -> ListTransactionsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("ListTransactionsResponse", version)
    message = object.__new__(ListTransactionsResponse)
    (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    message.unknown_state_filters = [
        reader.read_compact_string("unknown_state_filters")
        for _ in range(reader.read_compact_array_length(1, "unknown_state_filters"))
    ]
    message.transaction_states = [
        _decode_transaction_state(reader, version)
        for _ in range(reader.read_compact_array_length(11, "transaction_states"))
    ]
    reader.skip_tagged_fields()
    return message


def _encode_transaction_state(writer: Writer, message: TransactionState, version: int) -> None:
    writer.write_compact_string(message.transactional_id, "transactional_id")
    writer.write_int64(message.producer_id)
    writer.write_compact_string(message.transaction_state, "transaction_state")
    writer.buf.append(0)


def encode_list_transactions_response(
    writer: Writer, message: ListTransactionsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("ListTransactionsResponse", version)
    writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    writer.write_compact_array_length(message.unknown_state_filters, "unknown_state_filters")
    for string_item in message.unknown_state_filters:
        writer.write_compact_string(string_item, "unknown_state_filters")
    writer.write_compact_array_length(message.transaction_states, "transaction_states")
    for transaction_state in message.transaction_states:
        _encode_transaction_state(writer, transaction_state, version)
    writer.buf.append(0)
