"""The local metadata store: restarts, torn journals, damage, full disks, loss of power."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest
from hypothesis import given, settings

from data_plane.cell import local_store
from data_plane.cell.changes import (
    AllocateProducerIds,
    AlterConfigs,
    Change,
    CreateTopic,
    apply_changes,
)
from data_plane.cell.files import CellSyncSite
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.metadata_store import StoreCorrupt, StoreUnavailable
from data_plane.log.sim_file_system import Fault, PowerLoss, SimFileSystem
from tests.cell.cases import NEW_CELL, histories

JOURNAL = "/data/metadata/journal-00000000000000000000.log"
SNAPSHOT = "/data/metadata/snapshot-00000000000000000000.json"


def new_disk() -> SimFileSystem:
    fs = SimFileSystem()
    fs.make_directory("/data")
    fs.root.sync()
    return fs


def open_store(fs: SimFileSystem) -> LocalMetadataStore:
    return LocalMetadataStore(fs, "/data", "cluster")


def topic(number: int) -> CreateTopic:
    return CreateTopic("default", f"topic-{number}", UUID(int=number + 1), ((1,),) * 3)


def fill(store: LocalMetadataStore, count: int) -> MetadataImage:
    image = store.read()
    for _ in range(count):
        image = store.apply([topic(image.version)], image.version, f"r{image.version}")
    return image


@given(histories(image=NEW_CELL))
@settings(max_examples=50)
def test_a_restart_finds_the_same_image_and_feed(changes: list[Change]) -> None:
    fs = new_disk()
    store = open_store(fs)
    for number, change in enumerate(changes):
        store.apply([change], store.read().version, f"r{number}")
    image, feed = store.read(), list(store.feed(0))
    fs.process_death()
    again = open_store(fs)
    assert again.read() == image
    assert list(again.feed(0)) == feed


def test_a_request_is_known_after_a_restart_and_after_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_store, "JOURNAL_BYTES_MIN", 1)
    fs = new_disk()
    store = open_store(fs)
    store.apply([AllocateProducerIds(0, 1000)], 0, "mine")
    fill(store, 30)
    fs.process_death()
    store = open_store(fs)
    assert store.apply([AllocateProducerIds(0, 1000)], 0, "mine").next_producer_id == 1000


def test_a_journal_torn_at_any_byte_loses_only_the_commit_that_was_not_acknowledged() -> None:
    fs = new_disk()
    store = open_store(fs)
    fill(store, 2)
    whole = fs.size(JOURNAL)
    third = fill(store, 1)
    data = fs.read_file(JOURNAL)
    for size in range(whole, len(data)):
        for tail in (b"", b"\0" * 9, b"\xff\n\n"):
            torn = new_disk()
            open_store(torn).close()
            torn.open(JOURNAL).write_at(0, data[:size] + tail)
            again = open_store(torn)
            assert again.read().version == 2
            assert torn.size(JOURNAL) == whole
            assert again.apply([topic(2)], 2, "r2") == third
            again.close()
            assert open_store(torn).read() == third


def test_a_flipped_bit_is_never_read_as_metadata() -> None:
    fs = new_disk()
    image = fill(open_store(fs), 3)
    first_line_end = fs.read_file(JOURNAL).index(b"\n")
    for path, positions in (
        (JOURNAL, range(0, first_line_end + 1, 7)),
        (SNAPSHOT, range(0, fs.size(SNAPSHOT), 5)),
    ):
        for position in positions:
            fs.process_death()
            fs.flip_bit(path, position)
            with pytest.raises(StoreCorrupt, match=path):
                open_store(fs)
            fs.flip_bit(path, position)
            fs.process_death()
            assert open_store(fs).read() == image


def test_a_journal_without_its_snapshot_is_damage() -> None:
    fs = new_disk()
    fill(open_store(fs), 1)
    fs.process_death()
    fs.unlink(SNAPSHOT)
    with pytest.raises(StoreCorrupt, match="has commits but no snapshot"):
        open_store(fs)


def test_the_metadata_of_another_cluster_is_refused() -> None:
    fs = new_disk()
    open_store(fs).close()
    with pytest.raises(StoreCorrupt, match="of cluster cluster, expected cluster other"):
        LocalMetadataStore(fs, "/data", "other")
    # The refused opening let go of the lock.
    open_store(fs).close()


def test_one_process_at_a_time() -> None:
    fs = new_disk()
    store = open_store(fs)
    with pytest.raises(StoreUnavailable, match="in use by another process"):
        open_store(fs)
    store.close()
    open_store(fs)


def test_a_full_disk_fails_one_commit_and_not_the_next() -> None:
    fs = new_disk()
    store = open_store(fs)
    image = fill(store, 1)
    fs.faults.append(Fault("write", "journal", errno.ENOSPC, partial_bytes=30))
    with pytest.raises(StoreUnavailable, match="No space left"):
        store.apply([topic(1)], 1, "r1")
    assert store.read() == image
    assert store.apply([topic(1)], 1, "r1").version == 2
    fs.process_death()
    assert open_store(fs).read().version == 2


def test_after_a_failed_sync_nothing_is_committed_until_a_restart() -> None:
    fs = new_disk()
    store = open_store(fs)
    image = fill(store, 1)
    fs.faults.append(Fault("sync", "journal", errno.EIO))
    with pytest.raises(StoreUnavailable, match="restart the broker"):
        store.apply([topic(1)], 1, "r1")
    with pytest.raises(StoreUnavailable, match="restart the broker"):
        store.apply([topic(1)], 1, "r1")
    assert store.read() == image
    fs.process_death()
    # Whether the commit happened is unknown until now; the request id tells.
    assert open_store(fs).apply([topic(1)], 1, "r1").version == 2


def test_a_snapshot_replaces_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "JOURNAL_BYTES_MIN", 500)
    fs = new_disk()
    store = open_store(fs)
    image = fill(store, 40)
    names = fs.list_directory("/data/metadata")
    assert len(names) == 3, names
    assert SNAPSHOT.rsplit("/", 1)[1] not in names
    assert sum(fs.size(f"/data/metadata/{name}") for name in names) < 20_000
    fs.process_death()
    assert open_store(fs).read() == image


def test_a_failed_snapshot_stops_later_commits_and_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_store, "JOURNAL_BYTES_MIN", 1)
    fs = new_disk()
    store = open_store(fs)
    fs.faults.append(Fault("rename", "snapshot", errno.EIO))
    image = store.read()
    while not fs.list_directory("/data/metadata")[-1].endswith(".tmp"):
        image = store.apply([topic(image.version)], image.version, f"r{image.version}")
    with pytest.raises(StoreUnavailable, match="writing a snapshot"):
        store.apply([topic(image.version)], image.version, "refused")
    fs.process_death()
    assert open_store(fs).read() == image


# Loss of power.


class Workload:
    """Commits, snapshots and restarts; `acknowledged` is what must be there afterwards."""

    def __init__(self, rng: random.Random, forgotten: CellSyncSite | None = None) -> None:
        self.rng = rng
        self.fs = new_disk()
        self.fs.forgotten_site = forgotten  # type: ignore[assignment]
        self.acknowledged = NEW_CELL
        self.started: MetadataImage | None = None

    def run(self, steps: int) -> None:
        """Raises AssertionError or StoreCorrupt when something acknowledged is gone."""
        store = self.open()
        for _ in range(steps):
            action = self.rng.random()
            if action < 0.05:
                self.fs.process_death()
                store = self.open()
            elif action < 0.25:
                self.fs.power_loss_at = self.fs.operations + self.rng.randrange(30)
                store = self.commit_until_the_lights_go_out(store)
            else:
                self.commit(store)
        self.fs.power_loss(self.rng)
        self.open()

    def commit_until_the_lights_go_out(self, store: LocalMetadataStore) -> LocalMetadataStore:
        while True:
            try:
                self.commit(store)
            except PowerLoss:
                if self.rng.random() < 0.3:
                    # Only the process dies: what it wrote and did not sync can still be read.
                    self.fs.process_death()
                else:
                    self.fs.power_loss(self.rng)
                return self.open()

    def commit(self, store: LocalMetadataStore) -> None:
        image = self.acknowledged
        change = AlterConfigs(
            "default", ResourceType.BROKER, "", (("key", "x" * self.rng.randrange(900)),)
        )
        request_id = f"r{image.version}-{self.rng.random()}"
        self.started = apply_changes(image, [change])
        self.acknowledged = store.apply([change], image.version, request_id)
        self.started = None

    def open(self) -> LocalMetadataStore:
        while True:
            try:
                store = open_store(self.fs)
            except PowerLoss:
                self.fs.power_loss(self.rng)
                continue
            found = store.read()
            assert found == self.acknowledged or (
                self.started is not None and found == self.started
            ), f"acknowledged version {self.acknowledged.version}, found {found.version}"
            self.acknowledged = found
            self.started = None
            if self.rng.random() < 0.3:
                # What a restart has read must hold, too: others may have seen it.
                store.close()
                self.fs.power_loss(self.rng)
                continue
            return store


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_when_the_power_goes(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "JOURNAL_BYTES_MIN", 3000)
    for seed in range(part, 200, 4):
        print(f"seed {seed}")
        Workload(random.Random(seed)).run(40)


@pytest.mark.parametrize(
    "site",
    [
        CellSyncSite.METADATA_FOLDER,
        CellSyncSite.JOURNAL_APPEND,
        CellSyncSite.JOURNAL_CUT,
        CellSyncSite.SNAPSHOT,
        CellSyncSite.SNAPSHOT_FOLDER,
    ],
)
def test_each_sync_of_the_store_is_needed(
    site: CellSyncSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "JOURNAL_BYTES_MIN", 3000)

    def is_noticed(seed: int) -> bool:
        try:
            Workload(random.Random(seed), forgotten=site).run(40)
        except (AssertionError, StoreCorrupt):
            return True
        return False

    assert any(is_noticed(seed) for seed in range(60))
