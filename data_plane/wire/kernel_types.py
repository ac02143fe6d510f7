"""The values the kernel speaks in, and the layout of a record batch they are read from.

Record batch, version 2 ("magic 2"), big-endian; the CRC covers everything from `attributes` on, so
the fields before it can be written without touching it:

    0 base_offset i64      8 batch_length i32 (what follows it)     12 partition_leader_epoch i32
   16 magic i8            17 crc u32                                21 attributes i16
   23 last_offset_delta i32   27 base_timestamp i64   35 max_timestamp i64
   43 producer_id i64     51 producer_epoch i16   53 base_sequence i32   57 record_count i32
   61 the records, compressed as one piece by the codec in attributes bits 0 to 2

Attributes: bit 3 timestamps are log append time, bit 4 transactional, bit 5 control batch, bit 6
base_timestamp is the delete horizon (KIP-534). The others are unused by Kafka; brokers set bit 7 in
batches with records that are hidden from readers, bit 8 in batches that say what became of such.

Nothing here computes more than a sum: reading, checking and writing are the kernel's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

Buffer = bytes | bytearray | memoryview

BATCH_HEADER_BYTES: Final = 61
BATCH_LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
MAX_TIMESTAMP_POSITION: Final = 35
LOG_OVERHEAD_BYTES: Final = 12
"""base_offset and batch_length: what stands before the bytes that batch_length counts."""

MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
# What they mean is a feature's (docs/delayed.md, docs/dedup.md); from clients they are refused.
HIDDEN_FLAG: Final = 0x80
FACTS_FLAG: Final = 0x100
IDS_FLAG: Final = 0x200

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """A batch's header as it stands at `position` of some buffer; sizes are bytes."""

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def end_position(self) -> int:
        return self.position + LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def records_position(self) -> int:
        return self.position + BATCH_HEADER_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number; any of 0 to 7 in a batch that nobody has checked."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of a compacted batch may go, or None when it has none."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """One record of a decoded batch; `timestamp` in ms since the epoch, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NewRecord(NamedTuple):
    """One record to build a batch from. `offset_delta` None: one more than the record before."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    offset_delta: int | None = None


class WalkSummary(NamedTuple):
    """What a walk over a batch's records found; timestamps are absolute ms. `min_timestamp` is the
    lowest of those records that have one, NO_TIMESTAMP when none has."""

    record_count: int
    min_timestamp: int
    max_timestamp: int
    max_timestamp_offset_delta: int
    null_key_count: int


class FilteredRecords(NamedTuple):
    """The bytes of the records kept, untouched, and what the header must say about them.
    With no record kept: -1, -1 and nothing."""

    payload: bytes
    record_count: int
    last_offset_delta: int
    max_timestamp: int


class FrameSplit(NamedTuple):
    """Complete frames of a receive buffer as (start, end) of their bodies, size prefix left out.

    `consumed` is where the next, incomplete frame begins; it will take `frame_bytes` bytes with
    its prefix, or 4 when not even its size is there yet."""

    frames: list[tuple[int, int]]
    consumed: int
    frame_bytes: int


class ProducePartition(NamedTuple):
    """The records of one partition within the request's buffer; `records_start` and
    `records_end` are -1 when the client sent null."""

    partition_index: int
    records_start: int
    records_end: int


class ProduceTopic(NamedTuple):
    """Named up to version 12 (`topic_id` is then 16 zero bytes), by the 16 bytes of its id from
    version 13 on (`name` is then "")."""

    name: str
    topic_id: bytes
    partitions: list[ProducePartition]


class ProduceRequestView(NamedTuple):
    """A Produce request's body; the records stay where they are."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """Why the record at `batch_index` had its batch refused."""

    batch_index: int
    message: str | None


class ProducePartitionResult(NamedTuple):
    """One partition's answer to a Produce, all versions' fields. `leader_id` and `leader_epoch`
    are sent from version 10 on when one of them is not -1."""

    partition_index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1


class FetchPartitionView(NamedTuple):
    """What a fetch asks of one partition; a field its version does not have holds the schema's
    default, and so does `high_watermark` (2^63-1) when the follower does not send it."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int


class FetchTopicView(NamedTuple):
    """Named up to version 12, by id from 13 on, as in `ProduceTopic`."""

    name: str
    topic_id: bytes
    partitions: list[FetchPartitionView]


class ForgottenTopicView(NamedTuple):
    """Partitions that leave the fetch session."""

    name: str
    topic_id: bytes
    partitions: list[int]


class FetchRequestView(NamedTuple):
    """A Fetch request's body. `replica_id` is the tagged one from version 15 on."""

    cluster_id: str | None
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopicView]
    forgotten_topics: list[ForgottenTopicView]
    rack_id: str


class FetchPartitionResult(NamedTuple):
    """One partition's answer to a Fetch, all versions' fields.

    `records` is the buffers to send one after the other, or None for null (a partition that has
    nothing to say answers `()`, which is zero bytes). `aborted_transactions` is a list of
    (producer_id, first_offset) or None for null. The pairs (epoch, end_offset), (leader_id,
    leader_epoch) and (end_offset, epoch) are sent from version 12 on when not None."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Buffer] | None = ()
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


NodeEndpoint = tuple[int, str, int, str | None]
"""node_id, host, port, rack of a leader that an answer points to (KIP-951)."""


class FetchedPartition(NamedTuple):
    """One partition of a Fetch response; its records stand at `records_start` to `records_end` of
    the buffer, equal when there are none. The pairs are (epoch, end_offset), from where on the
    leader's log differs, and (leader_id, leader_epoch); None when not sent."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records_start: int
    records_end: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None


class FetchResponseView(NamedTuple):
    """A Fetch response's body, all partitions of all topics in one list."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]
