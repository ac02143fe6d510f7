"""What the garbage collector looks at in a broker with much state."""

from __future__ import annotations

import gc
import subprocess
import sys

from data_plane.server.interpreter import GC_THRESHOLDS, leave_out_what_takes_long

# In a process of its own: it changes the interpreter.
GROWING = """
import gc
from data_plane.server import interpreter
gc.collect()
gc.freeze()
gc.set_threshold(*interpreter.GC_THRESHOLDS)
gc.callbacks.append(interpreter.leave_out_what_takes_long(long_s=-1))
looked_at = []
gc.callbacks.append(lambda phase, info: looked_at.append(
    sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))
    if phase == "start" else None)
kept = [[[]] for _ in range(400_000)]
assert kept
print(max(looked_at))
"""


def test_a_collection_looks_at_a_bounded_part_of_what_grows() -> None:
    found = subprocess.run(
        [sys.executable, "-c", GROWING], check=True, capture_output=True, text=True, timeout=120
    )
    objects_per_look = GC_THRESHOLDS[0] * (GC_THRESHOLDS[1] + 1) * (GC_THRESHOLDS[2] + 1)
    assert int(found.stdout) < 1.5 * objects_per_look


def test_only_what_took_long_is_left_out() -> None:
    times_s = iter([1.0, 1.02, 2.0, 2.04])
    collecting = leave_out_what_takes_long(0.03, lambda: next(times_s))
    before = gc.get_freeze_count()
    for generation, is_frozen in ((1, False), (2, False), (2, True)):
        collecting("start", {"generation": generation})
        collecting("stop", {"generation": generation})
        assert (gc.get_freeze_count() > before) == is_frozen
    gc.unfreeze()
