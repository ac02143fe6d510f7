"""The launcher of the packaged Postgres: restarts, kill -9, leftovers, who it runs as."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest

from stack import postgres
from stack.errors import StackError
from stack.postgres import STOP_TIMEOUT_S, PostgresServer, find_leftover, stop_leftover


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own folder, which others than its owner may not enter.
    folder = Path(tempfile.mkdtemp(prefix="tidewheel-postgres-"))
    folder.chmod(0o755)
    yield folder / "postgres"
    stop_leftover(folder / "postgres")
    shutil.rmtree(folder)


def query(server: PostgresServer, statement: str) -> object:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def processes_in(home: Path) -> list[psutil.Process]:
    """The living processes that have something to do with this folder, or descend from such."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(home) in " ".join(
                process.cmdline()
            ):
                found += [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return found


def test_it_comes_back_with_its_data_on_the_same_port_and_leaves_nothing_running(
    home: Path,
) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start()
    query(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    port, dsn = server.port, server.dsn
    assert server.poll() is None
    processes = processes_in(home)
    assert len(processes) > 1
    if os.geteuid() == 0:
        for process in processes:
            # Postgres ends some of its helpers by itself.
            with contextlib.suppress(psutil.NoSuchProcess):
                assert process.uids().effective != 0
    server.stop()
    assert not any(process.is_running() for process in processes if not _is_zombie(process))

    # Another launcher, as after a restart of the stack.
    server = PostgresServer(home, is_durable=False)
    server.start()
    assert (server.port, server.dsn) == (port, dsn)
    assert query(server, "SELECT answer FROM kept") == 42
    server.kill_now()
    assert processes_in(home) == []
    server.start()
    assert server.port == port
    assert query(server, "SELECT answer FROM kept") == 42
    server.stop()
    assert processes_in(home) == []


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_only_the_starter_can_read_the_password_and_nobody_gets_in_without(home: Path) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start()
    try:
        assert (home / "password").stat().st_mode & 0o077 == 0
        assert not (home / "password.new").exists()
        for dsn in (
            f"postgresql://tidewheel:wrong@127.0.0.1:{server.port}/postgres",
            f"postgresql://tidewheel@127.0.0.1:{server.port}/postgres?passfile=/dev/null",
        ):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(dsn)
        assert query(server, "SHOW listen_addresses") == "127.0.0.1"
        assert query(server, "SHOW unix_socket_directories") == ""
    finally:
        server.stop()


def test_what_a_killed_stack_left_behind_is_found_and_stopped(home: Path) -> None:
    assert find_leftover(home) is None
    assert not stop_leftover(home)
    forgotten = PostgresServer(home, is_durable=False)
    forgotten.start()
    assert find_leftover(home) == forgotten.identity
    with pytest.raises(StackError, match="already runs in"):
        PostgresServer(home, is_durable=False).start()
    assert stop_leftover(home)
    assert processes_in(home) == []
    forgotten.stop()
    # An old pid file whose pid is another program's by now.
    (home / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    assert find_leftover(home) is None
    assert not stop_leftover(home)


def test_a_port_that_somebody_else_has_by_now_is_given_up(home: Path) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start()
    port = server.port
    server.stop()
    with socket.create_server(("127.0.0.1", port)):
        server = PostgresServer(home, is_durable=False)
        server.start()
        assert server.port != port
        assert query(server, "SELECT 1") == 1
        server.stop()


def test_what_a_stack_runs_outlives_a_power_loss(home: Path) -> None:
    server = PostgresServer(home)
    assert "--no-sync" not in server._initdb_options(home, home)
    assert "--no-sync" in PostgresServer(home, is_durable=False)._initdb_options(home, home)
    server.start()
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert query(server, f"SHOW {setting}") == "on"
    server.stop()


def test_a_stop_waits_for_no_client(home: Path) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("SELECT 1")
        asked_s = time.monotonic()
        server.stop()
        assert time.monotonic() - asked_s < STOP_TIMEOUT_S / 2
        connection.close()
    assert "database system is shut down" in server.log.read_text()


@pytest.mark.parametrize("text", ["", "five", "99999", "\N{SUPERSCRIPT TWO}"])
def test_a_damaged_port_file_is_made_anew(home: Path, text: str) -> None:
    home.mkdir()
    (home / "port").write_text(text)
    server = PostgresServer(home, is_durable=False)
    server._choose_port()
    assert 0 < server.port <= 65_535
    assert (home / "port").read_text() == f"{server.port}\n"


def test_an_interrupted_first_start_begins_again(home: Path) -> None:
    (home / "data.new" / "base").mkdir(parents=True)
    (home / "password.new").write_text("old")
    server = PostgresServer(home, is_durable=False)
    server.start()
    assert query(server, "SELECT 1") == 1
    server.stop()


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start()
    server.stop()
    with (home / "data" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(StackError, match="no_such_setting"):
        server.start()
    assert processes_in(home) == []


def test_a_start_can_be_called_off(home: Path) -> None:
    server = PostgresServer(home, is_durable=False)
    server.start(should_stop=lambda: True)
    assert server.identity is None
    assert processes_in(home) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_starts_it_in_a_folder_that_nobody_else_may_enter(home: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    home.parent.chmod(0o700)
    server = PostgresServer(home, is_durable=False)
    server.start()
    assert query(server, "SELECT 1") == 1
    server.stop()
    assert processes_in(home) == []


@pytest.fixture
def hanging_initdb(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation whose initdb, or rather what that starts, never ends."""
    programs = home.parent / "package" / "pginstall" / "bin"
    programs.mkdir(parents=True)
    for name, does in (
        ("postgres", "exit 1"),
        ("initdb", "sh -c 'echo begun; sleep 1000; exit' \"$@\"; exit 1"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    found = SimpleNamespace(submodule_search_locations=[str(home.parent / "package")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)


@pytest.mark.usefixtures("hanging_initdb")
def test_an_initdb_that_hangs_can_be_called_off(home: Path) -> None:
    server = PostgresServer(home)
    server.start(should_stop=lambda: "begun" in server.log.read_text())
    assert server.identity is None
    assert processes_in(home) == []
    assert not server.data.exists()
    assert list(home.glob("password*")) == []


@pytest.mark.usefixtures("hanging_initdb")
def test_an_initdb_that_hangs_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "INITDB_TIMEOUT_S", 0.5)
    with pytest.raises(StackError, match=r"could not make .* \(initdb\)"):
        PostgresServer(home).start()
    assert processes_in(home) == []


def test_without_the_package_the_message_names_the_way_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StackError, match="name it in DATABASE_URL"):
        PostgresServer(home).start()
