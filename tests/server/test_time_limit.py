"""A bound for what blocks."""

from __future__ import annotations

import threading

from data_plane.server.time_limit import limited

LONG_S = 600.0


def test_what_takes_too_long_is_noticed_while_it_still_blocks() -> None:
    late = threading.Event()
    with limited(0.01, late.set):
        assert late.wait(60)


def test_what_ends_in_time_is_left_in_peace() -> None:
    late = threading.Event()
    before = set(threading.enumerate())
    with limited(LONG_S, late.set):
        (waiting,) = set(threading.enumerate()) - before
    waiting.join(60)
    assert not waiting.is_alive()
    assert not late.is_set()
