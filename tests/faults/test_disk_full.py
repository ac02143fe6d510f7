"""A broker's disk is full: it goes offline, its leaders move, and the rest goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults import disks
from tests.faults.cell import Cell
from tests.faults.conftest import NoteInterruption
from tests.faults.load import Load

TOPIC = "orders"
PARTITIONS = 6
DISK_MEBIBYTES = 48
# Small files: the disk is small, and a full disk is met by every kind of write.
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "3",
}


@pytest.mark.skipif(bool(disks.why_unavailable()), reason=disks.why_unavailable() or "available")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_disk_is_full(tmp_path: Path, note_interruption: NoteInterruption) -> None:
    victim = 2
    place = tmp_path / "small"
    with (
        disks.small_disk(place, DISK_MEBIBYTES),
        Cell(tmp_path, settings=SETTINGS, data={victim: place / "data"}) as cell,
    ):
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
            full_at = time.monotonic()
            filler = disks.fill(place)
            cell.wait_for(
                lambda: victim not in cell.leaders(TOPIC).values() and bool(cell.leaders(TOPIC)),
                "leaders move away from the full disk",
            )
            load.run_until_every_partition_moves()
            waits = load.interruptions(full_at, time.monotonic())
            note_interruption("disk full", waits.values())
            filler.unlink()
            if cell.processes[victim].poll() is None:
                cell.kill9(victim)
            else:
                cell.processes.pop(victim)
            cell.start(victim)
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
        load.check()
