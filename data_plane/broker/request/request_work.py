"""Pure work of requests that is too long for the loop: unpacking, walking, decoding, encoding.

It runs in worker threads, and what it finds comes back to the loop. At most WORK_AT_ONCE_MAX jobs
run at a time, whoever wants them, so that the disks have workers left and the memory of what is
unpacked is bounded; of the others that wait each peer has one done in turn. A connection has one
request there at a time (`ConnectionInfo.keep`), so the queue is no longer than there are
connections, and what waits in it is counted with their half frames.

Deliberately absent: threads, and what the work is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from data_plane.broker.request.api import Executor

T = TypeVar("T")

WORK_AT_ONCE_MAX = 2
"""Each may unpack a batch of 128 MiB."""

OnDone = Callable[[Any, BaseException | None], None]


class RequestWork:
    """See the module."""

    def __init__(self, executor: Executor, at_once_max: int = WORK_AT_ONCE_MAX) -> None:
        self._executor = executor
        self._at_once_max = at_once_max
        # By peer, in the order of their turns.
        self._waiting: dict[str, deque[tuple[Callable[[], Any], OnDone]]] = {}
        self._waiting_count = 0
        self._running_count = 0

    def __len__(self) -> int:
        """Jobs that wait or run."""
        return self._waiting_count + self._running_count

    def submit(
        self,
        peer: str,
        work: Callable[[], T],
        on_done: Callable[[T | None, BaseException | None], None],
    ) -> None:
        """As `Executor.submit`; `work` changes nothing that anybody else could look at."""
        self._waiting.setdefault(peer, deque()).append((work, on_done))
        self._waiting_count += 1
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running_count < self._at_once_max:
            peer = next(iter(self._waiting))
            jobs = self._waiting.pop(peer)
            work, on_done = jobs.popleft()
            if jobs:
                self._waiting[peer] = jobs
            self._waiting_count -= 1
            self._running_count += 1
            self._executor.submit(work, partial(self._done, on_done))

    def _done(self, on_done: OnDone, result: Any, error: BaseException | None) -> None:
        self._running_count -= 1
        # The worker need not wait for what the loop makes of this.
        self._start_next()
        on_done(result, error)
