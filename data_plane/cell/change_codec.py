"""Changes as JSON-ready lists, for journals and feeds: the kind first, then the fields in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, assert_never
from uuid import UUID

from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Assignment,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    UnregisterBroker,
)
from data_plane.cell.metadata import BrokerImage, decode_partition, encode_partition


def encode_change(change: Change) -> list[Any]:
    """A JSON-ready form, used by journals and feeds."""
    match change:
        case CreateTopic():
            return [
                "create_topic",
                change.name,
                change.topic_id.hex,
                _encode_assignments(change.assignments),
                [list(pair) for pair in change.configs],
            ]
        case DeleteTopic():
            return ["delete_topic", change.topic_id.hex]
        case AddPartitions():
            assignments = _encode_assignments(change.assignments)
            return ["add_partitions", change.topic_id.hex, assignments]
        case AlterConfigs():
            values = [list(pair) for pair in change.values]
            return ["alter_configs", int(change.resource_type), change.resource_name, values]
        case RegisterBroker():
            return ["register_broker", *astuple(change.broker)]
        case ChangeBroker():
            return ["change_broker", *astuple(change.broker)]
        case UnregisterBroker():
            return ["unregister_broker", change.node_id, change.broker_epoch]
        case ChangePartition():
            partition = encode_partition(change.partition)
            return ["change_partition", change.topic_id.hex, change.index, partition]
        case AllocateProducerIds():
            return ["allocate_producer_ids", change.first_producer_id, change.count]
        case _:
            assert_never(change)


def decode_change(item: Sequence[Any]) -> Change:
    """The inverse of `encode_change`. Raises ValueError for a kind that it does not know."""
    kind, *fields = item
    match kind:
        case "create_topic":
            name, topic_id, assignments, configs = fields
            pairs = tuple((key, value) for key, value in configs)
            return CreateTopic(name, UUID(topic_id), _decode_assignments(assignments), pairs)
        case "delete_topic":
            return DeleteTopic(UUID(fields[0]))
        case "add_partitions":
            return AddPartitions(UUID(fields[0]), _decode_assignments(fields[1]))
        case "alter_configs":
            resource_type, name, values = fields
            return AlterConfigs(resource_type, name, tuple((key, value) for key, value in values))
        case "register_broker":
            return RegisterBroker(BrokerImage(*fields))
        case "change_broker":
            return ChangeBroker(BrokerImage(*fields))
        case "unregister_broker":
            return UnregisterBroker(*fields)
        case "change_partition":
            topic_hex, index, partition = fields
            return ChangePartition(UUID(topic_hex), index, decode_partition(partition))
        case "allocate_producer_ids":
            return AllocateProducerIds(fields[0], fields[1])
        case _:
            raise ValueError(f"a change of unknown kind {kind!r}: written by a newer version?")


def _encode_assignments(assignments: Sequence[Assignment]) -> list[list[Any]]:
    """Runs of equal assignments as [count, replicas]: most partitions share theirs."""
    runs: list[list[Any]] = []
    for replicas in assignments:
        if runs and runs[-1][1] == list(replicas):
            runs[-1][0] += 1
        else:
            runs.append([1, list(replicas)])
    return runs


def _decode_assignments(runs: Sequence[Sequence[Any]]) -> tuple[Assignment, ...]:
    assignments: list[Assignment] = []
    for count, replicas in runs:
        assignments.extend([tuple(replicas)] * count)
    return tuple(assignments)
