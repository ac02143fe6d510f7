"""The Executor port in virtual time: work happens at one moment, its outcome comes back later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.simulation.node import Node

T = TypeVar("T")


class SimExecutor:
    """The Executor port: work happens at one moment, its outcome comes back at a later one. A
    serial one has a single thread, which a work that blocks keeps to itself."""

    def __init__(
        self,
        node: Node,
        *,
        is_serial: bool = False,
        is_of_disk: bool = False,
        work_ms_mean: int = 0,
    ) -> None:
        self._node = node
        self._random = node.random
        self._is_serial = is_serial
        self._is_of_disk = is_of_disk
        # How long work takes beside the usual moment: half of it before and half after.
        self._work_ms_mean = work_ms_mean
        self._queue: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self.open_count = 0

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self.open_count += 1
        if self._is_serial:
            self._queue.append((work, on_done))
            if len(self._queue) == 1:
                self._begin(work, on_done)
        else:
            self._begin(work, on_done)

    def _begin(self, work: Callable[[], Any], on_done: Callable[..., None]) -> None:
        self._node.at_thread(self._delay_us(), self._work, work, on_done)

    def _delay_us(self) -> int:
        usual_us = 20 + int(self._random.expovariate(1 / 200.0))
        if self._work_ms_mean:
            usual_us += int(self._random.expovariate(2 / (1000.0 * self._work_ms_mean)))
        if not self._is_of_disk:
            return usual_us
        return usual_us + self._node.cell.slow_disks.delay_us(self._node.node_id)

    def _work(self, work: Callable[[], Any], on_done: Callable[..., None]) -> None:
        result: Any = None
        error: BaseException | None = None
        job = getattr(work, "__self__", None)
        if job is not None:
            self._node.world.count(f"job {type(job).__name__}")
        try:
            result = work()
        except Exception as failure:
            error = failure
        delay_us = self._delay_us() + self._node.stall_us
        self._node.stall_us = 0
        self._node.at(delay_us, self._done, on_done, result, error)

    def _done(self, on_done: Callable[..., None], result: Any, error: BaseException | None) -> None:
        self.open_count -= 1
        if self._is_serial:
            self._queue.popleft()
            if self._queue:
                self._begin(*self._queue[0])
        on_done(result, error)
