"""How long each turn of the event loop takes, what held it, and how late its timers are.

A turn is timed by the monotonic clock; of one that takes longer than LONG_TURN_NS the processor
time of the loop's thread counts, too. The difference was spent waiting for a core, for a worker
thread that held the interpreter, or for a disk. A turn longer than `held_ns` is logged with its
longest step, at most once in LOG_INTERVAL_NS; the next line counts those that were passed over.

The thread's clock costs a system call, as much as several short turns. So it is read at the
beginning of a turn only when it was not in the last MARK_NS; short turns since then are subtracted.
What the loop itself took between turns is counted with the next long turn, at most MARK_NS of it.

What runs on the loop without saying so (an accept, a handshake, a task) shows in how late the timer
is. When that is more than `held_ns`, and no turn was to blame, it is logged as well.

Deliberately absent: stacks. Only another thread could take them, and it would have to wake for it.
"""

from __future__ import annotations

import gc
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from data_plane.broker.services import Logger

HELD_NS: Final = 100_000_000
LONG_TURN_NS: Final = 1_000_000
MARK_NS: Final = 10_000_000
LOG_INTERVAL_NS: Final = 1_000_000_000
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BUCKETS_NS: Final = tuple(round(bound_s * 1e9) for bound_s in BUCKETS_S)
OLDEST_GENERATION: Final = 2


class Histogram:
    """Times in nanoseconds, by BUCKETS_S."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_NS) + 1)
        self.sum_ns = 0

    def add(self, time_ns: int) -> None:
        self.counts[bisect_left(_BUCKETS_NS, time_ns)] += 1
        self.sum_ns += time_ns

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            name, documentation, buckets=buckets, sum_value=self.sum_ns / 1e9
        )


class LoopWatch:
    """The broker's `Turns`, for one thread. `begin` within a turn counts as a step of it."""

    def __init__(
        self,
        log: Logger,
        *,
        held_ns: int = HELD_NS,
        now_ns: Callable[[], int] = time.monotonic_ns,
        processor_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.turns = Histogram()
        self.processor = Histogram()
        self.lateness = Histogram()
        self.busy_ns = 0
        self.held_count = 0
        # Until then nobody waits for the loop, and what holds it is no reason to warn.
        self.is_serving = True
        self._log = log
        self._held_ns = held_ns
        self._now_ns = now_ns
        self._processor_ns = processor_ns
        self._mark_ns = now_ns()
        # Without short turns, which are added as they end.
        self._mark_processor_ns = processor_ns()
        self._depth = 0
        self._began_ns = 0
        self._step: object = ""
        self._step_began_ns = 0
        self._longest_step: object = ""
        self._longest_step_ns = 0
        self._last_held_ns = 0
        self._next_log_ns = 0
        self._unlogged_count = 0

    def begin(self, what: object) -> None:
        self._depth += 1
        if self._depth > 1:
            self.step(what)
            return
        now_ns = self._now_ns()
        if now_ns - self._mark_ns > MARK_NS:
            self._mark_ns = now_ns
            self._mark_processor_ns = self._processor_ns()
        self._began_ns = self._step_began_ns = now_ns
        self._step = what
        self._longest_step_ns = -1

    def step(self, what: object) -> None:
        if not self._depth:
            return
        now_ns = self._now_ns()
        if now_ns - self._step_began_ns > self._longest_step_ns:
            self._longest_step_ns = now_ns - self._step_began_ns
            self._longest_step = self._step
        self._step = what
        self._step_began_ns = now_ns

    def end(self) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        now_ns = self._now_ns()
        turn_ns = now_ns - self._began_ns
        self.busy_ns += turn_ns
        if turn_ns <= LONG_TURN_NS:
            self._depth = 0
            self.turns.counts[0] += 1
            self.turns.sum_ns += turn_ns
            self.processor.counts[0] += 1
            self.processor.sum_ns += turn_ns
            self._mark_processor_ns += turn_ns
            return
        total_ns = self._processor_ns()
        # A short turn counts as a whole, so this may be less than nothing.
        processor_ns = max(0, min(turn_ns, total_ns - self._mark_processor_ns))
        self._mark_ns = now_ns
        self._mark_processor_ns = total_ns
        self.turns.add(turn_ns)
        self.processor.add(processor_ns)
        if turn_ns > self._held_ns:
            self.step("")
            self._last_held_ns = now_ns
            step_ns = self._longest_step_ns
            self._tell(name_of(self._longest_step), now_ns, turn_ns, step_ns, processor_ns)
        self._depth = 0
        # What has run must not live until the next turn.
        self._step = self._longest_step = ""

    def note_lateness(self, late_ns: int) -> None:
        """The loop's timer was due `late_ns` ago."""
        late_ns = max(0, late_ns)
        self.lateness.add(late_ns)
        now_ns = self._now_ns()
        if late_ns > self._held_ns and now_ns - self._last_held_ns > late_ns:
            since_mark_ns = self._processor_ns() - self._mark_processor_ns
            processor_ns = max(0, min(late_ns, since_mark_ns))
            self._tell("unknown", now_ns, late_ns, late_ns, processor_ns)

    def _tell(self, what: str, now_ns: int, turn_ns: int, step_ns: int, processor_ns: int) -> None:
        self.held_count += 1
        if now_ns < self._next_log_ns:
            self._unlogged_count += 1
            return
        self._next_log_ns = now_ns + LOG_INTERVAL_NS
        fields: dict[str, Any] = {}
        if self._unlogged_count:
            fields["turns_not_logged"], self._unlogged_count = self._unlogged_count, 0
        tell = self._log.warning if self.is_serving else self._log.info
        tell(
            "loop_held",
            by=what,
            took_ms=turn_ns // 1_000_000,
            step_ms=step_ns // 1_000_000,
            processor_ms=processor_ns // 1_000_000,
            **fields,
        )

    def watch_garbage_collections(self) -> Callable[[], None]:
        """Full collections within a turn are steps of it. Returns what ends that."""
        thread_id = threading.get_ident()
        interrupted: object = ""

        def collecting(phase: str, info: dict[str, int]) -> None:
            nonlocal interrupted
            if info["generation"] != OLDEST_GENERATION or threading.get_ident() != thread_id:
                return
            if phase == "start":
                interrupted = self._step
                self.step("a full garbage collection")
            else:
                self.step(interrupted)
                interrupted = ""

        gc.callbacks.append(collecting)
        return partial(gc.callbacks.remove, collecting)


class LoopCollector(Collector):
    """What a scraper sees of a LoopWatch."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterable[Metric]:
        watch = self._watch
        yield watch.turns.family(
            "tidewheel_loop_turn_seconds", "How long the event loop's turns took."
        )
        yield watch.processor.family(
            "tidewheel_loop_turn_processor_seconds",
            "Processor time of the event loop's turns; those below a millisecond count as a whole.",
        )
        yield watch.lateness.family(
            "tidewheel_loop_lag_seconds", "How late the event loop's timer was."
        )
        yield CounterMetricFamily(
            "tidewheel_loop_held",
            f"Times that something held the event loop for more than {HELD_NS // 1_000_000} ms.",
            value=watch.held_count,
        )


def name_of(what: object) -> str:
    """What people call it: a function's or method's place in the code."""
    while isinstance(what, partial):
        what = what.func
    if isinstance(what, str):
        return what
    turn_name: Callable[[], str] | None = getattr(what, "turn_name", None)
    if turn_name is not None:
        return turn_name()
    owner = getattr(what, "__self__", None)
    name = getattr(what, "__name__", None)
    if owner is not None and name is not None:
        return f"{type(owner).__qualname__}.{name}"
    qualified_name = getattr(what, "__qualname__", None)
    if qualified_name is None:
        return type(what).__qualname__
    return f"{getattr(what, '__module__', '')}.{qualified_name}".replace("<locals>.", "")
