"""Whose data a folder holds: `meta.properties`, with the cluster's and the node's id.

Each data directory of a broker carries the same identity. A broker refuses a directory of another
cluster or node before it touches anything in it: two brokers on one folder, or one broker with
another's data, would lose records in ways that nobody notices in time.
"""

from __future__ import annotations

import base64
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


def claim_directory(
    fs: FileSystem, directory: str, *, node_id: int, cluster_id: str | None, new_cluster_id: str
) -> Identity:
    """Make sure that `directory` is this node's; a new one is made and gets its identity.

    `cluster_id` is what the configuration demands, None when it leaves that open; a new folder then
    becomes part of `new_cluster_id`. Raises IdentityMismatch, OSError.
    """
    make_directories(fs, directory)
    found = read_identity(fs, directory)
    if found is None:
        identity = Identity(cluster_id or new_cluster_id, node_id)
        write_file_atomically(
            fs,
            directory,
            IDENTITY_FILE,
            (
                f"version={FORMAT_VERSION}\n"
                f"cluster.id={identity.cluster_id}\n"
                f"node.id={identity.node_id}\n"
            ).encode(),
            data_site=CellSyncSite.IDENTITY,
            folder_site=CellSyncSite.IDENTITY_FOLDER,
        )
        return identity
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
    return found
