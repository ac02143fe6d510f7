"""What has held the loop is named, once a second at most; every turn is counted, and cheap."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from data_plane.server.loop_watch import (
    BUCKETS_S,
    LOG_INTERVAL_NS,
    MARK_NS,
    LoopCollector,
    LoopWatch,
)
from tests.broker.broker_player import BrokerPlayer
from tests.server.connection_player import PlayedListener, connect, feed, frame

MS = 1_000_000


class Loop:
    """Two clocks that tests move, and what was logged. Counts how often each was read."""

    def __init__(self) -> None:
        self.now_ns = 5_000 * MS
        self.processor_ns = 70 * MS
        self.processor_reads = 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.watch = LoopWatch(
            self,  # type: ignore[arg-type]
            now_ns=lambda: self.now_ns,
            processor_ns=self.read_processor_ns,
        )

    def read_processor_ns(self) -> int:
        self.processor_reads += 1
        return self.processor_ns

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.events.append((f"{event}, not to worry", fields))

    def work(self, ms: float, processor_ms: float | None = None) -> None:
        self.now_ns += int(ms * MS)
        self.processor_ns += int((ms if processor_ms is None else processor_ms) * MS)

    def wait(self, ms: float) -> None:
        self.now_ns += int(ms * MS)

    def turn(self, what: object, ms: float, processor_ms: float | None = None) -> None:
        self.watch.begin(what)
        self.work(ms, processor_ms)
        self.watch.end()


def component_tick() -> None:
    pass


def test_while_nobody_is_served_it_is_no_reason_to_warn() -> None:
    loop = Loop()
    loop.watch.is_serving = False
    loop.turn("the start", 300)
    loop.watch.is_serving = True
    loop.wait(LOG_INTERVAL_NS / MS)
    loop.turn("requests", 300)
    assert [event for event, _ in loop.events] == ["loop_held, not to worry", "loop_held"]


def test_the_longest_step_of_a_turn_that_held_the_loop_is_named() -> None:
    loop = Loop()
    loop.wait(1_000)
    loop.watch.begin("a tick")
    loop.work(10)
    loop.watch.step(partial(component_tick))
    loop.work(150, processor_ms=60)
    loop.watch.step("the next one")
    loop.work(5)
    loop.watch.end()
    assert loop.events == [
        (
            "loop_held",
            {
                "by": "tests.server.test_loop_watch.component_tick",
                "took_ms": 165,
                "step_ms": 150,
                "processor_ms": 75,
            },
        )
    ]


def test_turns_up_to_a_tenth_of_a_second_are_counted_and_not_logged() -> None:
    loop = Loop()
    for ms in (0.5, 1, 2, 30, 100):
        loop.turn("reads", ms)
    assert loop.events == []
    assert loop.watch.turns.counts[:8] == [2, 1, 0, 0, 0, 1, 1, 0]
    assert loop.watch.turns.sum_ns == 133.5 * MS
    assert loop.watch.held_count == 0


def test_what_is_not_logged_is_counted_in_the_next_line() -> None:
    loop = Loop()
    for _ in range(4):
        loop.turn("a flood", 200)
    loop.wait(LOG_INTERVAL_NS / MS)
    loop.turn("the last one", 200)
    assert [fields["by"] for _, fields in loop.events] == ["a flood", "the last one"]
    assert loop.events[1][1]["turns_not_logged"] == 3
    assert loop.watch.held_count == 5


def test_a_turn_within_a_turn_is_a_step_of_it() -> None:
    loop = Loop()
    loop.watch.begin("outer")
    loop.work(10)
    loop.watch.begin("inner")
    loop.work(200)
    loop.watch.end()
    loop.work(10)
    loop.watch.end()
    loop.turn("next", 1)
    assert [(fields["by"], fields["took_ms"]) for _, fields in loop.events] == [("inner", 220)]
    assert sum(loop.watch.turns.counts) == 2


def test_the_threads_clock_is_not_read_for_every_turn() -> None:
    loop = Loop()
    before = loop.processor_reads
    for _ in range(1_000):
        loop.turn("a read", 0.01)
    assert loop.processor_reads - before <= 10 * MS // MARK_NS


def test_processor_time_before_the_turn_does_not_count() -> None:
    loop = Loop()
    loop.turn("a read", 0.1)
    loop.work(5_000)
    loop.watch.begin("waits for a core")
    loop.work(300, processor_ms=20)
    loop.watch.end()
    assert loop.events[0][1]["processor_ms"] == 20
    assert loop.watch.processor.counts[BUCKETS_S.index(0.025)] == 1


def test_short_turns_just_before_do_not_count() -> None:
    loop = Loop()
    loop.work(5_000)
    for _ in range(9):
        loop.turn("a read", 1)
    loop.turn("waits for a core", 300, processor_ms=20)
    assert loop.events[0][1]["processor_ms"] == 20


def test_a_late_timer_tells_of_what_is_not_watched() -> None:
    loop = Loop()
    loop.turn("a read", 0.1)
    loop.work(400)
    loop.watch.note_lateness(350 * MS)
    assert [fields["by"] for _, fields in loop.events] == ["unknown"]
    loop.wait(2_000)
    loop.turn("a long turn", 300)
    loop.watch.note_lateness(280 * MS)
    assert [fields["by"] for _, fields in loop.events] == ["unknown", "a long turn"]
    assert sum(loop.watch.lateness.counts) == 2


def test_full_collections_are_steps() -> None:
    loop = Loop()

    class Slow:
        """Takes a while to go, and only a collection finds it."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            loop.work(500)

    end = loop.watch.watch_garbage_collections()
    try:
        loop.watch.begin("a tick")
        Slow()
        gc.collect()
        loop.watch.end()
    finally:
        end()
    assert loop.events[0][1]["by"] == "a full garbage collection"
    assert not any("LoopWatch" in repr(callback) for callback in gc.callbacks)


def test_timers_components_and_listeners_are_steps_of_a_tick() -> None:
    loop = Loop()
    broker = BrokerPlayer()
    services = broker.services
    services.turns = loop.watch

    def slow_timer(now_ms: int) -> None:
        loop.work(120)

    services.timers.schedule(0, lambda now_ms: loop.work(90))
    services.timers.schedule(0, slow_timer)
    services.timers.schedule(0, lambda now_ms: loop.work(90))
    loop.watch.begin(services.tick)
    services.tick(1)
    loop.watch.end()
    assert "slow_timer" in loop.events[0][1]["by"]
    assert loop.events[0][1]["step_ms"] == 120


@pytest.mark.parametrize("is_raising", [False, True])
def test_requests_that_take_long_name_their_connection(is_raising: bool) -> None:
    loop = Loop()

    def script(request: bytes) -> list[bytes]:
        loop.work(700)
        if is_raising:
            raise RuntimeError
        return [b"answer"]

    listener = PlayedListener(script)
    listener.turns = loop.watch
    listener.log = BrokerPlayer().log
    connection, _ = connect(listener)
    listener.dispatcher.last_api_key = 3
    feed(connection, frame(b"request"))
    assert loop.events[0][1]["by"] == "requests from peer:1, the last one: Metadata"
    loop.turn("next", 0.1)
    assert sum(loop.watch.turns.counts) == 2


def test_a_scraper_sees_histograms() -> None:
    loop = Loop()
    loop.turn("a read", 0.5)
    loop.turn("a tick", 30)
    families = {family.name: family for family in LoopCollector(loop.watch).collect()}
    turns = families["tidewheel_loop_turn_seconds"]
    by_bound = {
        sample.labels["le"]: sample.value
        for sample in turns.samples
        if sample.name.endswith("_bucket")
    }
    assert by_bound["0.001"] == 1
    assert by_bound["0.025"] == 1
    assert by_bound["0.05"] == by_bound["+Inf"] == 2
    totals = {sample.name: sample.value for sample in turns.samples if not sample.labels}
    assert totals["tidewheel_loop_turn_seconds_sum"] == pytest.approx(0.0305)
    assert "tidewheel_loop_lag_seconds" in families
    assert families["tidewheel_loop_held"].samples[0].value == 0


def test_what_has_run_is_not_kept() -> None:
    loop = Loop()
    callback: Callable[[], None] | None = component_tick
    loop.turn(callback, 200)
    assert loop.watch._step == loop.watch._longest_step == ""
