"""Dead letters of a partition, put back or purged on behalf of a principal.

    begin, change   what he may do is looked at, and the partition's leader writes it down
    list            what is under way, and which letters were redriven or purged

What is begun goes on without him: his rights are those of the moment in which he asks.

Bounds: MARKS_MAX offsets of a list, RATE_MAX letters a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import grpc

from data_plane.broker.dead_letter_operations import (
    DeadLetterOperations,
    NotPossible,
    Selection,
    View,
    Wanted,
    Wish,
)
from data_plane.cell.acls import AclOperation
from data_plane.contract import cell_operations_pb2 as messages
from data_plane.replica.partition import Partition
from data_plane.server.cell_calls import BadRequest, Calls, Done, Refused, within
from data_plane.server.kafka_calls import KafkaCalls
from data_plane.server.tenant_records import Failed, Where, failed_at, read_where
from data_plane.wire.errors import ErrorCode

MARKS_MAX: Final = 100_000
RATE_MAX: Final = 1_000_000
ID_CHARACTERS_MAX: Final = 64

_WISHES: Final = {
    messages.ChangeRedriveRequest.PAUSE: Wish.PAUSE,
    messages.ChangeRedriveRequest.RESUME: Wish.RUN,
    messages.ChangeRedriveRequest.CANCEL: Wish.CANCEL,
}


class _Place(NamedTuple):
    """A partition that is led here, and who knows its dead letters."""

    operations: DeadLetterOperations
    partition: Partition


class TenantRedrives:
    """BeginRedrive, ChangeRedrive, ListRedrives and ListRedriven."""

    def __init__(self, kafka: KafkaCalls, calls: Calls) -> None:
        self._kafka = kafka
        self._calls = calls

    async def begin(self, request: messages.BeginRedriveRequest) -> messages.RedriveResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)
        selection = self._selection(request.selection)
        if request.is_purge and request.target_topic:
            raise BadRequest("target_topic: what is purged goes nowhere")
        wanted = Wanted(
            _operation_id(request.id),
            request.is_purge,
            selection,
            request.target_topic,
            within("rate_max", request.rate_max, 0, RATE_MAX),
            str(where.caller.principal),
        )

        def start(done: Done[View]) -> None:
            place = self._place(where)
            self._check(where, place, is_purge=wanted.is_purge, target=wanted.target)
            place.operations.begin(place.partition, wanted, self._calls.now_ms(), done)

        return await self._answer(where, start)

    async def change(self, request: messages.ChangeRedriveRequest) -> messages.RedriveResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)
        wish = _WISHES.get(request.wish)
        if wish is None:
            raise BadRequest(f"wish: {request.wish}; give PAUSE, RESUME or CANCEL")
        operation_id = _operation_id(request.id)

        def start(done: Done[View]) -> None:
            place = self._place(where)
            known = {one.wanted.id: one.wanted for one in place.operations.listed(place.partition)}
            wanted = known.get(operation_id)
            if wanted is not None:
                self._check(where, place, is_purge=wanted.is_purge, target=wanted.target)
            now_ms = self._calls.now_ms()
            place.operations.change(place.partition, operation_id, wish, now_ms, done)

        return await self._answer(where, start)

    async def listed(self, request: messages.ListRedrivesRequest) -> messages.ListRedrivesResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)

        def look() -> list[View]:
            place = self._place(where)
            return place.operations.listed(place.partition)

        try:
            views = await self._ask(where, look)
        except Failed as failed:
            return messages.ListRedrivesResponse(failure=failed.failure)
        return messages.ListRedrivesResponse(redrives=map(_write_view, views))

    async def redriven(
        self, request: messages.ListRedrivenRequest
    ) -> messages.ListRedrivenResponse:
        """Raises BadRequest and Refused."""
        where = read_where(request.caller, request.topic, request.partition)
        start = request.from_offset
        if not 0 <= start <= request.until_offset:
            raise BadRequest("from_offset, until_offset: 0 or more, and in this order")
        end = min(request.until_offset, start + MARKS_MAX)

        def look() -> tuple[list[int], list[int]]:
            place = self._place(where)
            return place.operations.marked(place.partition, start, end)

        try:
            redriven, purged = await self._ask(where, look)
        except Failed as failed:
            return messages.ListRedrivenResponse(failure=failed.failure)
        return messages.ListRedrivenResponse(redriven=redriven, purged=purged, until_offset=end)

    # Asking the broker

    async def _answer(
        self, where: Where, start: Callable[[Done[View]], None]
    ) -> messages.RedriveResponse:
        try:
            view = await self._calls.begin(start)
        except NotPossible as error:
            failed = failed_at(self._kafka, where, error.error_code, str(error))
            return messages.RedriveResponse(failure=failed.failure)
        except Failed as failed:
            return messages.RedriveResponse(failure=failed.failure)
        return messages.RedriveResponse(redrive=_write_view(view))

    async def _ask(self, where: Where, look: Callable[[], Any]) -> Any:
        """Raises Failed and Refused."""
        try:
            return await self._calls.ask(look)
        except NotPossible as error:
            raise failed_at(self._kafka, where, error.error_code, str(error)) from error

    def _operations(self) -> DeadLetterOperations:
        operations = self._calls.services.dead_letter_operations
        if operations is None:
            words = "this broker knows no dead letters"
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, words)
        return operations

    def _place(self, where: Where) -> _Place:
        """On the loop. Raises Failed and Refused."""
        operations = self._operations()
        self._need(where, AclOperation.READ, [where.topic])
        services = self._calls.services
        tenant = where.caller.tenant
        topic = services.image.topic(tenant, where.topic)
        if topic is not None and topic.is_virtual:
            words = f"{where.topic} is a subscription: name the topic of its dead letters"
            raise Failed(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
        partitions = services.partitions
        partition = partitions.get_by_name(tenant, where.topic, where.partition)
        if partition is None or partition.leader_error is not ErrorCode.NONE:
            code = partitions.error_by_name(tenant, where.topic, where.partition)
            # While a thread loads the log there is no error to tell.
            raise failed_at(self._kafka, where, code or ErrorCode.LEADER_NOT_AVAILABLE)
        return _Place(operations, partition)

    def _check(self, where: Where, place: _Place, *, is_purge: bool, target: str) -> None:
        """Raises Failed unless he may."""
        if is_purge:
            self._need(where, AclOperation.DELETE, [where.topic])
        elif target:
            self._need(where, AclOperation.WRITE, [target])
        else:
            self._need(where, AclOperation.READ, place.operations.origins(place.partition))

    def _need(self, where: Where, operation: AclOperation, topics: Iterable[str]) -> None:
        for topic in topics:
            if not self._kafka.may_to_topic(where.caller, operation, topic):
                words = f"{where.caller.principal} has no {operation.name} on topic {topic}"
                raise Failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, words)

    def _selection(self, said: messages.DeadLetterSelection) -> Selection:
        """Raises BadRequest and Refused."""
        has = said.HasField
        selection = Selection(
            said.filter,
            said.from_ms if has("from_ms") else None,
            said.until_ms if has("until_ms") else None,
            said.from_offset if has("from_offset") else None,
            said.until_offset if has("until_offset") else None,
            tuple(said.offsets),
            tuple(said.ids),
            said.reason,
            said.exception,
            said.all,
            said.again,
        )
        problem = self._operations().problem(selection)
        if problem is not None:
            raise BadRequest(f"selection: {problem}")
        return selection


def _operation_id(said: str) -> str:
    """Raises BadRequest."""
    if not 1 <= len(said) <= ID_CHARACTERS_MAX or not said.isprintable():
        raise BadRequest(f"id: it has 1 to {ID_CHARACTERS_MAX} printable characters")
    return said


def _write_view(view: View) -> messages.Redrive:
    wanted, selection = view.wanted, view.wanted.selection
    return messages.Redrive(
        id=wanted.id,
        is_purge=wanted.is_purge,
        selection=messages.DeadLetterSelection(
            filter=selection.filter,
            from_ms=selection.from_ms,
            until_ms=selection.until_ms,
            from_offset=selection.from_offset,
            until_offset=selection.until_offset,
            offsets=selection.offsets,
            ids=selection.ids,
            reason=selection.reason,
            exception=selection.exception,
            all=selection.is_all,
            again=selection.again,
        ),
        target_topic=wanted.target,
        rate_max=wanted.rate_max,
        principal=wanted.principal,
        status=view.status.value,
        first_offset=view.first_offset,
        next_offset=view.next_offset,
        end_offset=view.end_offset,
        **view.counts._asdict(),
        begun_ms=view.begun_ms,
        ended_ms=view.ended_ms,
        held=view.held,
    )
