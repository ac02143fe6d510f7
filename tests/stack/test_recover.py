"""`cell recover` on a stack's folder: which database, which images, and whose turn it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from data_plane.cell.changes import CreateTopic, apply_changes
from data_plane.cell.image_file import ImageFile
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.recover import VERSION_JUMP
from data_plane.log.file_system import OsFileSystem
from stack.errors import StackError
from stack.folder import MetadataStoreKind, PostgresState, StackFolder, StackState
from stack.options import DEFAULT_SCHEMA, store_schema
from stack.postgres import PostgresServer, find_leftover, stop_leftover
from stack.processes import identify
from stack.recover import run_recover

ORDERS = CreateTopic("default", "orders", UUID(int=1), ((1, 2), (2, 1)))
IDENTITY = "0a6b0c3e-0000-4000-8000-000000000000"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StackFolder]:
    """That of a cell of two brokers, of which one has an older image; its Postgres is lost."""
    made = StackFolder(tmp_path)
    made.prepare()
    made.write_store_kind(MetadataStoreKind.POSTGRES)
    older = apply_changes(MetadataImage(made.cluster_id()), [ORDERS])
    for broker_id, image in ((1, older), (2, apply_changes(older, []))):
        made.broker_data(broker_id).mkdir()
        ImageFile(OsFileSystem(), str(made.broker_data(broker_id))).write(image, IDENTITY)
    yield made
    stop_leftover(made.postgres_data)


@pytest.fixture
def server(folder: StackFolder) -> Iterator[PostgresServer]:
    made = PostgresServer(folder.postgres_data, is_durable=False)
    made.start()
    yield made
    made.stop()


def version_in(server: PostgresServer, schema: str = DEFAULT_SCHEMA) -> int:
    with psycopg.connect(server.dsn) as connection:
        statement = psycopg.sql.SQL("SELECT seq FROM {}.cell").format(
            psycopg.sql.Identifier(schema)
        )
        row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def test_the_postgres_of_a_stopped_stack_runs_only_for_the_recovery(folder: StackFolder) -> None:
    assert run_recover(folder, None, replace=False) == 0
    assert find_leftover(folder.postgres_data) is None
    assert not folder.is_locked()
    # What is there now is another store than that of the images: nobody throws it away unasked.
    assert run_recover(folder, None, replace=False) == 1
    assert run_recover(folder, None, replace=True) == 0
    server = PostgresServer(folder.postgres_data)
    server.start()
    assert version_in(server) >= 2 * VERSION_JUMP
    server.stop()


def test_the_postgres_of_a_running_stack_is_used_as_it_runs(
    folder: StackFolder, server: PostgresServer
) -> None:
    supervisor = identify(os.getpid())
    assert supervisor is not None
    assert server.identity is not None
    lock = folder.lock()
    assert lock is not None
    state = StackState(
        supervisor, folder.cluster_id(), 0, (), PostgresState(server.identity, server.port)
    )
    folder.write_state(state)
    assert run_recover(folder, None, replace=False) == 0
    assert server.poll() is None
    # Of the two images the newer one.
    assert version_in(server) == VERSION_JUMP + 2
    os.close(lock)


def test_a_stack_that_runs_without_its_postgres_has_to_start_it_first(folder: StackFolder) -> None:
    lock = folder.lock()
    assert lock is not None
    with pytest.raises(StackError, match="up --add postgres"):
        run_recover(folder, None, replace=False)
    assert find_leftover(folder.postgres_data) is None
    os.close(lock)


def test_a_cell_in_a_database_of_the_users_is_recovered_there(
    folder: StackFolder, server: PostgresServer
) -> None:
    folder.write_store_kind(MetadataStoreKind.EXTERNAL)
    with pytest.raises(StackError, match="Set DATABASE_URL"):
        run_recover(folder, None, replace=False)
    assert run_recover(folder, server.dsn, replace=False) == 0
    schema = store_schema(MetadataStoreKind.EXTERNAL, folder.cluster_id())
    assert version_in(server, schema) == VERSION_JUMP + 2


def test_a_single_broker_is_no_cell(folder: StackFolder) -> None:
    folder.write_store_kind(MetadataStoreKind.LOCAL)
    with pytest.raises(StackError, match="There is no cell"):
        run_recover(folder, None, replace=False)


def test_images_that_are_missing_are_named(
    folder: StackFolder, server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write_store_kind(MetadataStoreKind.EXTERNAL)
    images = [folder.broker_data(broker_id) / "metadata-image.json" for broker_id in (1, 2)]
    images[1].unlink()
    assert run_recover(folder, server.dsn, replace=False) == 0
    assert f"{images[1]} is missing; going on without it" in capsys.readouterr().err
    images[0].unlink()
    with pytest.raises(StackError, match=r"No broker in .* has an image"):
        run_recover(folder, server.dsn, replace=False)
