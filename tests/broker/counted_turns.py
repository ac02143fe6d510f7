"""Turns of a broker's loop, one by one, and how many functions are called in each.

What is counted does not depend on the machine, nor on what else it does."""

from __future__ import annotations

import sys
from functools import partial
from types import FrameType
from typing import Any

from tests.broker.broker_player import BrokerPlayer, Pending


class CountedTurns:
    """Takes them; `calls_counts` has one entry for each."""

    def __init__(self) -> None:
        self.calls_counts: list[int] = []

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.calls_counts[-1] += 1

    def take(self, what: Any) -> Any:
        self.calls_counts.append(0)
        sys.setprofile(self._count)
        try:
            return what()
        finally:
            sys.setprofile(None)


class BrokerTurns(CountedTurns):
    """Those of a played broker: worker threads are not counted."""

    def __init__(self, broker: BrokerPlayer) -> None:
        super().__init__()
        self._broker = broker

    def answered(self, pending: Pending) -> Pending:
        """Until threads have no more to do."""
        broker = self._broker
        while broker.executor.queue:
            work, on_done = broker.executor.queue.popleft()
            result, error = None, None
            try:
                result = work()
            except Exception as failure:
                error = failure
            self.take(partial(self._come_back, on_done, result, error))
        return pending

    def _come_back(self, on_done: Any, result: Any, error: BaseException | None) -> None:
        on_done(result, error)
        self._broker.services.wakes.run(self._broker.now_ms)

    def ticked(self, turns_count: int) -> None:
        """So many ticks, a millisecond apart, as far as a deadline asks for them."""
        broker = self._broker
        for _ in range(turns_count):
            deadline_ms = broker.services.next_deadline_ms()
            broker.now_ms += 1
            if deadline_ms is not None and deadline_ms <= broker.now_ms:
                self.take(lambda: broker.services.tick(broker.now_ms))

    def sent(self, send: Any) -> Pending:
        """What `send` sends, handled in a turn; its bytes were made before anybody counts."""
        dispatcher = self._broker.dispatcher
        dispatch = dispatcher.dispatch
        dispatcher.dispatch = lambda *given: self.take(lambda: dispatch(*given))  # type: ignore[method-assign]
        try:
            pending: Pending = send()
        finally:
            dispatcher.dispatch = dispatch  # type: ignore[method-assign]
        return pending
