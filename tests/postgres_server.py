"""A real Postgres for tests: one server for each worker of the run, a schema for each test.

`tests/<room>/conftest.py` imports the fixtures that its room needs. What a test does to the server
(stop it, kill it, pause it) it undoes before it ends, since the next test has the same one.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from data_plane.cell.postgres_store import PostgresMetadataStore
from stack.postgres import PostgresServer
from tests.kept_port import KeptPort

_schema_numbers = itertools.count()


def now_ms() -> int:
    """The clock that stores under test count their patience with."""
    return time.monotonic_ns() // 1_000_000


class PostgresDatabase:
    """The server, and one schema in it that nobody else uses."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = f"test_{next(_schema_numbers)}"

    @property
    def dsn(self) -> str:
        return self.server.dsn

    def store(self, **options: Any) -> PostgresMetadataStore:
        """Another client of the store in this schema; the test closes it."""
        arguments: dict[str, Any] = {"dsn": self.dsn, "cluster_id": "cluster"}
        arguments |= {"clock_ms": now_ms, "schema": self.schema} | options
        return PostgresMetadataStore(**arguments)

    @contextlib.contextmanager
    def connect(self, *, autocommit: bool = True) -> Iterator[psycopg.Connection[Any]]:
        """A connection beside the store's own, in the same schema."""
        connection = psycopg.connect(
            self.dsn, autocommit=autocommit, options=f"-c search_path={self.schema}"
        )
        with contextlib.closing(connection):
            yield connection

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement beside the store; its rows, if it has any."""
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP of all its processes: connections stay, and nothing is answered."""
        assert self.server.identity is not None
        main = psutil.Process(self.server.identity.pid)
        processes = [main, *main.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # Not pytest's own folder: Postgres does not run as root, and others may not enter that.
    folder = Path(tempfile.mkdtemp(prefix="tidewheel-postgres-"))
    folder.chmod(0o755)
    # Tests stop and start it.
    kept = KeptPort()
    server = PostgresServer(folder / "postgres", port=kept.port, is_durable=False)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresDatabase:
    return PostgresDatabase(postgres_server)
