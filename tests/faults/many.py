"""2,000 partitions with three replicas each, in twenty topics."""

from __future__ import annotations

import contextlib

from confluent_kafka.cimpl import NewTopic

from stack.errors import StackError
from stack.reassign import elect_preferred
from tests.faults.cell import Cell

TOPICS, PARTITIONS = 20, 100
NAMES = [f"many-{number}" for number in range(TOPICS)]


def create_topics(cell: Cell) -> None:
    admin = cell.admin()
    for name in NAMES:
        topic = NewTopic(name, PARTITIONS, 3)
        made = admin.create_topics([topic], operation_timeout=30, request_timeout=60)
        made[name].result(90)
    total = TOPICS * PARTITIONS
    cell.wait_for(lambda: sum(leader_counts(cell).values()) >= total, "all are there", 60)


def partitions_led(cell: Cell) -> dict[int, list[tuple[str, int]]]:
    """Leader → its partitions in all topics, as some broker tells it; {} when none does."""
    found: dict[int, list[tuple[str, int]]] = {}
    for name, topic in cell.admin().list_topics(timeout=10).topics.items():
        for partition in topic.partitions.values():
            found.setdefault(partition.leader, []).append((name, partition.id))
    return found


def leader_counts(cell: Cell) -> dict[int, int]:
    """Leader → how many partitions."""
    return {leader: len(partitions) for leader, partitions in partitions_led(cell).items()}


def spread_leaders(cell: Cell) -> None:
    """Have every broker lead its share."""

    def is_spread() -> bool:
        with contextlib.suppress(StackError):  # There may be no controller just now.
            elect_preferred(cell.bootstrap)
        counts = leader_counts(cell)
        return len(counts) == 3 and min(counts.values()) > TOPICS * PARTITIONS / 4

    cell.wait_for(is_spread, "the preferred leaders lead", 60)
