"""What `/metrics` tells of retries: nacks by the attempt that has failed, and dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from features.retry_dlq.breakers import Breakers
from features.retry_dlq.commands import EXCEPTION_HEADER, Command
from features.retry_dlq.judgement import Copy, Dead, Outcome

# Attempts beyond it are counted together.
ATTEMPTS_TOLD_MAX: Final = 16
# The first names of exceptions; all further ones are counted together.
EXCEPTIONS_TOLD_MAX: Final = 50
OTHER_EXCEPTIONS: Final = "others"
# Partitions by name.
PAUSED_TOLD_MAX: Final = 100


class RetryMetrics(Collector):
    """Of one broker."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers
        # How many dead letters of the partitions led here are not in their topics yet.
        self.look: Callable[[], int] = lambda: 0
        # How many delivered positions the replicas here know to be nacked.
        self.remembered: Callable[[], int] = lambda: 0
        self.sent_count = 0
        self.held_counts: Counter[str] = Counter()
        self._nacks: Counter[int] = Counter()
        # By what they died of: (cause, exception).
        self._dead: Counter[tuple[str, str]] = Counter()
        self._exceptions: set[str] = set()
        self._repeats_count = 0
        # Judgements are counted where they are made, in threads.
        self._lock = Lock()

    def judged(self, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            for outcome in outcomes:
                match outcome:
                    case Copy():
                        self._nacks[min(outcome.attempt - 1, ATTEMPTS_TOLD_MAX)] += 1
                    case Dead():
                        cause = "asked" if outcome.command.is_dead_letter else "attempts"
                        self._dead[cause, self._named(outcome.command)] += 1
                    case _:
                        self._repeats_count += 1

    def _named(self, command: Command) -> str:
        """The exception that it names; clients call them what they like."""
        name = dict(command.texts).get(EXCEPTION_HEADER, b"").decode(errors="replace")
        if name not in self._exceptions:
            if len(self._exceptions) >= EXCEPTIONS_TOLD_MAX:
                return OTHER_EXCEPTIONS
            self._exceptions.add(name)
        return name

    def collect(self) -> Iterator[Metric]:
        nacks = CounterMetricFamily(
            "tidewheel_retry_nacks",
            "Messages that come back, by the attempt that has failed; the last number is for more.",
            labels=["attempt"],
        )
        for attempt, count in sorted(self._nacks.items()):
            nacks.add_metric([str(attempt)], count)
        yield nacks
        yield CounterMetricFamily(
            "tidewheel_retry_repeats", "Nacks that were said before.", value=self._repeats_count
        )
        yield CounterMetricFamily(
            "tidewheel_retry_deliveries",
            "Messages that came back, and were delivered again.",
            value=self._breakers.deliveries_count,
        )
        yield self._of_dead()
        yield GaugeMetricFamily(
            "tidewheel_retry_positions_remembered",
            "Delivered messages that replicas here know to be nacked.",
            value=self.remembered(),
        )
        yield GaugeMetricFamily(
            "tidewheel_dead_letters_waiting",
            "Dead letters of the partitions led here that are not in their topics yet.",
            value=self.look(),
        )
        yield CounterMetricFamily(
            "tidewheel_dead_letters_sent", "Dead letters that are.", value=self.sent_count
        )
        held = CounterMetricFamily(
            "tidewheel_dead_letters_held",
            "Attempts to send dead letters that failed, by reason; they are tried again.",
            labels=["reason"],
        )
        for reason, count in sorted(self.held_counts.items()):
            held.add_metric([reason], count)
        yield held
        yield from self._of_breakers()

    def _of_dead(self) -> Metric:
        dead = CounterMetricFamily(
            "tidewheel_retry_dead",
            "Messages that became dead letters: when a handler asked for that or after the last "
            "attempt, and by the exception that the nack names.",
            labels=["cause", "exception"],
        )
        with self._lock:
            counts = sorted(self._dead.items())
        for labels, count in counts:
            dead.add_metric(list(labels), count)
        return dead

    def _of_breakers(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "tidewheel_retry_pauses",
            "How often retries of a partition were paused, as nearly all was nacked.",
            value=self._breakers.openings_count,
        )
        open_ones = list(self._breakers.open_ones())
        yield GaugeMetricFamily(
            "tidewheel_retry_paused_partitions",
            "Retry partitions led here whose retries pause.",
            value=len(open_ones),
        )
        paused = GaugeMetricFamily(
            "tidewheel_retry_paused",
            "Of those, the first hundred: 1 while nothing is delivered, 2 while a few are tried.",
            labels=["tenant", "topic", "partition"],
        )
        for partition, breaker in open_ones[:PAUSED_TOLD_MAX]:
            labels = [partition.tenant, partition.topic, str(partition.index)]
            paused.add_metric(labels, 2 if breaker.is_probing else 1)
        yield paused
