"""Places for work that may hang: so much of a kind at a time in this process.

Who finds no place leaves its thread to others. A task does so at once: what there is to do is in
Postgres, and is done by the next one that comes by. A request may wait for a moment.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Places:
    """Shared by threads. A kind is a word, or names a thing as well; one that nobody is at takes
    no memory."""

    def __init__(self) -> None:
        self._given_back = threading.Condition()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, kind: str, places_max: int, wait_s: float = 0.0) -> Iterator[bool]:
        """Whether there was a place in that time, which is had until the end of the block."""
        with self._given_back:
            has_place = self._given_back.wait_for(lambda: self._taken[kind] < places_max, wait_s)
            if has_place:
                self._taken[kind] += 1
        try:
            yield has_place
        finally:
            with self._given_back:
                if has_place:
                    self._taken[kind] -= 1
                    self._given_back.notify_all()
                if not self._taken[kind]:
                    del self._taken[kind]


places = Places()
