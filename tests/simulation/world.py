"""Virtual time: one heap of events, one seed, one digest of everything that happened.

    world.at(delay_us, action, *args) ──► heap of (time, order, event) ──► step() runs the earliest

Time is an integer of microseconds and moves only from event to event, so a minute of the cell costs
what its events cost. Chance comes from named streams that are all derived from the seed: a fault
that draws one number more does not change what the network does.

The digest covers the time and the kind of each event and every note, so two runs of a seed that
differ anywhere have different digests. Deliberately absent: what the events mean.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NoReturn

# Where virtual time begins, in milliseconds since the epoch; any date will do.
EPOCH_MS = 1_700_000_000_000
# How far a clock that nobody has set far off may be from the time of the world.
CLOCK_ERROR_MS_MAX = 20_000
# What a story of a failing seed looks back on.
NOTES_MAX = 4000

US_PER_MS = 1000
US_PER_S = 1_000_000


class Violation(AssertionError):
    """An invariant of the cell is broken; the message says which, where and when."""


class Event:
    """A scheduled call. `cancel` is harmless at any time."""

    __slots__ = ("action", "args")

    def __init__(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        self.action = None


class World:
    """See the module. `story` gets each note as a line, for a person to read."""

    def __init__(self, seed: int, story: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now_us = 0
        self.steps = 0
        self.digest = 0
        self.counters: Counter[str] = Counter()
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        self.story = story
        self.violation: Violation | None = None
        self._heap: list[tuple[int, int, Event]] = []
        self._order = 0

    def stream(self, name: str) -> random.Random:
        """A source of chance of its own; the same for the same seed and name."""
        return random.Random(f"{self.seed}/{name}")

    @property
    def now_ms(self) -> int:
        """True time, which no broker knows: theirs is skewed."""
        return EPOCH_MS + self.now_us // US_PER_MS

    def at(self, delay_us: int, action: Callable[..., None], *args: Any) -> Event:
        """Run `action(*args)` after `delay_us`."""
        event = Event(action, args)
        self._order += 1
        heapq.heappush(self._heap, (self.now_us + max(0, delay_us), self._order, event))
        return event

    def step(self) -> bool:
        """Run the earliest event; False when there is none."""
        heap = self._heap
        while heap:
            time_us, _, event = heapq.heappop(heap)
            action = event.action
            if action is None:
                continue
            event.action = None
            self.now_us = time_us
            self.steps += 1
            self.digest = zlib.crc32(b"%d %s" % (time_us, action.__name__.encode()), self.digest)
            action(*event.args)
            return True
        return False

    def saw(self, data: bytes) -> None:
        """Make `data` part of the digest."""
        self.digest = zlib.crc32(data, self.digest)

    def count(self, name: str, amount: int = 1) -> None:
        """Something happened that a run has to reach."""
        self.counters[name] += amount

    def note(self, who: str, text: str) -> None:
        """A line of the story."""
        line = f"{self.now_us / US_PER_S:10.4f}  {who:<8} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.notes.append(line)
        if self.story is not None:
            self.story(line)

    def violate(self, text: str) -> NoReturn:
        """Raise a Violation. Broker code that this passes through may swallow it, so it is kept."""
        message = f"{text} (seed {self.seed}, step {self.steps}, {self.now_us / US_PER_S:.4f} s)"
        self.note("VIOLATED", text)
        if self.violation is None:
            self.violation = Violation(message)
        raise self.violation
