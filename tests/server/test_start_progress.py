"""A start that takes long says how far it is, and one that is quick says nothing."""

from __future__ import annotations

from data_plane.server.start_progress import INTERVAL_MS, StartProgress
from tests.broker.doubles import RememberingLog

LOGS = 100


def start_of(ms_per_log: int) -> list[int]:
    """How many logs were open whenever the log told of it."""
    log, now_ms = RememberingLog(), [0]
    progress = StartProgress(log, lambda: now_ms[0])
    for opened in range(1, LOGS + 1):
        now_ms[0] += ms_per_log
        progress.opened("/data", opened, LOGS, opened - 1)
    for level, event, fields in log.events:
        assert (level, event, fields["of"]) == ("info", "opening_logs", LOGS)
        assert (fields["directory"], fields["recovered"]) == ("/data", fields["opened"] - 1)
    return [fields["opened"] for _, _, fields in log.events]


def test_a_quick_start_is_not_talked_about() -> None:
    assert start_of(INTERVAL_MS // LOGS - 1) == []


def test_a_long_start_is_told_of_again_and_again() -> None:
    assert start_of(INTERVAL_MS // 10) == list(range(10, LOGS + 1, 10))
    assert start_of(INTERVAL_MS) == list(range(1, LOGS + 1))
