"""AddPartitionsToTxnResponse (API key 24), versions 0 to 5, flexible from 3.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class AddPartitionsToTxnPartitionResult(Message):
    """Part of AddPartitionsToTxnResponse."""

    __slots__ = (
        "partition_error_code",
        "partition_index",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.partition_error_code = partition_error_code


class AddPartitionsToTxnTopicResult(Message):
    """Part of AddPartitionsToTxnResponse."""

    __slots__ = (
        "name",
        "results_by_partition",
    )

    def __init__(
        self,
        *,
        name: str = "",
        results_by_partition: list[AddPartitionsToTxnPartitionResult] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.results_by_partition = [] if results_by_partition is EMPTY else results_by_partition


class AddPartitionsToTxnResult(Message):
    """Part of AddPartitionsToTxnResponse."""

    __slots__ = (
        "topic_results",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        transactional_id: str = "",
        topic_results: list[AddPartitionsToTxnTopicResult] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id  # transactionalId
        self.topic_results = [] if topic_results is EMPTY else topic_results


class AddPartitionsToTxnResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "results_by_topic_v3_and_below",
        "results_by_transaction",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = EMPTY,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results_by_topic_v3_and_below = (
            [] if results_by_topic_v3_and_below is EMPTY else results_by_topic_v3_and_below
        )  # versions 0 to 3
        self.error_code = error_code  # versions 4 to 5
        self.results_by_transaction = (
            [] if results_by_transaction is EMPTY else results_by_transaction
        )  # versions 4 to 5


def _decode_add_partitions_to_txn_partition_result(
    reader: Reader, version: int
) -> AddPartitionsToTxnPartitionResult:
    message = object.__new__(AddPartitionsToTxnPartitionResult)
    (message.partition_index, message.partition_error_code) = reader.unpack(_INT32_INT16)
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_add_partitions_to_txn_topic_result(
    reader: Reader, version: int
) -> AddPartitionsToTxnTopicResult:
    message = object.__new__(AddPartitionsToTxnTopicResult)
    if version >= 3:
        message.name = reader.read_compact_string("name")
        message.results_by_partition = [
            _decode_add_partitions_to_txn_partition_result(reader, version)
            for _ in range(reader.read_compact_array_length(7, "results_by_partition"))
        ]
    else:
        message.name = reader.read_string("name")
        message.results_by_partition = [
            _decode_add_partitions_to_txn_partition_result(reader, version)
            for _ in range(reader.read_array_length(6, "results_by_partition"))
        ]
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _decode_add_partitions_to_txn_result(reader: Reader, version: int) -> AddPartitionsToTxnResult:
    message = object.__new__(AddPartitionsToTxnResult)
    message.transactional_id = reader.read_compact_string("transactional_id")
    message.topic_results = [
        _decode_add_partitions_to_txn_topic_result(reader, version)
        for _ in range(reader.read_compact_array_length(3, "topic_results"))
    ]
    reader.skip_tagged_fields()
    return message


def decode_add_partitions_to_txn_response(
    reader: Reader, version: int
) -> AddPartitionsToTxnResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 5:
        raise unsupported_version("AddPartitionsToTxnResponse", version)
    message = object.__new__(AddPartitionsToTxnResponse)
    message.throttle_time_ms = reader.read_int32()
    if version >= 4:
        message.results_by_topic_v3_and_below = []
    elif version >= 3:
        message.results_by_topic_v3_and_below = [
            _decode_add_partitions_to_txn_topic_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "results_by_topic_v3_and_below"))
        ]
    else:
        message.results_by_topic_v3_and_below = [
            _decode_add_partitions_to_txn_topic_result(reader, version)
            for _ in range(reader.read_array_length(6, "results_by_topic_v3_and_below"))
        ]
    if version >= 4:
        message.error_code = reader.read_int16()
        message.results_by_transaction = [
            _decode_add_partitions_to_txn_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "results_by_transaction"))
        ]
    else:
        message.error_code = 0
        message.results_by_transaction = []
    if version >= 3:
        reader.skip_tagged_fields()
    return message


def _encode_add_partitions_to_txn_partition_result(
    writer: Writer, message: AddPartitionsToTxnPartitionResult, version: int
) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_index, message.partition_error_code)
    if version >= 3:
        writer.buf.append(0)


def _encode_add_partitions_to_txn_topic_result(
    writer: Writer, message: AddPartitionsToTxnTopicResult, version: int
) -> None:
    if version >= 3:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.results_by_partition, "results_by_partition")
        for add_partitions_to_txn_partition_result in message.results_by_partition:
            _encode_add_partitions_to_txn_partition_result(
                writer, add_partitions_to_txn_partition_result, version
            )
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.results_by_partition, "results_by_partition")
        for add_partitions_to_txn_partition_result in message.results_by_partition:
            _encode_add_partitions_to_txn_partition_result(
                writer, add_partitions_to_txn_partition_result, version
            )


def _encode_add_partitions_to_txn_result(
    writer: Writer, message: AddPartitionsToTxnResult, version: int
) -> None:
    writer.write_compact_string(message.transactional_id, "transactional_id")
    writer.write_compact_array_length(message.topic_results, "topic_results")
    for add_partitions_to_txn_topic_result in message.topic_results:
        _encode_add_partitions_to_txn_topic_result(
            writer, add_partitions_to_txn_topic_result, version
        )
    writer.buf.append(0)


def encode_add_partitions_to_txn_response(
    writer: Writer, message: AddPartitionsToTxnResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 5:
        raise unsupported_version("AddPartitionsToTxnResponse", version)
    writer.write_int32(message.throttle_time_ms)
    if version <= 2:
        writer.write_array_length(
            message.results_by_topic_v3_and_below, "results_by_topic_v3_and_below"
        )
        for add_partitions_to_txn_topic_result in message.results_by_topic_v3_and_below:
            _encode_add_partitions_to_txn_topic_result(
                writer, add_partitions_to_txn_topic_result, version
            )
    elif version <= 3:
        writer.write_compact_array_length(
            message.results_by_topic_v3_and_below, "results_by_topic_v3_and_below"
        )
        for add_partitions_to_txn_topic_result in message.results_by_topic_v3_and_below:
            _encode_add_partitions_to_txn_topic_result(
                writer, add_partitions_to_txn_topic_result, version
            )
    if version >= 4:
        writer.write_int16(message.error_code)
        writer.write_compact_array_length(message.results_by_transaction, "results_by_transaction")
        for add_partitions_to_txn_result in message.results_by_transaction:
            _encode_add_partitions_to_txn_result(writer, add_partitions_to_txn_result, version)
    if version >= 3:
        writer.buf.append(0)
