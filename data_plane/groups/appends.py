"""A tenant's writes on their way to one partition of `__consumer_offsets`, and who waits for them.

An append is asked for with an `AppendRecords` effect and reported back with `done`. In between it
has up to three interested parties:

- replies: requests that are answered when the outcome is known, with their response or an error;
- `on_outcome(error, now_ms)`: told once, at the latest after `offset_commit_timeout_ms`;
- `on_settled(error, now_ms)`: told when the log has really accepted or refused the records. What is
  folded from the log (offsets, deleted groups) changes here and nowhere else, so that memory
  always equals the log.

A late append therefore answers its clients with a retriable error, as Kafka does, but its records
still count if the log takes them in the end.

Invariants
- Every reply is sent exactly once: by the outcome, by the time-out, or by `abandon_oldest`.
- Once closed, nothing is asked for any more, and nothing settles.
- Appends that the log accepts settle in the order in which they were asked for; the shell promises
  it, `done` checks it. One that is refused (a full disk) is not in the log, and may be told before
  earlier ones that still wait for their replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from data_plane.groups.deadlines import Timer, TimerAction
from data_plane.groups.effects import AppendRecords, Effect, ReplyToken, Respond
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord

Outcome: TypeAlias = Callable[[ErrorCode, int], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """A request's answer if the append succeeds, and how to build it if it does not."""

    token: ReplyToken
    response: Any
    error_response: Callable[[ErrorCode], Any]


@dataclass(slots=True)
class _InFlight:
    replies: tuple[Reply, ...]
    on_outcome: Outcome | None
    on_settled: Outcome | None
    timer: Timer


def response_error_of_append(error: ErrorCode) -> ErrorCode:
    """What a client is told when an append failed: whether to retry here, or to look for the
    coordinator again."""
    match error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case (
            ErrorCode.MESSAGE_TOO_LARGE
            | ErrorCode.RECORD_LIST_TOO_LARGE
            | ErrorCode.INVALID_FETCH_SIZE
        ):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


class Appends:
    """The appends in flight of one partition, oldest first."""

    def __init__(
        self,
        tenant: str,
        partition: int,
        epoch: int,
        *,
        outbox: list[Effect],
        schedule: Callable[[Timer, int, TimerAction], None],
        ids: Iterator[int],
        timeout_ms: int,
    ) -> None:
        self._tenant = tenant
        self._partition = partition
        self._epoch = epoch
        self._outbox = outbox
        self._schedule = schedule
        self._ids = ids
        self._timeout_ms = timeout_ms
        self._in_flight: dict[int, _InFlight] = {}
        # Of what is only announced, the records come later.
        self._announced: dict[int, _InFlight] = {}
        self._is_closed = False
        self.newest_id: int | None = None

    def __len__(self) -> int:
        return len(self._in_flight)

    def append(
        self,
        records: list[NewRecord],
        now_ms: int,
        *,
        replies: Iterable[Reply] = (),
        on_outcome: Outcome | None = None,
        on_settled: Outcome | None = None,
    ) -> None:
        """Ask for `records` to be appended as one batch, all or nothing."""
        append_id = self.announce(
            now_ms, replies=replies, on_outcome=on_outcome, on_settled=on_settled
        )
        self.append_announced(append_id, records)

    def announce(
        self,
        now_ms: int,
        *,
        replies: Iterable[Reply] = (),
        on_outcome: Outcome | None = None,
        on_settled: Outcome | None = None,
    ) -> int:
        """Like `append`, for records that come later: who waits is told in time all the same."""
        append_id = next(self._ids)
        timer = Timer()
        self._announced[append_id] = _InFlight(tuple(replies), on_outcome, on_settled, timer)
        self._schedule(timer, now_ms + self._timeout_ms, partial(self._time_out, append_id))
        return append_id

    def append_announced(self, append_id: int, records: list[NewRecord]) -> None:
        assert records
        self._in_flight[append_id] = self._announced.pop(append_id)
        self.newest_id = append_id
        if not self._is_closed:
            self._outbox.append(
                AppendRecords(self._partition, self._epoch, records, append_id, self._tenant)
            )

    def refuse_announced(self, append_id: int, error: ErrorCode, now_ms: int) -> None:
        """What was announced is not to be written, because of `error`."""
        if not self._is_closed:
            self._settle(self._announced.pop(append_id), error, now_ms)

    def reply_with_newest(self, reply: Reply) -> None:
        """Send `reply`, too, when the append asked for last has its outcome."""
        assert self.newest_id is not None
        self._in_flight[self.newest_id].replies += (reply,)

    def done(self, append_id: int, error: ErrorCode, now_ms: int) -> None:
        """The append has been accepted (NONE) or refused for good."""
        if self._is_closed:
            return  # The partition has been unloaded since.
        is_next = append_id == next(iter(self._in_flight))
        assert is_next or error is not ErrorCode.NONE, "appends settle in their order"
        self._settle(self._in_flight.pop(append_id), error, now_ms)

    def _settle(self, in_flight: _InFlight, error: ErrorCode, now_ms: int) -> None:
        in_flight.timer.cancel()
        if in_flight.on_settled is not None:
            in_flight.on_settled(error, now_ms)
        self._tell_outcome(in_flight, error, now_ms)

    def close(self) -> None:
        """The partition is led here no more."""
        self._is_closed = True

    def abandon_oldest(self, now_ms: int) -> bool:
        """Forget an append, and send whoever waits for it to the next coordinator; False when there
        is none left."""
        table = self._in_flight or self._announced
        if not table:
            return False
        in_flight = table.pop(next(iter(table)))
        in_flight.timer.cancel()
        self._tell_outcome(in_flight, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
        return True

    def _time_out(self, append_id: int, now_ms: int) -> None:
        if self._is_closed:
            return
        in_flight = self._in_flight.get(append_id) or self._announced[append_id]
        self._tell_outcome(in_flight, ErrorCode.REQUEST_TIMED_OUT, now_ms)

    def _tell_outcome(self, in_flight: _InFlight, error: ErrorCode, now_ms: int) -> None:
        replies, in_flight.replies = in_flight.replies, ()
        on_outcome, in_flight.on_outcome = in_flight.on_outcome, None
        if on_outcome is not None:
            on_outcome(error, now_ms)
        for reply in replies:
            if error is ErrorCode.NONE:
                response = reply.response
            else:
                response = reply.error_response(response_error_of_append(error))
            self._outbox.append(Respond(reply.token, response))
