"""Bytes that change on a disk: the copy is found, given up and filled again under load.

A byte of a sealed segment is flipped, of a follower and of a leader, while the broker is stopped,
killed and running. Nobody is stopped by it, nothing is lost or doubled, and in the end all copies
are the same, byte for byte.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.cell import Cell
from tests.faults.load import Load

TOPIC = "orders"
OFFSETS_TOPIC = "__consumer_offsets"
PARTITIONS = 3
# Segments are sealed each second, and looked at as often.
SETTINGS = {
    "log.roll.ms": "1000",
    "log.scrub.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "600000",
    "offsets.topic.num.partitions": "1",
}
SEALED_MIN = 3
FRAME = struct.Struct(">qi")
# Behind a batch's header, where its records are.
RECORDS_AT = 61
FINISHED = "replica_repair_finished"


def folder_of(data: Path, topic: str, partition: int) -> Path:
    for identity in data.glob(f"topics/*/Partition-{partition}/partition.json"):
        if json.loads(identity.read_text())["topic"] == topic:
            return identity.parent
    raise AssertionError(f"{data} has no copy of {topic}-{partition}")


def sealed(data: Path, topic: str, partition: int) -> list[Path]:
    """Segments with records, without the last one."""
    files = sorted(folder_of(data, topic, partition).glob("*.log"))
    return [file for file in files[:-1] if file.stat().st_size]


def flip(segment: Path) -> None:
    """One bit of the records of a segment's last batch."""
    content = segment.read_bytes()
    position = 0
    while True:
        _, length = FRAME.unpack_from(content, position)
        if position + FRAME.size + length >= len(content):
            break
        position += FRAME.size + length
    with segment.open("r+b") as file:
        byte = position + RECORDS_AT + 4
        os.pwrite(file.fileno(), bytes([content[byte] ^ 0x10]), byte)


def repairs(cell: Cell, broker: int, topic: str = TOPIC) -> int:
    """How many of this topic's copies that broker has repaired."""
    return sum(FINISHED in line and f'"{topic}"' in line for line in cell.log_lines(broker))


def expect_repair(cell: Cell, broker: int, damage: Callable[[], None], topic: str = TOPIC) -> None:
    before = repairs(cell, broker, topic)
    damage()
    cell.wait_for(lambda: repairs(cell, broker, topic) > before, f"{broker} repairs its {topic}")
    cell.wait_until_in_sync(topic)


def wait_until_sealed(cell: Cell, broker: int, topic: str = TOPIC) -> None:
    cell.wait_for(
        lambda: len(sealed(cell.data(broker), topic, 0)) >= SEALED_MIN,
        f"{broker} has sealed {SEALED_MIN} segments of {topic}",
    )


def flip_one(cell: Cell, broker: int, topic: str = TOPIC) -> None:
    flip(sealed(cell.data(broker), topic, 0)[1])


def whole_log(cell: Cell, broker: int, partition: int) -> bytes:
    files = sorted(folder_of(cell.data(broker), TOPIC, partition).glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.timeout(300)
def test_damaged_copies_are_filled_again_under_load(tmp_path: Path) -> None:
    with Cell(tmp_path, settings=SETTINGS) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            cell.wait_until_in_sync(TOPIC)
            leader = cell.leaders(TOPIC)[0]
            follower = next(i for i in cell.ids if i != leader)
            for broker in (leader, follower):
                wait_until_sealed(cell, broker)

            expect_repair(cell, follower, lambda: flip_one(cell, follower))
            load.run_until_every_partition_moves()

            def stopped() -> None:
                cell.stop(follower)
                flip_one(cell, follower)
                cell.start(follower)

            expect_repair(cell, follower, stopped)
            load.run_until_every_partition_moves()

            leader = cell.leaders(TOPIC)[0]
            wait_until_sealed(cell, leader)
            expect_repair(cell, leader, lambda: flip_one(cell, leader))
            assert cell.leaders(TOPIC)[0] != leader
            load.run_until_every_partition_moves()

            leader = cell.leaders(TOPIC)[0]
            wait_until_sealed(cell, leader)

            def killed() -> None:
                cell.kill9(leader)
                flip_one(cell, leader)
                cell.start(leader)

            expect_repair(cell, leader, killed)
            load.run_until_every_partition_moves()
        load.check()
        cell.wait_until_in_sync(TOPIC)
    for partition in range(PARTITIONS):
        copies = {whole_log(cell, broker, partition) for broker in cell.ids}
        assert len(copies) == 1, f"copies of {TOPIC}-{partition} differ"


@pytest.mark.timeout(300)
def test_a_damaged_log_of_groups_moves(tmp_path: Path) -> None:
    """The coordinator of all groups has a damaged log: another one takes over, and knows all that
    was committed."""
    with Cell(tmp_path, settings=SETTINGS) as cell:
        cell.create_topic(TOPIC, PARTITIONS)
        with Load(cell.bootstrap, TOPIC, PARTITIONS) as load:
            cell.wait_until_in_sync(TOPIC)
            load.run_until_every_partition_moves()
            coordinator = cell.leaders(OFFSETS_TOPIC)[0]
            wait_until_sealed(cell, coordinator, OFFSETS_TOPIC)
            expect_repair(
                cell, coordinator, lambda: flip_one(cell, coordinator, OFFSETS_TOPIC), OFFSETS_TOPIC
            )
            assert cell.leaders(OFFSETS_TOPIC)[0] != coordinator
            load.run_until_every_partition_moves()
        load.check()
