"""Calls of CellOperations while somebody waits for REST: to the right broker, in time, and with
refusals that REST knows.

    with cell_call(cell) as call:
        answer = call.at_owner(lambda operations, timeout_s: operations.DescribeGroup(...))

Which broker leads a partition or coordinates a group the brokers themselves know: all are asked in
turn until one does not answer that it is another one.

Bounds: CALLS_MAX at a time in a process, CALLS_PER_CELL_MAX of a cell, so that one that does not
answer leaves places to the others; TIMEOUT_S for all that one request of REST asks. Whoever asks
holds no connection of the database meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
from django.db import connection

from control_plane.cells.connections import CellError, cell_operations, endpoints_of
from control_plane.cells.models import Cell
from control_plane.places import Places
from control_plane.tenancy.errors import (
    CellDown,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Refused,
    TooMany,
)
from data_plane.contract.cell_operations_pb2 import Failure, ListDeletedTopicsRequest
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub

CALLS_MAX: Final = 6
CALLS_PER_CELL_MAX: Final = 3
WAIT_S: Final = 1.0
TIMEOUT_S: Final = 10.0
BROKER_TIMEOUT_S: Final = 4.0
"""For one broker, where another one may be asked instead."""
ROUNDS: Final = 6
PAUSE_S: Final = 0.25
"""Leaders move, and coordinators load: who was another one a moment ago may be the one now."""

# Kafka's error codes.
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER: Final = 6
REQUEST_TIMED_OUT: Final = 7
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
GROUP_ID_NOT_FOUND: Final = 69
ELSEWHERE: Final = frozenset({NOT_LEADER, 15, 16})
"""Not the leader, no coordinator yet, not the coordinator."""

_NOT_NOW: Final = frozenset({5, 9, 14, 19, 27, 78, *ELSEWHERE})
_NOT_ALLOWED: Final = frozenset({29, 30, 31, 44})
_NOT_FOUND: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, GROUP_ID_NOT_FOUND, 91})
_WRONG: Final = frozenset({OFFSET_OUT_OF_RANGE, 2, 10, 12, 17, 18, 24, 32, 42, 43, 87})
_UNKNOWN: Final = frozenset({-1, 56, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_THROTTLED: Final = 89
_NO_ANSWER: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# With these a broker has refused a call before it did anything.
_NOT_BEGUN: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class Answer(Protocol):
    """What the answers have in common."""

    @property
    def failure(self) -> Failure: ...

    def HasField(self, field_name: Any) -> bool: ...  # noqa: N802


AnswerT = TypeVar("AnswerT", bound=Answer)
Ask = Callable[[CellOperationsStub, float], AnswerT]

places = threading.BoundedSemaphore(CALLS_MAX)
places_of_cells = Places()


class CellCall:
    """What one request of REST asks of a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._deadline_s = time.monotonic() + TIMEOUT_S

    @property
    def left_s(self) -> float:
        return self._deadline_s - time.monotonic()

    def at_owner(self, ask: Ask[AnswerT], *, is_repeatable: bool = True) -> AnswerT:
        """The answer of the broker whose matter it is, failures included. What may not be repeated
        goes to a broker that has just answered something else, and to no other one after it may
        have done it. Raises Refused."""
        for left in reversed(range(ROUNDS)):
            answer = self._at_each(ask, is_repeatable=is_repeatable)
            if not _is_elsewhere(answer) or not left or self.left_s < PAUSE_S:
                break
            time.sleep(PAUSE_S)
        return answer

    def _at_each(self, ask: Ask[AnswerT], *, is_repeatable: bool) -> AnswerT:
        """The first answer of one whose matter it is, else the last one's."""
        answer: AnswerT | None = None
        why_not = "it has no address"
        for endpoint in endpoints_of(self._cell):
            try:
                with cell_operations(self._cell, endpoint) as operations:
                    if not is_repeatable:
                        probe = ListDeletedTopicsRequest(page_size=1)
                        operations.ListDeletedTopics(probe, timeout=self._time())
                    answer = self._asked(ask, operations, is_repeatable=is_repeatable)
            except CellError as error:
                if error.code not in _NO_ANSWER:
                    _refuse(error)
                why_not = error.detail
                continue
            if not _is_elsewhere(answer):
                return answer
        if answer is None:
            raise CellDown(f"The organization's cell does not answer: {why_not}")
        return answer

    def at_all(self, ask: Ask[AnswerT]) -> Iterator[AnswerT | None]:
        """The answers of all brokers; None for one that does not answer. Raises Refused."""
        for endpoint in endpoints_of(self._cell):
            try:
                with cell_operations(self._cell, endpoint) as operations:
                    yield ask(operations, self._time())
            except CellError as error:
                if error.code not in _NO_ANSWER:
                    _refuse(error)
                yield None

    def _asked(
        self, ask: Ask[AnswerT], operations: CellOperationsStub, *, is_repeatable: bool
    ) -> AnswerT:
        try:
            return ask(operations, self._time() if is_repeatable else self.left_s)
        except CellError as error:
            if is_repeatable or error.code in _NOT_BEGUN:
                raise
            words = "The cell did not say whether it has done it: it may have, or may yet."
            raise OutcomeUnknown(words) from error

    def _time(self) -> float:
        left_s = self.left_s
        if left_s <= 0:
            raise CellDown("The organization's cell does not answer in time.")
        return min(left_s, BROKER_TIMEOUT_S)


def _is_elsewhere(answer: Answer) -> bool:
    return answer.HasField("failure") and answer.failure.error_code in ELSEWHERE


@contextmanager
def cell_call(cell: Cell) -> Iterator[CellCall]:
    """Raises CellDown when this process asks too much at a time already."""
    if not connection.in_atomic_block:
        # Whoever waits for a cell needs no connection of the database meanwhile.
        connection.close()
    with places_of_cells.take(cell.id, CALLS_PER_CELL_MAX, WAIT_S) as has_place:
        # A place among all is taken by nobody who waits for one of his cell.
        if not has_place or not places.acquire(timeout=WAIT_S):
            raise CellDown("Too much is asked of cells just now.")
        try:
            yield CellCall(cell)
        finally:
            places.release()


def answer_of_owner(cell: Cell, ask: Ask[AnswerT], what: str) -> AnswerT:
    """What the broker answers whose matter it is. `what` is asked for, in words. Raises Refused,
    also for a failure in the answer."""
    with cell_call(cell) as call:
        answer = call.at_owner(ask)
    refuse_failure(answer, what)
    return answer


def refuse_failure(answer: Answer, what: str, *, field: str = "") -> None:
    """Raise what the failure of an answer means, if it has one. `what` was asked for, in words."""
    if answer.HasField("failure"):
        raise refusal_of(answer.failure, what, field=field)


def refusal_of(failure: Failure, what: str, *, field: str = "") -> Refused:
    """What a failure of Kafka's means."""
    code, words = failure.error_code, failure.message or f"Kafka's error {failure.error_code}"
    if code in _NOT_FOUND:
        return NotFound(f"The cell has no such {what}.", field=field)
    if code in _NOT_ALLOWED:
        return Forbidden(f"The service account may not do this: {words}")
    if code in _WRONG:
        return Invalid(f"The cell refuses it: {words}", field=field)
    if code in _UNKNOWN:
        return OutcomeUnknown(f"The cell did not do it in time, and may yet: {words}")
    if code in _NOT_NOW:
        return CellDown(f"Not just now: {words}")
    if code == _THROTTLED:
        return TooMany(f"A quota makes this wait: {words}", retry_after_s=1)
    return Conflict(f"The cell refuses it: {words}", field=field)


def _refuse(error: CellError) -> NoReturn:
    """What a status of gRPC means."""
    match error.code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            raise Invalid(f"The cell refuses it: {error.detail}") from error
        case grpc.StatusCode.NOT_FOUND:
            raise CellDown("The organization is not in its cell yet.") from error
        case grpc.StatusCode.FAILED_PRECONDITION:
            raise Forbidden(f"The cell refuses it: {error.detail}") from error
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise TooMany(f"The cell refuses it: {error.detail}", retry_after_s=1) from error
    raise CellDown(f"The organization's cell failed: {error.detail}") from error
