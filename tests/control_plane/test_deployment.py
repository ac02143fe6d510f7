"""docs/deployment.md is right: its files and commands start a broker and a control plane."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from stack.certificates import StackCertificates
from stack.child import child_environment
from stack.postgres import PostgresServer
from stack.valkey import ValkeyServer
from tests.kept_port import KeptPort

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deployment.md"
START_TIMEOUT_S = 60.0
PASSWORD = "a long password of an operator"


class Page:
    """The page's blocks by name, with the addresses and folders of this test."""

    def __init__(self, values: Mapping[str, str]) -> None:
        text = PAGE.read_text(encoding="utf-8")
        # Longer ones first: one may be a part of another.
        for value in sorted(values, key=len, reverse=True):
            assert value in text, f"{value} is not on the page"
            text = text.replace(value, values[value])
        self.blocks = dict(re.findall(r"^```([\w-]+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))

    def environment(self, name: str) -> dict[str, str]:
        lines = self.blocks[name].splitlines()
        return child_environment(dict(line.split("=", 1) for line in lines))

    def command(self, name: str) -> list[str]:
        program, *words = shlex.split(self.blocks[name])
        assert program == "python"
        return [sys.executable, "-P", *words]


@pytest.fixture
def databases(postgres_server: PostgresServer) -> Iterator[dict[str, str]]:
    """One for the cell and one for the control plane; their addresses."""
    made = {name: f"{name}_{secrets.token_hex(4)}" for name in ("cell", "control")}
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        for database in made.values():
            connection.execute(f'CREATE DATABASE "{database}"'.encode())
    yield {name: postgres_server.dsn_of(database) for name, database in made.items()}
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        for database in made.values():
            connection.execute(f'DROP DATABASE "{database}" WITH (FORCE)'.encode())


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def ports() -> dict[str, KeptPort]:
    return {f"127.0.0.1:{port}": KeptPort() for port in (9093, 9095, 9443, 8000)}


@pytest.fixture
def page(
    tmp_path: Path,
    databases: dict[str, str],
    valkey: ValkeyServer,
    ports: dict[str, KeptPort],
    http_port: KeptPort,
) -> Page:
    folder = tmp_path / "etc"
    made = StackCertificates(folder)
    made.prepare()
    # A broker that has no others shows this one to nobody.
    for source in made.cell_admin:
        (folder / f"inter-broker{source.suffix}").write_bytes(source.read_bytes())
    (folder / "inter-broker-ca.pem").write_bytes(made.operators_authority.read_bytes())
    return Page(
        {
            "/etc/tidewheel": str(folder),
            "/var/lib/tidewheel": str(tmp_path / "data"),
            "postgresql://tidewheel:secret@127.0.0.1:5432/cell": databases["cell"],
            "postgresql://tidewheel:secret@127.0.0.1:5432/control": databases["control"],
            "redis://127.0.0.1:6379/0": valkey.url,
            "http.port=9404": f"http.port={http_port.port}",
            "ALLOWED_HOSTS=tidewheel.example": "ALLOWED_HOSTS=127.0.0.1",
            **{address: f"127.0.0.1:{kept.port}" for address, kept in ports.items()},
        }
    )


@pytest.fixture
def http_port() -> KeptPort:
    return KeptPort()


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """A process that serves until the block ends, and then ends in order."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def is_healthy(url: str) -> bool:
    request = urllib.request.Request(url, headers={"X-Forwarded-Proto": "https"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ran(page: Page, name: str, *more: str, **variables: str) -> str:
    environment = page.environment("control-plane-env") | variables
    done = subprocess.run(
        [*page.command(name), *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(240)
def test_what_the_page_says_starts_all_processes(
    page: Page,
    tmp_path: Path,
    databases: dict[str, str],
    ports: dict[str, KeptPort],
    http_port: KeptPort,
) -> None:
    environment = page.environment("control-plane-env")
    (tmp_path / "etc" / "broker.properties").write_text(page.blocks["properties"])
    with contextlib.ExitStack() as running:

        def start(name: str, variables: dict[str, str]) -> None:
            log = tmp_path / f"{name}.log"
            running.enter_context(started(page.command(name), variables, log))

        start("broker", page.environment("broker-env"))
        ran(page, "migrate")
        start("server", environment)
        start("worker", environment)
        until(lambda: is_healthy(f"http://127.0.0.1:{http_port.port}/healthz"))
        until(lambda: is_healthy(f"http://127.0.0.1:{ports['127.0.0.1:8000'].port}/healthz"))
        # It answers when the worker has come so far.
        assert "pong" in until_told(lambda: ran(page, "worker-health"))
        # And then does by itself what is due.
        until(lambda: "accounts.send_invitations" in tasks_done(page))
        assert ran(page, "cell").startswith("one is cell_")
        ran(page, "operator", "--no-input", DJANGO_SUPERUSER_PASSWORD=PASSWORD)
    with psycopg.connect(databases["control"]) as connection:
        assert connection.execute("SELECT name FROM cells_cell").fetchall() == [("one",)]
        people = connection.execute("SELECT email, is_superuser FROM accounts_user").fetchall()
        assert people == [("operator@tidewheel.example", True)]


def tasks_done(page: Page) -> str:
    done = subprocess.run(
        [*page.command("worker-health")[:-3], "stats", "--timeout", "10"],
        env=page.environment("control-plane-env"),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    return done.stdout


def until_told(ask: Callable[[], str]) -> str:
    """What a command says, when it has succeeded."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            return ask()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
