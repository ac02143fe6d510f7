"""What the kernel knows of a broker process: processor time and memory, read from /proc.

All figures are of one process with all its threads; children are not counted (neither broker has
any). Linux only, as the benchmarks are.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system seconds that the process has used since its start."""
    text = Path(f"/proc/{pid}/stat").read_text()
    # The command name may hold spaces and parentheses: count the fields after the last one.
    fields = text[text.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_bytes(pid: int) -> dict[str, int]:
    """{"rss", "rss_anon"} in bytes: all resident pages, and those no file stands behind."""
    figures = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            figures[name] = int(value.split()[0]) * 1024
    return {"rss": figures["VmRSS"], "rss_anon": figures["RssAnon"]}


def open_descriptors(pid: int) -> int:
    """How many file descriptors the process holds."""
    return len(os.listdir(f"/proc/{pid}/fd"))
