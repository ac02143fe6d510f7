"""`cell recover`: rebuild a stack's lost metadata store from what its brokers keep on disk.

The work is `python -m data_plane.cell.recover`; here stands only where a stack has its database
and its brokers' image files. A stack that is down gets its Postgres started for the time being.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.folder import MetadataStoreKind, StackFolder
from stack.hints import command
from stack.options import store_schema
from stack.postgres import PostgresServer

IMAGE_FILE = "metadata-image.json"


def run_recover(folder: StackFolder, database_url: str | None, *, replace: bool) -> int:
    """Rebuild the store of a folder's stack. The exit status; 1 when nothing was written."""
    kind = folder.store_kind()
    if kind is None or kind is MetadataStoreKind.LOCAL:
        raise StackError(f"There is no cell in {folder.path}.", EXIT_USAGE)
    images = _image_files(folder)
    with _store(folder, kind, database_url) as dsn:
        schema = store_schema(kind, folder.cluster_id())
        return recover_from(images, dsn, schema, replace=replace)


def recover_from(images: Sequence[Path], dsn: str, schema: str | None, *, replace: bool) -> int:
    """Rebuild the store at `dsn` from image files. The exit status; 1: nothing was written."""
    command = [sys.executable, "-P", "-m", "data_plane.cell.recover", "--dsn", "-"]
    command += ["--image", *map(str, images)]
    if schema is not None:
        command += ["--schema", schema]
    if replace:
        command.append("--replace")
    # The address has a password in it: no place for a command line.
    return subprocess.run(command, input=f"{dsn}\n", text=True, check=False).returncode


def _image_files(folder: StackFolder) -> list[Path]:
    found: list[Path] = []
    missing: list[Path] = []
    for broker_id in folder.broker_ids():
        path = folder.broker_data(broker_id) / IMAGE_FILE
        (found if path.exists() else missing).append(path)
    if not found:
        raise StackError(f"No broker in {folder.path} has an image of the metadata.", EXIT_FAILED)
    for path in missing:
        print(f"tidewheel: {path} is missing; going on without it", file=sys.stderr)
    return found


@contextlib.contextmanager
def _store(folder: StackFolder, kind: MetadataStoreKind, database_url: str | None) -> Iterator[str]:
    """The store's address, with its server running."""
    if kind is MetadataStoreKind.EXTERNAL:
        if database_url is None:
            raise StackError("Set DATABASE_URL to the cell's Postgres.", EXIT_USAGE)
        yield database_url
        return
    state = folder.read_state()
    running = None if state is None else state.living_postgres()
    if running is not None:
        yield PostgresServer(folder.postgres_data, port=running.port).dsn
        return
    lock = folder.lock()
    if lock is None:
        raise StackError(
            "The stack runs, but its Postgres does not. Start that first, with "
            f"{command('up --add postgres', folder)}, or stop the stack with "
            f"{command('down', folder)}."
        )
    server = PostgresServer(folder.postgres_data)
    try:
        server.start()
        yield server.dsn
    finally:
        server.stop()
        os.close(lock)
