"""The last date that was vouched for is kept for the next start, and no other one."""

from __future__ import annotations

import json
import random

import pytest

from data_plane.log.checkpoints import decode_value, encode_value
from data_plane.log.log_directory import CHECKPOINT_FILE
from tests.log.one_log import DATA, START_MS, OneLog

DAY_MS = 24 * 3600 * 1000
CHECKPOINT = f"{DATA}/{CHECKPOINT_FILE}"


def vouch(one: OneLog, offset_ms: int | None, now_ms: int = START_MS) -> None:
    one.manager.vouched_date.look(offset_ms, now_ms)


def checkpoint(one: OneLog) -> None:
    job = one.manager.checkpoint_job(one.manager.directories[0])
    job.run()
    job.finish()


def known_ms(one: OneLog) -> int | None:
    return one.manager.vouched_date.last_ms


def test_nothing_is_known_where_nobody_has_ever_vouched_for_a_date() -> None:
    one = OneLog()
    vouch(one, None)
    one.manager.close(START_MS)
    one.open()
    assert known_ms(one) is None


@pytest.mark.parametrize("how", ["stopped", "killed", "power lost"])
def test_the_last_one_is_known_to_the_next_process(how: str) -> None:
    one = OneLog()
    vouch(one, 70, START_MS)
    vouch(one, 71, START_MS + 5000)
    if how == "stopped":
        one.manager.close(START_MS)
    else:
        checkpoint(one)
        if how == "killed":
            one.fs.process_death()
        else:
            one.fs.power_loss(random.Random(1))
    one.open()
    assert known_ms(one) == START_MS + 5071


def test_while_nobody_vouches_for_a_date_the_one_before_stays() -> None:
    one = OneLog()
    vouch(one, 0, START_MS)
    one.manager.close(START_MS)
    for _ in range(3):
        one.open()
        vouch(one, None, START_MS + 40 * DAY_MS)
        checkpoint(one)
        one.manager.close(START_MS)
    one.open()
    assert known_ms(one) == START_MS


def test_a_date_that_has_gone_back_and_stood_is_the_last_one() -> None:
    one = OneLog()
    vouch(one, 40 * DAY_MS, START_MS)
    vouch(one, None, START_MS + 1000)
    vouch(one, 0, START_MS + 2000)
    one.manager.close(START_MS)
    one.open()
    assert known_ms(one) == START_MS + 2000


def test_of_several_directories_the_latest_counts() -> None:
    one = OneLog()
    for date_ms in (7, None, 9, 8):
        one.manager.vouched_date.learn(date_ms, None)
    assert known_ms(one) == 9


def test_the_checkpoint_of_a_version_that_kept_none_is_read() -> None:
    one = OneLog()
    vouch(one, 0, START_MS)
    checkpoint(one)
    one.fs.process_death()
    value = decode_value(one.fs.read_file(CHECKPOINT))
    assert value.pop("vouched_date_ms") == START_MS, json.dumps(value)
    file = one.fs.open(CHECKPOINT)
    file.truncate(0)
    file.write_at(0, encode_value(value))
    file.close()
    one.open()
    assert known_ms(one) is None
