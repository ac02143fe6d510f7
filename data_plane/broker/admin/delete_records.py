"""DeleteRecords, versions 0 to 2: move the log start of partitions up.

-1 means the high watermark. Records of internal topics are the broker's own and stay.

The answer waits until all replicas on live brokers have the new log start, as in Kafka: whoever
leads next, deleted records stay deleted. After the request's time-out it is REQUEST_TIMED_OUT, and
the records that a replica still has go when it fetches.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import NO_ID
from data_plane.broker.services import Services
from data_plane.cell.metadata import MetadataImage
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.delete_records_request import DeleteRecordsRequest
from data_plane.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 2
NO_LOW_WATERMARK = -1


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A partition whose replicas do not all begin at `offset` yet."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


def handle_delete_records(
    services: Services, context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
    # A partition named twice is one partition: the last offset counts, as in Kafka.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    unfinished: list[_Unfinished] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete(services, context, name, index, offset, unfinished)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted.items()
        ]
    )
    if not unfinished:
        return response
    deadline_ms = now_ms + max(0, request.timeout_ms)
    return _WaitingDelete(services, response, unfinished, deadline_ms).deferred


def _delete(
    services: Services,
    context: RequestContext,
    name: str,
    index: int,
    offset: int,
    unfinished: list[_Unfinished],
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_LOW_WATERMARK)
    if context.topics.is_internal(name):
        result.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return result
    topic = context.topics.by_name(name)
    topic_id = NO_ID if topic is None else topic.id_bytes
    if topic is not None and topic.is_virtual:
        # The records are its source's.
        result.error_code = int(ErrorCode.POLICY_VIOLATION)
        return result
    partition = services.partitions.get(topic_id, index)
    if partition is None:
        result.error_code = int(services.partitions.error_of_named(topic_id, index))
        return result
    if services.deletion_permit.why_nothing:
        # Another broker may lead, and the topic may be compacted by now.
        result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        return result
    config = partition.log.config
    if not partition.is_writable:
        result.error_code = int(ErrorCode.POLICY_VIOLATION)
        return result
    if config.compact and not config.delete:
        # Who reads from the start of a compacted topic expects the newest record of every key.
        result.error_code = int(ErrorCode.POLICY_VIOLATION)
        return result
    before = partition.log.log_start_offset
    try:
        log_start_offset = partition.log.delete_records(offset)
    except LogError as error:
        result.error_code = int(error.error_code)
        return result
    if partition.log.log_start_offset != before:
        partition.log_start_changed()
    target = log_start_offset if offset < 0 else offset
    result.low_watermark = _low_watermark(partition, services.image)
    if result.low_watermark < target:
        unfinished.append(_Unfinished(partition, target, result))
    return result


def _low_watermark(partition: Partition, image: MetadataImage) -> int:
    """The lowest offset that a replica on a live broker may have."""
    offset: int = partition.log.log_start_offset
    if partition.leadership is not None:
        for follower in partition.leadership.followers.values():
            broker = image.brokers.get(follower.node_id)
            if broker is not None and not broker.is_fenced:
                # One that has not said anything has the oldest there can be.
                offset = min(offset, max(0, follower.log_start_offset))
    return offset


class _WaitingDelete:
    """A request whose replicas have not all followed. Woken when one has, when a partition stops
    being led here, and when the image changes: who is fenced is waited for no more."""

    def __init__(
        self,
        services: Services,
        response: DeleteRecordsResponse,
        unfinished: list[_Unfinished],
        deadline_ms: int,
    ) -> None:
        self.deferred: Deferred[DeleteRecordsResponse] = Deferred()
        self._services = services
        self._response = response
        self._unfinished = unfinished
        self._watched = list({one.partition: None for one in unfinished})
        for partition in self._watched:
            partition.watchers[self] = None
        services.image_listeners.append(self._image_changed)
        self._timer = services.timers.schedule(deadline_ms, self._time_out)

    def partition_changed(self) -> None:
        self._services.wakes.wake(self)

    def _image_changed(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        self._unfinished = [one for one in self._unfinished if not self._is_finished(one)]
        if not self._unfinished:
            self._timer.cancel()
            self._finish()

    def _is_finished(self, one: _Unfinished) -> bool:
        partition, result = one.partition, one.result
        if partition.leader_error is not ErrorCode.NONE:
            result.error_code = int(partition.leader_error)
            result.low_watermark = NO_LOW_WATERMARK
            return True
        result.low_watermark = _low_watermark(partition, self._services.image)
        return result.low_watermark >= one.offset

    def _time_out(self, now_ms: int) -> None:
        for one in self._unfinished:
            one.result.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        for partition in self._watched:
            del partition.watchers[self]
        self._services.image_listeners.remove(self._image_changed)
        self._services.wakes.forget(self)
        self.deferred.complete(self._response)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DELETE_RECORDS, MIN_VERSION, MAX_VERSION, handle_delete_records)
