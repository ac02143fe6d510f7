"""The stack's Valkey: who gets in, what it keeps, and that it is found again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import valkey

from stack.errors import StackError
from stack.valkey import ValkeyServer, find_leftover, stop_leftover
from tests.stack.test_up import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    made = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    made.start()
    yield made
    made.stop()


def client_of(server: ValkeyServer) -> valkey.Valkey:
    return valkey.Valkey.from_url(server.url)


def test_only_who_has_the_password_gets_in(server: ValkeyServer) -> None:
    with client_of(server) as client:
        assert client.ping()
    with (
        valkey.Valkey(port=server.port) as stranger,
        pytest.raises(valkey.exceptions.AuthenticationError),
    ):
        stranger.ping()
    assert server.identity is not None
    password = server.url.partition("@")[0].rpartition(":")[2]
    assert password not in " ".join(psutil.Process(server.identity.pid).cmdline())
    found = [path for path in server.home.parent.rglob("*") if path.is_file()]
    assert found
    assert not any(password.encode() in path.read_bytes() for path in found)


def test_what_does_not_fit_goes_and_nothing_is_kept(server: ValkeyServer) -> None:
    with client_of(server) as client:
        limit = int(client.config_get("maxmemory")["maxmemory"])
        assert limit == 64 * 1024 * 1024
        for number in range(100):
            client.set(f"large-{number}", bytes(1024 * 1024))
        assert 0 < client.dbsize() < 64
        assert client.info("memory")["used_memory"] <= limit
    port, url = server.port, server.url
    server.stop()
    server.start()
    assert (server.port, server.url) == (port, url)
    with client_of(server) as client:
        assert client.dbsize() == 0


def test_one_that_lost_its_starter_is_found_and_stopped(server: ValkeyServer) -> None:
    assert server.identity is not None
    assert find_leftover(server.home) == server.identity
    assert stop_leftover(server.home)
    assert find_leftover(server.home) is None
    assert not stop_leftover(server.home)


def test_another_process_of_that_number_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "valkey"
    home.mkdir()
    (home / "valkey.pid").write_text(f"{os.getpid()}\n")
    assert find_leftover(home) is None
    (home / "valkey.pid").write_text("what")
    assert find_leftover(home) is None


def test_one_that_cannot_start_says_why(server: ValkeyServer, tmp_path: Path) -> None:
    other = ValkeyServer(tmp_path / "other", tmp_path / "other.log", port=server.port)
    with pytest.raises(StackError, match=r"(?s)Valkey ended with status 1.*in use"):
        other.start()
    other.stop()


def test_an_end_is_seen(server: ValkeyServer) -> None:
    assert server.poll() is None
    assert server.identity is not None
    server.identity.signal(signal.SIGKILL)
    until(lambda: server.poll() == -signal.SIGKILL)
