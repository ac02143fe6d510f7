"""The image on a broker's own disk: whole or the old one, whatever happens to the power."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from data_plane.cell.changes import CreateTopic, apply_changes
from data_plane.cell.files import CellSyncSite
from data_plane.cell.image_file import IMAGE_FILE, ImageFile
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import StoreCorrupt
from data_plane.log.sim_file_system import PowerLoss, SimFileSystem

EMPTY = MetadataImage("cluster")
IMAGE = apply_changes(
    EMPTY, [CreateTopic("default", "orders", UUID(int=1), ((1, 2, 3), (2, 3, 1)))]
)


def new_disk() -> SimFileSystem:
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.root.sync()
    return fs


def test_it_holds_the_image_and_the_identity_of_its_store() -> None:
    fs = new_disk()
    file = ImageFile(fs, "/data")
    assert file.read() is None
    file.write(EMPTY, "first")
    file.write(IMAGE, "second")
    assert ImageFile(fs, "/data").read() == (IMAGE, "second")
    assert fs.list_directory("/data") == [IMAGE_FILE]


def test_a_damaged_file_is_never_taken_for_an_image() -> None:
    fs = new_disk()
    file = ImageFile(fs, "/data")
    file.write(IMAGE, "id")
    size = fs.size(file.path)
    for position in range(size):
        fs.flip_bit(file.path, position)
        with pytest.raises(StoreCorrupt, match=file.path):
            file.read()
        fs.flip_bit(file.path, position)
    for shorter in range(size):
        torn = new_disk()
        torn.open(file.path, create=True).write_at(0, fs.read_file(file.path)[:shorter])
        with pytest.raises(StoreCorrupt, match=file.path):
            ImageFile(torn, "/data").read()


def survives(seed: int, forgotten: CellSyncSite | None) -> bool:
    """Whether what was written before the power went is there, or what was being written."""
    rng = random.Random(seed)
    fs = new_disk()
    fs.forgotten_site = forgotten  # type: ignore[assignment]
    file = ImageFile(fs, "/data")
    file.write(EMPTY, "first")
    fs.power_loss_at = fs.operations + rng.randrange(12)
    allowed = [(EMPTY, "first"), (IMAGE, "second")]
    try:
        file.write(IMAGE, "second")
        allowed = allowed[1:]
    except PowerLoss:
        pass
    fs.power_loss(rng)
    try:
        return file.read() in allowed
    except StoreCorrupt:
        return False


def test_power_loss_leaves_the_old_file_or_the_new_one() -> None:
    assert all(survives(seed, None) for seed in range(200))


@pytest.mark.parametrize("site", [CellSyncSite.IMAGE, CellSyncSite.IMAGE_FOLDER])
def test_each_sync_is_needed(site: CellSyncSite) -> None:
    assert not all(survives(seed, site) for seed in range(200))
