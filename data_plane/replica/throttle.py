"""A limit in bytes per second, for replicas that are being added: a token bucket.

    bucket    refills at the rate, holds at most one second's worth
    a response is taken from it after the fact, so it may go below zero; nothing more is asked for
    until it has refilled above zero

So what comes in is the rate in the long run, and ahead of it by at most one second and one
response. One bucket serves all fetchers of a broker (`follower.replication.throttled.rate`).

Deliberately absent: which replicas are limited, and clocks.
"""

from __future__ import annotations

# Kafka's default of the rate, which is no limit.
UNLIMITED_BYTES_PER_S = 2**63 - 1


class Throttle:
    """See the module. Bytes are counted in thousandths, so that milliseconds divide evenly."""

    __slots__ = ("_filled_ms", "_millibytes", "_rate_bytes_per_s")

    def __init__(self, rate_bytes_per_s: int, now_ms: int) -> None:
        self._rate_bytes_per_s = rate_bytes_per_s
        self._millibytes = rate_bytes_per_s * 1000
        self._filled_ms = now_ms

    @property
    def is_limited(self) -> bool:
        return self._rate_bytes_per_s < UNLIMITED_BYTES_PER_S

    @property
    def rate_bytes_per_s(self) -> int:
        return self._rate_bytes_per_s

    def set_rate(self, rate_bytes_per_s: int, now_ms: int) -> None:
        """Limit to another rate from now on. What was taken too much is forgotten, so that a
        higher rate has its effect at once."""
        if rate_bytes_per_s == self._rate_bytes_per_s:
            return
        self._rate_bytes_per_s = rate_bytes_per_s
        self._millibytes = rate_bytes_per_s * 1000
        self._filled_ms = now_ms

    def take(self, size_bytes: int, now_ms: int) -> None:
        """Count what has come in."""
        if self.is_limited:
            self._fill(now_ms)
            self._millibytes -= size_bytes * 1000

    def wait_ms(self, now_ms: int) -> int:
        """How long to ask for nothing more; 0 when there is room. A rate of 0 waits, and is asked
        again after a second."""
        if not self.is_limited:
            return 0
        self._fill(now_ms)
        if self._millibytes > 0:
            return 0
        if self._rate_bytes_per_s == 0:
            return 1000
        return -self._millibytes // self._rate_bytes_per_s + 1

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._filled_ms
        if elapsed_ms > 0:
            self._filled_ms = now_ms
            full = self._rate_bytes_per_s * 1000
            self._millibytes = min(full, self._millibytes + elapsed_ms * self._rate_bytes_per_s)
