"""Whose data a folder holds: `meta.properties`, with the cluster's and the node's id.

Each data directory of a broker carries the same identity. A broker refuses a directory of another
cluster or node before it touches anything in it: two brokers on one folder, or one broker with
another's data, would lose records in ways that nobody notices in time.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_plane.cell.files import (
    CellSyncSite,
    FileSystem,
    make_directories,
    write_file_atomically,
)

IDENTITY_FILE = "meta.properties"
FORMAT_VERSION = "1"
# A Kafka cluster id is a UUID in URL-safe base64 without padding.
CLUSTER_ID_RANDOM_BYTES = 16


class IdentityMismatch(Exception):
    """The data directory belongs to somebody else; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int


def cluster_id_from(random_bytes: bytes) -> str:
    """A new cluster id from 16 random bytes: 22 characters, none of them leading '-'."""
    assert len(random_bytes) == CLUSTER_ID_RANDOM_BYTES
    cluster_id = base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")
    # A leading dash would look like an option on command lines.
    return "A" + cluster_id[1:] if cluster_id.startswith("-") else cluster_id


def read_identity(fs: FileSystem, directory: str) -> Identity | None:
    """The identity of a data directory; None when it has none yet. Raises IdentityMismatch for a
    file that cannot be understood."""
    path = f"{directory}/{IDENTITY_FILE}"
    try:
        text = fs.read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    values = dict(
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
    )
    if values.get("version") != FORMAT_VERSION:
        raise IdentityMismatch(
            f"{path} has format version {values.get('version')!r}, this broker knows version "
            f"{FORMAT_VERSION}: it was written by another version, or is damaged"
        )
    try:
        return Identity(values["cluster.id"], int(values["node.id"]))
    except (KeyError, ValueError) as error:
        raise IdentityMismatch(
            f"{path} is damaged: it needs cluster.id and a numeric node.id"
        ) from error


def claim_directories(
    fs: FileSystem,
    directories: Sequence[str],
    *,
    node_id: int,
    cluster_id: str | None,
    new_cluster_id: str,
    on_unreadable: Callable[[str, OSError], None],
) -> Identity:
    """Make sure that all data directories are this node's and of one cluster; new ones are made
    and get the identity of the others.

    `cluster_id` is what the configuration demands, None when it leaves that open. Without it and
    without any old directory the cell is a new one, `new_cluster_id`. Nothing is written when any
    directory is refused. One that cannot be read is told to `on_unreadable`, and is not to be used;
    but the first one has more than logs. Raises IdentityMismatch, OSError.
    """
    found: dict[str, Identity | None] = {}
    for directory in directories:
        try:
            identity = read_identity(fs, directory)
        except OSError as error:
            if directory == directories[0]:
                raise
            on_unreadable(directory, error)
            found[directory] = None
            continue
        if identity is not None:
            _check(directory, identity, node_id, cluster_id)
            # A directory of another cluster is told by the first one that has an identity.
            cluster_id = identity.cluster_id
            found[directory] = identity
    identity = Identity(cluster_id or new_cluster_id, node_id)
    for directory in directories:
        if directory not in found:
            make_directories(fs, directory)
            _write_identity(fs, directory, identity)
    return identity


def _check(directory: str, found: Identity, node_id: int, cluster_id: str | None) -> None:
    if found.node_id != node_id:
        raise IdentityMismatch(
            f"{directory} holds the data of node {found.node_id}, this broker is node {node_id}: "
            f"set node.id={found.node_id} or choose another folder in log.dirs"
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise IdentityMismatch(
            f"{directory} belongs to cluster {found.cluster_id}, this broker to cluster "
            f"{cluster_id}: set cluster.id={found.cluster_id} or choose another folder in log.dirs"
        )


def _write_identity(fs: FileSystem, directory: str, identity: Identity) -> None:
    text = (
        f"version={FORMAT_VERSION}\ncluster.id={identity.cluster_id}\nnode.id={identity.node_id}\n"
    )
    write_file_atomically(
        fs,
        directory,
        IDENTITY_FILE,
        text.encode(),
        data_site=CellSyncSite.IDENTITY,
        folder_site=CellSyncSite.IDENTITY_FOLDER,
    )
