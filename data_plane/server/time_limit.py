"""Bounds in time, of an end that is waited for: for what blocks, and for what comes true."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def limited(limit_s: float, on_late: Callable[[], None]) -> Iterator[None]:
    """Call `on_late` in a thread of its own unless the block has ended within `limit_s`."""
    timer = threading.Timer(limit_s, on_late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def until(condition: Callable[[], bool], deadline_s: float) -> None:
    """Wait until it is so, or until `deadline_s` by the monotonic clock."""
    # Polling is enough for a thing that happens once, when the process ends.
    while not condition() and time.monotonic() < deadline_s:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
