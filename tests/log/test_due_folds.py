"""Folds that have something to do by a date: a log knows it without being loaded."""

from __future__ import annotations

import errno
import random

import pytest

from data_plane.log.errors import LogDirFailure
from data_plane.log.sim_file_system import Fault
from tests.log.one_log import START_MS, OneLog, batch_of
from tests.log.test_folds import FREE, PIN, Pins

DUE_MS = START_MS + 3_600_000


class Alarms(Pins):
    """Has something to do as long as it holds on to a record: the later, the more."""

    extension = ".alarms"

    @property
    def due_ms(self) -> int | None:
        return DUE_MS + len(self.offsets) if self.offsets else None


class DueLog(OneLog):
    fold_factories = (Alarms,)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_fold_s_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    one = DueLog()
    for _ in range(120):
        act = rng.random()
        if act < 0.5:
            one.append(batch_of(rng.choice((b"v", PIN, FREE)), timestamps=[one.now_ms]))
        elif act < 0.6:
            one.checkpoint()
        elif act < 0.7:
            one.log.truncate_to(rng.randrange(one.log.log_end_offset + 1))
        elif act < 0.8:
            one.log.unload()
        else:
            rng.choice((one.restart, one.kill, lambda: one.lose_power(rng)))()
        due_ms = one.log.due_ms
        is_due = bool(one.log.fold(Alarms).offsets)
        assert one.log.is_loaded
        assert due_ms == one.log.fold(Alarms).due_ms == one.log.due_ms
        assert one.manager.due_partitions() == [(one.log.topic_id, 0)] * is_due
        assert one.log.summary().due_ms == (-1 if due_ms is None else due_ms)


def test_it_stays_loaded_and_what_has_nothing_due_does_not() -> None:
    one = DueLog()
    one.append(batch_of(PIN))
    one.log.flush()
    one.log.unload()
    assert one.log.is_loaded
    one.append(batch_of(FREE))
    one.log.flush()
    one.log.unload()
    assert not one.log.is_loaded


def test_a_checkpoint_of_logs_without_any_can_be_read_by_versions_before() -> None:
    one = DueLog()
    one.append(batch_of(b"v"))
    fields = one.log.summary().fields_to_store()
    one.append(batch_of(PIN))
    assert one.log.summary().fields_to_store()[-1] == DUE_MS + 1
    assert len(fields) == len(one.log.summary().fields_to_store()) - 2


def test_a_thread_may_try_again_to_load_what_it_could_not() -> None:
    one = DueLog()
    one.append(batch_of(PIN))
    one.restart()
    one.fs.faults.append(Fault("open", ".log", errno.EMFILE))
    job = one.log.load_job()
    with pytest.raises(LogDirFailure):
        job.run()
    job.finish()
    assert not one.log.is_loaded
    job = one.log.load_job()
    job.run()
    job.finish()
    assert one.log.is_loaded
