"""An executor for work that takes seconds: so much of it runs at once, the rest waits its turn.

Syncs and reads need workers, too, and after a change of leaders there may be thousands of logs to
load or to cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from data_plane.broker.request.api import Executor

AT_ONCE_MAX = 2

T = TypeVar("T")
Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class FewAtOnce:
    """The Executor port on top of another one; for long work, in the order in which it comes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._queue: deque[Work] = deque()
        self._running_count = 0

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See Executor."""
        self._queue.append((work, on_done))
        self._begin_next()

    def _begin_next(self) -> None:
        while self._queue and self._running_count < AT_ONCE_MAX:
            work, on_done = self._queue.popleft()
            self._running_count += 1
            self._executor.submit(work, partial(self._ended, on_done))

    def _ended(
        self,
        on_done: Callable[[Any, BaseException | None], None],
        result: object,
        error: BaseException | None,
    ) -> None:
        self._running_count -= 1
        self._begin_next()
        on_done(result, error)
