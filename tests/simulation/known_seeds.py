"""Seeds that have found a bug: (seed, steps, what it was). They always run."""

from __future__ import annotations

KNOWN_SEEDS: tuple[tuple[int, int, str], ...] = ()
