"""Whether retries of a partition pair pause: handlers that fail at nearly everything are not sent
what has failed before, on top of what is new. First deliveries go on.

    closed    90 % of at least 100 messages passed within 10 s were nacked ─► open
    open      after 1 s, 2 s, 4 s, … 5 min a few are let through            ─► probing
    probing   at least half of them succeed ─► closed;  else ─► open, for twice as long

Which messages were passed. Clients fetch thousands ahead of their handlers, so what was fetched
within 10 s says nothing of what was handled within them. But handlers go in order: whoever nacks a
position has passed what was fetched before it.

    fetched     0 ....................... 400 ......... 900       a filter shows every second one
    nacked                       ^ 120, for the first time: 60 messages were passed, one nacked

That a message succeeds nobody tells the broker. A probe that was fetched has succeeded when it was
not nacked for twice as long as it took consumers lately, from the fetch to the nack.

Pure: times are passed in. Lost with the leader: the next one begins closed.

Invariants
- Nothing pauses for good: a probe that nobody fetches, and a pause with nothing to let through, end
  after `UNSEEN_MS_MAX`.
- As many are let through while it is not closed as `may_fire` said, and no more.
- Memory is bounded: `FETCHES_MAX` fetches, ten seconds, one probe.
- Of what was passed before a first nack nobody knows when: it counts for nothing.

Deliberately absent: firing, which asks it, and which partition it is of (breakers.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

WINDOW_MS: Final = 10_000
_SLOT_MS: Final = 1_000
PASSED_MIN: Final = 100
NACKED_SHARE: Final = 0.9
WAIT_MS_MIN: Final = 1_000
WAIT_MS_MAX: Final = 300_000
PROBES_MAX: Final = 10
# For how long a probe that was fetched is waited for.
JUDGE_MS_MIN: Final = 1_000
JUDGE_MS_MAX: Final = 60_000
# And one of which nobody has fetched all here: perhaps nobody reads, perhaps from a follower.
UNSEEN_MS_MAX: Final = 300_000
# The latest of each partition of a pair. Of what lies before them offsets count, shown or not.
FETCHES_MAX: Final = 32


class Fetched(NamedTuple):
    """Offsets of a pair's partition that a consumer was sent, with so many messages among them."""

    offset: int
    next_offset: int
    messages: int
    at_ms: int


class Passage:
    """How far handlers have come in one partition, as its fetches and nacks tell."""

    def __init__(self) -> None:
        self._fetches: deque[Fetched] = deque(maxlen=FETCHES_MAX)
        # What lies before was passed; None: nobody knows yet.
        self._passed_to: int | None = None

    @property
    def fetched_to(self) -> int:
        return self._fetches[-1].next_offset if self._fetches else -1

    def fetched(self, fetch: Fetched) -> None:
        fetches = self._fetches
        # A consumer that begins elsewhere goes through what follows once more.
        while fetches and fetches[-1].next_offset > fetch.offset:
            last = fetches.pop()
            if last.offset < fetch.offset:
                kept = last._replace(
                    next_offset=fetch.offset, messages=_share(last, last.offset, fetch.offset)
                )
                fetches.append(kept)
                break
        if self._passed_to is not None and self._passed_to > fetch.offset:
            self._passed_to = fetch.offset
        fetches.append(fetch)

    def nacked(self, offset: int, *, is_first: bool) -> tuple[int, int | None]:
        """(messages that were passed up to this one and were not before, when it was fetched; None
        if it was not here). `is_first`: for long nothing was nacked."""
        if self._passed_to is None or (is_first and self._passed_to < offset):
            self._passed_to = offset
        begin, end = self._passed_to, offset + 1
        if end <= begin:
            return 0, None
        passed, position, at_ms = 0, begin, None
        fetches = self._fetches
        while fetches and fetches[0].offset < end:
            one = fetches[0]
            # What nobody has fetched here others may have, or it is read whole: offsets count.
            passed += max(0, one.offset - position)
            start, stop = max(one.offset, position), min(one.next_offset, end)
            passed += _share(one, start, stop)
            position = max(position, stop)
            if one.next_offset > end:
                at_ms = one.at_ms
                break
            at_ms = one.at_ms if one.next_offset == end else None
            fetches.popleft()
        passed += max(0, end - position)
        self._passed_to = end
        return passed, at_ms


def _share(fetch: Fetched, start: int, stop: int) -> int:
    """Of its messages, those between these offsets, as if they lay evenly."""
    size = fetch.next_offset - fetch.offset

    def before(offset: int) -> int:
        return fetch.messages * (offset - fetch.offset) // size

    return before(stop) - before(start) if stop > start else 0


class _Slot:
    """What happened in a second."""

    __slots__ = ("nacked", "number", "passed", "took_ms")

    def __init__(self, number: int) -> None:
        self.number = number
        self.passed = 0
        self.nacked = 0
        # The longest time from fetch to nack.
        self.took_ms = 0


class Window:
    """What was passed and nacked in the last ten seconds, this one included."""

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()

    def add(self, passed: int, nacked: int, took_ms: int, now_ms: int) -> None:
        number = now_ms // _SLOT_MS
        self._forget(now_ms)
        if not self._slots or self._slots[-1].number < number:
            self._slots.append(_Slot(number))
        slot = self._slots[-1]
        slot.passed += passed
        slot.nacked += nacked
        slot.took_ms = max(slot.took_ms, took_ms)

    def _forget(self, now_ms: int) -> None:
        first = now_ms // _SLOT_MS - WINDOW_MS // _SLOT_MS
        while self._slots and self._slots[0].number <= first:
            self._slots.popleft()

    def is_empty(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return not self._slots

    def took_ms(self, now_ms: int) -> int:
        """The longest time from fetch to nack."""
        self._forget(now_ms)
        return max((slot.took_ms for slot in self._slots), default=0)

    def failing(self, now_ms: int) -> tuple[int, int] | None:
        """(passed, nacked) of the shortest time up to now in which nearly all of enough messages
        were nacked."""
        self._forget(now_ms)
        passed = nacked = 0
        for slot in reversed(self._slots):
            nacked += slot.nacked
            # What was nacked was passed, whatever its offset.
            passed += max(slot.passed, slot.nacked)
            if passed >= PASSED_MIN and nacked >= NACKED_SHARE * passed:
                return passed, nacked
        return None

    def clear(self) -> None:
        self._slots.clear()


class Pause(NamedTuple):
    """Retries pause since a date of the caller's clock, as `nacked` of `passed` messages were."""

    since_ms: int
    passed: int
    nacked: int

    def __str__(self) -> str:
        return f"{self.nacked} of {self.passed} messages passed within 10 s were nacked"


class Breaker:
    """Of one partition pair, in one leader epoch."""

    def __init__(self) -> None:
        self._passages = (Passage(), Passage())
        self._window = Window()
        # None: closed.
        self.pause: Pause | None = None
        self._wait_ms = WAIT_MS_MIN
        self._probe_at_ms = 0
        # Of a probe that is on its way: those that were not nacked; how many there were.
        self._probes: set[int] = set()
        self._probes_count = 0
        self._probed_ms = 0
        self._probe_end = 0
        # When all of them had been fetched, and for how long they are waited for then.
        self._seen_ms: int | None = None
        self._judge_ms = JUDGE_MS_MIN

    @property
    def is_open(self) -> bool:
        return self.pause is not None

    @property
    def is_probing(self) -> bool:
        return self._probes_count > 0

    @property
    def next_probe_ms(self) -> int:
        """When the next ones are let through, at the earliest, while it is open."""
        return self._probe_at_ms

    def fetched(self, parity: int, offset: int, next_offset: int, count: int, now_ms: int) -> None:
        """A consumer was sent `count` messages in [offset, next_offset) of the pair's even
        (`parity` 0) or odd partition."""
        if next_offset > offset:
            self._passages[parity].fetched(Fetched(offset, next_offset, count, now_ms))
        is_seen = self._passages[1].fetched_to >= self._probe_end
        if parity and self.is_probing and self._seen_ms is None and is_seen:
            self._seen_ms = now_ms

    def nacked(self, positions: Iterable[tuple[int, int]], now_ms: int) -> None:
        """These came back or are dead letters: (parity, offset), none of them for the second
        time."""
        is_first = self._window.is_empty(now_ms)
        for parity, offset in positions:
            passed, at_ms = self._passages[parity].nacked(offset, is_first=is_first)
            took_ms = 0 if at_ms is None else now_ms - at_ms
            self._window.add(passed, 1, took_ms, now_ms)
            is_first = False
            if parity:
                self._probes.discard(offset)
        judge_ms = min(JUDGE_MS_MAX, max(JUDGE_MS_MIN, 2 * self._window.took_ms(now_ms)))
        if self.pause is not None:
            self._judge_ms = max(self._judge_ms, judge_ms)
            if self.is_probing and 2 * len(self._probes) < self._probes_count:
                self._probe_failed(now_ms)
            return
        failing = self._window.failing(now_ms)
        if failing is not None:
            self.pause = Pause(now_ms, *failing)
            self._wait_ms = WAIT_MS_MIN
            self._probe_at_ms = now_ms + WAIT_MS_MIN
            self._judge_ms = judge_ms

    def _probe_failed(self, now_ms: int) -> None:
        self._end_probe()
        self._wait_ms = min(WAIT_MS_MAX, 2 * self._wait_ms)
        self._probe_at_ms = now_ms + self._wait_ms

    def _end_probe(self) -> None:
        self._probes.clear()
        self._probes_count = 0
        self._seen_ms = None

    def may_fire(self, now_ms: int) -> int | None:
        """How many retries may be let through now; None for all of them."""
        self._look(now_ms)
        if not self.is_open:
            return None
        return PROBES_MAX if not self.is_probing and now_ms >= self._probe_at_ms else 0

    def fired(self, offset: int, count: int, now_ms: int) -> None:
        """So many were let through, and have the offsets from `offset` on in the odd partition."""
        if not self.is_open:
            return
        self._probes = set(range(offset, offset + count))
        self._probes_count = count
        self._probed_ms = now_ms
        self._probe_end = offset + count
        self._seen_ms = None

    def _look(self, now_ms: int) -> None:
        """Close it when a probe has succeeded, or there was nothing to try for long."""
        if not self.is_open:
            return
        if not self.is_probing:
            is_over = now_ms >= self._probe_at_ms + UNSEEN_MS_MAX
        elif self._seen_ms is None:
            is_over = now_ms >= self._probed_ms + UNSEEN_MS_MAX
        else:
            is_over = now_ms >= self._seen_ms + self._judge_ms
        if is_over:
            self._end_probe()
            self.pause = None
            self._window.clear()

    def look_again_ms(self, now_ms: int) -> int:
        """When `may_fire` says something else at the earliest, if nothing happens before."""
        if not self.is_probing:
            return max(now_ms, self._probe_at_ms)
        if self._seen_ms is None:
            return self._probed_ms + UNSEEN_MS_MAX
        return self._seen_ms + self._judge_ms
