"""What /healthz says of a broker's disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.server.health import health


@pytest.fixture
def logs() -> LogManager:
    manager = LogManager([Path("/a"), Path("/b")], default_config=LogConfig(), fs=SimFileSystem())
    assert manager.start(1) == []
    return manager


def fill(logs: LogManager, number: int) -> None:
    logs.directories[number].fail(OSError(errno.ENOSPC, "No space left on device"))


def test_all_is_well(logs: LogManager) -> None:
    found = health(is_ready=True, directories=logs.directories, why_no_deletion="")
    assert found == (True, {"status": "ok"})


def test_one_full_disk_is_named_with_what_to_do(logs: LogManager) -> None:
    fill(logs, 0)
    is_serving, content = health(is_ready=True, directories=logs.directories, why_no_deletion="")
    assert is_serving, "the other one is served"
    assert content["status"] == "degraded"
    (offline,) = content["offline_log_directories"]
    assert offline["directory"] == "/a"
    assert "No space left" in offline["reason"]
    assert "make room" in offline["what_to_do"]


def test_a_broker_without_disks_does_not_serve(logs: LogManager) -> None:
    for number in (0, 1):
        fill(logs, number)
    is_serving, content = health(is_ready=True, directories=logs.directories, why_no_deletion="")
    assert (is_serving, content["status"]) == (False, "failed")
    assert len(content["offline_log_directories"]) == 2


def test_a_broker_that_starts_says_so_before_its_disks_are_known() -> None:
    found = health(is_ready=False, directories=(), why_no_deletion="")
    assert found == (False, {"status": "starting or stopping"})


def test_why_nothing_is_deleted_is_said_beside_it(logs: LogManager) -> None:
    found = health(is_ready=True, directories=logs.directories, why_no_deletion="the clock")
    assert found == (True, {"status": "ok", "deletion_suspended": "the clock"})
