"""The store's tables: made and brought up to date, and looked at on every new connection.

`migrations/` holds one file a version. They run in order in one transaction, under an advisory
lock, so that brokers that start together do it once; a database whose schema is up to date is
opened without any right to change it.

In a rolling upgrade the first new broker migrates while older ones go on. So a migration only adds,
and says from which version on the schema can be used; older code refuses it otherwise.

`Lineage` is what a process knows of the store that it talks to: its identity, and the highest
version that was seen. A store of another identity, or behind that version, is refused: it is a
restored backup, an emptied database or simply the wrong one, and following it would take back what
brokers have acted upon. The one exception is a store that names the known identity among its
ancestors: `recover` wrote it, with a version far above.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from importlib import resources

import psycopg

from data_plane.cell.features import SUPPORTED_FEATURES, SupportedFeatures, newest_levels
from data_plane.cell.metadata import MetadataImage, encode_image
from data_plane.cell.metadata_store import StoreCorrupt, StoreTooNew, StoreWentBack
from data_plane.cell.postgres_connection import Connection

# 8 bytes that no other program locks by accident; the schema's name is the second key.
ADVISORY_LOCK_CLASS = 0x71DE
# A migration that leaves everything in place that older brokers of the cell use says from which
# schema version on, as the comment of the table schema_version: "usable from 3".
USABLE_FROM = "usable from"
RECOVER_ADVICE = "restore the right database, or run `tidewheel cell recover`"


@dataclass(frozen=True, slots=True)
class CellRow:
    """What the store says of itself."""

    schema_version: int
    identity: str
    ancestors: tuple[str, ...]
    cluster_id: str
    version: int


class Lineage:
    """The identity and the highest version that this process has seen. For any thread."""

    def __init__(self, cluster_id: str, identity: str = "", version: int = 0) -> None:
        self._lock = threading.Lock()
        self.cluster_id = cluster_id
        self._identity = identity
        self._version = version

    @property
    def identity(self) -> str:
        """Empty until a store has been seen."""
        return self._identity

    @property
    def version(self) -> int:
        """To be read before a statement is sent and handed to `saw` with its answer: another
        thread may have seen something newer in the meantime."""
        return self._version

    def saw(self, version: int, floor: int) -> None:
        """Note an answer of the known store. Raises StoreWentBack when it is below `floor`."""
        if version < floor:
            raise StoreWentBack(
                f"the metadata store {self._identity} is at version {version} and has been at "
                f"{floor}: a restored backup? {RECOVER_ADVICE}"
            )
        with self._lock:
            self._version = max(self._version, version)

    def accept(self, row: CellRow | None, floor: int) -> None:
        """Check the store behind a new connection. Raises StoreWentBack, StoreCorrupt."""
        if row is None:
            raise StoreWentBack(
                f"the metadata store is empty; this broker has seen {self._identity} at version "
                f"{floor}: {RECOVER_ADVICE}"
            )
        if row.cluster_id != self.cluster_id:
            raise StoreCorrupt(
                f"the metadata store is that of cluster {row.cluster_id}, this broker belongs to "
                f"cluster {self.cluster_id}"
            )
        known = self._identity
        if known not in ("", row.identity, *row.ancestors):
            raise StoreWentBack(
                f"the metadata store has identity {row.identity}; this broker has seen {known} at "
                f"version {floor}: {RECOVER_ADVICE}"
            )
        with self._lock:
            self._identity = row.identity
        self.saw(row.version, floor)


def read_cell_row(connection: Connection) -> CellRow | None:
    """None when there is no store in this schema, or nothing in it. Raises StoreTooNew for one that
    a newer version has changed in a way that this one cannot use, psycopg.Error."""
    try:
        row = connection.execute(
            "SELECT (SELECT max(version) FROM schema_version),"
            " identity::text, ancestors::text[], cluster_id, seq,"
            " obj_description('schema_version'::regclass, 'pg_class') FROM cell"
        ).fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    if row is None:
        return None
    schema_version, identity, ancestors, cluster_id, seq, comment = row
    newest = migrations()[-1][0]
    if schema_version > newest and newest < _usable_from(schema_version, comment):
        raise StoreTooNew(
            f"the metadata store has schema version {schema_version}, made by a newer Tidewheel; "
            f"this one knows {newest}: upgrade this broker"
        )
    return CellRow(schema_version, identity, tuple(ancestors), cluster_id, seq)


def prepare(
    connection: Connection,
    schema: str,
    cluster_id: str | None,
    features: SupportedFeatures = SUPPORTED_FEATURES,
) -> CellRow | None:
    """Bring the schema up to date, and with `cluster_id` make an empty store if there is none, with
    the newest levels of `features`.

    Raises StoreTooNew, psycopg.Error (nothing has changed then)."""
    row = read_cell_row(connection)
    if row is not None and row.schema_version >= migrations()[-1][0]:
        return row
    if row is None and cluster_id is None:
        return None
    with connection.transaction():
        lock_and_migrate(connection, schema)
        # Somebody else may have made it while this one waited for the lock.
        if cluster_id is not None and read_cell_row(connection) is None:
            image = MetadataImage(cluster_id, features=newest_levels(features))
            write_first_snapshot(connection, image, ancestors=())
    return read_cell_row(connection)


def lock_and_migrate(connection: Connection, schema: str) -> None:
    """In a transaction: take the schema's lock until its end, and run what has not run yet."""
    connection.execute(
        "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (ADVISORY_LOCK_CLASS, schema)
    )
    name = psycopg.sql.Identifier(schema)
    connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_version ("
        " version integer PRIMARY KEY,"
        " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    newest = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    assert newest is not None
    for version, script in migrations():
        if version > newest[0]:
            connection.execute(script)
            connection.execute("INSERT INTO schema_version (version) VALUES (%s)", (version,))


def write_first_snapshot(
    connection: Connection, image: MetadataImage, ancestors: tuple[str, ...]
) -> None:
    """In a transaction, into a store without a row: a new identity that begins with `image`."""
    connection.execute(
        "INSERT INTO cell (identity, ancestors, cluster_id, seq)"
        " VALUES (gen_random_uuid(), %s::uuid[], %s, %s)",
        (list(ancestors), image.cluster_id, image.version),
    )
    connection.execute(
        "INSERT INTO snapshots (seq, image) VALUES (%s, %s::json)",
        (image.version, encode_image(image).decode()),
    )


def _usable_from(schema_version: int, comment: str | None) -> int:
    """The oldest schema version whose code may go on with this one."""
    label, _, version = (comment or "").rpartition(" ")
    return int(version) if label == USABLE_FROM and version.isdecimal() else schema_version


@functools.cache
def migrations() -> list[tuple[int, bytes]]:
    """Number and text of each migration, ascending."""
    folder = resources.files("data_plane.cell.migrations")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return [(int(name.split("_")[0]), (folder / name).read_bytes()) for name in names]
