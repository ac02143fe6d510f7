"""The reserve of producer ids on disk: once and for one life only, whatever the disk does."""

from __future__ import annotations

import contextlib
import random

import pytest

from data_plane.cell.files import CellSyncSite
from data_plane.cell.producer_id_file import PRODUCER_ID_FILE, ProducerIdFile
from data_plane.log.sim_file_system import PowerLoss, SimFileSystem

RANGES = ((5, 1000), (3000, 4000))


@pytest.fixture
def fs() -> SimFileSystem:
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.root.sync()
    return fs


def test_what_was_kept_is_taken_once(fs: SimFileSystem) -> None:
    file = ProducerIdFile(fs, "/data")
    assert file.take(17) == ()
    file.write(RANGES, 17)
    assert file.take(17) == RANGES
    assert file.take(17) == ()


@pytest.mark.parametrize("epoch", [16, 18])
def test_another_life_does_not_get_it(fs: SimFileSystem, epoch: int) -> None:
    file = ProducerIdFile(fs, "/data")
    file.write(RANGES, 17)
    assert file.take(epoch) == ()
    assert file.take(17) == (), "and nobody ever will"


def test_a_damaged_file_holds_nothing(fs: SimFileSystem) -> None:
    file = ProducerIdFile(fs, "/data")
    file.write(RANGES, 17)
    handle = fs.open(f"/data/{PRODUCER_ID_FILE}")
    handle.write_at(12, b"9")
    handle.close()
    assert file.take(17) == ()


def lives(seed: int, forgotten: CellSyncSite | None = None) -> tuple[bool, bool]:
    """A power cut after `write`, and one after `take`: whether the ids were there, and whether
    they came back although they had been taken."""
    source = random.Random(seed)
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.root.sync()
    fs.forgotten_site = forgotten  # type: ignore[assignment]
    ProducerIdFile(fs, "/data").write(RANGES, 17)
    fs.power_loss(source)
    taken = ProducerIdFile(fs, "/data").take(17)
    fs.power_loss(source)
    return taken == RANGES, taken != () and ProducerIdFile(fs, "/data").take(17) != ()


def test_no_power_cut_loses_what_was_kept_or_brings_back_what_was_taken() -> None:
    assert {lives(seed) for seed in range(60)} == {(True, False)}


@pytest.mark.parametrize("site", [CellSyncSite.PRODUCER_IDS, CellSyncSite.PRODUCER_IDS_FOLDER])
def test_what_is_kept_needs_its_syncs(site: CellSyncSite) -> None:
    assert not all(lives(seed, site)[0] for seed in range(60))


def test_what_is_taken_needs_its_sync() -> None:
    assert any(lives(seed, CellSyncSite.PRODUCER_IDS_TAKEN)[1] for seed in range(60))


def test_every_crash_within_leaves_all_or_nothing() -> None:
    for operation in range(1, 20):
        fs = SimFileSystem()
        fs.make_directory("/data")
        fs.root.sync()
        fs.power_loss_at = fs.operations + operation
        with contextlib.suppress(PowerLoss):
            ProducerIdFile(fs, "/data").write(RANGES, 17)
        fs.power_loss_at = None
        fs.power_loss(random.Random(operation))
        assert ProducerIdFile(fs, "/data").take(17) in ((), RANGES)
