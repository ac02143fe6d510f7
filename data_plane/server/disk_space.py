"""How large the file system of a data directory is. For worker threads: a slow disk may block."""

from __future__ import annotations

import os


def measure_space(path: str) -> tuple[int, int]:
    """(size, what this process may still use) in bytes. Raises OSError."""
    statistics = os.statvfs(path)
    return (
        statistics.f_blocks * statistics.f_frsize,
        statistics.f_bavail * statistics.f_frsize,
    )
