"""What an append checks beyond the kernel: clock, configuration, keys; and rewriting where asked.

Plain topics cost a few comparisons a batch. Records are walked only where a topic asks for it:
compaction needs keys, `message.timestamp.before.max.ms` needs the oldest timestamp. Batches are
rewritten only for LogAppendTime and for a `compression.type` that the producer did not use.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from data_plane.log.config import COMPRESSION_PRODUCER, INT64_MAX, LOG_APPEND_TIME, LogConfig
from data_plane.log.errors import AppendError
from data_plane.wire.compression import Compression
from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import HIDDEN_FLAG, NO_TIMESTAMP
from data_plane.wire.records import (
    BatchHeader,
    outline_batch,
    read_batch_header,
    recompress,
    set_log_append_time,
    summarize_batch,
    unpacked_records,
)

WritableBuffer = bytearray | memoryview

COMPRESSION_BY_NAME = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def needs_preparation(config: LogConfig) -> bool:
    """Whether batches of such a log are walked or rewritten at all; cached by the log."""
    return (
        config.compact
        or config.message_timestamp_type == LOG_APPEND_TIME
        or config.message_timestamp_before_max_ms != INT64_MAX
        or config.compression_type != COMPRESSION_PRODUCER
    )


def check_size(header: BatchHeader, config: LogConfig) -> None:
    """`max.message.bytes`; raises AppendError."""
    if header.batch_length + 12 > config.max_message_bytes:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append is {header.batch_length + 12} bytes which "
            f"exceeds the maximum configured value of {config.max_message_bytes}.",
        )


def timestamp_error(
    buf: WritableBuffer, header: BatchHeader, wall_ms: int, config: LogConfig
) -> AppendError:
    """For a batch that has records whose timestamps are too far from the broker's clock. One
    without a timestamp (-1) is not too old."""
    oldest = wall_ms - config.message_timestamp_before_max_ms
    newest = wall_ms + config.message_timestamp_after_max_ms

    def name_records() -> list[tuple[int, str]]:
        return [
            (
                index,
                f"Timestamp {timestamp} of message with offset {index} is out of range. "
                f"The timestamp should be within [{oldest}, {newest}]",
            )
            for index, (timestamp, _) in enumerate(outline_batch(buf, header))
            if timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest
        ]

    return AppendError(
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        header.record_count,
        name_records,
    )


def prepare(
    buf: WritableBuffer, batches: list[BatchHeader], config: LogConfig, wall_ms: int, name: str
) -> tuple[WritableBuffer, list[BatchHeader]]:
    """Walk and rewrite the batches of a client's append to partition `name` as the topic asks; all
    but `stamp`. It may run in any thread.

    Returns the buffer to store, `buf` itself or a new one, and its headers. Raises AppendError.
    """
    try:
        for header in batches:
            _check_records(buf, header, config, wall_ms, name)
        return _recompressed(buf, batches, config)
    except InvalidRecords as error:
        raise AppendError(error.error_code, str(error)) from error


def stamp(
    buf: WritableBuffer, batches: list[BatchHeader], config: LogConfig, wall_ms: int
) -> list[BatchHeader]:
    """Write the time of their append into the batches, in place, where the topic asks for it."""
    if config.message_timestamp_type != LOG_APPEND_TIME:
        return batches
    for header in batches:
        set_log_append_time(buf, header.position, wall_ms)
    return [read_batch_header(buf, header.position) for header in batches]


def _check_records(
    buf: WritableBuffer, header: BatchHeader, config: LogConfig, wall_ms: int, name: str
) -> None:
    if header.attributes & 0x20:
        return
    checks_age = (
        config.message_timestamp_before_max_ms != INT64_MAX
        and config.message_timestamp_type != LOG_APPEND_TIME
    )
    if not config.compact and not checks_age:
        return
    summary = summarize_batch(buf, header)
    if config.compact and summary.null_key_count:
        _check_keys(buf, header, config, summary.null_key_count, name)
    oldest = summary.min_timestamp
    if (
        checks_age
        and oldest != NO_TIMESTAMP
        and oldest < wall_ms - config.message_timestamp_before_max_ms
    ):
        raise timestamp_error(buf, header, wall_ms, config)


def _check_keys(
    buf: WritableBuffer, header: BatchHeader, config: LogConfig, keyless_count: int, name: str
) -> None:
    """Raises AppendError where one of the `keyless_count` records without a key needs one."""
    exempt: Set[int] = frozenset()
    if header.attributes & HIDDEN_FLAG and config.record_rules is not None:
        exempt = config.record_rules.commands_in(
            *unpacked_records(buf, header), header.record_count
        )

    def keyless() -> Iterator[int]:
        outlines = enumerate(outline_batch(buf, header))
        return (index for index, (_, has_key) in outlines if not has_key and index not in exempt)

    if exempt:
        keyless_count = sum(1 for _ in keyless())
    if not keyless_count:
        return
    message = f"Compacted topic cannot accept message without key in topic partition {name}."
    raise AppendError(
        ErrorCode.INVALID_RECORD,
        "One or more records have been rejected due to "
        f"{keyless_count} record errors in total, and only showing the first "
        f"three errors at most: {message}",
        header.record_count,
        lambda: [(index, message) for index in keyless()],
    )


def _recompressed(
    buf: WritableBuffer, batches: list[BatchHeader], config: LogConfig
) -> tuple[WritableBuffer, list[BatchHeader]]:
    if config.compression_type == COMPRESSION_PRODUCER:
        return buf, batches
    codec = COMPRESSION_BY_NAME[config.compression_type]
    if all(header.compression == codec or header.is_control for header in batches):
        return buf, batches
    level = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
    if codec == Compression.GZIP and level == -1:
        level = None
    out = bytearray()
    headers = []
    for header in batches:
        position = len(out)
        if header.compression == codec or header.is_control:
            out += memoryview(buf)[header.position : header.end_position]
        else:
            out += recompress(buf, header.position, codec, level)
        headers.append(read_batch_header(out, position))
    return out, headers
