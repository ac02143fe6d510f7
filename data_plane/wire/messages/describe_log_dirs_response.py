"""DescribeLogDirsResponse (API key 35), versions 1 to 5, flexible from 2.

Written by scripts/generate_wire; do not edit.
"""

from __future__ import annotations

from struct import Struct

from data_plane.wire.primitives import EMPTY, Message, Reader, Writer, unsupported_version

_2XINT64 = Struct(">qq")
_2XINT64_BOOL = Struct(">qq?")
_INT32_2XINT64_BOOL = Struct(">iqq?")
_INT32_INT16 = Struct(">ih")


class DescribeLogDirsPartition(Message):
    """Part of DescribeLogDirsResponse."""

    __slots__ = (
        "is_future_key",
        "offset_lag",
        "partition_index",
        "partition_size",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key


class DescribeLogDirsTopic(Message):
    """Part of DescribeLogDirsResponse."""

    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DescribeLogDirsPartition] = EMPTY,
    ) -> None:
        self.name = name  # topicName
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeLogDirsResult(Message):
    """Part of DescribeLogDirsResponse."""

    __slots__ = (
        "error_code",
        "is_cordoned",
        "log_dir",
        "topics",
        "total_bytes",
        "usable_bytes",
    )

    def __init__(
        self,
        *,
        error_code: int = 0,
        log_dir: str = "",
        topics: list[DescribeLogDirsTopic] = EMPTY,
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics = [] if topics is EMPTY else topics
        self.total_bytes = total_bytes  # versions 4 to 5
        self.usable_bytes = usable_bytes  # versions 4 to 5
        self.is_cordoned = is_cordoned  # versions 5 to 5


class DescribeLogDirsResponse(Message):
    """The message."""

    __slots__ = (
        "error_code",
        "results",
        "throttle_time_ms",
    )

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code  # versions 3 to 5
        self.results = [] if results is EMPTY else results


def _decode_describe_log_dirs_partition(reader: Reader, version: int) -> DescribeLogDirsPartition:
    message = object.__new__(DescribeLogDirsPartition)
    (message.partition_index, message.partition_size, message.offset_lag, message.is_future_key) = (
        reader.unpack(_INT32_2XINT64_BOOL)
    )
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_describe_log_dirs_topic(reader: Reader, version: int) -> DescribeLogDirsTopic:
    message = object.__new__(DescribeLogDirsTopic)
    if version >= 2:
        message.name = reader.read_compact_string("name")
        message.partitions = [
            _decode_describe_log_dirs_partition(reader, version)
            for _ in range(reader.read_compact_array_length(22, "partitions"))
        ]
    else:
        message.name = reader.read_string("name")
        message.partitions = [
            _decode_describe_log_dirs_partition(reader, version)
            for _ in range(reader.read_array_length(21, "partitions"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _decode_describe_log_dirs_result(reader: Reader, version: int) -> DescribeLogDirsResult:
    message = object.__new__(DescribeLogDirsResult)
    message.error_code = reader.read_int16()
    if version >= 2:
        message.log_dir = reader.read_compact_string("log_dir")
        message.topics = [
            _decode_describe_log_dirs_topic(reader, version)
            for _ in range(reader.read_compact_array_length(3, "topics"))
        ]
    else:
        message.log_dir = reader.read_string("log_dir")
        message.topics = [
            _decode_describe_log_dirs_topic(reader, version)
            for _ in range(reader.read_array_length(6, "topics"))
        ]
    if version >= 5:
        (message.total_bytes, message.usable_bytes, message.is_cordoned) = reader.unpack(
            _2XINT64_BOOL
        )
    elif version >= 4:
        (message.total_bytes, message.usable_bytes) = reader.unpack(_2XINT64)
        message.is_cordoned = False
    else:
        message.total_bytes = -1
        message.usable_bytes = -1
        message.is_cordoned = False
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def decode_describe_log_dirs_response(reader: Reader, version: int) -> DescribeLogDirsResponse:
    """Raises MalformedFrame and UnsupportedVersion."""
    if not 1 <= version <= 5:
        raise unsupported_version("DescribeLogDirsResponse", version)
    message = object.__new__(DescribeLogDirsResponse)
    if version >= 3:
        (message.throttle_time_ms, message.error_code) = reader.unpack(_INT32_INT16)
    else:
        message.throttle_time_ms = reader.read_int32()
        message.error_code = 0
    if version >= 2:
        message.results = [
            _decode_describe_log_dirs_result(reader, version)
            for _ in range(reader.read_compact_array_length(5, "results"))
        ]
    else:
        message.results = [
            _decode_describe_log_dirs_result(reader, version)
            for _ in range(reader.read_array_length(8, "results"))
        ]
    if version >= 2:
        reader.skip_tagged_fields()
    return message


def _encode_describe_log_dirs_partition(
    writer: Writer, message: DescribeLogDirsPartition, version: int
) -> None:
    writer.buf += _INT32_2XINT64_BOOL.pack(
        message.partition_index, message.partition_size, message.offset_lag, message.is_future_key
    )
    if version >= 2:
        writer.buf.append(0)


def _encode_describe_log_dirs_topic(
    writer: Writer, message: DescribeLogDirsTopic, version: int
) -> None:
    if version >= 2:
        writer.write_compact_string(message.name, "name")
        writer.write_compact_array_length(message.partitions, "partitions")
        for describe_log_dirs_partition in message.partitions:
            _encode_describe_log_dirs_partition(writer, describe_log_dirs_partition, version)
        writer.buf.append(0)
    else:
        writer.write_string(message.name, "name")
        writer.write_array_length(message.partitions, "partitions")
        for describe_log_dirs_partition in message.partitions:
            _encode_describe_log_dirs_partition(writer, describe_log_dirs_partition, version)


def _encode_describe_log_dirs_result(
    writer: Writer, message: DescribeLogDirsResult, version: int
) -> None:
    writer.write_int16(message.error_code)
    if version >= 2:
        writer.write_compact_string(message.log_dir, "log_dir")
        writer.write_compact_array_length(message.topics, "topics")
        for describe_log_dirs_topic in message.topics:
            _encode_describe_log_dirs_topic(writer, describe_log_dirs_topic, version)
    else:
        writer.write_string(message.log_dir, "log_dir")
        writer.write_array_length(message.topics, "topics")
        for describe_log_dirs_topic in message.topics:
            _encode_describe_log_dirs_topic(writer, describe_log_dirs_topic, version)
    if version >= 5:
        writer.buf += _2XINT64_BOOL.pack(
            message.total_bytes, message.usable_bytes, message.is_cordoned
        )
    elif version >= 4:
        writer.buf += _2XINT64.pack(message.total_bytes, message.usable_bytes)
    if version >= 2:
        writer.buf.append(0)


def encode_describe_log_dirs_response(
    writer: Writer, message: DescribeLogDirsResponse, version: int
) -> None:
    """Raises UnsupportedVersion and InvalidMessage."""
    if not 1 <= version <= 5:
        raise unsupported_version("DescribeLogDirsResponse", version)
    if version >= 3:
        writer.buf += _INT32_INT16.pack(message.throttle_time_ms, message.error_code)
    else:
        writer.write_int32(message.throttle_time_ms)
    if version >= 2:
        writer.write_compact_array_length(message.results, "results")
        for describe_log_dirs_result in message.results:
            _encode_describe_log_dirs_result(writer, describe_log_dirs_result, version)
        writer.buf.append(0)
    else:
        writer.write_array_length(message.results, "results")
        for describe_log_dirs_result in message.results:
            _encode_describe_log_dirs_result(writer, describe_log_dirs_result, version)
