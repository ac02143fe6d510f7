"""Rates over sampled windows, as Apache Kafka measures them, and buckets of tokens.

A `SampledRate` adds what is recorded to the window of its time. The rate is what stands in the
windows that are not over, by the time that they span, which is taken for all of them but the
current one even when there are fewer: who has just begun is not told to be too fast at once.

    windows of 1 s, 11 of them:   |  3  |  0  |  5  | … |  2 ◄ now      rate = sum / (10 s + part)

A `Bucket` fills at its rate up to `burst`. What is taken may be more than there is: the debt is
what has to be waited for. Its rate may change at any time; where it is expected to grow soon, the
wait is as if it had grown. Should it not, the debt grows until the waits are long enough.

Invariants
- Both take the time with each call, and a clock that goes back changes nothing.
- A rate of windows costs the same whatever was recorded, and at most WINDOWS_MAX numbers.
"""

from __future__ import annotations

from collections import deque
from math import ceil, inf
from typing import Final, NamedTuple

WINDOWS_MAX: Final = 1000


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`."""

    windows: int = 11
    size_ms: int = 1000

    @property
    def span_s(self) -> float:
        """What Kafka takes for the longest time over which something is measured."""
        return (self.windows - 1) * self.size_ms / 1000


class SampledRate:
    """What is recorded, per second."""

    __slots__ = ("_samples", "_sum", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # [start of the window, what was recorded in it], oldest first.
        self._samples: deque[list[float]] = deque()
        self._sum = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.size_ms:
            self._forget(now_ms)
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._sum += amount

    def measure(self, now_ms: int) -> tuple[float, float]:
        """The rate, and the milliseconds over which it is one."""
        self._forget(now_ms)
        count, size_ms = self._windows
        samples = self._samples
        elapsed_ms = max(0.0, now_ms - samples[0][0]) if samples else 0.0
        full_windows = int(elapsed_ms / size_ms)
        if full_windows < count - 1:
            elapsed_ms += (count - 1 - full_windows) * size_ms
        if elapsed_ms <= 0:
            elapsed_ms = size_ms
        return self._sum * 1000 / elapsed_ms, elapsed_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing of it counts any more."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        span_ms = self._windows.windows * self._windows.size_ms
        while samples and now_ms - samples[0][0] >= span_ms:
            self._sum -= samples.popleft()[1]
        if not samples:
            # No remainder of what floats cannot add up exactly.
            self._sum = 0.0


def throttle_ms(rate: SampledRate, bound: float, now_ms: int) -> int:
    """For how long nothing more may be recorded until the rate is `bound`; 0 when it is."""
    observed, window_ms = rate.measure(now_ms)
    if observed <= bound:
        return 0
    return round((observed - bound) / bound * window_ms)


class Bucket:
    """Tokens, at `rate_per_s`; at most those of `burst_s` seconds. What is taken never makes a debt
    of more than `debt_s` seconds."""

    __slots__ = ("_at_ms", "_tokens", "burst_s", "debt_s", "expected_per_s", "rate_per_s")

    def __init__(self, rate_per_s: float, burst_s: float, now_ms: int, debt_s: float = inf) -> None:
        self.rate_per_s = rate_per_s
        # What its rate may be soon, if that is more.
        self.expected_per_s = 0.0
        self.burst_s = burst_s
        self.debt_s = debt_s
        self._tokens = rate_per_s * burst_s
        self._at_ms = now_ms

    def set_rate(self, rate_per_s: float, now_ms: int) -> None:
        """From now on. What is there stays, up to the burst of the new rate; so does a debt."""
        self.level(now_ms)
        self.rate_per_s = rate_per_s
        self._tokens = min(self._tokens, rate_per_s * self.burst_s)

    def level(self, now_ms: int) -> float:
        """The tokens that are there; negative: the debt."""
        if now_ms > self._at_ms:
            filled = self._tokens + self.rate_per_s * (now_ms - self._at_ms) / 1000
            self._tokens = min(filled, self.rate_per_s * self.burst_s)
            self._at_ms = now_ms
        return self._tokens

    def take(self, amount: float, now_ms: int) -> None:
        """Be there so much or not."""
        level = self.level(now_ms)
        most = max(self.rate_per_s, self.expected_per_s) * self.debt_s
        # What is owed already stays, though the rate may be lower now.
        self._tokens = max(level - amount, min(level, -most))

    def wait_ms(self, now_ms: int) -> int:
        """Until the debt is paid."""
        level = self.level(now_ms)
        if level >= 0:
            return 0
        return max(1, ceil(-level * 1000 / max(self.rate_per_s, self.expected_per_s)))
