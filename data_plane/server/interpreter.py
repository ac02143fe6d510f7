"""How a broker's interpreter is set once everything has started: garbage, threads, memory.

Nearly all memory of a broker is freed when the last reference to it goes; what comes and goes with
clients has no circles (tests/hostile/test_cycles.py). The collector of circles is for the rest. It
looks at all that has been made since it looked last, holding everything else up, so
- it looks often, which is little work each time: objects that are gone by then are not looked at;
- when looking at the old ones took longer than LONG_COLLECTION_S, what is there now is left out
  from then on: millions of groups are not looked at again and again. A circle that is among them
  stays.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Final

from data_plane.server.huge_pages import move_heap

# Worker threads hold the interpreter for at most this long when the loop wants it.
SWITCH_INTERVAL_S = 0.001
# Objects made and not gone; times that the young, and then the middle-aged, were looked at. So one
# look is at ninety thousand at most, and at what took LONG_COLLECTION_S.
GC_THRESHOLDS = (10_000, 2, 2)
LONG_COLLECTION_S: Final = 0.02
OLDEST_GENERATION: Final = 2


def tune_interpreter() -> int | None:
    """What exists now lives for ever: the collector need not walk it again and again, and it may
    lie in huge pages. Returns how many bytes do (huge_pages.py)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(leave_out_what_takes_long())
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return move_heap()


def leave_out_what_takes_long(
    long_s: float = LONG_COLLECTION_S, processor_s: Callable[[], float] = time.thread_time
) -> Callable[[str, dict[str, int]], None]:
    """For `gc.callbacks`: after a long look at everything, all that is there lives for ever."""
    began_s = 0.0

    def collecting(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "start":
            began_s = processor_s()
        elif processor_s() - began_s > long_s:
            gc.freeze()

    return collecting
