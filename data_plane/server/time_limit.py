"""A bound for what blocks: another thread steps in when it takes too long."""

from __future__ import annotations

import contextlib
import threading
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
