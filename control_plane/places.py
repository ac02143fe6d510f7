"""Places for work that may hang: so much of a kind at a time in this process.

Who finds no place does not wait, and leaves its thread to others: what there is to do is in
Postgres, and is done by the next one that comes by.
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
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, kind: str, places_max: int) -> Iterator[bool]:
        """Whether there was a place, which is had until the end of the block."""
        with self._lock:
            has_place = self._taken[kind] < places_max
            if has_place:
                self._taken[kind] += 1
        try:
            yield has_place
        finally:
            with self._lock:
                if has_place:
                    self._taken[kind] -= 1
                if not self._taken[kind]:
                    del self._taken[kind]


places = Places()
