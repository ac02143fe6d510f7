"""Who has failed to authenticate waits for the outcome of his next attempts, the longer the more
often he has failed.

It is counted by (address, login): somebody who guesses at alice's password from one address slows
nobody who comes from another one, alice least of all. Nobody is locked out: the wait has a maximum,
and the right password is the right one after it.

    attempt    1 fails    2 fails      3 fails         4 succeeds
    answered   at once    after 100    after 200 ms    after 400, and all is forgotten

All attempts of a pair wait, successful ones too: if only failures did, the absence of a quick
answer would tell that a guess was wrong.

Deliberately absent: the delay of every refusal (connection.failed.authentication.delay.ms), and
clocks: callers pass `now_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass

DELAY_MS_MIN = 100
DELAY_MS_MAX = 5_000
# After so long without a failure nothing is remembered.
FORGET_MS = 60_000
PAIRS_MAX = 10_000
# Attempts of one pair that wait at a time. The connections of more are closed, without a verdict.
WAITING_MAX = 16


@dataclass(slots=True)
class _Pair:
    failures: int = 0
    open_ms: int = 0
    waiting_count: int = 0


class FailureDelays:
    """Those of one broker."""

    def __init__(self) -> None:
        # In the order of the last failures.
        self._pairs: dict[tuple[str, str], _Pair] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def begin(self, host: str, login: str, now_ms: int) -> int | None:
        """For how long the outcome of a new attempt waits; None when too many of them wait.
        Whoever has to wait calls `end` after it."""
        pair = self._pairs.get((host, login))
        if pair is None or pair.open_ms <= now_ms:
            return 0
        if pair.waiting_count >= WAITING_MAX:
            return None
        pair.waiting_count += 1
        return pair.open_ms - now_ms

    def end(self, host: str, login: str) -> None:
        """One that has waited waits no longer."""
        pair = self._pairs.get((host, login))
        # Unless others have failed so often that it was forgotten.
        if pair is not None and pair.waiting_count > 0:
            pair.waiting_count -= 1

    def failed(self, host: str, login: str, now_ms: int) -> None:
        """An attempt has failed; called when it is known, before it is told."""
        key = (host, login)
        pair = self._pairs.pop(key, None) or _Pair()
        if now_ms - pair.open_ms > FORGET_MS:
            pair.failures = 0
        delay_ms = min(DELAY_MS_MAX, DELAY_MS_MIN << min(pair.failures, 16))
        pair.failures += 1
        pair.open_ms = max(pair.open_ms, now_ms + delay_ms)
        self._pairs[key] = pair
        if len(self._pairs) > PAIRS_MAX:
            del self._pairs[next(iter(self._pairs))]

    def succeeded(self, host: str, login: str) -> None:
        """Nothing is held against the pair any more."""
        self._pairs.pop((host, login), None)
