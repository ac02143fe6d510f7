"""The control plane as it runs in production: a process of its own over a database that only
`migrate` has prepared."""

from __future__ import annotations

import io
import json
import logging
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.core.management import CommandError, call_command

from control_plane.cells.models import Cell
from control_plane.operations.models import AuditEvent
from control_plane.serve import CONNECTIONS_MAX, server_config
from control_plane.settings.logs import JsonLines
from stack.child import Child, wait_for_word
from stack.postgres import PostgresServer

START_TIMEOUT_S = 60.0


@pytest.fixture
def environment(postgres_server: PostgresServer) -> Iterator[dict[str, str]]:
    name = f"served_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    address = urlsplit(postgres_server.dsn)
    yield os.environ | {
        "DJANGO_SETTINGS_MODULE": "control_plane.settings.production",
        "DATABASE_URL": urlunsplit(address._replace(path=f"/{name}")),
        # Nobody is there: what is only a hint or a limit is done without.
        "VALKEY_URL": "redis://127.0.0.1:1/0",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ALLOWED_HOSTS": "127.0.0.1",
    }
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def get(url: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers={"X-Forwarded-Proto": "https"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def wait_for(child: Child) -> dict[str, Any]:
    """What it says when it serves."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (said := child.look_said()) is None:
        assert time.monotonic() < deadline
        wait_for_word([child])
    return said


def test_a_server_process_serves_what_migrate_made(
    environment: dict[str, str], tmp_path: Path
) -> None:
    migrate = [sys.executable, "-m", "control_plane", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, env=environment, check=True, timeout=100)
    command = [sys.executable, "-m", "control_plane.serve", "--listen", "127.0.0.1:0"]
    server = Child("The server", command, tmp_path / "server.log", environment)
    try:
        base = f"http://127.0.0.1:{wait_for(server)['port']}"
        assert get(f"{base}/healthz") == (200, b'{"status": "ok"}')
        assert get(f"{base}/api/v1/me")[0] == 401
        assert get(f"{base}/api/v1/openapi.json")[0] == 200
        assert get(f"{base}/api/v1/docs")[0] == 200
    finally:
        server.stop()
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (warning, *_) = [line for line in lines if "rate limits are off" in line["event"]]
    assert (warning["level"], warning["logger"]) == ("warning", "control_plane.api.rate_limits")


@pytest.mark.parametrize("module", ["serve", "prepare"])
def test_who_is_not_waited_for_any_more_ends(
    environment: dict[str, str], tmp_path: Path, module: str
) -> None:
    """Whoever has started it was killed before he could write down whom he started."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", f"control_plane.{module}", "--ready-fd", str(writer)]
    command += ["--listen", "127.0.0.1:0"] if module == "serve" else []
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, pass_fds=(writer,), stdin=subprocess.DEVNULL, stdout=log
        )
    os.close(writer)
    os.close(reader)
    assert process.wait(START_TIMEOUT_S) is not None


def test_a_traceback_is_a_field_of_its_line() -> None:
    try:
        raise ValueError("what went wrong")
    except ValueError:
        record = logging.LogRecord(
            "django.request", logging.ERROR, "x.py", 1, "failed: %s", ("/a",), sys.exc_info()
        )
    text = JsonLines().format(record)
    assert text.count("\n") == 0
    line = json.loads(text)
    assert (line["event"], line["level"]) == ("failed: /a", "error")
    assert line["exception"].endswith("ValueError: what went wrong")


def test_only_a_proxy_that_is_named_is_believed() -> None:
    assert server_config(None, "").proxy_headers is False
    named = server_config(None, "10.0.0.1")
    assert (named.proxy_headers, named.forwarded_allow_ips) == (True, "10.0.0.1")
    assert named.limit_concurrency == CONNECTIONS_MAX


@pytest.mark.django_db
def test_a_cell_is_registered_once_and_changed_with_its_audit() -> None:
    def register(*words: str) -> str:
        output = io.StringIO()
        call_command("register_cell", "one", *words, stdout=output)
        return output.getvalue()

    addresses = ("--admin-endpoint", "a:1", "--admin-endpoint", "b:1", "--bootstrap-servers", "c:2")
    first = register(*addresses)
    cell = Cell.objects.get()
    assert (cell.admin_endpoints, cell.bootstrap_servers) == (["a:1", "b:1"], "c:2")
    Cell.objects.update(is_accepting=False, tenants_max=7)
    assert register(*addresses) == first
    register("--admin-endpoint", "a:9", "--bootstrap-servers", "c:2")
    cell = Cell.objects.get()
    assert (cell.admin_endpoints, cell.is_accepting, cell.tenants_max) == (["a:9"], False, 7)
    events = AuditEvent.objects.order_by("id")
    assert [event.action for event in events] == ["cell.create", "cell.update"]
    assert events[1].changes == {"admin_endpoints": [["a:1", "b:1"], ["a:9"]]}
    with pytest.raises(CommandError):
        call_command("register_cell", "no slug", *addresses)
    assert Cell.objects.count() == 1
