"""How the process divides its file descriptors between connections and log segments.

The soft limit is raised to the hard one. Running out of descriptors in the log would take a data
directory offline, so segments have their share reserved, and connections beyond theirs are turned
away with a log line instead of failing somewhere else.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

# Checkpoints, cold reads, listeners, the metadata journal, pipes.
OTHER_DESCRIPTORS = 256
# Python keeps a duplicate descriptor for each mapping, so an open segment may hold two.
DESCRIPTORS_PER_SEGMENT = 2
OPEN_SEGMENTS_MAX = 4096
OPEN_SEGMENTS_MIN = 32


class DescriptorBudget(NamedTuple):
    """How many of each may be open at a time."""

    open_segments_max: int
    connections_max: int


def raise_limit() -> int:
    """Raise the soft limit as far as it may go; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def divide(limit: int) -> DescriptorBudget:
    """Half for segments, up to what they can use; the rest for connections."""
    available = max(0, limit - OTHER_DESCRIPTORS)
    segments = available // 2 // DESCRIPTORS_PER_SEGMENT
    segments = min(OPEN_SEGMENTS_MAX, max(OPEN_SEGMENTS_MIN, segments))
    connections = max(1, available - segments * DESCRIPTORS_PER_SEGMENT)
    return DescriptorBudget(segments, connections)
