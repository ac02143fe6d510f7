"""Whether a coordinator's memory is what its log says: what the next one would find.

Looked at where nothing is under way: all appends have settled, and all of the log is committed.
Then the committed offsets are those of the log, and a group that is stable has the generation, the
members and the shares that stand there. So has an empty one, unless that could not be written.

`LoadedOffsetsTopic` looks at what a coordinator begins to load: it is committed. What lies above
the high watermark may still be lost, with offsets of which members were told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.broker.coordinators.groups import service_of
from data_plane.broker.coordinators.internal_topic import (
    BrokerInternalTopic,
    PartitionReader,
    records_of,
)
from data_plane.broker.coordinators.offsets_topic import OFFSETS_TOPIC as OFFSETS_TOPIC_SETTINGS
from data_plane.groups.group import ClassicGroup
from data_plane.groups.group_state import GroupState
from data_plane.groups.loading import Folded, fold_records
from data_plane.groups.record_formats import GroupRecord
from data_plane.log.errors import LogError
from tests.simulation.admin import OFFSETS_TOPIC

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node


class LoadedOffsetsTopic(BrokerInternalTopic):
    """The real one; see the module."""

    def __init__(self, node: Node, services: Services) -> None:
        super().__init__(services, OFFSETS_TOPIC_SETTINGS)
        self._node = node

    def reader(self, partition: int) -> PartitionReader | None:
        found = super().reader(partition)
        replica = self._services.partitions.get_by_name("default", OFFSETS_TOPIC, partition)
        if replica is not None and replica.high_watermark < replica.log.log_end_offset:
            self._node.cell.suspect(
                f"{self._node.name} loads {OFFSETS_TOPIC}-{partition} up to "
                f"{replica.log.log_end_offset}, committed is {replica.high_watermark}"
            )
        return found


def check_groups(cell: Cell) -> None:
    """All partitions of the offsets topic, at the brokers that the store has as their leaders."""
    topic = cell.store.image.topics_of("default").get(OFFSETS_TOPIC)
    for index, state in () if topic is None else enumerate(topic.partitions):
        node = cell.nodes.get(state.leader)
        if node is not None and node.is_up and not node.is_paused:
            _check_partition(cell, node, index, state.leader_epoch)


def _check_partition(cell: Cell, node: Node, index: int, epoch: int) -> None:
    services = node.services
    assert services is not None
    replica = services.partitions.get_by_name("default", OFFSETS_TOPIC, index)
    if replica is None or replica.leader_epoch != epoch or cell.has_failed_disk(node):
        return
    service = service_of(services)
    coordinator = service.coordinator
    if not coordinator.is_loaded(index) or coordinator.append_count():
        return
    if replica.log.high_watermark < replica.log.log_end_offset:
        return
    try:
        reader = service.topic.reader(index)
        tenants = {} if reader is None else fold_records(records_of(reader()))[0]
    except LogError:
        return  # Damaged; history.py knows.
    cell.world.count("coordinators compared with their logs")
    folded = tenants.get("default", Folded())
    expected = folded.offsets.snapshot()
    actual = {
        key: value
        for key, value in coordinator.committed_offsets("default").items()
        if coordinator.partition_of("default", key.group_id) == index
    }
    if actual != expected:
        differing = [
            (key, actual.get(key), expected.get(key))
            for key in {**actual, **expected}
            if actual.get(key) != expected.get(key)
        ]
        cell.world.violate(
            f"{node.name} has other offsets of {OFFSETS_TOPIC}-{index} than its log: "
            f"{differing[:4]}"
        )
    records = dict(folded.groups)
    for group in coordinator.groups():
        if coordinator.partition_of("default", group.group_id) == index:
            record = records.get(group.group_id)
            if record is not None:
                _check_group(cell, node, group, record)


def _check_group(cell: Cell, node: Node, group: ClassicGroup, record: GroupRecord) -> None:
    if group.state not in (GroupState.STABLE, GroupState.EMPTY):
        return
    if group.state is GroupState.EMPTY and record.generation_id < group.generation_id:
        return  # That could not be written. The next one lets the sessions of its members end.
    # A static member's new id may be in the log although the append was late, and its process told
    # so: static_members.py judges who is fenced.
    known = {one.group_instance_id or one.member_id: one.assignment for one in record.members}
    actual = {
        one.group_instance_id or one.member_id: one.assignment for one in group.members.values()
    }
    if (group.generation_id, actual) != (record.generation_id, known):
        cell.world.violate(
            f"{node.name} has {group.group_id} in generation {group.generation_id} with {actual}; "
            f"its log has {record.generation_id} with {known}"
        )
