"""One Fetch request from its first look at the partitions to its answer: here it waits.

    evaluate ─► enough, an error, or no time to wait ─────────────► answer
       ▲    └─► parked: it watches its partitions, and has a timer ─┘
       └──────── once at the end of each pass in which one changed

- The dirty partitions of the set (fetch_sessions.py) are looked at in their order; what is found is
  read by fetch_reads.py.
- At most LOOKED_AT_MAX partitions are looked at without a break. When more are dirty an incremental
  answer is about those at the front as soon as there is anything to say about one of them, and
  they go to the end of the order; otherwise the next ones are looked at after a pause.
- While a thread scans projected partitions for it the poll is not answered, whatever time it is.
- Records that are not in memory are read by a thread when the poll is to be answered, and complete
  the answer.

A parked poll is in `FetchSet.parked` and in `OpenFetches.parked`; the partitions of its set wake it
through `services.wakes`.

Deliberately absent: what is read (fetch_reads.py), sessions and their epochs (fetch_handler.py),
the answer's bytes (fetch_response.py).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from itertools import islice

from data_plane.broker.fetch.fetch_authorization import (
    look_again_if_rights_changed,
    withhold_unreadable,
)
from data_plane.broker.fetch.fetch_reads import LOOKED_AT_MAX, FetchReads
from data_plane.broker.fetch.fetch_response import encode_fetch_response, encode_full_response
from data_plane.broker.fetch.fetch_sessions import NO_SESSION_ID, FetchPartition, FetchSet
from data_plane.broker.request.api import Buffer, Deferred, RequestContext
from data_plane.broker.request.large_requests import pause
from data_plane.broker.request.timers import Timer
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.kernel_types import FetchRequestView
from data_plane.wire.registry import ApiKey

_NONE = int(ErrorCode.NONE)


class Poll(FetchReads):
    """See the module. It is its reads, for the sake of one object less a request."""

    __slots__ = (
        "_deferred",
        "_is_full",
        "_is_late",
        "_is_pausing",
        "_is_session_opening",
        "_left_count",
        "_timer",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        view: FetchRequestView,
        fetch_set: FetchSet,
        is_full: bool,
        now_ms: int,
    ) -> None:
        # By name: `super()` costs 0.7 % of a small fetch.
        FetchReads.__init__(self, services, context, view, fetch_set, now_ms)
        self._is_full = is_full
        self._is_session_opening = is_full and fetch_set.session_id != NO_SESSION_ID
        # Of very many dirty partitions: those not looked at yet, and whether that goes on soon.
        self._left_count = 0
        self._is_pausing = False
        # The time to wait is over; a thread that scans is waited for all the same.
        self._is_late = False
        self._timer: Timer | None = None
        self._deferred: Deferred[list[Buffer]] | None = None

    def begin(self, max_wait_ms: int, now_ms: int) -> list[Buffer] | Deferred[list[Buffer]]:
        """The answer, now or after at most `max_wait_ms`."""
        is_ready = self.evaluate()
        if self._scans is not None and self._scans.is_scanning:
            return self._park(now_ms + max(0, max_wait_ms))
        if is_ready or max_wait_ms <= 0 or not self._fetch_set.partitions_count:
            return self._answer()
        return self._park(now_ms + max_wait_ms)

    def evaluate(self) -> bool:
        """Collect what can be sent now. True when the answer should not wait any longer."""
        self.start_over()
        if not self._context.names.rights.is_open:
            look_again_if_rights_changed(self._context, self._fetch_set)
        dirty = self._fetch_set.dirty
        if len(dirty) > LOOKED_AT_MAX and not self._is_full:
            is_ready = self._look_at_some()
        else:
            self.look_at(list(dirty))
            is_ready = self.must_answer or self._available >= self._bytes_min
        return is_ready if self._scans is None else self._is_ready_after_turn(is_ready)

    def _is_ready_after_turn(self, is_ready: bool) -> bool:
        """The same for projected partitions: what is to be scanned by a thread is waited for."""
        if self.is_scanning:
            return False
        if self.wants_turn(is_late=self._is_late):
            self.begin_turn(self.wake)
            return False
        return is_ready or self._is_late

    def _look_at_some(self) -> bool:
        """An incremental poll's share of very many dirty partitions."""
        dirty = self._fetch_set.dirty
        if self._left_count <= 0:
            self._left_count = len(dirty)
        self._left_count -= LOOKED_AT_MAX
        targets = list(islice(dirty, LOOKED_AT_MAX))
        self.look_at(targets)
        if self.results:
            return True
        self._to_the_end(targets)
        if self._left_count > 0 and not self._is_pausing:
            self._is_pausing = True
            pause(self._services, self._context, self._go_on)
        return self.is_enough

    def _go_on(self, _: object, error: BaseException | None) -> None:
        self._is_pausing = False
        if self._fetch_set.parked is self:
            self.wake()

    def _to_the_end(self, targets: Iterable[FetchPartition]) -> None:
        """Of the session's order: the others are served first next time."""
        dirty = self._fetch_set.dirty
        for target in targets:
            if target in dirty:
                del dirty[target]
                dirty[target] = None

    # Parked

    def _park(self, deadline_ms: int) -> Deferred[list[Buffer]]:
        """Wait for changes until the deadline."""
        self._deferred = Deferred()
        self.is_waiting = True
        self.results = []
        fetch_set = self._fetch_set
        if not fetch_set.is_kept:
            for target in fetch_set.partitions():
                if target.partition is not None:
                    target.watch(target.partition)
        fetch_set.parked = self
        self._fetches.parked[self] = None
        self._timer = self._services.timers.schedule(deadline_ms, self._timed_out)
        self._context.connection.on_close[self._abandon] = None
        return self._deferred

    def wake(self) -> None:
        """Something has changed, or was scanned: look once more at the end of the pass."""
        self._services.wakes.wake(self)

    def run(self, now_ms: int) -> None:
        """Called once per pass in which something changed."""
        if self._fetch_set.parked is not self:
            return
        self.now_ms = now_ms
        try:
            if self.evaluate():
                self._finish_parked()
        except Exception as error:
            # This runs at the end of somebody else's pass, whom a bug here must not hurt.
            self._fail(error)

    def finish_early(self) -> None:
        """Answer with what there is: the session's next request has come, or the broker stops."""
        self._is_late = True
        try:
            self.evaluate()
            self._finish_parked()
        except Exception as error:
            # As above: neither that request nor the stop must suffer.
            self._fail(error)

    def _timed_out(self, now_ms: int) -> None:
        if self.is_scanning:
            # It wakes this.
            self._is_late = True
        else:
            self.finish_early()

    def _finish_parked(self) -> None:
        deferred = self._deferred
        assert deferred is not None
        self._unpark()
        answer = self._answer()
        if isinstance(answer, Deferred):
            answer.when_complete(deferred.complete)
        else:
            deferred.complete(answer)

    def _unpark(self) -> None:
        if self._fetch_set.parked is self:
            self._fetch_set.parked = None
        self._fetches.parked.pop(self, None)
        self._services.wakes.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        self._context.connection.on_close.pop(self._abandon, None)

    def _abandon(self) -> None:
        """The client is gone: forget the poll. Its session stays for a reconnect."""
        self._unpark()
        self.drop_scans()
        if not self._fetch_set.is_kept:
            self._fetches.closing.close(self._fetch_set)

    def _fail(self, error: Exception) -> None:
        self._services.log.error(
            "request_failed",
            api_key=int(ApiKey.FETCH),
            peer=self._context.connection.peer,
            error=repr(error),
            traceback="".join(traceback.format_exception(error)),
        )
        self._abandon()
        self._context.connection.close(f"request failed: {error!r}")

    # Answered

    def _answer(self) -> list[Buffer] | Deferred[list[Buffer]]:
        """The frame of the last evaluation, or a Deferred of it when records are cold."""
        if self._scans is not None:
            self.close_scans()
        if not self.cold:
            return self._encode()
        deferred: Deferred[list[Buffer]] = Deferred()
        # What is asked meanwhile is asked of another set, or this answer would be about that.
        self._fetch_set.is_being_read = True

        def done(outcomes: list[object] | None, error: BaseException | None) -> None:
            self._fetch_set.is_being_read = False
            try:
                for number, read in enumerate(cold):
                    self.take_cold(read, error if outcomes is None else outcomes[number])
                withhold_unreadable(self._context, self._fetch_set, self.results)
                frame = self._encode()
            except Exception as failure:
                self._fail(failure)
                return
            deferred.complete(frame)

        cold = self.run_cold(done)
        return deferred

    def _encode(self) -> list[Buffer]:
        if self._services.quotas.is_active:
            throttle_ms = self.throttle_ms()
            if throttle_ms > 0:
                is_opening = self._is_session_opening
                return self.throttled_answer(throttle_ms, is_session_opening=is_opening)
        fetch_set = self._fetch_set
        if self._untold and not self._is_full:
            self.add_untold()
        results, self.results = self.results, []
        if results:
            self.note_sent(results)
        if self._is_full:
            frame = encode_full_response(
                self._services,
                self._context,
                fetch_set,
                {result.target: result for result in results},
                self.rights.is_read_committed,
                is_opening=self._is_session_opening,
            )
        else:
            frame = encode_fetch_response(
                self._services, self._context, results, _NONE, fetch_set.session_id
            )
        if not fetch_set.is_kept:
            self._fetches.closing.close(fetch_set)
        return frame
