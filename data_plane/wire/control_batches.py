"""Control batches: a transaction's end, and the one that moves a reader over what it may not see.

A control batch has attribute bit 5 set and one record, whose key says what it is: a version and a
type, two bytes each. Clients act on transaction markers and pass over types they do not know.

    end of a transaction   key 0000 0001 (0000 for abort)   value: version, coordinator epoch (i32)
    skip                   key 0000 0009                    value: six zero bytes
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from data_plane.wire.errors import ErrorCode, InvalidRecords
from data_plane.wire.kernel_types import NO_TIMESTAMP, NewRecord, Record
from data_plane.wire.records import NO_LEADER_EPOCH, build_batch

_CONTROL_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION_VALUE: Final = struct.Struct(">hi")
_BASE_OFFSET: Final = struct.Struct(">q")


class ControlType(IntEnum):
    """The type in a control record's key. SKIP is this broker's own: clients ignore types they do
    not know, and move on behind the batch."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    SKIP = 9
    UNKNOWN = -1


class EndTransactionMarker(NamedTuple):
    """A transaction's outcome, as the coordinator of `coordinator_epoch` had it written."""

    is_commit: bool
    coordinator_epoch: int


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    base_offset: int = 0,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    record = NewRecord(
        timestamp,
        _CONTROL_KEY.pack(0, kind),
        _END_TRANSACTION_VALUE.pack(0, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_control_type(record: Record) -> ControlType:
    """What a record of a control batch is. Raises InvalidRecords (CORRUPT_MESSAGE)."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE, f"the control record at {record.offset} has no type"
        )
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE,
            f"the control record at {record.offset} has version {version}",
        )
    try:
        return ControlType(kind)
    except ValueError:
        return ControlType.UNKNOWN


def read_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """A transaction's outcome, or None for a control record of another type."""
    kind = read_control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TRANSACTION_VALUE.size:
        raise InvalidRecords(
            ErrorCode.CORRUPT_MESSAGE, f"the marker at {record.offset} has no coordinator epoch"
        )
    _, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(record.value)
    return EndTransactionMarker(kind == ControlType.COMMIT, coordinator_epoch)


def skip_batch(offset: int) -> bytes:
    """The control batch that moves a reader behind `offset` where it may see nothing before.

    Every Kafka client continues at `offset` + 1; those that commit behind what they have read
    (librdkafka, Java, kafka-python, aiokafka) then commit that.
    """
    return _BASE_OFFSET.pack(offset) + _SKIP_TAIL


_SKIP_TAIL: Final = bytes(
    build_batch(
        [NewRecord(NO_TIMESTAMP, _CONTROL_KEY.pack(0, ControlType.SKIP), bytes(6))],
        is_control=True,
    )
)[_BASE_OFFSET.size :]
