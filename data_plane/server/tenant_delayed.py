"""Messages of a partition that are hidden until they are due: listed, counted and cancelled on
behalf of a principal.

    list, count   the pending messages as they are now (pending_messages.py), read by a thread
    cancel        those that match ─► commands, produced as his Kafka client would ─► what is
                  refused, since it was delivered meanwhile, is left out, the others are sent again

Bounds: LISTED_MAX and PAGE_BYTES_MAX of a list, LOOKED_MAX messages that a call looks at, EDGES_MAX
of a count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import grpc

from data_plane.broker.pending_messages import (
    Page,
    PendingMessage,
    PendingView,
    Position,
    Wanted,
)
from data_plane.cell.acls import AclOperation
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.log.errors import LogError
from data_plane.server.cell_calls import BadRequest, Calls, Refused, within
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_records import (
    PEEK_BYTES_DEFAULT,
    PEEK_BYTES_MAX,
    PRODUCE_TIMEOUT_MS,
    Failed,
    Where,
    failed_at,
    read_where,
    write_record,
)
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import NewRecord
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import build_batch
from data_plane.wire.registry import ApiKey

LISTED_DEFAULT: Final = 100
LISTED_MAX: Final = 1_000
LOOKED_MAX: Final = 10_000
EDGES_MAX: Final = 1_001
# Commands of a batch: what it does is done on the loop, in one go.
CANCELS_MAX: Final = 1_000
# Of one batch, each of which finds that something was delivered meanwhile.
ATTEMPTS_MAX: Final = 20
CANCEL_OFFSET_HEADER: Final = b"tw-cancel-offset"

# The one that names topics, not ids.
_PRODUCE_VERSION: Final = 12
_ACKS_ALL: Final = -1
_NO_REASON: Final = "it was refused"

T = TypeVar("T")


class TenantDelayed:
    """ListDelayed, CountDelayed and CancelDelayed."""

    def __init__(self, kafka: KafkaCalls, calls: Calls) -> None:
        self._kafka = kafka
        self._calls = calls

    async def listed(self, request: messages.ListDelayedRequest) -> messages.ListDelayedResponse:
        """Raises BadRequest and Refused."""
        where, wanted = self._read(request.caller, request.selection)
        count = within("messages_max", request.messages_max, LISTED_DEFAULT, LISTED_MAX)
        size = within("bytes_max", request.bytes_max, PEEK_BYTES_DEFAULT, PEEK_BYTES_MAX)
        if request.value_bytes_max < 0:
            raise BadRequest("value_bytes_max: is less than 0")
        try:
            async with self._view(where, AclOperation.READ) as view:
                page = await _in_thread(lambda: view.page(wanted, count, size, LOOKED_MAX))
        except Failed as failed:
            return messages.ListDelayedResponse(failure=failed.failure)
        found = await asyncio.to_thread(_write_messages, page, size, request.value_bytes_max)
        return messages.ListDelayedResponse(messages=found, next=_write_position(page.next))

    async def count(self, request: messages.CountDelayedRequest) -> messages.CountDelayedResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)
        edges = list(request.edges_ms)
        if len(edges) > EDGES_MAX:
            raise BadRequest(f"edges_ms: {len(edges)} of them; give at most {EDGES_MAX}")
        if edges != sorted(edges):
            raise BadRequest("edges_ms: they are not in ascending order")
        try:
            async with self._view(where, AclOperation.READ) as view:
                found = await _in_thread(lambda: view.count(edges))
        except Failed as failed:
            return messages.CountDelayedResponse(failure=failed.failure)
        return messages.CountDelayedResponse(
            count=found.pending_count,
            counts=found.counts,
            uncertain=found.uncertain_count,
            first_ms=found.first_ms,
        )

    async def cancel(
        self, request: messages.CancelDelayedRequest
    ) -> messages.CancelDelayedResponse:
        """Raises BadRequest and Refused."""
        where, wanted = self._read(request.caller, request.selection)
        count = within("messages_max", request.messages_max, LOOKED_MAX, LOOKED_MAX)
        response = messages.CancelDelayedResponse()
        try:
            async with self._view(where, AclOperation.WRITE) as view:
                page = await _in_thread(lambda: view.positions(wanted, count))
            await self._cancel_all(where, page, response)
        except Failed as failed:
            response.failure.CopyFrom(failed.failure)
            if wanted.after is not None and not response.HasField("next"):
                response.next.CopyFrom(_position(wanted.after))
        return response

    async def _cancel_all(
        self, where: Where, page: Page, response: messages.CancelDelayedResponse
    ) -> None:
        """Raises Failed: then what the response does not name was not cancelled, and comes again
        when the page does."""
        # By their offsets, so that each of their batches is read once.
        offsets = sorted(one.position.offset for one in page.messages)
        for at in range(0, len(offsets), CANCELS_MAX):
            await self._cancel_some(where, offsets[at : at + CANCELS_MAX], response)
        if page.next is not None:
            response.next.CopyFrom(_position(page.next))

    async def _cancel_some(
        self, where: Where, left: list[int], response: messages.CancelDelayedResponse
    ) -> None:
        """Raises Failed."""
        for _ in range(ATTEMPTS_MAX):
            if not left:
                break
            refused = await self._send(where, left)
            if not refused:
                response.cancelled.extend(left)
                left = []
            for index, reason in refused.items():
                response.refused.add(offset=left[index], reason=reason)
            left = [offset for index, offset in enumerate(left) if index not in refused]
        for offset in left:
            response.refused.add(offset=offset, reason=_NO_REASON)

    async def _send(self, where: Where, offsets: list[int]) -> dict[int, str]:
        """Which of the commands were refused, by their place, and why; with some all are, and none
        otherwise. Raises Failed."""
        now_ms = self._kafka.wall_ms()
        batch = await asyncio.to_thread(_cancels, offsets, now_ms)
        data = PartitionProduceData(index=where.partition, records=batch)
        wanted = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[data])],
        )
        answer = await self._kafka.call(where.caller, ApiKey.PRODUCE, _PRODUCE_VERSION, wanted)
        ((result,),) = (topic.partition_responses for topic in answer.responses)
        refused: dict[int, str] = {
            one.batch_index: one.batch_index_error_message or _NO_REASON
            for one in result.record_errors
        }
        if result.error_code and not refused:
            raise failed_at(self._kafka, where, result.error_code, result.error_message)
        return refused

    def _read(
        self, caller: messages.Caller, selection: messages.DelayedSelection
    ) -> tuple[Where, Wanted]:
        """Raises BadRequest."""
        where = read_where(caller, selection.topic, selection.partition)
        pending = self._calls.services.pending_messages
        problem = None if pending is None else pending.filter_problem(selection.filter)
        if problem is not None:
            raise BadRequest(f"selection.filter: {problem}")
        has = selection.HasField
        after = selection.after
        return where, Wanted(
            selection.from_ms if has("from_ms") else None,
            selection.until_ms if has("until_ms") else None,
            selection.filter,
            Position(after.deliver_at_ms, after.offset) if has("after") else None,
        )

    @asynccontextmanager
    async def _view(self, where: Where, operation: AclOperation) -> AsyncIterator[PendingView]:
        """What is pending now. Raises Failed and Refused."""
        looking = asyncio.ensure_future(self._calls.ask(lambda: self._look(where, operation)))
        try:
            yield await asyncio.shield(looking)
        finally:
            # Also when the call has ended meanwhile.
            await asyncio.shield(self._close(looking))

    async def _close(self, looking: asyncio.Future[PendingView]) -> None:
        await asyncio.wait([looking])
        if looking.exception() is None:
            await self._calls.ask(looking.result().close)

    def _look(self, where: Where, operation: AclOperation) -> PendingView:
        """On the loop. Raises Failed and Refused."""
        services = self._calls.services
        pending = services.pending_messages
        if pending is None:
            words = "this broker knows no delayed messages"
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, words)
        if not self._kafka.may_to_topic(where.caller, operation, where.topic):
            raise Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        tenant = where.caller.tenant
        topic = services.image.topic(tenant, where.topic)
        if topic is not None and topic.is_virtual:
            words = f"{where.topic} is a subscription: ask for its source"
            raise Failed(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        partitions = services.partitions
        partition = partitions.get_by_name(tenant, where.topic, where.partition)
        if partition is None or partition.leader_error is not ErrorCode.NONE:
            code = partitions.error_by_name(tenant, where.topic, where.partition)
            # While a thread loads the log there is no error to tell.
            raise failed_at(self._kafka, where, code or ErrorCode.LEADER_NOT_AVAILABLE)
        return pending.look(partition)


async def _in_thread(read: Callable[[], T]) -> T:
    """Raises Failed for what the disk says."""
    try:
        return await asyncio.to_thread(read)
    except (LogError, OSError) as error:
        words = f"what is pending cannot be read now: {error}"
        raise Failed(ErrorCode.KAFKA_STORAGE_ERROR, words) from error


def _write_messages(
    page: Page, bytes_max: int, value_bytes_max: int
) -> list[messages.DelayedMessage]:
    """In a thread."""
    found = [_write_message(one, value_bytes_max) for one in page.messages]
    if len(found) == 1 and found[0].ByteSize() > bytes_max:
        # It comes alone, cut.
        record = found[0].record
        record.value = record.value[: bytes_max // 2]
        del record.headers[:]
        record.is_cut = True
        if found[0].ByteSize() > bytes_max:
            record.ClearField("key")
    return found


def _write_message(one: PendingMessage, value_bytes_max: int) -> messages.DelayedMessage:
    record = messages.Record(offset=one.position.offset, is_cut=True)
    if one.record is not None:
        record = write_record(one.record, value_bytes_max)
    return messages.DelayedMessage(deliver_at_ms=one.position.deliver_at_ms, record=record)


def _position(position: Position) -> messages.DelayedPosition:
    return messages.DelayedPosition(deliver_at_ms=position.deliver_at_ms, offset=position.offset)


def _write_position(position: Position | None) -> Any:
    return None if position is None else _position(position)


def _cancels(offsets: list[int], now_ms: int) -> bytes:
    """In a thread."""
    return bytes(
        build_batch(
            [
                NewRecord(now_ms, None, None, ((CANCEL_OFFSET_HEADER, b"%d" % offset),))
                for offset in offsets
            ]
        )
    )
