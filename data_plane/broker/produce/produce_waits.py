"""The answer to a Produce whose records are appended, and not all as safe yet as it asked.

- acks=1: it leaves when this leader has the records, synced where the topic asks for that.
- acks=all: when they are committed: every in-sync replica has them, and these are enough. A
  partition whose ISR falls below the effective min ISR meanwhile waits: nothing is committed then
  (KIP-966), so NOT_ENOUGH_REPLICAS_AFTER_APPEND, Kafka's word for committed by too few, has no
  case left.
- A duplicate of an idempotent producer waits like its original, which may not be committed yet.
- A verdict, by which commands are refused, goes by what this leader has in its log: it is told
  when all of that is committed, and this broker is shown to lead still (read_index.py), whatever
  acks say. Else a client would hear of what is cut off later, or what a new leader knows better.
- What is not there at the request's timeout is a REQUEST_TIMED_OUT; what a leader that is replaced
  still owes a NOT_LEADER_OR_FOLLOWER, with the new leader where the version has room (KIP-951).

Invariants
- Each partition has an error of its own, and the answer leaves when the last one is settled.
- The answer is made once, and never after the connection has closed.
- Nothing is left behind: not a waiter with a partition, nor a timer, nor what the connection calls
  when it closes.

Deliberately absent: appending, and what is refused before it (produce_handler.py).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from data_plane.broker.produce.produce_response import (
    Answers,
    PartitionAnswer,
    encode_produce_response,
)
from data_plane.broker.request.api import Buffer, Deferred, RequestContext
from data_plane.broker.request.throttling import count_appended
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.replica.partition import Partition
from data_plane.replica.waiters import Waiter
from data_plane.wire.errors import ErrorCode

if TYPE_CHECKING:
    from data_plane.broker.produce.judging import Judgement


# With the last offset that it waits for. An answer that is an error already is a verdict.
Waiting = tuple[Partition, PartitionAnswer, int]


def verdict_waits(
    judgement: Judgement | None, partition: Partition, answer: PartitionAnswer
) -> list[Waiting]:
    """What a refusal that is filled in waits for; nothing if it is nobody's verdict."""
    if judgement is None:
        return []
    return [(partition, answer, partition.log.log_end_offset - 1)]


class WaitingProduce:
    """Waits as soon as it is made; `deferred` becomes the answer."""

    __slots__ = (
        "_answers",
        "_context",
        "_open",
        "_request_bytes",
        "_services",
        "_timer",
        "_waiters",
        "deferred",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        answers: Answers,
        waiting: list[Waiting],
        deadline_ms: int,
        request_bytes: int,
        needs_all: bool,
    ) -> None:
        self._services = services
        self._context = context
        self._answers = answers
        self._request_bytes = request_bytes
        if services.quotas.is_active:
            self._request_bytes = count_appended(services, context, request_bytes)
        self._open: dict[int, PartitionAnswer] = {}
        self._timer: Timer | None = None
        self._waiters: list[Waiter] = []
        self.deferred: Deferred[list[Buffer]] = Deferred()
        for number, (_, answer, _) in enumerate(waiting):
            self._open[number] = answer
        for number, (partition, answer, offset) in enumerate(waiting):
            done = functools.partial(self._done, number)
            is_verdict = answer.error_code != ErrorCode.NONE
            if is_verdict:
                done = functools.partial(self._known, number, partition, deadline_ms)
            if needs_all or is_verdict:
                waiter = partition.when_committed(offset, done)
            else:
                waiter = partition.when_appended(offset, done)
            if waiter is not None:
                self._waiters.append(waiter)
        if self._open:
            self._timer = services.timers.schedule(deadline_ms, self._timed_out)
            # The client chooses the deadline, and may be gone long before.
            context.connection.on_close[self._abandon] = None

    def _known(self, number: int, partition: Partition, deadline_ms: int, error: ErrorCode) -> None:
        """What a verdict goes by is committed, or will not be here."""
        index = self._services.read_index
        if error is not ErrorCode.NONE or index is None:
            self._done(number, error)
        elif number in self._open:
            index.confirm(partition, deadline_ms, functools.partial(self._confirmed, number))

    def _confirmed(self, number: int, leads: bool) -> None:
        self._done(number, ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _done(self, number: int, error: ErrorCode) -> None:
        answer = self._open.pop(number, None)
        if answer is None:
            return
        if error is not ErrorCode.NONE:
            self._fail(answer, error)
        if not self._open:
            if self._timer is not None:
                self._timer.cancel()
            self._finish()

    @staticmethod
    def _fail(answer: PartitionAnswer, error: ErrorCode) -> None:
        """The offsets stay, as in Kafka: that is where the records are, if they are anywhere. Of a
        verdict nothing does."""
        answer.error_code = int(error)
        answer.error_message, answer.record_errors = None, ()

    def _timed_out(self, now_ms: int) -> None:
        for answer in self._open.values():
            self._fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._stop_waiting()
        self._finish()

    def _abandon(self) -> None:
        """The connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._open.clear()
        for waiter in self._waiters:
            waiter.cancel()

    def _finish(self) -> None:
        self._context.connection.on_close.pop(self._abandon, None)
        self.deferred.complete(
            encode_produce_response(
                self._services, self._context, self._answers, self._request_bytes
            )
        )
