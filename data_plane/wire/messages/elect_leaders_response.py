"""ElectLeadersResponse (API key 43), versions 0 to 2, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_INT32_INT16 = Struct(">ih")


class PartitionResult(Message):
    """Part of ElectLeadersResponse."""

    __slots__ = (
        "error_code",
        "error_message",
        "partition_id",
    )

    def __init__(
        self,
        *,
        partition_id: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message


class ReplicaElectionResult(Message):
    """Part of ElectLeadersResponse."""

    __slots__ = (
        "partition_result",
        "topic",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partition_result: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic = topic  # topicName
        self.partition_result = [] if partition_result is EMPTY else partition_result


class ElectLeadersResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "replica_election_results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code  # versions 1 to 2
        self.replica_election_results = (
            [] if replica_election_results is EMPTY else replica_election_results
        )


def _decode_partition_result(reader: Reader, version: int) -> PartitionResult:
    message = object.__new__(PartitionResult)
    (message.partition_id, message.error_code) = reader.unpack(_INT32_INT16)
    if version >= 2:
        message.error_message = reader.read_nullable_compact_string("error_message")
    else:
        message.error_message = reader.read_nullable_string("error_message")
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_replica_election_result(reader: Reader, version: int) -> ReplicaElectionResult:
    message = object.__new__(ReplicaElectionResult)
    if version >= 2:
        message.topic = reader.read_compact_string("topic")
        message.partition_result = [
            _decode_partition_result(reader, version)
            for _ in range(reader.read_compact_array_length(8, "partition_result"))
        ]
    else:
        message.topic = reader.read_string("topic")
        message.partition_result = [
            _decode_partition_result(reader, version)
            for _ in range(reader.read_array_length(8, "partition_result"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_elect_leaders_response(reader: Reader, version: int) -> ElectLeadersResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 0 <= version <= 2:
        raise unsupported_version("ElectLeadersResponse", version)
    message = object.__new__(ElectLeadersResponse)
    if version >= 1:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.throttle_time_ms = reader.read_int32()
        message.error_code = 0
    if version >= 2:
        message.replica_election_results = [
            _decode_replica_election_result(reader, version)
            for _ in range(reader.read_compact_array_length(3, "replica_election_results"))
        ]
    else:
        message.replica_election_results = [
            _decode_replica_election_result(reader, version)
            for _ in range(reader.read_array_length(6, "replica_election_results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_partition_result(writer: Writer, message: PartitionResult, version: int) -> None:
    writer.buf += _INT32_INT16.pack(message.partition_id, message.error_code)
    if version >= 2:
        writer.write_nullable_compact_string(message.error_message, "error_message")
        writer.buf.append(0)
    else:
        writer.write_nullable_string(message.error_message, "error_message")


def _encode_replica_election_result(
    writer: Writer, message: ReplicaElectionResult, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.topic, "topic")
        writer.write_compact_array_length(message.partition_result, "partition_result")
        for partition_result in message.partition_result:
            _encode_partition_result(writer, partition_result, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.topic, "topic")
        writer.write_array_length(message.partition_result, "partition_result")
        for partition_result in message.partition_result:
            _encode_partition_result(writer, partition_result, version)


def encode_elect_leaders_response(
    writer: Writer, message: ElectLeadersResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 0 <= version <= 2:
        raise unsupported_version("ElectLeadersResponse", version)
    if version >= 1:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(
            message.replica_election_results, "replica_election_results"
        )
        for replica_election_result in message.replica_election_results:
            _encode_replica_election_result(writer, replica_election_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.replica_election_results, "replica_election_results")
        for replica_election_result in message.replica_election_results:
            _encode_replica_election_result(writer, replica_election_result, version)
