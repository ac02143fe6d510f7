"""The control plane as it runs in production: a process of its own over a database that only
`migrate` has prepared."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from stack.postgres import PostgresServer
from tests.kept_port import KeptPort

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


def test_a_server_process_serves_what_migrate_made(environment: dict[str, str]) -> None:
    migrate = [sys.executable, "-m", "control_plane", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, env=environment, check=True, timeout=100)
    kept = KeptPort()
    command = [sys.executable, "-m", "uvicorn", "control_plane.asgi:application"]
    command += ["--host", "127.0.0.1", "--port", str(kept.port), "--log-level", "warning"]
    server = subprocess.Popen(command, env=environment)
    try:
        base = f"http://127.0.0.1:{kept.port}"
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                status, body = get(f"{base}/healthz")
                break
            except urllib.error.URLError:
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert (status, body) == (200, b'{"status": "ok"}')
        assert get(f"{base}/api/v1/me")[0] == 401
        assert get(f"{base}/api/v1/openapi.json")[0] == 200
        assert get(f"{base}/api/v1/docs")[0] == 200
    finally:
        server.terminate()
        assert server.wait(30) is not None
