"""How a broker's interpreter is set once everything has started: garbage, threads, memory."""

from __future__ import annotations

import gc
import sys

from data_plane.server.huge_pages import move_heap

# Worker threads hold the interpreter for at most this long when the loop wants it.
SWITCH_INTERVAL_S = 0.001
GC_THRESHOLDS = (20_000, 20, 50)


def tune_interpreter() -> int | None:
    """What exists now lives for ever: the collector need not walk it again and again, and it may
    lie in huge pages. Returns how many bytes do (huge_pages.py)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return move_heap()
