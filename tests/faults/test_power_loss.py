"""All machines lose power at once, and one disk the end of its logs.

Processes cannot lose power. What a start finds afterwards can be made all the same: nothing that
vouches for the logs (a checkpoint of this boot does), and of the leader's log only the first half.
That broker is the first to be back. Alone it must not lead, for two others have what it lost.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from data_plane.log.directory_checkpoint import CLEAN_MARK_FILE
from data_plane.log.log_directory import CHECKPOINT_FILE
from tests.faults.cell import Cell
from tests.faults.load import Load
from tests.faults.test_damage import folder_of

TOPIC = "orders"
PARTITIONS = 3
# Longer than the first one to be back would need to be elected.
ALONE_S = 4.0


def forget_boot(data: Path) -> None:
    """The machine has been off: whatever is in the logs, nothing says that it is all."""
    for name in (CLEAN_MARK_FILE, CHECKPOINT_FILE):
        (data / name).unlink(missing_ok=True)


def lose_tail(data: Path, partition: int) -> None:
    """The second half of the log's last segment never got to the disk."""
    segment = sorted(folder_of(data, TOPIC, partition).glob("*.log"))[-1]
    assert segment.stat().st_size > 0
    os.truncate(segment, segment.stat().st_size // 2)


@pytest.mark.timeout(240)
def test_one_disk_that_lost_its_tail_costs_nothing(tmp_path: Path) -> None:
    with Cell(tmp_path) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
            first = cell.leaders(TOPIC)[0]
            others = [one for one in cell.ids if one != first]
            cell.kill9(*cell.ids)
            for broker in cell.ids:
                forget_boot(cell.data(broker))
            for partition in range(PARTITIONS):
                lose_tail(cell.data(first), partition)
            cell.start(first)
            time.sleep(ALONE_S)
            assert set(cell.leaders(TOPIC).values()) == {-1}
            for broker in others:
                cell.start(broker)
            cell.wait_for(
                lambda: set(cell.leaders(TOPIC).values()) <= set(others), "leaders with whole logs"
            )
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
        load.check()
