"""Faults of the log room; each maps to exactly one Kafka error code.

Expected outcomes (a cold read, a duplicate batch) are returned values and not in here. None of
these closes a connection: the request is answered with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from data_plane.wire.errors import ErrorCode


class LogError(Exception):
    """Base of everything that a log raises on purpose."""

    error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(LogError):
    """A read outside [log_start_offset, log_end_offset]."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log's range {log_start_offset} to {log_end_offset}"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class AppendError(LogError):
    """An append was refused; nothing of it is stored.

    `name_records` gives (batch_index, message) of each record at fault, as the Produce response
    carries them. It looks at all `record_count` records of the batch to find them: ask only where
    these are few, and while the buffer that was to be appended is there.
    """

    def __init__(
        self,
        error_code: ErrorCode,
        message: str,
        record_count: int = 0,
        name_records: Callable[[], Sequence[tuple[int, str]]] = tuple,
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.record_count = record_count
        self.name_records = name_records


class CorruptSegment(LogError):
    """Stored bytes fail their checks; the batch is not served. Names file and byte position."""

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: corrupt batch at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
        # Bad ranges that the read found and nobody has heard of yet.
        self.found: list[Any] = []


class DamagedLog(LogError):
    """A log cannot be cut where it was to be: what is damaged lies below, and would go, too."""

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, folder: str, offset: int, damaged_from: int) -> None:
        super().__init__(
            f"{folder} is damaged from offset {damaged_from} on and cannot be truncated to {offset}"
        )


class LogDirFailure(LogError):
    """A disk error took the data directory offline; all its logs answer with this from then on."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    WHAT_TO_DO = "make room on the disk or replace it, then start the broker again"

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(f"log directory {directory} is offline: {reason}; {self.WHAT_TO_DO}")
        self.directory = directory
        self.reason = reason


class DirectoryLocked(LogError):
    """Another process uses the data directory."""


class DuplicateLog(LogError):
    """Two folders, on different disks, claim to be one partition: nobody but a person can say which
    of them has its records."""

    def __init__(self, partition: int, topic: str, folders: tuple[str, str], others: int) -> None:
        more = f" (and {others} more partitions are in two places)" if others else ""
        super().__init__(
            f"partition {partition} of {topic} is in two places: {folders[0]} and {folders[1]}"
            f"{more}. Find out which one has its records, move the other one away, and start again"
        )


class LogNotLoaded(LogError):
    """A worker thread was to read a log that is not in memory; only the loop may load it. Clients
    that meet it may ask again, like after any other trouble with storage."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder} is not loaded; load the log on the loop before a cold read")


class LogDeleted(LogError):
    """The log was deleted while a worker thread read it."""

    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder} was deleted while it was read")


class UnknownPartition(LogError):
    """The manager has no log of that topic id and partition."""

    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
