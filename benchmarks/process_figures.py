"""What the kernel knows of a broker process: processor time and memory, read from /proc.

Figures are of one process with all its threads, or, where the name says `tree`, with the processes
that it has started: neither broker has any, Postgres has. Linux only, as the benchmarks are.
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


def tree_cpu_seconds(pid: int) -> float:
    """User and system seconds of a process and its children, those that have ended included."""
    total = 0.0
    for each in (pid, *_children(pid)):
        text = Path(f"/proc/{each}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        # Own time; of the parent also that of children it has collected.
        counted = fields[11:15] if each == pid else fields[11:13]
        total += sum(map(int, counted)) / _TICKS_PER_S
    return total


def tree_resident_bytes(pid: int) -> int:
    """Resident pages of a process and its children, each page shared by n processes counted as
    1/n (the kernel's Pss): Postgres's processes have most of their memory in common."""
    total = 0
    for each in (pid, *_children(pid)):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_descriptors(pid: int) -> int:
    """How many file descriptors the process holds."""
    return len(os.listdir(f"/proc/{pid}/fd"))
