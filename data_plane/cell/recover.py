"""Rebuilds a lost metadata store from the image files of the cell's brokers.

    python -m data_plane.cell.recover --dsn DSN --image FILE [FILE ...] [--replace]

Each broker keeps the newest image that it wrote to disk. Of those that are given, the newest
becomes the first snapshot of a store with a new identity. Give the files of all brokers: a commit
that none of them has is lost.

Commits may be missing, and brokers may have acted on them. So nothing that was counted may come
again: the version, the epochs of all partitions and the producer ids all jump ahead by more than
can have been missed. What cannot be repaired by counting is a missed ISR change: the replica that
it took out of the ISR may be elected although it lacks records. That is the price of losing a store
without a backup, and the reason to have one.

A store that has gone on from the images is refused, and one of another identity too unless
`--replace` says that it is not wanted. Brokers follow the new store, because it names its
ancestors; those that run need no restart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg

from data_plane.cell.image_file import decode_image_file
from data_plane.cell.metadata import NO_LEADER, MetadataImage, PartitionImage
from data_plane.cell.metadata_store import StoreCorrupt, StoreTooNew
from data_plane.cell.postgres_connection import Connection, connection_parameters
from data_plane.cell.postgres_schema import (
    CellRow,
    lock_and_migrate,
    read_cell_row,
    write_first_snapshot,
)
from data_plane.cell.postgres_store import DEFAULT_SCHEMA
from data_plane.cell.topics_draft import by_tenant
from data_plane.log.file_system import OsFileSystem

# Years of commits; broker epochs are versions and need room in 64 bits only.
VERSION_JUMP = 1_000_000
# More elections than a partition can have had between two writes of an image file.
EPOCH_JUMP = 1_000
PRODUCER_ID_JUMP = 1_000_000_000


class CannotRecover(Exception):
    """Nothing was written. The message is for the operator."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One broker's image file."""

    path: str
    image: MetadataImage
    identity: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is written: from which file, the image that the store begins with, and the identities
    whose brokers follow it."""

    source: Candidate
    image: MetadataImage
    ancestors: tuple[str, ...]


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The newest image. Raises CannotRecover when the files cannot be those of one cell."""
    if not candidates:
        raise CannotRecover("no image file was given")
    newest = max(candidates, key=lambda candidate: candidate.image.version)
    digests: dict[int, tuple[str, str]] = {}
    for candidate in candidates:
        if candidate.image.cluster_id != newest.image.cluster_id:
            raise CannotRecover(
                f"{candidate.path} belongs to cluster {candidate.image.cluster_id}, {newest.path} "
                f"to cluster {newest.image.cluster_id}"
            )
        digest = candidate.image.digest()
        first_path, first = digests.setdefault(candidate.image.version, (candidate.path, digest))
        if first != digest:
            raise CannotRecover(
                f"{first_path} and {candidate.path} hold different images of version "
                f"{candidate.image.version}: they do not come from one store"
            )
    return newest


def jumped_ahead(image: MetadataImage) -> MetadataImage:
    """The image as a new store begins with it: nothing in it has been given out before."""
    topics = [
        replace(topic, partitions=tuple(_jumped(item) for item in topic.partitions))
        for topic in image.topics_by_id.values()
    ]
    return replace(
        image,
        version=image.version + VERSION_JUMP,
        next_producer_id=image.next_producer_id + PRODUCER_ID_JUMP,
        topics_by_tenant=by_tenant(topics),
        topics_by_id={topic.topic_id: topic for topic in topics},
    )


def _jumped(partition: PartitionImage) -> PartitionImage:
    return replace(
        partition,
        leader_epoch=partition.leader_epoch + EPOCH_JUMP,
        partition_epoch=partition.partition_epoch + EPOCH_JUMP,
        # Of processes that may have been started again in the commits that are missing.
        log_ends=(),
    )


def recover(
    dsn: str,
    candidates: Sequence[Candidate],
    *,
    replace_other: bool = False,
    schema: str = DEFAULT_SCHEMA,
) -> Recovery:
    """Write the newest of `candidates` as the first snapshot of a new store, in one transaction.

    `replace_other` also throws away a store that the images do not come from. Raises
    CannotRecover, StoreTooNew, psycopg.Error; nothing has changed then."""
    choose(candidates)
    parameters = connection_parameters(dsn, schema)
    with (
        psycopg.Connection.connect(autocommit=True, **parameters) as connection,
        connection.transaction(),
    ):
        lock_and_migrate(connection, schema)
        connection.execute("LOCK TABLE cell")
        present = read_cell_row(connection)
        recovery = plan_recovery(candidates, present, replace_other=replace_other)
        _write(connection, recovery.image, recovery.ancestors)
    return recovery


def plan_recovery(
    candidates: Sequence[Candidate], present: CellRow | None, *, replace_other: bool = False
) -> Recovery:
    """What a recovery from `candidates` writes where `present` is (None: nothing is). Raises
    CannotRecover."""
    source = choose(candidates)
    image = jumped_ahead(source.image)
    if present is not None and not replace_other:
        _refuse_unless_behind(present, source)
    identities = {candidate.identity for candidate in candidates} - {""}
    if present is not None:
        identities |= {present.identity, *present.ancestors}
        image = replace(image, version=max(image.version, present.version + VERSION_JUMP))
    return Recovery(source, image, tuple(sorted(identities)))


def _refuse_unless_behind(present: CellRow, source: Candidate) -> None:
    if present.identity != source.identity:
        raise CannotRecover(
            f"the store in this database has identity {present.identity} and version "
            f"{present.version}, {source.path} comes from {source.identity}; --replace throws the "
            "store away"
        )
    if present.version >= source.image.version:
        raise CannotRecover(
            f"the store is at version {present.version}, {source.path} at "
            f"{source.image.version}: nothing is lost, and nothing was changed"
        )


def _write(connection: Connection, image: MetadataImage, ancestors: tuple[str, ...]) -> None:
    connection.execute("TRUNCATE cell, commits, snapshots, sessions")
    # Epochs of the lost store are unknown. Versions have just jumped over all that can have been.
    connection.execute(
        "UPDATE controller SET node_id = NULL, incarnation_id = NULL, expires_at = '-infinity',"
        " epoch = greatest(epoch + 1, %s)",
        (image.version,),
    )
    write_first_snapshot(connection, image, ancestors)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tidewheel cell recover",
        description="Rebuild a lost metadata store from the brokers' image files.",
    )
    parser.add_argument(
        "--dsn", required=True, help="of the database; - reads it from standard input"
    )
    parser.add_argument("--schema", default=DEFAULT_SCHEMA)
    parser.add_argument(
        "--image",
        nargs="+",
        required=True,
        metavar="FILE",
        help="metadata-image.json of each broker",
    )
    parser.add_argument(
        "--replace", action="store_true", help="throw away a store that the images do not come from"
    )
    options = parser.parse_args(arguments)
    dsn = sys.stdin.readline().strip() if options.dsn == "-" else options.dsn
    try:
        candidates = [_read(path) for path in options.image]
        result = recover(dsn, candidates, replace_other=options.replace, schema=options.schema)
    except (CannotRecover, StoreCorrupt, StoreTooNew, ValueError, psycopg.Error) as error:
        print(f"Not recovered: {error}", file=sys.stderr)
        return 1
    image = result.image
    partitions = [item for topic in image.topics_by_id.values() for item in topic.partitions]
    leaderless = sum(item.leader == NO_LEADER for item in partitions)
    print(
        f"Recovered from {result.source.path}, version {result.source.image.version}: "
        f"{len(image.topics_by_id)} topics with {len(partitions)} partitions, {leaderless} of them "
        f"without a leader; the new store begins at version {image.version}."
    )
    return 0


def _read(path: str) -> Candidate:
    try:
        data = OsFileSystem().read_file(path)
    except OSError as error:
        raise CannotRecover(f"{path} cannot be read: {error.strerror or error}") from error
    image, identity = decode_image_file(data, path)
    return Candidate(path, image, identity)


if __name__ == "__main__":
    raise SystemExit(main())
