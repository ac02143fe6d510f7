"""What an answer to a Fetch tells of one partition, beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from data_plane.broker.fetch.fetch_response import PartitionResult
from data_plane.broker.fetch.projected_reads import ShownBatch, joined
from data_plane.log.errors import LogError
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import read_batch_header

if TYPE_CHECKING:
    from data_plane.broker.fetch.fetch_rights import FetchRights
    from data_plane.broker.fetch.fetch_sessions import FetchPartition
    from data_plane.broker.services import Services
    from data_plane.replica.partition import Partition


def partition_result(
    rights: FetchRights, target: FetchPartition, partition: Partition
) -> PartitionResult:
    """Where the partition stands. Raises LogError: its log may have to be loaded for that."""
    log = partition.log
    result = PartitionResult(target)
    result.high_watermark = partition.high_watermark
    if not rights.is_follower:
        # It is of no use to a follower, and whole logs would be loaded to tell it.
        result.last_stable_offset = log.last_stable_offset
    result.log_start_offset = log.log_start_offset
    if rights.is_read_committed:
        result.aborted = ()
    return result


def result_without_records(
    rights: FetchRights, target: FetchPartition, partition: Partition
) -> PartitionResult:
    """It sends the reader elsewhere; aborted transactions are not spoken of, as in Kafka."""
    result = partition_result(rights, target, partition)
    result.aborted = None
    return result


def lost_result(
    rights: FetchRights,
    target: FetchPartition,
    partition: Partition,
    place: ErrorCode | tuple[int, int],
) -> PartitionResult:
    """The fetcher's log is not one that could be gone on with here: an error, or where it left the
    leader's (KIP-595)."""
    if isinstance(place, ErrorCode):
        result = PartitionResult(target, int(place))
        if rights.is_follower:
            # It begins anew there, and is told the epoch of what came before: should it lead,
            # others that end there are compared with that.
            log = partition.log
            start_offset = result.log_start_offset = log.copy_start_offset
            epoch = log.epoch_for_offset(start_offset - 1)
            result.diverging = None if epoch < 0 else (epoch, start_offset)
        return result
    result = result_without_records(rights, target, partition)
    result.diverging = place
    return result


def failed_result(
    services: Services, target: FetchPartition, error: BaseException
) -> PartitionResult:
    """The partition could not be read."""
    # Corrupt batches and failed disks are reported by the log maintenance, once each.
    if isinstance(error, LogError):
        return PartitionResult(target, int(error.error_code))
    services.log.error(
        "read_failed",
        topic=target.topic,
        topic_id=target.topic_id.hex(),
        partition=target.index,
        error=repr(error),
    )
    return PartitionResult(target, int(ErrorCode.UNKNOWN_SERVER_ERROR))


def shown_result(
    rights: FetchRights,
    target: FetchPartition,
    partition: Partition,
    batches: Sequence[ShownBatch],
    now_ms: int,
) -> PartitionResult:
    """With what a projection shows, some batches. Raises LogError."""
    result = partition_result(rights, target, partition)
    if target.projected is not None and target.projected.on_sent is not None:
        count = sum(read_batch_header(shown.buffer, 0).record_count for shown in batches)
        offset, next_offset = target.wanted.fetch_offset, batches[-1].next_offset
        target.projected.on_sent(offset, next_offset, count, now_ms)
    result.buffers = joined(batches)
    result.size = sum(len(shown.buffer) for shown in batches)
    if rights.is_read_committed:
        result.aborted = partition.log.aborted_transactions(
            batches[0].base_offset, batches[-1].next_offset
        )
    return result


def shown_whole_until(target: FetchPartition, partition: Partition, limit: int) -> int:
    """Up to where what a projected partition shows is read as it is stored."""
    assert target.projected is not None
    offset = target.wanted.fetch_offset
    return target.projected.projection.shown_whole_until(partition.log, offset, limit)
