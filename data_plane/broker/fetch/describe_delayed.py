"""DescribeDelayed, version 0: what is hidden in one partition until it is due. An API of ours
(docs/delayed.md), for the SDK, which has nothing but bootstrap servers and credentials.

    edges_ms        how many are due between each two of them; how many in all is always said
    messages_max    a page of messages, by the time when they are due, of those that match
    is_to_cancel    only their offsets, of a page that is larger; what is to be cancelled is then
                    produced as commands, so WRITE is needed for it instead of READ

The leader answers, with what is pending on it now, committed or not. A worker thread reads.

Bounds: MESSAGES_MAX and BYTES_MAX of a page, LOOKED_MAX messages that a page looks at, EDGES_MAX.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from data_plane.broker.pending_messages import (
    PendingMessage,
    PendingMessages,
    PendingView,
    Position,
    Wanted,
)
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.log.errors import LogError
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_delayed_request import DescribeDelayedRequest
from data_plane.wire.messages.describe_delayed_response import (
    DelayedHeader,
    DelayedMessage,
    DescribeDelayedResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 0

MESSAGES_MAX: Final = 1_000
BYTES_MAX: Final = 1 << 20
LOOKED_MAX: Final = 10_000
EDGES_MAX: Final = 1_001
# In a request: nothing is said.
_NONE: Final = -1


class _Problem(NamedTuple):
    """Why there is nothing to tell."""

    error_code: ErrorCode
    words: str = ""

    def response(self) -> DescribeDelayedResponse:
        return DescribeDelayedResponse(
            error_code=int(self.error_code), error_message=self.words or self.error_code.message
        )


def handle_describe_delayed(
    services: Services, context: RequestContext, request: DescribeDelayedRequest, now_ms: int
) -> DescribeDelayedResponse | Deferred[DescribeDelayedResponse]:
    try:
        found = _partition(services, context, request)
        if isinstance(found, Partition) and not found.log.is_loaded:
            found.log.load()
    except LogError as error:
        found = _Problem(error.error_code, str(error))
    if not isinstance(found, Partition):
        return found.response()
    pending = services.pending_messages
    if pending is None:
        words = "this broker knows no delayed messages"
        return _Problem(ErrorCode.UNSUPPORTED_VERSION, words).response()
    words = _problem_of(request, pending)
    if words:
        return _Problem(ErrorCode.INVALID_REQUEST, words).response()
    return _read_later(services, context, request, pending.look(found))


def _partition(
    services: Services, context: RequestContext, request: DescribeDelayedRequest
) -> Partition | _Problem:
    """Raises LogError."""
    topic = context.topics.by_name(request.topic)
    if topic is None:
        return _Problem(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_virtual:
        words = f"{request.topic} is a subscription: ask for its source"
        return _Problem(ErrorCode.INVALID_TOPIC_EXCEPTION, words)
    partition = services.partitions.get(topic.id_bytes, request.partition)
    if partition is None or partition.leader_error is not ErrorCode.NONE:
        code = services.partitions.error_of_named(topic.id_bytes, request.partition)
        # While a thread loads the log there is no error to tell.
        return _Problem(code or ErrorCode.LEADER_NOT_AVAILABLE)
    return partition


def _problem_of(request: DescribeDelayedRequest, pending: PendingMessages) -> str:
    """What is wrong with it, naming the field; empty when nothing."""
    edges = request.edges_ms
    if len(edges) > EDGES_MAX:
        return f"edges_ms: {len(edges)} of them; give at most {EDGES_MAX}"
    if edges != sorted(edges):
        return "edges_ms: they are not in ascending order"
    largest = LOOKED_MAX if request.is_to_cancel else MESSAGES_MAX
    for name, value, limit in (
        ("messages_max", request.messages_max, largest),
        ("bytes_max", request.bytes_max, BYTES_MAX),
        ("value_bytes_max", request.value_bytes_max, BYTES_MAX),
    ):
        if not 0 <= value <= limit:
            return f"{name}: {value} is not from 0 to {limit}"
    problem = pending.filter_problem(request.filter) if request.filter else None
    return "" if problem is None else f"filter: {problem}"


def _read_later(
    services: Services, context: RequestContext, request: DescribeDelayedRequest, view: PendingView
) -> Deferred[DescribeDelayedResponse]:
    deferred: Deferred[DescribeDelayedResponse] = Deferred()

    def done(response: DescribeDelayedResponse | None, error: BaseException | None) -> None:
        view.close()
        if isinstance(error, LogError):
            response = _Problem(error.error_code, str(error)).response()
        elif response is None:
            words = f"what is pending cannot be read now: {error}"
            services.log.error("describe_delayed_failed", error=repr(error))
            response = _Problem(ErrorCode.KAFKA_STORAGE_ERROR, words).response()
        deferred.complete(response)

    services.fetches.cold_reads.submit(context, lambda: _read(request, view), done)
    return deferred


def _read(request: DescribeDelayedRequest, view: PendingView) -> DescribeDelayedResponse:
    """In a worker thread. Raises LogError and OSError."""
    counted = view.count(request.edges_ms)
    response = DescribeDelayedResponse(
        pending_count=counted.pending_count,
        uncertain_count=counted.uncertain_count,
        first_ms=_NONE if counted.first_ms is None else counted.first_ms,
        counts=counted.counts,
    )
    if not request.messages_max:
        return response
    wanted = _wanted(request)
    if request.is_to_cancel:
        page = view.positions(wanted, request.messages_max)
        response.offsets = [one.position.offset for one in page.messages]
    else:
        bytes_max = request.bytes_max or BYTES_MAX
        page = view.page(wanted, request.messages_max, bytes_max, LOOKED_MAX)
        response.messages = [_written(one, request, bytes_max) for one in page.messages]
    if page.next is not None:
        response.next_deliver_at_ms, response.next_offset = page.next
    return response


def _wanted(request: DescribeDelayedRequest) -> Wanted:
    after = None
    if request.after_deliver_at_ms != _NONE:
        after = Position(request.after_deliver_at_ms, request.after_offset)
    return Wanted(
        None if request.from_ms == _NONE else request.from_ms,
        None if request.until_ms == _NONE else request.until_ms,
        request.filter,
        after,
    )


def _written(
    one: PendingMessage, request: DescribeDelayedRequest, bytes_max: int
) -> DelayedMessage:
    """What is larger than a page comes without its headers, and cut."""
    message = DelayedMessage(
        deliver_at_ms=one.position.deliver_at_ms, offset=one.position.offset, timestamp_ms=_NONE
    )
    record = one.record
    if record is None:
        message.is_cut = True
        return message
    message.timestamp_ms = record.timestamp
    value_max = request.value_bytes_max or bytes_max
    value, key = record.value, record.key
    size = len(key or b"") + sum(len(name) + len(data or b"") for name, data in record.headers)
    if size + min(value_max, len(value or b"")) <= bytes_max:
        message.headers = [DelayedHeader(key=name, value=data) for name, data in record.headers]
    else:
        message.is_cut, value_max = True, min(value_max, bytes_max // 2)
        key = None if key is None else key[: bytes_max // 2]
    message.key = key
    if value is not None:
        message.value_bytes = len(value)
        message.is_cut = message.is_cut or value_max < len(value)
        message.value = value[:value_max]
    return message


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_DELAYED, MIN_VERSION, MAX_VERSION, handle_describe_delayed)
