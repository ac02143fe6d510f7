"""Short histories in which one forgotten sync shows; each takes a seed and the site to forget.

A scenario fails (with an assertion or an error of the log) when it finds the log in a state that
power loss must not bring about. With no site forgotten none of them ever fails.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from data_plane.log.cleaned_end import note_cleaned_end
from data_plane.log.config import INT32_MAX
from data_plane.log.damage import NOT_DAMAGED, note_damage
from data_plane.log.errors import LogDirFailure
from data_plane.log.file_system import SyncSite
from data_plane.log.sim_file_system import Fault, PowerLoss, SimFileSystem
from data_plane.wire.records import NewRecord, build_batch
from features.delayed.runs import open_run, write_run
from tests.log.compaction_world import CONFIG, CompactionWorld
from tests.log.one_log import OneLog, batch_of
from tests.log.world import World

Scenario = Callable[[int, SyncSite | None], None]
SECTOR_VALUE_BYTES = 512 - 72


def anything(seed: int, site: SyncSite | None) -> None:
    """The random workload."""
    World(random.Random(seed), forgotten_site=site).run(120)


def compaction(seed: int, site: SyncSite | None) -> None:
    CompactionWorld(random.Random(seed), forgotten_site=site).run(120)


def stop(seed: int, site: SyncSite | None) -> None:
    """Power goes during a clean stop, while leader epochs are stored whose batches compaction has
    taken: only their file knows them."""
    world = CompactionWorld(random.Random(seed), forgotten_site=site)
    for _ in range(4):
        for _ in range(20):
            world.append()
        world.flush()
        world.checkpoint()
        job = world.log.compaction_job(world.now_ms)
        if job is not None:
            job.run()
            job.finish()
        epoch = world.log.latest_epoch
        while world.log.latest_epoch == epoch:
            world.append()
        world.fs.power_loss_at = world.fs.operations + world.rng.randrange(1, 5)
        try:
            world.manager.close(world.now_ms)
        except PowerLoss:
            world.lose_power()
        else:
            world.fs.power_loss_at = None
            world.lose_power()


def two_swaps(seed: int, site: SyncSite | None) -> None:
    """A swap that a start has finished, and a wider one of the same segments right behind it."""
    world = CompactionWorld(random.Random(seed), forgotten_site=site)
    for _ in range(40):
        world.append()
    world.flush()
    world.checkpoint()
    # That syncs the folder, too, which the second one must not rely on.
    note_cleaned_end(world.log, world.log.log_end_offset)
    for share in (0.5, 1.0):
        world.log.high_watermark = int(world.log.log_end_offset * share)
        # Larger segments let the second one take in more than the first one did.
        size_bytes = CONFIG.segment_bytes * (1 if share < 1 else 3)
        world.log.update_config(replace(CONFIG, segment_bytes=size_bytes))
        job = world.log.compaction_job(world.now_ms)
        assert job is not None
        job.run()
        # The first one stops when it is decided, the second one just before.
        first = 5 if share < 1 else 2
        world.fs.power_loss_at = world.fs.operations + first + world.rng.randrange(3)
        try:
            job.finish()
        except PowerLoss:
            world.fs.power_loss_at = None
        world.lose_power()


def swap(seed: int, site: SyncSite | None) -> None:
    """Power goes at some step of swapping one segment in for several."""
    world = CompactionWorld(random.Random(seed), forgotten_site=site)
    for _ in range(40):
        world.append()
    world.flush()
    world.checkpoint()
    world.log.update_config(replace(CONFIG, segment_bytes=3 * CONFIG.segment_bytes))
    job = world.log.compaction_job(world.now_ms)
    assert job is not None
    job.run()
    note_cleaned_end(world.log, world.log.high_watermark)
    world.fs.power_loss_at = world.fs.operations + world.rng.randrange(4, 22)
    try:
        job.finish()
    except PowerLoss:
        world.fs.power_loss_at = None
    world.lose_power()


def truncation(seed: int, site: SyncSite | None, *, maps_files: bool = False) -> None:
    """Appends behind a truncation, below the recovery point of the last checkpoint."""
    world = World(random.Random(seed), forgotten_site=site, maps_files=maps_files)
    for _ in range(6):
        for _ in range(5):
            world.append(size=SECTOR_VALUE_BYTES)
        world.flush()
        world.checkpoint()
        world.truncate()
        for _ in range(3):
            world.append(size=SECTOR_VALUE_BYTES)
        if world.rng.random() < 0.3:
            world.truncate()
            world.append(size=SECTOR_VALUE_BYTES)
        world.lose_power()


def truncation_of_mapped(seed: int, site: SyncSite | None) -> None:
    """The same where each cut segment is replaced by a copy."""
    truncation(seed, site, maps_files=True)


def torn_tail(seed: int, site: SyncSite | None) -> None:
    """Appends behind a tail that recovery cut; what was cut must not come back behind them."""
    world = World(random.Random(seed), forgotten_site=site)
    for _ in range(12):
        for _ in range(world.rng.randrange(2, 14)):
            world.append(size=SECTOR_VALUE_BYTES)
        world.lose_power()
        world.append(size=SECTOR_VALUE_BYTES)
        world.lose_power()


def failed_append(seed: int, site: SyncSite | None) -> None:
    """Appends behind the remains of a write that failed; the remains must not come back."""
    world = World(random.Random(seed), forgotten_site=site)
    world.append(size=SECTOR_VALUE_BYTES)
    batches = bytearray()
    for _ in range(4):
        batches += build_batch([NewRecord(1, b"k0", bytes(SECTOR_VALUE_BYTES))])
    world.fs.faults.append(Fault("write", ".log", errno.ENOSPC, partial_bytes=4 * 510))
    try:
        world.log.append_as_leader(batches, 0, len(batches), leader_epoch=0, now_ms=1)
    except LogDirFailure:
        world.kill()
    else:
        raise AssertionError("the full disk was not noticed")
    world.append(size=SECTOR_VALUE_BYTES)
    world.lose_power()


def deletion(seed: int, site: SyncSite | None) -> None:
    """A deleted partition stays deleted."""
    world = World(random.Random(seed), forgotten_site=site)
    topic_id = UUID(int=99)
    for partition in (0, 1):
        world.manager.create(topic_id, "gone", partition).flush()
    world.manager.delete(topic_id, 0, world.now_ms)
    for job in world.manager.tick(world.now_ms):
        job.run()
        job.finish()
    world.lose_power()
    assert (topic_id, 0) not in world.manager.partition_ids(), "a deleted partition is back"
    assert (topic_id, 1) in world.manager.partition_ids()


def snapshots(seed: int, site: SyncSite | None) -> None:
    """Producers whose batches are gone, known only by a snapshot of a segment never flushed."""
    world = World(random.Random(seed), forgotten_site=site)
    for _ in range(4):
        for producer_id in range(3):
            world.append(size=300, producer_id=producer_id)
        world.roll()
        world.append(size=SECTOR_VALUE_BYTES)
        target = world.log.log_end_offset - 1
        world.model.log_start = target
        world.log.delete_records(target)
        world.log.apply_retention(world.now_ms)
        world.fs.power_loss_at = world.fs.operations + world.rng.randrange(14)
        try:
            world.flush()
        except PowerLoss:
            world.lose_power()
        world.fs.power_loss_at = None
    world.lose_power()


def segments(seed: int, site: SyncSite | None) -> None:
    """Whole segments behind a cut or a truncation; they must not come back when the log has grown
    up to them again."""
    world = World(random.Random(seed), forgotten_site=site)
    for _ in range(4):
        for _ in range(20):
            world.append(size=SECTOR_VALUE_BYTES)
        if world.rng.random() < 0.5:
            world.flush()
        if world.rng.random() < 0.5:
            world.lose_power()
        else:
            world.truncate()
        for _ in range(world.rng.randrange(1, 9)):
            world.append(size=SECTOR_VALUE_BYTES)
        world.lose_power()


def gaps(seed: int, site: SyncSite | None) -> None:
    """A follower of a leader whose log has wide gaps of offsets, and power loss: what is left is
    where the log ended once, and nothing is missing in between."""
    one = OneLog(segment_bytes=2000)
    one.fs.forgotten_site = site
    rng = random.Random(seed)
    offsets: list[int] = []
    for _ in range(6):
        for _ in range(rng.randrange(1, 9)):
            step = 0 if rng.random() < 0.6 else rng.randrange(INT32_MAX - 2, INT32_MAX + 3)
            offset = one.log.log_end_offset + step
            batch = build_batch([NewRecord(1, b"k0", bytes(SECTOR_VALUE_BYTES))])
            batch[0:8] = offset.to_bytes(8, "big")
            one.log.append_as_follower(batch, 0, len(batch), now_ms=one.now_ms)
            offsets.append(offset)
        durable = 0
        if rng.random() < 0.4:
            one.log.flush()
            durable = len(offsets)
        one.lose_power(rng)
        one.log.advance_high_watermark(one.log.log_end_offset)
        found = one.offsets()
        assert len(found) >= durable, "a durable record is lost"
        assert found == offsets[: len(found)], "records are missing in between"
        offsets = found


def cleaned_end(seed: int, site: SyncSite | None) -> None:
    """A follower of a leader that has compacted its log, and power loss: where something is
    missing, it is known up to where the leader had been."""
    one = OneLog(cleanup_policy=frozenset({"compact"}))
    one.fs.forgotten_site = site
    rng = random.Random(seed)
    batch = batch_of(bytes(SECTOR_VALUE_BYTES), keys=[b"k"])
    one.log.append_as_follower(batch, 0, len(batch), now_ms=one.now_ms)
    one.log.flush()
    batch[0:8] = (7).to_bytes(8, "big")
    one.log.append_as_follower(batch, 0, len(batch), leader_high_watermark=9, now_ms=one.now_ms)
    if rng.random() < 0.3:
        one.log.flush()
    one.lose_power(rng)
    if one.log.log_end_offset > 1:
        assert one.log.cleaned_end == 9, "nobody knows that something is missing"


def append_times(seed: int, site: SyncSite | None) -> None:
    """Records without timestamps are as old as their append, also after power loss: neither older,
    nor for ever young."""
    one = OneLog(retention_ms=1000)
    one.fs.forgotten_site = site
    batch = batch_of(bytes(SECTOR_VALUE_BYTES), timestamps=[-1])
    for _ in range(3):
        one.append(bytearray(batch))
    one.log.roll()
    one.checkpoint()
    one.lose_power(random.Random(seed))
    one.log.advance_high_watermark(one.log.log_end_offset)
    assert one.log.apply_retention(one.now_ms + 1000) == 0, "records are dropped too early"
    assert one.log.apply_retention(one.now_ms + 1001) == 1, "nobody knows how old records are"


def damage(seed: int, site: SyncSite | None) -> None:
    """A log that is known to be damaged still is after power loss."""
    world = World(random.Random(seed), forgotten_site=site)
    for _ in range(3):
        world.append()
    world.flush()
    for offset in (2, 1, NOT_DAMAGED, 0):
        note_damage(world.log, offset)
        world.lose_power()
        assert world.log.damaged_from == offset


def fold_files(seed: int, site: SyncSite | None) -> None:
    """A file that a fold keeps beside its snapshots, which only name it."""
    fs = SimFileSystem()
    fs.make_directory("/log")
    fs.sync_directory("/", SyncSite.DATA_FOLDER)
    fs.forgotten_site = site
    run = write_run(fs, "/log", ((due_ms, due_ms) for due_ms in range(600)))
    fs.power_loss(random.Random(seed))
    assert run is not None
    try:
        open_run(fs, "/log", run.digest)
    except ValueError as error:
        raise AssertionError("the snapshot names what is not there") from error


ALL_SCENARIOS: list[Scenario] = [
    fold_files,
    anything,
    compaction,
    stop,
    swap,
    two_swaps,
    truncation,
    truncation_of_mapped,
    torn_tail,
    failed_append,
    deletion,
    snapshots,
    segments,
    gaps,
    cleaned_end,
    append_times,
    damage,
]

# Where a site's loss shows soonest; all others show in the random workload.
SCENARIO_OF: dict[SyncSite, Scenario] = {
    SyncSite.LEADER_EPOCHS: compaction,
    SyncSite.STOP_CONTENT: stop,
    SyncSite.TRUNCATION: truncation,
    SyncSite.TRUNCATION_FOLDER: truncation,
    SyncSite.TRUNCATED_DATA: truncation,
    SyncSite.COPIED_DATA: truncation_of_mapped,
    SyncSite.TRUNCATED_FOLDER: segments,
    SyncSite.RECOVERY_CUT: torn_tail,
    SyncSite.RECOVERY_FOLDER: segments,
    SyncSite.FAILED_APPEND_CUT: failed_append,
    SyncSite.SNAPSHOT_NAMES: snapshots,
    SyncSite.DELETED_FOLDER: deletion,
    SyncSite.COMPACTED_DATA: compaction,
    SyncSite.COMPACTED_INDEX: swap,
    SyncSite.COMPACTED_INDEX_NAMES: swap,
    SyncSite.COMPACTED_NAMES: swap,
    SyncSite.COMPACTED_SWAP: two_swaps,
    SyncSite.CLEANED_END: cleaned_end,
    SyncSite.CLEANED_END_FOLDER: cleaned_end,
    SyncSite.GAPS: gaps,
    SyncSite.APPEND_TIME: append_times,
    SyncSite.DAMAGE: damage,
    SyncSite.DAMAGE_FOLDER: damage,
    SyncSite.FOLD_FILE: fold_files,
    SyncSite.FOLD_FILE_NAME: fold_files,
}

# Where a history is rare, seeds that have led to it; others are tried after them.
SEEDS_OF: dict[SyncSite, list[int]] = {
    SyncSite.OFFSET_INDEX: [249, 277],
    SyncSite.LOG_START_FOLDER: [88, 139],
    SyncSite.RECOVERY_FOLDER: [47, 50],
    SyncSite.FAILED_APPEND_CUT: [66, 93],
    SyncSite.STOP_NAMES: [61, 65],
}
