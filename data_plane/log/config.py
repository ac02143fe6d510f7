"""A log's settings, with Kafka's names (dots become underscores), units and defaults.

The broker resolves topic overrides and broker defaults into one `LogConfig`; a log gets a new one
by `Log.update_config`. Values are taken as validated: ranges are the configuration's business.
Deliberately absent: settings which only concern the broker or the cell.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.log.record_rules import RecordRules

INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1

CLEANUP_DELETE = "delete"
CLEANUP_COMPACT = "compact"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
COMPRESSION_PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log. -1 stands for "no limit" in retention_ms and retention_bytes."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 14 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({CLEANUP_DELETE})
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = COMPRESSION_PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    durability_fsync: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    # Not a topic's to set: for so long retention by time was not at work before `resumed_ms`, which
    # does not count for what is older than that. None: for how long is not known, and what is older
    # counts as of `resumed_ms`.
    retention_pause_ms: int | None = 0
    retention_resumed_ms: int = 0
    # Accepted for compatibility and without effect: a sparse file would have to be cut again
    # before its tail may be mapped.
    preallocate: bool = False
    # What features ask of records that clients append.
    record_rules: RecordRules | None = None

    @property
    def compact(self) -> bool:
        """Whether records are kept by key."""
        return CLEANUP_COMPACT in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment takes appends: what it holds is not compacted before."""
        roll_ms = self.segment_ms - self.segment_jitter_ms
        return min(roll_ms, self.max_compaction_lag_ms) if self.compact else roll_ms

    def is_expired(self, newest_ms: int, wall_ms: int) -> bool:
        """Whether records of that date are too old at the date `wall_ms`."""
        age_ms = wall_ms - newest_ms
        if newest_ms < self.retention_resumed_ms:
            pause_ms = self.retention_pause_ms
            age_ms -= self.retention_resumed_ms - newest_ms if pause_ms is None else pause_ms
        return 0 <= self.retention_ms < age_ms

    @property
    def delete(self) -> bool:
        """Whether records are dropped by age and size."""
        return CLEANUP_DELETE in self.cleanup_policy
