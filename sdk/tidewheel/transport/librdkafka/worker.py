"""The one thread in which a librdkafka consumer lives.

confluent-kafka lets one thread at a time into a consumer, so everything a consumer does runs here
as jobs, one after the other. While librdkafka calls back about a rebalance, inside a job, the
thread waits for the application's coroutine on the event loop and goes on serving jobs meanwhile:
so the coroutine can commit or seek, and the same thread may re-enter the consumer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs jobs in order on a thread of its own; results come back on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Queue a job; cancelling the future does not stop it."""
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def job() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = call(*args)
            except BaseException as raised:
                error = raised
            try:
                self._loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return  # The loop is gone, and with it everybody who could want the result.

        self._jobs.put(job)
        return future

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T | None:
        """From within a job: run a coroutine on the loop and serve jobs until it is done.

        Returns None when the loop is gone: the application ended without closing its client.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            return None
        answered = threading.Event()

        def wake(_: object) -> None:
            answered.set()
            self._jobs.put(None)

        future.add_done_callback(wake)
        while not answered.is_set():
            job = self._jobs.get()
            if job is not None:
                job()
        return future.result()

    def stop(self) -> None:
        """End the thread after the jobs that wait already."""
        self._stopped = True
        self._jobs.put(None)

    def _serve(self) -> None:
        while not (self._stopped and self._jobs.empty()):
            job = self._jobs.get()
            if job is not None:  # None only wakes `ask`, perhaps after it has seen its answer.
                job()
