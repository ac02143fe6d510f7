"""Work of requests that is too long for the loop: unpacking, walking, decoding, encoding, reading.

It runs in worker threads, in fair turns (fair_work.py), and what it finds comes back to the loop.
Few jobs run at a time, so that the disks have workers left and the memory of what is unpacked is
bounded. A connection has one request there at a time (`ConnectionInfo.keep`), so the queue is no
longer than there are connections, and what waits in it is counted with their half frames.

While a quota manager is active the processor's time that a job takes counts for who has asked, as
the loop's does; what it waits for a disk or for other threads does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from data_plane.broker.request.api import Executor, RequestContext
from data_plane.broker.request.fair_work import FairWork, OnBegin, OnDone, nothing_begins
from data_plane.broker.request.quotas import QuotaManager

T = TypeVar("T")

WORK_AT_ONCE_MAX = 2
"""Each may unpack a batch of 128 MiB."""


class RequestWork:
    """See the module."""

    def __init__(
        self,
        executor: Executor,
        quotas: Callable[[], QuotaManager],
        at_once_max: int = WORK_AT_ONCE_MAX,
    ) -> None:
        self._work = FairWork(executor, at_once_max)
        self._quotas = quotas

    def __len__(self) -> int:
        """Jobs that wait or run."""
        return len(self._work)

    def count_of(self, tenant: str) -> int:
        """Those of one tenant."""
        return self._work.count_of(tenant)

    def submit(
        self,
        context: RequestContext,
        work: Callable[[], T],
        on_done: Callable[[T | None, BaseException | None], None],
        on_begin: OnBegin = nothing_begins,
    ) -> None:
        """As `FairWork.submit`, for a request."""
        connection = context.connection
        job: Callable[[], Any] = work
        done: OnDone = on_done
        if self._quotas().is_active and not (context.is_stranger or connection.is_inter_broker):
            job, done = self._measured(context, work, on_done)
        self._work.submit(connection.namespace, connection.host, job, done, on_begin)

    def _measured(
        self, context: RequestContext, work: Callable[[], Any], on_done: OnDone
    ) -> tuple[Callable[[], Any], OnDone]:
        quotas = self._quotas()
        spent_ns = 0

        def measured() -> Any:
            nonlocal spent_ns
            begun_ns = quotas.thread_clock_ns()
            try:
                return work()
            finally:
                spent_ns = quotas.thread_clock_ns() - begun_ns

        def done(result: Any, error: BaseException | None) -> None:
            quotas.record_handler_time(context, spent_ns)
            on_done(result, error)

        return measured, done
