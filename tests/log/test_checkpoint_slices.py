"""A checkpoint looks at some logs a tick: what happens between two looks holds against it."""

from __future__ import annotations

from uuid import UUID

import pytest

from data_plane.log import directory_checkpoint, maintenance
from data_plane.log.directory_checkpoint import CheckpointJob, summary_of
from data_plane.log.log_state import LogState
from data_plane.log.log_summary import LogSummary
from tests.log.one_log import DATA, TOPIC_ID, OneLog
from tests.log.test_maintenance import Broker

LOGS = 5
PER_TICK = 2


def begun(one: OneLog, *, sees_it: bool) -> CheckpointJob:
    """A checkpoint that has looked at one of two logs: at the first one, or not yet."""
    other = one.manager.create(UUID(int=9), "other", 0, one.config)
    logs = [one.log, other] if sees_it else [other, one.log]
    one.manager._logs = {(log.topic_id, log.partition): log for log in logs}
    job = one.manager.begin_checkpoint(one.manager.directories[0])
    assert not job.take_summaries(1)
    return job


def end(job: CheckpointJob) -> None:
    assert job.take_summaries(10)
    job.run()
    job.finish()


def test_so_many_logs_are_looked_at_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    logs = [broker.log(number) for number in range(1, LOGS + 1)]
    for log in logs:
        broker.add(log)
        log.flush()
    monkeypatch.setattr(maintenance, "SUMMARIES_PER_TICK_MAX", PER_TICK)
    looked_at: list[LogState] = []

    def noting(log: LogState) -> LogSummary:
        looked_at.append(log)
        return summary_of(log)

    monkeypatch.setattr(directory_checkpoint, "summary_of", noting)
    counts = []
    for wait_ms in (20_000, 0, 0, 0):
        looked_at.clear()
        broker.run(wait_ms)
        counts.append(len(looked_at))
    assert counts == [PER_TICK, PER_TICK, LOGS - 2 * PER_TICK, 0]
    assert [broker.stored_recovery_point(log) for log in logs] == [1] * LOGS


@pytest.mark.parametrize("sees_it", [False, True])
def test_a_cut_between_two_looks_keeps_its_mark(sees_it: bool) -> None:
    one = OneLog()
    one.fill(5)
    one.checkpoint()
    job = begun(one, sees_it=sees_it)
    one.log.truncate_to(2)
    one.fill(3)
    end(job)
    # What the checkpoint has seen of the cut needs no mark any more.
    assert bool(one.names("truncation.checkpoint")) is sees_it
    assert one.log.checkpointed_recovery_point == 2
    one.kill()
    assert one.log.recovery_point == 2
    assert one.offsets() == [*range(5)]


@pytest.mark.parametrize("sees_it", [False, True])
def test_a_log_made_between_two_looks_in_the_place_of_a_deleted_one(sees_it: bool) -> None:
    one = OneLog(file_delete_delay_ms=60_000)
    one.fill(3)
    one.checkpoint()
    job = begun(one, sees_it=sees_it)
    one.manager.delete(TOPIC_ID, 0, one.now_ms)
    one.log = one.manager.create(TOPIC_ID, "flights", 0, one.config)
    one.fill(1)
    end(job)
    assert one.names("truncation.checkpoint")
    one.kill()
    assert one.log.recovery_point == 0
    assert one.offsets() == [0]


def test_a_directory_that_fails_meanwhile_has_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    for number in range(1, LOGS + 1):
        broker.add(broker.log(number))
    monkeypatch.setattr(maintenance, "SUMMARIES_PER_TICK_MAX", PER_TICK)
    broker.run(20_000)
    broker.manager.directories[0].take_offline("gone")
    assert broker.due() == broker.due() == []
    assert str(DATA) == broker.manager.directories[0].path
