"""Work for threads in fair turns: so many jobs at a time, whoever wants them.

Of the jobs that wait each tenant has one done in turn, and within a tenant each peer. So one tenant
with very many, from however many addresses, holds up no other one by more than a job at a time.

Deliberately absent: threads, and what the work is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from data_plane.broker.request.api import Executor

T = TypeVar("T")

OnBegin = Callable[[], None]
OnDone = Callable[[Any, BaseException | None], None]
_Job = tuple[Callable[[], Any], OnBegin, OnDone]


def nothing_begins() -> None:
    """Nobody needs to know."""


class FairWork:
    """See the module."""

    def __init__(self, executor: Executor, at_once_max: int) -> None:
        self._executor = executor
        self._at_once_max = at_once_max
        # By tenant, then peer, each in the order of their turns.
        self._waiting: dict[str, dict[str, deque[_Job]]] = {}
        self._open_by_tenant: Counter[str] = Counter()
        self._open_count = 0
        self._running_count = 0

    def __len__(self) -> int:
        """Jobs that wait or run."""
        return self._open_count

    def count_of(self, tenant: str) -> int:
        """Those of one tenant."""
        return self._open_by_tenant[tenant]

    def submit(
        self,
        tenant: str,
        peer: str,
        work: Callable[[], T],
        on_done: Callable[[T | None, BaseException | None], None],
        on_begin: OnBegin = nothing_begins,
    ) -> None:
        """As `Executor.submit`; `work` changes nothing that anybody else could look at. `on_begin`
        is called on the loop when its turn has come."""
        jobs = self._waiting.setdefault(tenant, {}).setdefault(peer, deque())
        jobs.append((work, on_begin, on_done))
        self._open_by_tenant[tenant] += 1
        self._open_count += 1
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running_count < self._at_once_max:
            tenant, peers = next(iter(self._waiting.items()))
            del self._waiting[tenant]
            peer, jobs = next(iter(peers.items()))
            del peers[peer]
            work, on_begin, on_done = jobs.popleft()
            # Who has more waits for his next turn.
            if jobs:
                peers[peer] = jobs
            if peers:
                self._waiting[tenant] = peers
            self._running_count += 1
            on_begin()
            self._executor.submit(work, partial(self._done, tenant, on_done))

    def _done(self, tenant: str, on_done: OnDone, result: Any, error: BaseException | None) -> None:
        self._running_count -= 1
        self._open_count -= 1
        self._open_by_tenant[tenant] -= 1
        if not self._open_by_tenant[tenant]:
            del self._open_by_tenant[tenant]
        # The worker need not wait for what the loop makes of this.
        self._start_next()
        on_done(result, error)
