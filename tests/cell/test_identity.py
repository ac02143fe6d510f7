"""Whose data a folder holds."""

from __future__ import annotations

import errno
import random

import pytest

from data_plane.cell.files import CellSyncSite
from data_plane.cell.identity import (
    Identity,
    IdentityMismatch,
    claim_directories,
    cluster_id_from,
    read_identity,
)
from data_plane.log.sim_file_system import Fault, SimFileSystem

NEW = "AAAAAAAAAAAAAAAAAAAAAA"


def claim(
    fs: SimFileSystem,
    *directories: str,
    node_id: int = 1,
    cluster_id: str | None = None,
    unreadable: list[str] | None = None,
) -> Identity:
    told = [] if unreadable is None else unreadable
    return claim_directories(
        fs,
        directories,
        node_id=node_id,
        cluster_id=cluster_id,
        new_cluster_id=NEW,
        on_unreadable=lambda directory, error: told.append(directory),
    )


def test_a_disk_that_cannot_be_read_keeps_no_other_from_a_start() -> None:
    fs = SimFileSystem()
    claim(fs, "/a", "/b", "/c")
    fs.faults.append(Fault("read", "/b/meta.properties", errno.EIO))
    unreadable: list[str] = []
    assert claim(fs, "/a", "/b", "/c", unreadable=unreadable) == Identity(NEW, 1)
    assert unreadable == ["/b"]
    # The first one has the metadata, too.
    fs.faults.append(Fault("read", "/a/meta.properties", errno.EIO))
    with pytest.raises(OSError, match="error"):
        claim(fs, "/a", "/b")


def test_a_new_folder_gets_the_identity_and_keeps_it() -> None:
    fs = SimFileSystem()
    assert claim(fs, "/a/b/data") == Identity(NEW, 1)
    assert fs.read_file("/a/b/data/meta.properties") == (
        b"version=1\ncluster.id=" + NEW.encode() + b"\nnode.id=1\n"
    )
    again = claim_directories(
        fs,
        ["/a/b/data"],
        node_id=1,
        cluster_id=None,
        new_cluster_id="other",
        on_unreadable=lambda directory, error: pytest.fail(directory),
    )
    assert again == Identity(NEW, 1)


def test_a_new_folder_joins_the_cluster_of_the_old_one_wherever_it_stands() -> None:
    fs = SimFileSystem()
    claim(fs, "/old", cluster_id="c")
    assert claim(fs, "/new", "/old") == Identity("c", 1)
    assert read_identity(fs, "/new") == Identity("c", 1)


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "words"),
    [
        (2, None, r"/data holds the data of node 1, this broker is node 2: set node.id=1 or"),
        (1, "other", r"/data belongs to cluster c, this broker to cluster other: set cluster.id=c"),
    ],
)
def test_the_folder_of_somebody_else_is_refused_and_nothing_is_written(
    node_id: int, cluster_id: str | None, words: str
) -> None:
    fs = SimFileSystem()
    claim(fs, "/data", cluster_id="c")
    operations = fs.operations
    with pytest.raises(IdentityMismatch, match=words):
        claim(fs, "/new", "/data", node_id=node_id, cluster_id=cluster_id)
    assert fs.operations == operations


def test_two_old_folders_of_different_clusters_are_refused() -> None:
    fs = SimFileSystem()
    claim(fs, "/a", cluster_id="a")
    claim(fs, "/b", cluster_id="b")
    with pytest.raises(IdentityMismatch, match="/b belongs to cluster b, this broker to cluster a"):
        claim(fs, "/a", "/b")


@pytest.mark.parametrize("text", [b"", b"version=2\n", b"version=1\ncluster.id=c\nnode.id=x\n"])
def test_a_damaged_identity_is_refused_with_its_path(text: bytes) -> None:
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.open("/data/meta.properties", create=True).write_at(0, text)
    with pytest.raises(IdentityMismatch, match=r"/data/meta\.properties"):
        claim(fs, "/data")


@pytest.mark.parametrize("seed", range(30))
def test_the_identity_is_whole_after_power_loss(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimFileSystem()
    claim(fs, "/deep/data", cluster_id="c")
    fs.power_loss(rng)
    assert read_identity(fs, "/deep/data") == Identity("c", 1)


@pytest.mark.parametrize(
    "site", [CellSyncSite.IDENTITY, CellSyncSite.IDENTITY_FOLDER, CellSyncSite.DATA_FOLDER]
)
def test_each_sync_of_the_identity_is_needed(site: CellSyncSite) -> None:
    def is_lost(seed: int) -> bool:
        fs = SimFileSystem()
        fs.forgotten_site = site  # type: ignore[assignment]
        claim(fs, "/deep/data", cluster_id="c")
        fs.power_loss(random.Random(seed))
        try:
            return read_identity(fs, "/deep/data") != Identity("c", 1)
        except IdentityMismatch:
            return True

    assert any(is_lost(seed) for seed in range(50))


def test_a_cluster_id_looks_like_kafkas() -> None:
    for seed in range(200):
        cluster_id = cluster_id_from(random.Random(seed).randbytes(16))
        assert len(cluster_id) == 22
        assert not cluster_id.startswith("-")
